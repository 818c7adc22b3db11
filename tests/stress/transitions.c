/* SPDX-License-Identifier: MIT */
/* A thread's tags: their options and callbacks, pauses and resumes of any set of them, forecasts.
 */
#include <string.h>

#include "actions.h"
#include "random.h"
#include "round.h"
#include "trouble.h"

/* ---- Tags ---- */

static rvl_status before_unmap(void *user, rvl_tag number)
{
    owned_tag *tag = user;
    caller *by = &tag->owner->by, within = *by;
    rvl_context *context = tag->owner->in->context;
    rvl_addr addr = 0;
    tag->unmaps++;
    EXPECT(by, number, tag->number);
    rvl_device_stats stats = {.struct_size = sizeof stats};
    ANSWER(&within, MAY_OK, rvl_device_get_stats, context, 0, &stats);
    ANSWER(&within, MAY(RVL_ERR_STATE), rvl_alloc, context, 1, NULL, &addr);
    ANSWER(&within, MAY(RVL_ERR_STATE), rvl_resume, context, &number, 1, NULL);
    ANSWER(&within, MAY(RVL_ERR_STATE), rvl_tag_set_retain_backups, context, number, true);
    rvl_last_error(&by->before); /* what failed last is one of these */
    return tag->veto ? RVL_ERR_BUSY : RVL_OK;
}

static void after_map(void *user, rvl_tag number)
{
    owned_tag *tag = user;
    EXPECT(&tag->owner->by, number, tag->number);
    tag->maps++;
}

void action_tag(owner *o)
{
    uint64_t *random = &o->by.random;
    owned_tag *tag = &o->tags[random_below(random, OWNER_TAGS)];
    bool shares = random_one_in(random, 4);
    rvl_tag_options options = {
        .struct_size = sizeof options,
        .process = o->process,
        .block_bytes = shares ? 0 : random_below(random, 3) * GRANULE_BYTES,
        .coalesce_bytes = shares ? CARRIER_GRANULES * GRANULE_BYTES : 0,
        .flags = (random_one_in(random, 3) ? RVL_TAG_RETAIN_BACKUPS : 0) |
                 (random_one_in(random, 3) ? RVL_TAG_POISON : 0),
        .callback_user = tag,
    };
    bool callbacks = random_one_in(random, 2);
    if (callbacks) {
        options.before_unmap = before_unmap;
        options.after_map = after_map;
    }
    rvl_tag number = 0;
    ANSWER(&o->by, MAY_OK, rvl_tag_define, o->in->context, tag->name, &options, &number);
    EXPECT(&o->by, number, tag->number);
    tag->callbacks = callbacks;
    tag->retain = options.flags & RVL_TAG_RETAIN_BACKUPS;
    tag->shares = tag->shares || shares;
    if (random_one_in(random, 3)) {
        tag->retain = !tag->retain;
        ANSWER(&o->by, MAY_OK, rvl_tag_set_retain_backups, o->in->context, number, tag->retain);
    }
    ANSWER(&o->by, MAY_OK, rvl_tag_find, o->in->context, o->process, tag->name, &number);
    EXPECT(&o->by, number, tag->number);
    EXPECT(&o->by, strcmp(CALL(&o->by, rvl_tag_name, o->in->context, number), tag->name), 0);
}

/* ---- Sets of tags ---- */

/* Tags as a call takes them: in any order, some twice, or none for the whole process. */
typedef struct tag_list {
    unsigned set;
    rvl_tag numbers[OWNER_TAGS + 2];
    size_t count;
} tag_list;

static tag_list any_tags(owner *o)
{
    tag_list list = {.count = random_below(&o->by.random, OWNER_TAGS + 2)};
    for (size_t i = 0; i < list.count; i++) {
        int tag = (int)random_below(&o->by.random, OWNER_TAGS);
        list.numbers[i] = o->tags[tag].number;
        list.set |= 1u << tag;
    }
    if (list.count == 0)
        list.set = (1u << OWNER_TAGS) - 1;
    return list;
}

/* Whether a transition moves anything of a tag. */
static bool moves(const owner *o, int tag, bool pause)
{
    for (int i = 0; i < OWNER_SLOTS; i++) {
        const slot *s = &o->slots[i];
        if (s->addr != 0 && s->tag == tag && (s->state == RVL_STATE_ACTIVE) == pause)
            return true;
    }
    return false;
}

