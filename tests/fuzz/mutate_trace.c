/* SPDX-License-Identifier: MIT */
/*
 * Traces are changed as lines of words, and then made whole again.
 *
 * A changed byte of a trace mostly ends it: a time falls, an id is used twice, the count at the end
 * is wrong. Here lines are changed, copied, moved, made up or taken from another trace. What must
 * hold from line to line is mended when they are written: times rise, ids rise and frees name what
 * is live, pauses name tags that have memory, processes and devices are declared, the end counts
 * right. Now and then something is left as it is, so that the reader's refusals run as well.
 */
#include "fuzz.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define LINES_MAX 1024u
#define WORDS_MAX 12u
#define MADE_BYTES 32768u
#define INPUT_BYTES 65536u
#define LIVE_MAX 512u
#define PROCESSES_MAX 16u
#define DEVICES_MAX 64u
#define TAGS_MAX 64u

typedef struct word {
    const char *at;
    uint32_t length;
} word;

typedef struct line {
    word words[WORDS_MAX];
    uint32_t count;
} line;

typedef struct trace {
    line lines[LINES_MAX];
    uint32_t count;
    char made[MADE_BYTES]; /* words that the input does not have */
    uint32_t made_bytes;
    uint32_t random;
} trace;

static uint32_t pick(trace *t, uint32_t below)
{
    return fuzz_pick(&t->random, below);
}

/* ---- Words ---- */

static word text_word(const char *text)
{
    return (word){text, (uint32_t)strlen(text)};
}

static word make_word(trace *t, const char *text)
{
    uint32_t length = (uint32_t)strlen(text);
    if (t->made_bytes + length > MADE_BYTES)
        return text_word("1");
    char *to = t->made + t->made_bytes;
    memcpy(to, text, length);
    t->made_bytes += length;
    return (word){to, length};
}

static word number_word(trace *t, uint64_t number)
{
    char text[24];
    snprintf(text, sizeof text, "%" PRIu64, number);
    return make_word(t, text);
}

static bool is(word w, const char *text)
{
    return w.length == strlen(text) && memcmp(w.at, text, w.length) == 0;
}

static bool same(word a, word b)
{
    return a.length == b.length && memcmp(a.at, b.at, a.length) == 0;
}

static bool is_number(word w)
{
    for (uint32_t i = 0; i < w.length; i++)
        if (w.at[i] < '0' || w.at[i] > '9')
            return false;
    return w.length > 0 && w.length < 20;
}

static uint64_t number_in(word w)
{
    uint64_t number = 0;
    for (uint32_t i = 0; i < w.length && is_number(w); i++)
        number = number * 10 + (uint64_t)(w.at[i] - '0');
    return number;
}

/* ---- Lines ---- */

/* Where a kind of event has which sort of word; 0: nowhere. Words 1 to 3 are of all of them. */
typedef struct kind {
    const char *name;
    uint32_t count; /* words that it needs */
    uint32_t id, device, bytes, label;
} kind;

static const kind kinds[] = {
    {"alloc", 8, 4, 5, 6, 7},    {"free", 5, 4, 0, 0, 0},   {"pause", 5, 0, 0, 0, 4},
    {"resume", 5, 0, 0, 0, 4},   {"stage", 5, 0, 0, 0, 4},  {"step", 4, 0, 0, 0, 0},
    {"external", 7, 0, 4, 5, 6}, {"sample", 6, 0, 4, 5, 0},
};
#define KINDS (sizeof kinds / sizeof kinds[0])

static const kind *kind_of(const line *l)
{
    for (size_t i = 0; l->count > 0 && i < KINDS; i++)
        if (is(l->words[0], kinds[i].name) && l->count >= kinds[i].count)
            return &kinds[i];
    return NULL;
}

/* Of more words than a line has, the last has the rest. */
static void take_line_apart(line *l, const char *text, uint32_t length)
{
    l->count = 0;
    for (uint32_t at = 0; at < length; at++) {
        const char *space = l->count + 1 < WORDS_MAX ? memchr(text + at, ' ', length - at) : NULL;
        uint32_t end = space != NULL ? (uint32_t)(space - text) : length;
        l->words[l->count++] = (word){text + at, end - at};
        at = end;
    }
}

/* false: it has too many lines, or is no trace. */
static bool take_apart(trace *t, const char *text, size_t size)
{
    uint32_t first = t->count;
    for (size_t at = 0; at < size; at++) {
        const char *end = memchr(text + at, '\n', size - at);
        size_t stop = end != NULL ? (size_t)(end - text) : size;
        if (t->count == LINES_MAX)
            return false;
        take_line_apart(&t->lines[t->count++], text + at, (uint32_t)(stop - at));
        at = stop;
    }
    return t->count > first + 1 && t->lines[first].count > 0 &&
           is(t->lines[first].words[0], "reveille-trace");
}

