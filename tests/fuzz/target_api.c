/* SPDX-License-Identifier: MIT */
/*
 * Sequences of API calls against a simple model (api_model.h).
 *
 * An input begins with two bytes that say what the context is like. Each further five are one call,
 * with faults thrown in. A call that fails must say why and leave the model true; an allocation may
 * be LOST only when a fault was injected. Forecasts are held against what then happens.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "api_model.h"
#include "api_sleep.h"
#include "core/prefetch.h"
#include "fuzz.h"
#include "reveille/parts.h"
#include "reveille/trace.h"

#define STEPS_MAX 160
#define BLOCKS_MAX 16
#define PIECES_MAX 256
#define CAUSE "others"

/* X(NAME, what it does). Their order is the format of the corpus: new ones come last. */
#define VERB_MAP(X)                                                                                \
    X(ALLOC, "allocates `argument` granules for slot `who`; `how`: tag, backup and flags")         \
    X(FREE, "frees it")                                                                            \
    X(PAUSE, "pauses the tags of the set `who`; `argument`: flags")                                \
    X(RESUME, "resumes them, beginning with slot `how`")                                           \
    X(PREPARE_PAUSE, "as PAUSE, in two phases: this is the first")                                 \
    X(PREPARE_RESUME, "as RESUME")                                                                 \
    X(COMMIT, "the second")                                                                        \
    X(ABORT, "or none")                                                                            \
    X(FORECAST, "asks what a pause or resume would do, and does it where nothing can fail it")     \
    X(WAKE, "resumes in order")                                                                    \
    X(IMPORT, "exports slot `how`, and imports what comes of it")                                  \
    X(MOVE_IMPORT, "pauses, resumes, gives back or frees an import")                               \
    X(STAGE, "marks a stage or a step")                                                            \
    X(EXTERNAL, "sets external bytes")                                                             \
    X(ASK, "asks for all that there is to know")                                                   \
    X(GUARD, "sets or takes away the guard; it and a tag's callback refuse, or do not")            \
    X(RECORD, "starts or stops a recording")                                                       \
    X(BACKUP, "reads a backup")                                                                    \
    X(RETAIN, "says whether a tag retains its backups")                                            \
    X(WRONG, "makes a call that no state allows")                                                  \
    X(PASS, "lets time pass")                                                                      \
    X(PARTS, "fills open pieces of what PREPARE_RESUME has in parts, `argument`: rightly or not")  \
    X(PREPARE_WAKE, "as WAKE, in two phases: this is the first")                                   \
    X(SLEEP, "sleeps and wakes up; `argument` and `how`: flags of the two, and what goes wrong")

typedef enum verb {
#define VERB_ENUM(name, meaning) VERB_##name,
    VERB_MAP(VERB_ENUM)
#undef VERB_ENUM
        VERBS
} verb;

/* Numbers are taken modulo what there is, so that any bytes are steps. */
typedef struct step {
    uint8_t verb, who, argument, how, fault;
} step;

static api_slot *slot_of(api_model *m, unsigned number)
{
    return &m->slots[number % API_SLOTS];
}

/* ---- Allocations ---- */

static void call_alloc(api_model *m, const step *now)
{
    static const rvl_backup backups[] = {RVL_BACKUP_NONE, RVL_BACKUP_HOST, RVL_BACKUP_DISK};
    api_slot *s = slot_of(m, now->who);
    const int devices[] = {0, 1};
    if (s->addr != 0)
        return;
    unsigned how = now->how;
    bool paused = how / 15 & 1;
    *s = (api_slot){.tag = (int)(how % API_TAGS),
                    .backup = backups[how / API_TAGS % 3],
                    .device = (int)(now->who / API_SLOTS % m->devices),
                    .state = paused ? RVL_STATE_PAUSED : RVL_STATE_ACTIVE,
                    .size = (now->argument % 16 + 1) * m->granule};
    rvl_alloc_options options = {.struct_size = sizeof options,
                                 .tag_id = m->tags[s->tag],
                                 .device = s->device,
                                 .backup = s->backup,
                                 .access = devices,
                                 .access_count = how / 30 & 1 ? m->devices : 0,
                                 .flags = (paused ? RVL_ALLOC_PAUSED : 0) |
                                          (how / 60 & 1 ? RVL_ALLOC_EXPORTABLE : 0)};
    rvl_status status = rvl_alloc(m->context, s->size, &options, &s->addr);
    if (!api_done(m, status))
        require(s->addr == 0);
    else if (!paused)
        api_write(m, s, (uint8_t)(1 + now->argument));
}

