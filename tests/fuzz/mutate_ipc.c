/* SPDX-License-Identifier: MIT */
/*
 * Conversations about shared memory are changed as steps (ipc_steps.h): one is copied, moved or
 * taken out, a field of it changed, or a whole course of what does happen is put between them.
 */
#include "fuzz.h"

#include <string.h>

#include "hooks/export/wire.h"
#include "ipc_steps.h"

#define STEPS_MAX 256u

typedef fuzz_ipc_step step;

typedef struct script {
    step steps[STEPS_MAX];
    uint32_t count;
    uint32_t random;
} script;

static uint32_t pick(script *s, uint32_t below)
{
    return fuzz_pick(&s->random, below);
}

static void put_in(script *s, uint32_t at, const step *steps, uint32_t count)
{
    if (s->count + count > STEPS_MAX)
        return;
    memmove(&s->steps[at + count], &s->steps[at], (s->count - at) * sizeof *steps);
    memcpy(&s->steps[at], steps, count * sizeof *steps);
    s->count += count;
}

static void take_out(script *s, uint32_t at)
{
    memmove(&s->steps[at], &s->steps[at + 1], (s->count - at - 1) * sizeof *s->steps);
    s->count--;
}

/* ---- Changes ---- */

/* A whole course, or as much of it as was got to. */
static void add_course(script *s)
{
    enum { EXPORTS, PAUSES, BUSY, SILENT, IMPORTS, SUSPENDS, IN_PARTS, COURSES };
#define VERB(name) .verb = FUZZ_IPC_##name
    static const step courses[COURSES][12] = {
        [EXPORTS] = {{VERB(ALLOC), .value = 20},
                     {VERB(EXPORT)},
                     {VERB(CONNECT)},
                     {VERB(ASK)},
                     {VERB(ANSWER)}},
        [PAUSES] = {{VERB(PAUSE)},
                    {VERB(ANSWER)},
                    {VERB(ANSWER)},
                    {VERB(HANG_UP)},
                    {VERB(RESUME)},
                    {VERB(EXPORT)},
                    {VERB(CONNECT)},
                    {VERB(ASK)}},
        [BUSY] = {{VERB(PAUSE)}, {VERB(ANSWER), .status = 3}, {VERB(ANSWER)}, {VERB(ASK)}},
        [SILENT] = {{VERB(PAUSE)}, {VERB(HANG_UP)}},
        [IMPORTS] = {{VERB(IMPORT)}, {VERB(HEAR)}, {VERB(GRANT)}, {VERB(IMPORT)}, {VERB(RELEASE)}},
        [SUSPENDS] = {{VERB(TELL), .kind = RVLI_IPC_SUSPEND},
                      {VERB(HEAR)},
                      {VERB(TELL), .kind = RVLI_IPC_RESTORE},
                      {VERB(HEAR)},
                      {VERB(TELL), .kind = RVLI_IPC_SUSPEND},
                      {VERB(HEAR)},
                      {VERB(TELL), .kind = RVLI_IPC_DROP},
                      {VERB(RELEASE)}},
        [IN_PARTS] = {{VERB(IMPORT)},
                      {VERB(GRANT), .value = 30},
                      {VERB(GRANT), .value = 30, .fds = 10},
                      {VERB(GRANT), .value = 30},
                      {VERB(TELL), .kind = RVLI_IPC_SUSPEND},
                      {VERB(END)},
                      {VERB(RELEASE)}},
    };
#undef VERB
    static const uint8_t lengths[COURSES] = {5, 8, 4, 2, 5, 8, 7};
    step made[12];
    uint32_t which = pick(s, COURSES);
    uint32_t length = pick(s, 4) > 0 ? lengths[which] : 1 + pick(s, lengths[which]);
    uint8_t who = (uint8_t)pick(s, FUZZ_IPC_WHO),
            target = pick(s, 4) > 0 ? who : (uint8_t)(who + 1);
    memcpy(made, courses[which], sizeof made);
    for (uint32_t i = 0; i < length; i++) {
        made[i].who = who;
        if (made[i].verb == FUZZ_IPC_ASK)
            made[i].value = target;
    }
    put_in(s, pick(s, 2) == 0 ? s->count : pick(s, s->count + 1), made, length);
}