static void take_out(trace *t, uint32_t at)
{
    memmove(&t->lines[at], &t->lines[at + 1], (t->count - at - 1) * sizeof *t->lines);
    t->count--;
}

static void put_in(trace *t, uint32_t at, const line *l)
{
    line copy = *l;
    if (t->count == LINES_MAX)
        return;
    memmove(&t->lines[at + 1], &t->lines[at], (t->count - at) * sizeof *t->lines);
    t->lines[at] = copy;
    t->count++;
}

/* An event, from a random place on; count: there is none. */
static uint32_t find_event(trace *t, const kind *of)
{
    uint32_t begin = pick(t, t->count);
    for (uint32_t i = 0; i < t->count; i++) {
        uint32_t at = (begin + i) % t->count;
        const kind *k = kind_of(&t->lines[at]);
        if (k != NULL && (of == NULL || k == of))
            return at;
    }
    return t->count;
}

/* Where events may stand. */
static uint32_t some_place(trace *t)
{
    uint32_t at = find_event(t, NULL);
    if (at < t->count)
        return at + pick(t, 2);
    return t->count > 0 && is(t->lines[t->count - 1].words[0], "end") ? t->count - 1 : t->count;
}

/* ---- Changes ---- */

static word some_label(trace *t)
{
    static const char *const labels[] = {
        "weights", "kv",  "-",          "train", "rollout",
        "w%20x",   "%2D", "cuda_graph", "a",     "gr\xc3\xb6\xc3\x9f\x65"};
    uint32_t at = find_event(t, NULL);
    const kind *k = at < t->count ? kind_of(&t->lines[at]) : NULL;
    if (k != NULL && k->label > 0 && pick(t, 3) > 0)
        return t->lines[at].words[k->label];
    return text_word(labels[pick(t, sizeof labels / sizeof labels[0])]);
}

static word some_process(trace *t)
{
    static const char *const names[] = {"trainer", "engine", "p", "external"};
    uint32_t at = find_event(t, NULL);
    return at < t->count && pick(t, 4) > 0 ? t->lines[at].words[2] : text_word(names[pick(t, 4)]);
}

static word some_size(trace *t)
{
    uint32_t at = find_event(t, NULL);
    const kind *k = at < t->count ? kind_of(&t->lines[at]) : NULL;
    if (k != NULL && k->bytes > 0 && pick(t, 3) == 0)
        return t->lines[at].words[k->bytes];
    uint64_t bytes = fuzz_size(&t->random);
    return number_word(t, pick(t, 4) == 0 ? bytes : bytes % (UINT64_C(1) << 32) + 1);
}

static word some_device(trace *t)
{
    return number_word(t, pick(t, 8) == 0 ? pick(t, 80) : pick(t, 4));
}

static void change_word(trace *t)
{
    uint32_t at = find_event(t, NULL);
    const kind *k = at < t->count ? kind_of(&t->lines[at]) : NULL;
    if (k == NULL)
        return;
    word *words = t->lines[at].words;
    switch (pick(t, 7)) {
    case 0: /* an instant later, or long after */
        words[1] = number_word(t, number_in(words[1]) +
                                      fuzz_size(&t->random) % (pick(t, 8) == 0 ? INT64_MAX : 4096));
        break;
    case 1:
        words[2] = some_process(t);
        break;
    case 2:
        words[3] = number_word(t, pick(t, 4) == 0 ? UINT32_MAX : pick(t, 3));
        break;
    case 3:
        words[k->id > 0 ? k->id : 1] = number_word(t, 1 + pick(t, 32));
        break;
    case 4:
        if (k->device > 0)
            words[k->device] = some_device(t);
        break;
    case 5:
        if (k->bytes > 0)
            words[k->bytes] = some_size(t);
        break;
    default:
        if (k->label > 0)
            words[k->label] = some_label(t);
    }
}