static void call_free(api_model *m, const step *now)
{
    api_slot *s = slot_of(m, now->who);
    rvl_status status = rvl_free(m->context, s->addr);
    require(s->addr != 0 || status == RVL_ERR_INVALID);
    require(!s->moving || status == RVL_ERR_BUSY);
    if (api_done(m, status))
        s->addr = 0;
}

/* ---- Sets of tags ---- */

typedef struct tag_set {
    rvl_tag numbers[API_TAGS];
    size_t count;
    unsigned set;
} tag_set;

/* The empty set stands for a whole process. */
static tag_set tags_in(const api_model *m, const step *now)
{
    tag_set tags = {.set = now->who % (1u << API_TAGS)};
    for (int i = 0; i < API_TAGS; i++)
        if (tags.set & api_tag_bit(i))
            tags.numbers[tags.count++] = m->tags[i];
    if (tags.count == 0)
        tags.set = api_tag_bit(API_TAGS - 1) - 1;
    return tags;
}

static bool moves(const api_slot *s, const tag_set *tags, bool pauses)
{
    bool active = s->state == RVL_STATE_ACTIVE;
    return s->addr != 0 && (tags->set & api_tag_bit(s->tag)) && active == pauses;
}

/* What the model of an allocation is once it has moved. */
static void move(api_slot *s, bool pauses, bool drops)
{
    s->state = pauses ? RVL_STATE_PAUSED : RVL_STATE_ACTIVE;
    s->known = s->known && !drops && s->backup != RVL_BACKUP_NONE;
}

static void move_all(api_model *m, const tag_set *tags, bool pauses, bool drops)
{
    for (int i = 0; i < API_SLOTS; i++)
        if (moves(&m->slots[i], tags, pauses))
            move(&m->slots[i], pauses, drops);
}

/* While a transition is prepared, others that move its tags are refused. */
static bool meets_prepared(const api_model *m, const tag_set *tags)
{
    for (int i = 0; i < API_SLOTS; i++)
        if (m->slots[i].moving && (tags->set & api_tag_bit(m->slots[i].tag)))
            return true;
    return false;
}

static rvl_pause_options pause_options(const step *now)
{
    return (rvl_pause_options){.struct_size = sizeof(rvl_pause_options),
                               .flags = now->argument & 1 ? RVL_PAUSE_DISCARD : 0};
}

static rvl_resume_options resume_options(const step *now, const rvl_addr *first)
{
    return (rvl_resume_options){.struct_size = sizeof(rvl_resume_options),
                                .flags = now->argument & 1 ? RVL_RESUME_NO_RESTORE : 0,
                                .order = first,
                                .order_count = *first != 0 ? 1 : 0};
}

/* A pause without backup has failed: what is lost has no content. */
static void forget_lost(api_model *m, const tag_set *tags)
{
    for (int i = 0; i < API_SLOTS; i++) {
        api_slot *s = &m->slots[i];
        rvl_allocation found = {.struct_size = sizeof found};
        if (!moves(s, tags, true))
            continue;
        require(rvl_allocation_find(m->context, s->addr, &found) == RVL_OK);
        s->known = s->known && found.state != RVL_STATE_LOST;
    }
}

static rvl_status pause_set(api_model *m, const step *now, const tag_set *tags)
{
    const rvl_pause_options options = pause_options(now);
    rvl_status status = rvl_pause(m->context, tags->numbers, tags->count, &options);
    if (api_done(m, status))
        move_all(m, tags, true, options.flags != 0);
    else if (options.flags != 0)
        forget_lost(m, tags);
    return status;
}

static rvl_status resume_set(api_model *m, const step *now, const tag_set *tags)
{
    const rvl_addr first = slot_of(m, now->how)->addr;
    const rvl_resume_options options = resume_options(now, &first);
    rvl_status status = rvl_resume(m->context, tags->numbers, tags->count, &options);
    if (api_done(m, status))
        move_all(m, tags, false, options.flags != 0);
    return status;
}

static void call_transition(api_model *m, const step *now, bool pauses)
{
    const tag_set tags = tags_in(m, now);
    rvl_status status = pauses ? pause_set(m, now, &tags) : resume_set(m, now, &tags);
    require(!meets_prepared(m, &tags) || status != RVL_OK);
}

/* ---- In two phases ---- */

static void mark_moving(api_model *m, const tag_set *tags, bool pauses)
{
    for (int i = 0; i < API_SLOTS; i++)
        m->slots[i].moving = moves(&m->slots[i], tags, pauses);
}