static unsigned touched_of(const owner *o, unsigned set, bool pause)
{
    unsigned touched = 0;
    for (int i = 0; i < OWNER_TAGS; i++)
        touched |= in_set(set, i) && moves(o, i, pause) ? 1u << i : 0;
    return touched;
}

/* ---- In two phases ---- */

#define ABORTED RVL_ERR_STATE /* what an abort counts as: nothing was done */

/* Commits or aborts what was prepared. A commit succeeds whatever fails. */
static rvl_status end_prepared(owner *o, rvl_transition *transition)
{
    caller *by = &o->by;
    EXPECT(by, CALL(by, rvl_transition_get_context, transition) == o->in->context, true);
    ANSWER(by, MAY(RVL_ERR_BUSY), rvl_context_close, o->in->context, NULL);
    if (random_one_in(&by->random, 2))
        return ANSWER(by, MAY_OK, rvl_transition_commit, transition);
    ANSWER(by, MAY_OK | may_by_fault(o), rvl_transition_abort, transition);
    return ABORTED;
}

/* Nobody else moves these tags. In two phases the caller is refused meanwhile, as others are. */
static rvl_status pause_list(owner *o, uint32_t may, const tag_list *list,
                             const rvl_pause_options *options)
{
    rvl_transition *transition = NULL;
    if (!random_one_in(&o->by.random, 4))
        return ANSWER(&o->by, may, rvl_pause, o->in->context, list->numbers, list->count, options);
    rvl_status status = ANSWER(&o->by, may, rvl_pause_prepare, o->in->context, list->numbers,
                               list->count, options, &transition);
    if (status != RVL_OK)
        return status;
    ANSWER(&o->by, MAY(RVL_ERR_BUSY) | MAY(RVL_ERR_HOST_OOM), rvl_resume, o->in->context,
           list->numbers, list->count,
           &(rvl_resume_options){.struct_size = sizeof(rvl_resume_options), .process = o->process});
    return end_prepared(o, transition);
}

/* ---- In order ---- */

static void note_arrival(void *user, const rvl_arrival *arrival)
{
    uint64_t *bytes = user;
    *bytes += arrival->size_bytes;
}

/* Some of the owner's addresses, of whatever moves or does not, from any of them on. */
static size_t any_order(owner *o, rvl_addr *order)
{
    size_t count = 0, first = random_below(&o->by.random, OWNER_SLOTS);
    for (size_t i = 0; i < OWNER_SLOTS; i++) {
        const slot *s = &o->slots[(first + i) % OWNER_SLOTS];
        if (s->addr != 0 && random_one_in(&o->by.random, 2))
            order[count++] = s->addr;
    }
    return count;
}

/* Waits for one of them, and then for all. */
static rvl_status finish_wake(owner *o, const tag_list *list, rvl_resuming *wake)
{
    caller *by = &o->by;
    uint32_t may = MAY_OK | may_by_fault(o);
    const slot *s = &o->slots[random_below(&by->random, OWNER_SLOTS)];
    if (s->addr != 0 && in_set(list->set, s->tag))
        ANSWER(by, MAY_OK | MAY(RVL_ERR_HOST_OOM) | (o->in->faulty ? MAY(RVL_ERR_STATE) : 0),
               rvl_allocation_wait, o->in->context, s->addr, RVL_WAIT_FOREVER);
    ANSWER(by, MAY(RVL_ERR_BUSY), rvl_context_close, o->in->context, NULL);
    return ANSWER(by, may, rvl_resume_finish, wake);
}

/* Commits, and contents are on their way; or aborts. */
static rvl_status end_prepared_wake(owner *o, rvl_resuming *wake)
{
    caller *by = &o->by;
    ANSWER(by, MAY(RVL_ERR_BUSY), rvl_context_close, o->in->context, NULL);
    ANSWER(by, MAY(RVL_ERR_STATE), rvl_resume_finish, wake);
    if (random_one_in(&by->random, 2))
        return ANSWER(by, MAY_OK, rvl_resume_start_commit, wake);
    ANSWER(by, MAY_OK | may_by_fault(o), rvl_resume_start_abort, wake);
    return ABORTED;
}