/* Options in their order, any of them. */
static void set_options(trace *t, line *l)
{
    static const char *const backups[] = {"backup=host", "backup=disk"};
    static const char *const access[] = {"access=1", "access=0", "access=1,63", "access=0,1,2"};
    static const char *const flags[] = {"flags=exportable", "flags=paused", "flags=rdma",
                                        "flags=exportable,rdma,paused", "flags=paused,rdma"};
    const kind *k = kind_of(l);
    if (k == NULL)
        return;
    l->count = k->count;
    if (is(l->words[0], "pause") || is(l->words[0], "resume")) {
        bool pause = is(l->words[0], "pause") != (pick(t, 16) == 0);
        if (pick(t, 2) == 0)
            l->words[l->count++] = text_word(pause ? "discard" : "no_restore");
    } else if (is(l->words[0], "alloc")) {
        if (pick(t, 2) == 0)
            l->words[l->count++] = text_word(backups[pick(t, 2)]);
        if (pick(t, 4) == 0)
            l->words[l->count++] = text_word(access[pick(t, 4)]);
        if (pick(t, 4) == 0)
            l->words[l->count++] = text_word(flags[pick(t, 5)]);
    }
}

static void change_options(trace *t)
{
    uint32_t at = find_event(t, &kinds[pick(t, 4)]);
    if (at < t->count)
        set_options(t, &t->lines[at]);
}

static void make_event(trace *t)
{
    const kind *k = &kinds[pick(t, KINDS)];
    line l = {.words = {text_word(k->name), text_word("0"), some_process(t), text_word("0")},
              .count = k->count};
    if (k->id > 0)
        l.words[k->id] = number_word(t, 1 + pick(t, 32));
    if (k->device > 0)
        l.words[k->device] = some_device(t);
    if (k->bytes > 0)
        l.words[k->bytes] = some_size(t);
    if (k->label > 0)
        l.words[k->label] = some_label(t);
    set_options(t, &l);
    put_in(t, some_place(t), &l);
}

/* An event is copied, moved, exchanged with another or taken out. */
static void change_lines(trace *t)
{
    uint32_t from = find_event(t, NULL), to = find_event(t, NULL);
    if (from == t->count)
        return;
    line l = t->lines[from];
    switch (pick(t, 4)) {
    case 0:
        put_in(t, to, &l);
        break;
    case 1:
        take_out(t, from);
        put_in(t, some_place(t), &l);
        break;
    case 2:
        t->lines[from] = t->lines[to];
        t->lines[to] = l;
        break;
    default:
        take_out(t, from);
    }
}

/* What a run does again and again: all of a stretch once more. */
static void repeat_lines(trace *t)
{
    uint32_t from = find_event(t, NULL), length = 1 + pick(t, 8);
    if (from == t->count)
        return;
    uint32_t to = from + length < t->count ? from + length : t->count;
    for (uint32_t i = from; i < to && i < t->count; i++) {
        uint32_t at = some_place(t);
        if (kind_of(&t->lines[i]) != NULL)
            put_in(t, pick(t, 2) == 0 ? at : to, &t->lines[i]);
    }
}

static void make_pair(trace *t)
{
    word process = some_process(t), tag = some_label(t);
    uint32_t at = some_place(t);
    line pause = {.words = {text_word("pause"), text_word("0"), process, text_word("0"), tag},
                  .count = 5};
    line resume = pause;
    resume.words[0] = text_word("resume");
    set_options(t, &pause);
    set_options(t, &resume);
    put_in(t, at, &resume);
    put_in(t, at, &pause);
}

static void change_device(trace *t)
{
    static const char *const profiles[] = {"profile=-", "profile=h200", "profile=h100-80g",
                                           "profile=none"};
    char text[64];
    uint32_t at = pick(t, t->count < 12 ? t->count : 12);
    while (at > 0 && !is(t->lines[at].words[0], "device"))
        at--;
    line *l = &t->lines[at];
    if (at == 0 || l->count != 5)
        return;
    switch (pick(t, 4)) {
    case 0:
        l->words[2] = text_word(profiles[pick(t, 4)]);
        break;
    case 1:
        snprintf(text, sizeof text, "capacity_bytes=%" PRIu64, fuzz_size(&t->random));
        l->words[3] = make_word(t, text);
        break;
    case 2:
        snprintf(text, sizeof text, "granularity_bytes=%" PRIu64,
                 UINT64_C(4096) << (pick(t, 4) == 0 ? pick(t, 51) : pick(t, 12)));
        l->words[4] = make_word(t, text);
        break;
    default:
        put_in(t, at, l);
        t->lines[at].words[1] = number_word(t, pick(t, 64));
    }
}

/* A letter of a word: the reader sees nearly what it expects. */
static void change_letter(trace *t)
{
    char text[128];
    line *l = &t->lines[pick(t, t->count)];
    word *w = &l->words[pick(t, l->count)];
    if (l->count == 0 || w->length == 0 || w->length >= sizeof text)
        return;
    memcpy(text, w->at, w->length);
    text[w->length] = '\0';
    text[pick(t, w->length)] = "0123456789%=-,aA#\x01\xff"[pick(t, 19)];
    *w = make_word(t, text);
}