static void call_prepare(api_model *m, const step *now, bool pauses)
{
    const tag_set tags = tags_in(m, now);
    const rvl_addr first = slot_of(m, now->how)->addr;
    const rvl_pause_options pausing = pause_options(now);
    rvl_resume_options resuming = resume_options(now, &first);
    rvl_transition *transition = NULL;
    resuming.part_count = now->how / API_SLOTS; /* 0 and 1: not in parts */
    resuming.part_index = resuming.part_count > 1 ? now->who % resuming.part_count : 0;
    resuming.flags |= now->argument & 2 ? RVL_RESUME_BY_PIECES : 0;
    if (api_is_prepared(m))
        return;
    rvl_status status =
        pauses ? rvl_pause_prepare(m->context, tags.numbers, tags.count, &pausing, &transition)
               : rvl_resume_prepare(m->context, tags.numbers, tags.count, &resuming, &transition);
    require((status == RVL_OK) == (transition != NULL));
    if (!api_done(m, status))
        return;
    require(rvl_transition_get_context(transition) == m->context);
    m->prepared =
        (api_prepared){.transition = transition, .pauses = pauses, .drops = now->argument & 1};
    mark_moving(m, &tags, pauses);
}

/* Nothing was filled, whatever is said: all comes from the backups. false: a fault kept it. */
static bool fill_pieces(api_model *m)
{
    rvl_transition *transition = m->prepared.transition;
    size_t count = 0;
    uint64_t open = 0;
    require(rvl_transition_copy_pieces(transition, NULL, 0, 0, &count) == RVL_OK);
    rvl_piece *pieces = calloc(count + 1, sizeof *pieces);
    bool *filled = calloc(count + 1, sizeof *filled);
    require(pieces != NULL && filled != NULL);
    require(rvl_transition_copy_pieces(transition, pieces, sizeof *pieces, count, &count) ==
            RVL_OK);
    for (size_t i = 0; i < count; i++) {
        require(pieces[i].size_bytes > 0);
        filled[i] = i % 2 == 0;
        open += pieces[i].state == RVL_PIECE_OPEN;
    }
    require(open == 0 || rvl_transition_commit(transition) == RVL_ERR_STATE);
    rvl_status status = rvl_transition_fill(transition, filled, count);
    require(status == RVL_OK || m->faulty);
    free(pieces);
    free(filled);
    return status == RVL_OK;
}

static size_t pieces_of(const api_model *m, rvl_piece pieces[PIECES_MAX])
{
    size_t count = 0;
    require(rvl_transition_copy_pieces(m->prepared.transition, pieces, sizeof pieces[0], PIECES_MAX,
                                       &count) == RVL_OK);
    require(count <= PIECES_MAX);
    return count;
}

static bool has_open_pieces(const api_model *m)
{
    rvl_piece pieces[PIECES_MAX];
    size_t count = pieces_of(m, pieces), open = 0;
    for (size_t i = 0; i < count; i++)
        open += pieces[i].state == RVL_PIECE_OPEN;
    return open > 0;
}

/* The content of a piece as a neighbour has it, or another one. False: it is not known here. */
static bool bring(const api_model *m, const rvl_piece *piece, bool right)
{
    for (int i = 0; i < API_SLOTS; i++) {
        const api_slot *s = &m->slots[i];
        if (s->addr == 0 || !s->known || piece->addr < s->addr ||
            piece->addr + piece->size_bytes > s->addr + s->size)
            continue;
        memset((void *)(uintptr_t)piece->addr, right ? s->content : s->content + 1,
               piece->size_bytes);
        return true;
    }
    return false;
}

/* Some of the own part, and what is right stays. */
static void load_pieces(api_model *m, size_t most, size_t count)
{
    size_t piece = 0;
    rvl_status status = RVL_OK;
    for (size_t i = 0; i < most && piece < count && status == RVL_OK; i++) {
        status = rvl_transition_load_next(m->prepared.transition, &piece);
        require(api_done(m, status) ? piece <= count : m->faulty);
    }
}

/* What was not filled, or not rightly, comes from the backup. */
static void call_parts(api_model *m, const step *now)
{
    rvl_piece pieces[PIECES_MAX];
    bool filled[PIECES_MAX];
    if (m->prepared.transition == NULL || m->prepared.pauses)
        return;
    load_pieces(m, now->argument & 3, pieces_of(m, pieces));
    size_t count = pieces_of(m, pieces);
    for (size_t i = 0; i < count; i++)
        filled[i] =
            pieces[i].state == RVL_PIECE_OPEN && bring(m, &pieces[i], now->argument >> i % 8 & 1);
    bool none = now->how & 1;
    rvl_status status =
        rvl_transition_fill(m->prepared.transition, none ? NULL : filled, none ? 0 : count);
    require(api_done(m, status) ? !has_open_pieces(m) : m->faulty);
}