/* Guards know the thread that moves memory, and are not asked about this one. */
static rvl_status resume_in_order(owner *o, uint32_t may, const tag_list *list,
                                  const rvl_resume_options *plain)
{
    rvl_resuming *wake = NULL;
    rvl_addr order[OWNER_SLOTS];
    uint64_t arrived_bytes = 0;
    rvl_resume_options options = *plain;
    options.order = order;
    options.order_count = any_order(o, order);
    options.arrived = note_arrival;
    options.arrived_user = &arrived_bytes;
    bool two_phases = random_one_in(&o->by.random, 2);
    rvl_status status = two_phases ? ANSWER(&o->by, may, rvl_resume_start_prepare, o->in->context,
                                            list->numbers, list->count, &options, &wake)
                                   : ANSWER(&o->by, may, rvl_resume_start, o->in->context,
                                            list->numbers, list->count, &options, &wake);
    if (status == RVL_OK && two_phases)
        status = end_prepared_wake(o, wake);
    if (status != RVL_OK)
        return status;
    status = finish_wake(o, list, wake);
    if (status == RVL_OK)
        EXPECT(&o->by, arrived_bytes > 0, touched_of(o, list->set, false) != 0);
    return status;
}

/* ---- In parts ---- */

#define PIECES_MAX 64

/* What is open is said to be filled, and is not: all of it is to come from the backups. */
static rvl_status fill_pieces(owner *o, uint32_t may, rvl_transition *transition)
{
    caller *by = &o->by;
    rvl_piece pieces[PIECES_MAX];
    bool filled[PIECES_MAX];
    size_t count = 0, open = 0;
    ANSWER(by, MAY_OK, rvl_transition_copy_pieces, transition, pieces, sizeof *pieces, PIECES_MAX,
           &count);
    EXPECT(by, count <= PIECES_MAX, true);
    for (size_t i = 0; i < count; i++) {
        filled[i] = random_one_in(&by->random, 2);
        open += pieces[i].state == RVL_PIECE_OPEN;
    }
    if (open > 0)
        ANSWER(by, MAY(RVL_ERR_STATE), rvl_transition_commit, transition);
    size_t own = random_one_in(&by->random, 8) ? 0 : 1 + random_below(&by->random, 3), piece = 0;
    for (size_t i = 0; i < own; i++)
        if (ANSWER(by, may, rvl_transition_load_next, transition, &piece) != RVL_OK ||
            piece == count)
            break;
    EXPECT(by, piece <= count, true);
    return ANSWER(by, may, rvl_transition_fill, transition, filled, count);
}

static rvl_status resume_in_parts(owner *o, uint32_t may, const tag_list *list,
                                  const rvl_resume_options *plain)
{
    rvl_transition *transition = NULL;
    rvl_resume_options options = *plain;
    options.part_count = 1 + (uint32_t)random_below(&o->by.random, 4);
    options.part_index = (uint32_t)random_below(&o->by.random, options.part_count);
    options.flags |= random_one_in(&o->by.random, 2) ? RVL_RESUME_BY_PIECES : 0;
    rvl_status status = ANSWER(&o->by, may, rvl_resume_prepare, o->in->context, list->numbers,
                               list->count, &options, &transition);
    if (status != RVL_OK)
        return status;
    if (fill_pieces(o, may | may_by_fault(o), transition) == RVL_OK)
        return end_prepared(o, transition);
    ANSWER(&o->by, MAY_OK | may_by_fault(o), rvl_transition_abort, transition);
    return ABORTED;
}

static rvl_status resume_list(owner *o, uint32_t may, const tag_list *list,
                              const rvl_resume_options *options)
{
    rvl_transition *transition = NULL;
    if (!o->round->has_guard && random_one_in(&o->by.random, 4))
        return resume_in_order(o, may, list, options);
    if (!random_one_in(&o->by.random, 4))
        return ANSWER(&o->by, may, rvl_resume, o->in->context, list->numbers, list->count, options);
    if (random_one_in(&o->by.random, 2))
        return resume_in_parts(o, may, list, options);
    rvl_status status = ANSWER(&o->by, may, rvl_resume_prepare, o->in->context, list->numbers,
                               list->count, options, &transition);
    if (status != RVL_OK)
        return status;
    return end_prepared(o, transition);
}

/* ---- Pausing ---- */

static void draw_vetoes(owner *o, unsigned set, bool *vetoed_out)
{
    *vetoed_out = false;
    for (int i = 0; i < OWNER_TAGS; i++) {
        owned_tag *tag = &o->tags[i];
        tag->unmaps = tag->maps = 0;
        tag->veto = random_one_in(&o->by.random, 12);
        *vetoed_out =
            *vetoed_out || (in_set(set, i) && tag->callbacks && tag->veto && moves(o, i, true));
    }
}