/* ---- Together ---- */

typedef struct live {
    word process;
    uint64_t before; /* its id in the input */
    uint64_t id;
} live;

typedef struct process {
    word name;
    uint64_t last_id;
} process;

typedef struct used_tag {
    word process, tag;
} used_tag;

typedef struct output {
    uint8_t *data;
    size_t size, size_max;
    bool full;
    uint64_t time_ns, events;
    live lives[LIVE_MAX];
    uint32_t live_count;
    process processes[PROCESSES_MAX];
    uint32_t process_count;
    word devices[DEVICES_MAX];
    uint32_t device_count;
    used_tag tags[TAGS_MAX];
    uint32_t tag_count;
} output;

static void write_line(output *to, const line *l)
{
    size_t size = 0;
    for (uint32_t i = 0; i < l->count; i++)
        size += l->words[i].length + 1;
    size += l->count == 0 ? 1 : 0;
    to->full = to->full || to->size_max - to->size < size;
    if (to->full)
        return;
    for (uint32_t i = 0; i < l->count; i++) {
        memcpy(to->data + to->size, l->words[i].at, l->words[i].length);
        to->size += l->words[i].length;
        to->data[to->size++] = ' ';
    }
    to->size += l->count == 0 ? 1 : 0;
    to->data[to->size - 1] = '\n';
}

static void declare(output *to, word name, bool write)
{
    if (to->process_count == PROCESSES_MAX)
        return;
    to->processes[to->process_count++] = (process){.name = name};
    const line l = {.words = {text_word("process"), name, text_word("pid=0")}, .count = 3};
    if (write)
        write_line(to, &l);
}

static process *find_process(output *to, word name)
{
    for (uint32_t i = 0; i < to->process_count; i++)
        if (same(to->processes[i].name, name))
            return &to->processes[i];
    return NULL;
}

/* The process of an event, declared; of too many another one. */
static process *process_of(output *to, word *name)
{
    process *found = find_process(to, *name);
    if (found == NULL && to->process_count < PROCESSES_MAX)
        declare(to, *name, true);
    else if (found == NULL)
        *name = to->processes[0].name;
    return find_process(to, *name);
}

static bool is_declared(const output *to, word device)
{
    for (uint32_t i = 0; i < to->device_count; i++)
        if (same(to->devices[i], device))
            return true;
    return false;
}

static void begin_life(trace *t, output *to, line *l)
{
    process *p = process_of(to, &l->words[2]);
    uint64_t before = number_in(l->words[4]), id = before;
    if (id <= p->last_id)
        id = p->last_id + 1;
    p->last_id = id;
    l->words[4] = number_word(t, id);
    if (to->live_count < LIVE_MAX)
        to->lives[to->live_count++] = (live){l->words[2], before, id};
}

/* false: nothing is live, and the line is better left out. */
static bool end_life(trace *t, output *to, line *l)
{
    uint64_t before = number_in(l->words[4]);
    uint32_t at = to->live_count;
    while (at > 0 &&
           !(to->lives[at - 1].before == before && same(to->lives[at - 1].process, l->words[2])))
        at--;
    if (to->live_count == 0)
        return false;
    at = at > 0 ? at - 1 : pick(t, to->live_count);
    l->words[2] = to->lives[at].process;
    l->words[4] = number_word(t, to->lives[at].id);
    to->lives[at] = to->lives[--to->live_count];
    return true;
}

static void use_tag(output *to, const line *l)
{
    if (to->tag_count < TAGS_MAX)
        to->tags[to->tag_count++] = (used_tag){l->words[2], l->words[7]};
}

/* false: there is no memory that could be paused. */
static bool name_used_tag(trace *t, output *to, line *l)
{
    if (to->tag_count == 0)
        return false;
    for (uint32_t i = 0; i < to->tag_count; i++)
        if (same(to->tags[i].process, l->words[2]) && same(to->tags[i].tag, l->words[4]))
            return true;
    const used_tag *other = &to->tags[pick(t, to->tag_count)];
    l->words[2] = other->process;
    l->words[4] = other->tag;
    return true;
}