static void end_transition(api_model *m, bool commits)
{
    const api_prepared prepared = m->prepared;
    commits = commits && (prepared.pauses || fill_pieces(m));
    rvl_status status = commits ? rvl_transition_commit(prepared.transition)
                                : rvl_transition_abort(prepared.transition);
    require(status == RVL_OK || (!commits && m->faulty));
    m->prepared = (api_prepared){0};
    for (int i = 0; i < API_SLOTS; i++) {
        if (m->slots[i].moving && commits)
            move(&m->slots[i], prepared.pauses, prepared.drops);
        m->slots[i].moving = false;
    }
}

/* ---- Forecasts ---- */

/* Nothing stands in the way of what was forecast. */
static bool is_free_to_move(const api_model *m)
{
    return !m->faulty && !api_is_prepared(m) && !(m->guarded && m->refuse) && !m->veto;
}

/*
 * Memory without content costs what it was said to cost, to the nanosecond. When memory that was
 * imported is free again is not known, nor what a backend that failed for good has kept.
 */
static bool is_exact(const api_model *m)
{
    return !(m->mode & (API_BACKED | API_REAL_TIME)) && !m->ever_imported && !m->ever_broken;
}

static void call_forecast(api_model *m, const step *now)
{
    const tag_set tags = tags_in(m, now);
    bool pauses = now->argument & 2;
    const rvl_addr first = slot_of(m, now->how)->addr;
    const rvl_pause_options pausing = pause_options(now);
    const rvl_resume_options resuming = resume_options(now, &first);
    rvl_forecast forecast = {.struct_size = sizeof forecast};
    rvl_status status =
        pauses ? rvl_pause_forecast(m->context, tags.numbers, tags.count, &pausing, &forecast)
               : rvl_resume_forecast(m->context, tags.numbers, tags.count, &resuming, &forecast);
    if (!api_done(m, status))
        return;
    if (!m->faulty)
        api_check(m); /* nothing has changed */
    if (!is_free_to_move(m))
        return;
    uint64_t begin_ns = rvl_clock_ns(m->context);
    status = pauses ? pause_set(m, now, &tags) : resume_set(m, now, &tags);
    if (!pauses && !(m->mode & API_OVERCOMMIT))
        require(forecast.fits == (status == RVL_OK));
    if (status == RVL_OK && is_exact(m) && (pauses || first == 0)) /* an order is not forecast */
        require(rvl_clock_ns(m->context) - begin_ns == forecast.time_ns);
}

/* ---- In order ---- */

static void note_arrival(void *user, const rvl_arrival *arrival)
{
    uint64_t *bytes = user;
    require(arrival->addr != 0 && arrival->size_bytes > 0);
    *bytes += arrival->size_bytes;
}

/* After a failure what had arrived stays, and all else is as before or lost. */
static void take_state(api_model *m, api_slot *s, bool drops)
{
    rvl_allocation found = {.struct_size = sizeof found};
    require(rvl_allocation_find(m->context, s->addr, &found) == RVL_OK);
    require(found.state != RVL_STATE_PAUSING && found.state != RVL_STATE_RESUMING);
    if (found.state == RVL_STATE_ACTIVE)
        move(s, false, drops);
}

typedef rvl_status (*start_fn)(rvl_context *context, const rvl_tag *tags, size_t tag_count,
                               const rvl_resume_options *options, rvl_resuming **resuming_out);

/* NULL: it could not. */
static rvl_resuming *begin_wake(api_model *m, const step *now, const tag_set *tags, start_fn start)
{
    const rvl_addr first = slot_of(m, now->how)->addr;
    rvl_resume_options options = resume_options(now, &first);
    rvl_resuming *resuming = NULL;
    options.arrived = note_arrival;
    options.arrived_user = &m->arrived_bytes;
    rvl_status status = start(m->context, tags->numbers, tags->count, &options, &resuming);
    require((status == RVL_OK) == (resuming != NULL));
    require(!meets_prepared(m, tags) || status != RVL_OK);
    if (!api_done(m, status))
        return NULL;
    require(rvl_context_close(m->context, NULL) == RVL_ERR_BUSY);
    return resuming;
}

/* slots: a bit for each that it resumes. */
static void finish_wake(api_model *m, rvl_resuming *resuming, unsigned slots, bool drops)
{
    bool whole = api_done(m, rvl_resume_finish(resuming));
    for (int i = 0; i < API_SLOTS; i++) {
        if (!(slots >> i & 1))
            continue;
        if (whole)
            move(&m->slots[i], false, drops);
        else
            take_state(m, &m->slots[i], drops);
    }
}