static void pause_tags(owner *o, const tag_list *list, bool discard)
{
    bool vetoed = false;
    void *stream = &vetoed;
    unsigned touched = touched_of(o, list->set, true);
    draw_vetoes(o, list->set, &vetoed);
    rvl_pause_options options = {.struct_size = sizeof options,
                                 .process = o->process,
                                 .flags = discard ? RVL_PAUSE_DISCARD : 0,
                                 .streams = &stream,
                                 .stream_count = random_one_in(&o->by.random, 8)};
    trouble t;
    uint32_t may = guard_begin(o, true, touched, vetoed ? MAY(RVL_ERR_VETOED) : MAY_OK);
    may |= trouble_begin(o, &t);
    rvl_status status = pause_list(o, may, list, &options);
    trouble_end(o, &t);
    guard_end(o, status);
    if (status == RVL_OK) {
        for (int i = 0; i < OWNER_TAGS; i++)
            EXPECT(&o->by, o->tags[i].unmaps, in_set(touched, i) && o->tags[i].callbacks);
        owner_paused(o, list->set, discard);
    }
    owner_note_lost(o);
}

void action_pause(owner *o)
{
    tag_list list = any_tags(o);
    pause_tags(o, &list, random_one_in(&o->by.random, 5));
    owner_check_contents(o);
}

/* ---- Resuming ---- */

static void sum_needed(const owner *o, unsigned set, uint64_t *bytes_out)
{
    for (int i = 0; i < OWNER_SLOTS; i++) {
        const slot *s = &o->slots[i];
        if (s->addr != 0 && in_set(set, s->tag) && s->state != RVL_STATE_ACTIVE)
            bytes_out[s->device] += s->size;
    }
}

static rvl_status resume_tags(owner *o, const tag_list *list, bool no_restore)
{
    uint64_t needed[DEVICES_MAX] = {0};
    unsigned touched = touched_of(o, list->set, false);
    for (int i = 0; i < OWNER_TAGS; i++)
        o->tags[i].maps = 0;
    sum_needed(o, list->set, needed);
    rvl_resume_options options = {.struct_size = sizeof options,
                                  .process = o->process,
                                  .flags = no_restore ? RVL_RESUME_NO_RESTORE : 0,
                                  .timeout_ns = random_one_in(&o->by.random, 8) ? 1000 : 0};
    trouble t;
    uint32_t may = owner_may_fit(o, needed);
    if (options.timeout_ns > 0 && may & MAY(RVL_ERR_DEVICE_OOM))
        may |= MAY(RVL_ERR_TIMEOUT);
    if (options.timeout_ns > 0 && o->in->faulty)
        may |= MAY(RVL_ERR_TIMEOUT);
    may = guard_begin(o, false, touched, may) | trouble_begin(o, &t);
    rvl_status status = resume_list(o, may, list, &options);
    trouble_end(o, &t);
    guard_end(o, status);
    o->upset = o->upset || status != RVL_OK;
    if (status == RVL_OK) {
        for (int i = 0; i < OWNER_TAGS; i++)
            EXPECT(&o->by, o->tags[i].maps, in_set(touched, i) && o->tags[i].callbacks);
        owner_resumed(o, list->set, no_restore);
    } else {
        owner_arrived(o, list->set, no_restore);
    }
    owner_note_lost(o);
    return status;
}

void action_resume(owner *o)
{
    tag_list list = any_tags(o);
    resume_tags(o, &list, random_one_in(&o->by.random, 6));
    owner_check_contents(o);
}

/* ---- Forecasts ---- */

/* What the model says of the allocations that would move. */
typedef struct prospect {
    uint64_t count;
    uint64_t bytes;
    uint64_t host_bytes;
    uint64_t disk_bytes;
    bool exact;
} prospect;

static prospect look_ahead(const owner *o, unsigned set, bool pause, bool discard)
{
    prospect p = {.exact = o->in->devices == 1};
    for (int i = 0; i < OWNER_TAGS; i++)
        p.exact = p.exact && (!in_set(set, i) || owner_is_exact(&o->tags[i]));
    for (int i = 0; i < OWNER_SLOTS; i++) {
        const slot *s = &o->slots[i];
        if (s->addr == 0 || !in_set(set, s->tag) || (s->state == RVL_STATE_ACTIVE) != pause)
            continue;
        bool counts_backup = pause ? !s->held && !discard : s->held && !o->tags[s->tag].retain;
        p.count++;
        p.bytes += s->size;
        p.host_bytes += counts_backup && s->policy == RVL_BACKUP_HOST ? s->size : 0;
        p.disk_bytes += counts_backup && s->policy == RVL_BACKUP_DISK ? s->size : 0;
    }
    return p;
}