static void write_event(trace *t, output *to, line l, const kind *k)
{
    bool mend = pick(t, 256) > 0;
    if (mend && number_in(l.words[1]) < to->time_ns)
        l.words[1] = number_word(t, to->time_ns);
    to->time_ns = number_in(l.words[1]);
    if (mend)
        (void)process_of(to, &l.words[2]);
    if (mend && k->device > 0 && !is_declared(to, l.words[k->device]) && to->device_count > 0)
        l.words[k->device] = to->devices[pick(t, to->device_count)];
    if (mend && is(l.words[0], "alloc"))
        begin_life(t, to, &l);
    if (is(l.words[0], "alloc"))
        use_tag(to, &l);
    if (mend && (is(l.words[0], "pause") || is(l.words[0], "resume")) && !name_used_tag(t, to, &l))
        return;
    if (mend && is(l.words[0], "free") && !end_life(t, to, &l))
        return;
    to->events += to->full ? 0 : 1;
    write_line(to, &l);
}

static void write_header(trace *t, output *to, const line *l)
{
    bool device = l->count > 1 && is(l->words[0], "device");
    bool named = l->count > 1 && is(l->words[0], "process");
    if ((device && is_declared(to, l->words[1])) ||
        (named && find_process(to, l->words[1]) != NULL))
        if (pick(t, 64) > 0)
            return;
    if (device && to->device_count < DEVICES_MAX)
        to->devices[to->device_count++] = l->words[1];
    if (named)
        declare(to, l->words[1], false);
    write_line(to, l);
}

static size_t write_trace(trace *t, uint8_t *data, size_t size_max)
{
    static output to;
    char text[32];
    size_t end_bytes = sizeof "end 18446744073709551615";
    to.live_count = to.process_count = to.device_count = to.tag_count = 0;
    to.time_ns = to.events = to.size = 0;
    to.full = size_max < end_bytes;
    to.data = data;
    to.size_max = to.full ? 0 : size_max - end_bytes;
    for (uint32_t i = 0; i < t->count; i++) {
        const kind *k = kind_of(&t->lines[i]);
        if (k != NULL)
            write_event(t, &to, t->lines[i], k);
        else if (t->lines[i].count == 0 || !is(t->lines[i].words[0], "end"))
            write_header(t, &to, &t->lines[i]);
    }
    snprintf(text, sizeof text, "%" PRIu64, to.events + (pick(t, 128) == 0 ? 1 : 0));
    const line end = {.words = {text_word("end"), text_word(text)}, .count = 2};
    to.full = size_max < end_bytes;
    to.size_max = size_max;
    if (pick(t, 64) > 0)
        write_line(&to, &end);
    return to.size;
}

/* ---- What libFuzzer calls ---- */

static trace current;
static char input[2 * INPUT_BYTES];

static trace *begin(unsigned seed)
{
    current.count = current.made_bytes = 0;
    current.random = seed;
    return &current;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t size_max, unsigned seed)
{
    static void (*const changes[])(trace *) = {
        change_word,  change_word, change_word,  make_event,     make_event,   change_lines,
        change_lines, make_pair,   repeat_lines, change_options, change_device};
    trace *t = begin(seed);
    if (size > INPUT_BYTES || pick(t, 32) == 0)
        return LLVMFuzzerMutate(data, size, size_max);
    memcpy(input, data, size);
    if (!take_apart(t, input, size))
        return LLVMFuzzerMutate(data, size, size_max);
    for (uint32_t times = 1 + pick(t, 4); times > 0; times--)
        changes[pick(t, sizeof changes / sizeof changes[0])](t);
    if (pick(t, 32) == 0)
        change_letter(t);
    return write_trace(t, data, size_max);
}

/* The first one's header; then events of either, in their order. */
size_t LLVMFuzzerCustomCrossOver(const uint8_t *first, size_t first_size, const uint8_t *second,
                                 size_t second_size, uint8_t *out, size_t out_max, unsigned seed)
{
    static trace other;
    static line merged[LINES_MAX];
    trace *t = begin(seed);
    uint32_t count = 0, from = 0;
    if (first_size > INPUT_BYTES || second_size > INPUT_BYTES)
        return 0;
    memcpy(input, first, first_size);
    memcpy(input + first_size, second, second_size);
    other.count = 0;
    if (!take_apart(t, input, first_size) || !take_apart(&other, input + first_size, second_size))
        return 0;
    for (uint32_t i = 0; i < t->count && count < LINES_MAX; i++) {
        merged[count++] = t->lines[i];
        while (kind_of(&t->lines[i]) != NULL && from < other.count && count < LINES_MAX &&
               pick(t, 3) > 0) {
            if (kind_of(&other.lines[from]) != NULL && pick(t, 4) > 0)
                merged[count++] = other.lines[from];
            from++;
        }
    }
    memcpy(t->lines, merged, count * sizeof *merged);
    t->count = count;
    return write_trace(t, out, out_max);
}