static void call_wake(api_model *m, const step *now)
{
    const tag_set tags = tags_in(m, now);
    const rvl_addr first = slot_of(m, now->how)->addr;
    rvl_resuming *resuming = begin_wake(m, now, &tags, rvl_resume_start);
    if (resuming == NULL)
        return;
    require(rvl_resume_start_commit(resuming) == RVL_ERR_STATE);
    if (first != 0)
        (void)api_done(
            m, rvl_allocation_wait(m->context, first, now->argument & 2 ? RVL_WAIT_FOREVER : 0));
    unsigned slots = 0;
    for (int i = 0; i < API_SLOTS; i++)
        slots |= moves(&m->slots[i], &tags, false) ? 1u << i : 0;
    finish_wake(m, resuming, slots, now->argument & 1);
}

static void call_prepare_wake(api_model *m, const step *now)
{
    const tag_set tags = tags_in(m, now);
    if (api_is_prepared(m))
        return;
    rvl_resuming *resuming = begin_wake(m, now, &tags, rvl_resume_start_prepare);
    if (resuming == NULL)
        return;
    m->prepared = (api_prepared){.resuming = resuming, .drops = now->argument & 1};
    mark_moving(m, &tags, false);
    require(rvl_resume_finish(resuming) == RVL_ERR_STATE);
}

/* Committing cannot fail. What then fails keeps only content from arriving. */
static void end_wake(api_model *m, bool commits)
{
    const api_prepared prepared = m->prepared;
    unsigned slots = 0;
    m->prepared = (api_prepared){0};
    for (int i = 0; i < API_SLOTS; i++) {
        slots |= m->slots[i].moving ? 1u << i : 0;
        m->slots[i].moving = false;
    }
    if (!commits) {
        require(api_done(m, rvl_resume_start_abort(prepared.resuming)) || m->faulty);
        return;
    }
    require(rvl_resume_start_commit(prepared.resuming) == RVL_OK);
    finish_wake(m, prepared.resuming, slots, prepared.drops);
}

static void call_end(api_model *m, bool commits)
{
    if (m->prepared.transition != NULL)
        end_transition(m, commits);
    else if (m->prepared.resuming != NULL)
        end_wake(m, commits);
}

/* ---- Shared memory ---- */

static bool add_blocks(api_model *m, const api_slot *s, rvl_import *import)
{
    rvl_export facts = {.struct_size = sizeof facts};
    rvl_export_options options = {.struct_size = sizeof options};
    int fds[BLOCKS_MAX];
    uint64_t bytes[BLOCKS_MAX];
    rvl_status status =
        rvl_allocation_export(m->context, s->addr, &options, fds, bytes, BLOCKS_MAX, &facts);
    if (!api_done(m, status))
        return false;
    require(facts.size_bytes == s->size && facts.file_count == facts.block_count);
    status = rvl_import_add(import, fds, bytes, facts.file_count);
    while (facts.file_count > 0)
        close(fds[--facts.file_count]);
    return api_done(m, status);
}

static void call_import(api_model *m, const step *now)
{
    api_import *to = &m->imports[now->who % API_IMPORTS];
    const api_slot *from = slot_of(m, now->how);
    rvl_import_options options = {.struct_size = sizeof options, .tag = "imported"};
    rvl_import *import = NULL;
    rvl_addr addr = 0;
    if (to->addr != 0 || from->addr == 0)
        return;
    options.device = from->device;
    m->ever_imported = true;
    if (!api_done(m, rvl_import_begin(m->context, from->size, &options, &import)))
        return;
    if (!add_blocks(m, from, import) || !api_done(m, rvl_import_finish(import, &addr)))
        rvl_import_cancel(import);
    else
        *to = (api_import){addr, from->size, RVL_STATE_ACTIVE};
}

static void call_move_import(api_model *m, const step *now)
{
    api_import *import = &m->imports[now->who % API_IMPORTS];
    rvl_state was = import->state;
    rvl_status status;
    switch (now->argument % 4) {
    case 0:
        status = rvl_import_pause(m->context, import->addr);
        import->state = status == RVL_OK && was == RVL_STATE_ACTIVE ? RVL_STATE_PAUSED : was;
        break;
    case 1:
        status = rvl_import_resume(m->context, import->addr);
        import->state = status == RVL_OK ? RVL_STATE_ACTIVE : was;
        break;
    case 2:
        status = rvl_import_release(m->context, import->addr);
        require(was != RVL_STATE_ACTIVE || status != RVL_OK || import->addr == 0);
        import->state = status == RVL_OK ? RVL_STATE_LOST : was;
        break;
    default:
        status = rvl_free(m->context, import->addr);
        if (status == RVL_OK)
            *import = (api_import){0};
    }
    (void)api_done(m, status);
    rvl_allocation found = {.struct_size = sizeof found};
    if (status != RVL_OK && m->faulty && import->addr != 0 &&
        rvl_allocation_find(m->context, import->addr, &found) == RVL_OK &&
        found.state == RVL_STATE_LOST)
        import->state = RVL_STATE_LOST; /* mapped in part, and not to be unmapped */
}