static void compare_forecast(owner *o, const rvl_forecast *forecast, const prospect *p)
{
    EXPECT(&o->by, forecast->allocation_count, p->count);
    if (!p->exact)
        return;
    EXPECT(&o->by, forecast->needed_bytes, p->bytes);
    EXPECT(&o->by, forecast->host_bytes, p->host_bytes);
    EXPECT(&o->by, forecast->disk_bytes, p->disk_bytes);
}

/* The call that was forecast takes what was forecast, where time is the simulator's alone. */
static void compare_time(owner *o, const rvl_forecast *forecast, uint64_t begin_ns)
{
    const arena *in = o->in;
    for (int i = 0; i < OWNER_TAGS; i++)
        if (o->tags[i].retain)
            return; /* the next pause copies less than all */
    if (in->threads == 1 && in->accounted && !in->faulty && !o->upset)
        EXPECT(&o->by, CALL(&o->by, rvl_clock_ns, in->context) - begin_ns, forecast->time_ns);
}

static void forecast_pause(owner *o, const tag_list *list)
{
    bool discard = random_one_in(&o->by.random, 4);
    rvl_pause_options options = {.struct_size = sizeof options,
                                 .process = o->process,
                                 .flags = discard ? RVL_PAUSE_DISCARD : 0};
    rvl_forecast forecast = {.struct_size = sizeof forecast};
    if (ANSWER(&o->by, MAY_OK | may_by_fault(o), rvl_pause_forecast, o->in->context, list->numbers,
               list->count, &options, &forecast) != RVL_OK)
        return;
    prospect p = look_ahead(o, list->set, true, discard);
    compare_forecast(o, &forecast, &p);
    EXPECT(&o->by, forecast.fits, true);
    bool vetoed = false;
    draw_vetoes(o, list->set, &vetoed);
    if (vetoed || o->in->faulty)
        return;
    uint64_t begin_ns = CALL(&o->by, rvl_clock_ns, o->in->context);
    uint32_t may = guard_begin(o, true, touched_of(o, list->set, true), MAY_OK);
    rvl_status status =
        ANSWER(&o->by, may, rvl_pause, o->in->context, list->numbers, list->count, &options);
    guard_end(o, status);
    if (status != RVL_OK)
        return;
    owner_paused(o, list->set, discard);
    compare_time(o, &forecast, begin_ns);
}

static void forecast_resume(owner *o, const tag_list *list)
{
    bool no_restore = random_one_in(&o->by.random, 4);
    rvl_resume_options options = {.struct_size = sizeof options,
                                  .process = o->process,
                                  .flags = no_restore ? RVL_RESUME_NO_RESTORE : 0};
    rvl_forecast forecast = {.struct_size = sizeof forecast};
    if (ANSWER(&o->by, MAY_OK | may_by_fault(o), rvl_resume_forecast, o->in->context, list->numbers,
               list->count, &options, &forecast) != RVL_OK)
        return;
    prospect p = look_ahead(o, list->set, false, false);
    compare_forecast(o, &forecast, &p);
    if (o->in->faulty)
        return;
    uint64_t needed[DEVICES_MAX] = {0};
    sum_needed(o, list->set, needed);
    uint32_t may = owner_may_fit(o, needed);
    if (o->in->threads == 1 && !o->in->overcommit)
        may &= forecast.fits ? MAY_OK : MAY(RVL_ERR_DEVICE_OOM);
    uint64_t begin_ns = CALL(&o->by, rvl_clock_ns, o->in->context);
    may = guard_begin(o, false, touched_of(o, list->set, false), may);
    rvl_status status =
        ANSWER(&o->by, may, rvl_resume, o->in->context, list->numbers, list->count, &options);
    guard_end(o, status);
    if (status != RVL_OK) {
        o->upset = true;
        return;
    }
    owner_resumed(o, list->set, no_restore);
    compare_time(o, &forecast, begin_ns);
}

void action_forecast(owner *o)
{
    tag_list list = any_tags(o);
    if (random_one_in(&o->by.random, 2))
        forecast_pause(o, &list);
    else
        forecast_resume(o, &list);
    owner_check_contents(o);
}