static void change_step(script *s)
{
    step *at = &s->steps[pick(s, s->count)];
    switch (pick(s, 8)) {
    case 0:
        at->verb = (uint8_t)pick(s, FUZZ_IPC_VERBS);
        break;
    case 1:
        at->who = (uint8_t)pick(s, FUZZ_IPC_WHO);
        break;
    case 2:
        at->kind = (uint8_t)pick(s, 9);
        break;
    case 3:
        at->change = (uint8_t)pick(s, FUZZ_IPC_CHANGES);
        at->value = (uint8_t)pick(s, 8);
        break;
    case 4:
        at->value = (uint8_t)pick(s, pick(s, 4) == 0 ? 256 : 42);
        break;
    case 5:
        at->status = (uint8_t)pick(s, 16);
        break;
    case 6:
        at->fds = (uint8_t)(pick(s, 18) | (pick(s, 8) == 0 ? FUZZ_IPC_NO_BLOCK : 0));
        break;
    default:
        at->change = FUZZ_IPC_AS_IT_IS;
    }
}

static void change_order(script *s)
{
    uint32_t from = pick(s, s->count), to = pick(s, s->count);
    step moved = s->steps[from];
    switch (pick(s, 4)) {
    case 0:
        put_in(s, to, &moved, 1);
        break;
    case 1:
        s->steps[from] = s->steps[to];
        s->steps[to] = moved;
        break;
    case 2:
        take_out(s, from);
        put_in(s, pick(s, s->count + 1), &moved, 1);
        break;
    default:
        take_out(s, from);
    }
}

static void add_step(script *s)
{
    step made = {.verb = (uint8_t)pick(s, FUZZ_IPC_VERBS),
                 .who = (uint8_t)pick(s, FUZZ_IPC_WHO),
                 .kind = (uint8_t)pick(s, 9),
                 .value = (uint8_t)pick(s, 40)};
    if (pick(s, 4) == 0)
        made.change = (uint8_t)pick(s, FUZZ_IPC_CHANGES);
    put_in(s, pick(s, s->count + 1), &made, 1);
}

/* ---- What libFuzzer calls ---- */

static script current;

static script *begin(const uint8_t *data, size_t size, unsigned seed)
{
    current.random = seed;
    current.count = (uint32_t)(size / sizeof(step) < STEPS_MAX ? size / sizeof(step) : STEPS_MAX);
    memcpy(current.steps, data, current.count * sizeof(step));
    return &current;
}

static size_t write_script(const script *s, uint8_t *data, size_t size_max)
{
    uint32_t room =
        (uint32_t)(size_max / sizeof(step) < STEPS_MAX ? size_max / sizeof(step) : STEPS_MAX);
    uint32_t count = s->count < room ? s->count : room;
    memcpy(data, s->steps, count * sizeof(step));
    return count * sizeof(step);
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t size_max, unsigned seed)
{
    static void (*const changes[])(script *) = {add_course,  add_course,   change_step, change_step,
                                                change_step, change_order, add_step};
    script *s = begin(data, size, seed);
    if (s->count == 0 || size % sizeof(step) != 0 || pick(s, 32) == 0)
        return LLVMFuzzerMutate(data, size, size_max);
    for (uint32_t times = 1 + pick(s, 4); times > 0; times--)
        changes[s->count > 0 ? pick(s, sizeof changes / sizeof changes[0]) : 0](s);
    return write_script(s, data, size_max);
}

/* The beginning of the first one, and the end of the second one. */
size_t LLVMFuzzerCustomCrossOver(const uint8_t *first, size_t first_size, const uint8_t *second,
                                 size_t second_size, uint8_t *out, size_t out_max, unsigned seed)
{
    static step rest[STEPS_MAX];
    script *s = begin(second, second_size, seed);
    uint32_t from = pick(s, s->count + 1), count = s->count - from;
    memcpy(rest, &s->steps[from], count * sizeof(step));
    uint32_t random = s->random;
    s = begin(first, first_size, random);
    s->count = pick(s, s->count + 1);
    put_in(s, s->count, rest, s->count + count <= STEPS_MAX ? count : STEPS_MAX - s->count);
    return write_script(s, out, out_max);
}