/* ---- Marks and questions ---- */

static void call_stage(api_model *m, const step *now)
{
    static const char *const names[] = {"rollout", "train", "update_weights", ""};
    const char *name = names[now->argument % 4];
    if (now->argument & 4)
        require(rvl_step(m->context) == RVL_OK);
    rvl_status status = rvl_stage(m->context, name);
    require((status == RVL_OK) == (name[0] != '\0'));
    m->stages += status == RVL_OK;
}

static void call_external(api_model *m, const step *now)
{
    int device = (int)(now->who % m->devices);
    uint64_t bytes = now->argument % 80 * m->granule;
    if (api_done(m, rvl_external_set(m->context, device, CAUSE, bytes)))
        m->external[device] = bytes;
}

static void ask_of_stage(api_model *m, uint32_t stage, int device)
{
    rvl_stage_stats stats = {.struct_size = sizeof stats};
    rvl_holder holders[API_TAGS + 8];
    size_t count = 0;
    uint64_t bytes = 0;
    require(rvl_stage_get_stats(m->context, stage, device, &stats) == RVL_OK);
    require(stats.peak_bytes >= stats.end_bytes && stats.name[0] != '\0');
    require(rvl_stage_get_holders(m->context, stage, device, holders, sizeof holders[0],
                                  sizeof holders / sizeof holders[0], &count) == RVL_OK);
    require(count <= sizeof holders / sizeof holders[0]);
    for (size_t i = 0; i < count; i++) {
        require(holders[i].bytes > 0 && (i == 0 || holders[i - 1].bytes >= holders[i].bytes));
        bytes += holders[i].bytes;
    }
    require(bytes == stats.peak_bytes);
}

static void call_ask(api_model *m, const step *now)
{
    char text[RVL_SUMMARY_BYTES];
    int device = (int)(now->who % m->devices);
    rvl_device_info info = {.struct_size = sizeof info};
    rvl_host_memory host = {.struct_size = sizeof host};
    rvl_tag_stats tag = {.struct_size = sizeof tag};
    size_t room = 1 + now->argument * sizeof text / 256;
    require(rvl_device_count(m->context) == (int)m->devices);
    require(rvl_device_get_info(m->context, device, &info) == RVL_OK && info.simulated);
    require(info.granularity_bytes == m->granule);
    require(rvl_device_get_summary(m->context, device, text, room) == RVL_OK);
    require(strnlen(text, room) < room &&
            strncmp(text, "Reveille ", strlen(text) < 9 ? strlen(text) : 9) == 0);
    require(rvl_tag_get_stats(m->context, m->tags[now->how % API_TAGS], -1, &tag) == RVL_OK);
    require(rvl_host_get_memory(m->context, &host) == RVL_OK);
    require(host.store_bytes == 0 || m->store != NULL);
    require(rvl_host_trim(m->context, 0) == RVL_OK);
    require(rvl_device_synchronize(m->context, device) == RVL_OK);
    ask_of_stage(m, now->argument % m->stages, device);
    for (int depth = 0; depth < 3; depth++)
        require(rvl_private_prefetch(m->context, slot_of(m, now->how)->addr, depth) == RVL_OK);
}

/* ---- Who is asked, and who is told ---- */

static rvl_status guard_before(void *user, const rvl_transition *transition)
{
    api_model *m = user;
    m->asked++;
    require(rvl_transition_get_context(transition) == m->context);
    require((unsigned)rvl_transition_get_kind(transition) <= RVL_TRANSITION_RESUME);
    for (size_t i = 0; rvl_transition_get_tag(transition, i) != 0; i++)
        require(rvl_tag_name(m->context, rvl_transition_get_tag(transition, i)) != NULL);
    (void)rvl_transition_find(transition, m->asked);
    m->asked -= m->refuse ? 1 : 0;
    return m->refuse ? RVL_ERR_BUSY : RVL_OK;
}

static void guard_after(void *user, const rvl_transition *transition, bool is_done)
{
    api_model *m = user;
    (void)is_done;
    require(rvl_transition_get_context(transition) == m->context);
    m->told++;
}

static void call_guard(api_model *m, const step *now)
{
    const rvl_guard guard = {sizeof guard, guard_before, guard_after, m};
    if (api_is_prepared(m))
        return; /* it tells the guard that it has asked */
    require(m->asked == m->told);
    m->guarded = now->argument & 1;
    m->refuse = now->argument & 2;
    m->veto = now->argument & 4;
    require(rvl_context_set_guard(m->context, m->guarded ? &guard : NULL) == RVL_OK);
}

/* ---- Recording ---- */

/* What a recording has left is a whole trace. */
static void read_trace(void)
{
    const char *path = api_trace_path();
    rvl_trace_reader *reader = NULL;
    rvl_trace_event event = {0};
    rvl_status status = rvl_trace_reader_open(&path, 1, NULL, &reader);
    require(status == RVL_OK);
    do
        status = rvl_trace_reader_next(reader, &event, sizeof event);
    while (status == RVL_OK);
    require(status == RVL_ERR_NOT_FOUND);
    rvl_trace_reader_close(reader);
}

static void call_record(api_model *m)
{
    if (!m->recording) {
        m->recording = api_done(m, rvl_record_start(m->context, api_trace_path()));
        return;
    }
    require(rvl_record_start(m->context, api_trace_path()) == RVL_ERR_STATE);
    require(rvl_record_stop(m->context) == RVL_OK);
    read_trace();
    m->recording = false;
    require(unlink(api_trace_path()) == 0);
}

/* ---- Backups ---- */

static void call_backup(api_model *m, const step *now)
{
    const api_slot *s = slot_of(m, now->who);
    uint64_t offset = now->argument * m->granule / 64, size = 0, at = 0;
    const void *host = NULL;
    int fd = -1;
    offset = offset < s->size ? offset : 0;
    bool content = s->addr != 0 && s->known && s->state == RVL_STATE_PAUSED && !s->moving;
    if (api_done(m, rvl_backup_find(m->context, s->addr + offset, &host, &size))) {
        require(s->backup == RVL_BACKUP_HOST && size > 0 && size <= s->size - offset);
        require(!content || ((const uint8_t *)host)[size - 1] == s->content);
    } else {
        require(!content || s->backup != RVL_BACKUP_HOST || m->store != NULL); /* or on disk */
    }
    if (api_done(m, rvl_backup_find_file(m->context, s->addr, &fd, &at, &size)))
        require((s->backup == RVL_BACKUP_DISK || m->store != NULL) && size >= s->size && fd >= 0);
    else
        require(!content || s->backup != RVL_BACKUP_DISK);
}

static void call_retain(api_model *m, const step *now)
{
    rvl_tag tag = m->tags[now->who % API_TAGS];
    (void)api_done(m, rvl_tag_set_retain_backups(m->context, tag, now->argument & 1));
}

/* ---- What no state allows ---- */

static void call_wrong(api_model *m, const step *now)
{
    rvl_context *context = m->context;
    rvl_tag none = 77;
    rvl_addr addr = 0;
    rvl_device_stats stats = {.struct_size = sizeof stats};
    rvl_alloc_options unset = {0};
    rvl_pause_options newer = {.struct_size = sizeof newer, .flags = UINT64_MAX};
    rvl_status status;
    switch (now->argument % 12) {
    case 0:
        status = rvl_alloc(context, 0, NULL, &addr);
        break;
    case 1:
        status = rvl_alloc(context, UINT64_MAX, NULL, &addr);
        break;
    case 2:
        status = rvl_alloc(context, m->granule, &unset, &addr);
        break;
    case 3:
        status = rvl_free(context, 12345);
        break;
    case 4:
        status = rvl_pause(context, &none, 1, NULL);
        break;
    case 5:
        status = rvl_pause(context, m->tags, 1, &newer);
        break;
    case 6:
        status = rvl_resume(context, NULL, 3, NULL);
        break;
    case 7:
        status = rvl_device_get_stats(context, (int)m->devices, &stats);
        break;
    case 8:
        status = rvl_tag_find(context, 0, "nobody", &none);
        break;
    case 9:
        status = rvl_allocation_wait(context, 12345, 0);
        break;
    case 10:
        status = rvl_transition_commit(NULL);
        break;
    default:
        status = rvl_import_pause(context, 12345);
    }
    require(status != RVL_OK && addr == 0 && none == 77);
    (void)api_done(m, status);
}

/* ---- Sleep ---- */

/* A fault for good, of all calls, could lose the process: then there is nothing more to ask. */
static void call_sleep(api_model *m, const step *now)
{
    bool of_all_calls = now->fault / 32 == 0;
    if (of_all_calls && (now->fault & 16)) {
        m->faulty = false;
        fault_set(m->fault, &(fault_plan){0});
    }
    api_sleep(m, &(api_nap){.discard = now->argument & 1,
                            .is_forbidden = now->argument & 2,
                            .stays_paused = now->how & 1,
                            .wakes_with_faults = (now->how & 2) && !of_all_calls,
                            .without_room = now->how & 4});
}

/* ---- Steps ---- */

static void set_fault(api_model *m, uint8_t fault)
{
    static const uint64_t ops[] = {
        (UINT64_C(1) << RVLI_OP_COUNT) - 1,
        UINT64_C(1) << RVLI_OP_create,
        UINT64_C(1) << RVLI_OP_map | UINT64_C(1) << RVLI_OP_set_access,
        UINT64_C(1) << RVLI_OP_unmap,
        UINT64_C(1) << RVLI_OP_release,
        UINT64_C(1) << RVLI_OP_copy_to_host | UINT64_C(1) << RVLI_OP_copy_to_device,
        UINT64_C(1) << RVLI_OP_record_event | UINT64_C(1) << RVLI_OP_wait_event,
        UINT64_C(1) << RVLI_OP_host_alloc | UINT64_C(1) << RVLI_OP_digest};
    m->faulty = fault % 16 != 0;
    m->ever_faulty = m->ever_faulty || m->faulty;
    m->ever_broken = m->ever_broken || (m->faulty && fault & 16);
    if (m->faulty)
        fault_set(m->fault, &(fault_plan){.op_mask = ops[fault / 32],
                                          .countdown = fault % 16,
                                          .for_good = fault & 16});
}

static void make_step(api_model *m, const step *now)
{
    verb what = (verb)(now->verb % VERBS);
    /* Questions and marks ask the backend, too: what these answer then is not foreseen here. */
    bool can_fail = (what <= VERB_EXTERNAL && what != VERB_STAGE) || what >= VERB_PARTS;
    set_fault(m, can_fail ? now->fault : 0);
    switch (what) {
    case VERB_ALLOC:
        call_alloc(m, now);
        break;
    case VERB_FREE:
        call_free(m, now);
        break;
    case VERB_PAUSE:
    case VERB_RESUME:
        call_transition(m, now, what == VERB_PAUSE);
        break;
    case VERB_PREPARE_PAUSE:
    case VERB_PREPARE_RESUME:
        call_prepare(m, now, what == VERB_PREPARE_PAUSE);
        break;
    case VERB_COMMIT:
    case VERB_ABORT:
        call_end(m, what == VERB_COMMIT);
        break;
    case VERB_FORECAST:
        call_forecast(m, now);
        break;
    case VERB_WAKE:
        call_wake(m, now);
        break;
    case VERB_IMPORT:
        call_import(m, now);
        break;
    case VERB_MOVE_IMPORT:
        call_move_import(m, now);
        break;
    case VERB_STAGE:
        call_stage(m, now);
        break;
    case VERB_EXTERNAL:
        call_external(m, now);
        break;
    case VERB_ASK:
        call_ask(m, now);
        break;
    case VERB_GUARD:
        call_guard(m, now);
        break;
    case VERB_RECORD:
        call_record(m);
        break;
    case VERB_BACKUP:
        call_backup(m, now);
        break;
    case VERB_RETAIN:
        call_retain(m, now);
        break;
    case VERB_WRONG:
        call_wrong(m, now);
        break;
    case VERB_PARTS:
        call_parts(m, now);
        break;
    case VERB_PREPARE_WAKE:
        call_prepare_wake(m, now);
        break;
    case VERB_SLEEP:
        call_sleep(m, now);
        break;
    default:
        require(rvl_private_let_pass(m->context, now->argument * UINT64_C(1000000)) == RVL_OK);
    }
    fault_set(m->fault, &(fault_plan){0});
    api_check(m);
}

/* The lowest number that is free: one more, and a descriptor is left open. */
static int lowest_descriptor(void)
{
    int lowest = dup(STDERR_FILENO);
    require(lowest >= 0);
    close(lowest);
    return lowest;
}

bool fuzz_run(const uint8_t *data, size_t size)
{
    static api_model m; /* callbacks have its address */
    if (size < 2)
        return false;
    int lowest = lowest_descriptor();
    api_open(&m, data[0], data[1]);
    const size_t count = (size - 2) / sizeof(step);
    for (size_t i = 0; i < count && i < STEPS_MAX; i++) {
        step now;
        memcpy(&now, data + 2 + i * sizeof now, sizeof now);
        make_step(&m, &now);
    }
    api_close(&m);
    require(lowest_descriptor() == lowest);
    return count > 0;
}
