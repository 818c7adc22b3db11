/* SPDX-License-Identifier: MIT */
/*
 * Every public call that reaches the backend, with every op it makes failing in turn: once, and
 * from then on.
 *
 * Once: a call that answers an error has changed nothing (states, content, counters, bytes), and
 * the same call then succeeds. A call may also succeed in spite of the fault, by asking a second
 * time; then its effect is complete. For good: what a backup holds is never lost.
 *
 * All of it with released blocks given back and kept, with the weights in blocks of their own and
 * in shared ones, and with their backups in host memory, retained there, and on disk.
 */
#include <stdio.h>
#include <string.h>

#include "tests/support/support.h"

/* Small granules: every scene is played thousands of times, and all its content is digested. */
#undef GRANULE
#define GRANULE (UINT64_C(64) << 10)
#define WEIGHTS 3
#define CAPACITY (32 * GRANULE)

/* How the memory lies. */
typedef struct layout {
    uint64_t keep_bytes;
    uint64_t coalesce_bytes; /* of the weights; 0: several blocks each */
    rvl_backup backup;       /* of the weights */
    bool retain;             /* backups outlive the resume */
    bool poison;             /* the cache is filled when it comes back */
} layout;

static const layout layouts[] = {
    {.backup = RVL_BACKUP_HOST},
    {.backup = RVL_BACKUP_HOST, .keep_bytes = CAPACITY},
    {.backup = RVL_BACKUP_HOST, .coalesce_bytes = 8 * GRANULE},
    {.backup = RVL_BACKUP_HOST, .retain = true, .poison = true},
    {.backup = RVL_BACKUP_DISK},
    {.backup = RVL_BACKUP_DISK,
     .keep_bytes = CAPACITY,
     .coalesce_bytes = 8 * GRANULE,
     .poison = true},
};

#define LAYOUTS (sizeof layouts / sizeof *layouts)

/* A context in the middle of its life. */
typedef struct scene {
    rvl_context *context;
    layout layout;
    fault_injector *fault;
    rvl_addr weights[WEIGHTS]; /* host backup; the second in several blocks */
    rvl_addr cache;            /* no backup */
    rvl_addr made;             /* what a tested allocation made */
    bool changed;              /* the second half of the first weight, between two pauses */
    rvl_tag weights_tag;
    rvl_tag cache_tag;
} scene;

static const uint64_t weight_bytes[WEIGHTS] = {2 * GRANULE, 3 * GRANULE, GRANULE};

/* What the weights take on a device. */
static uint64_t weights_bytes(const scene *s, int device)
{
    if (s->layout.coalesce_bytes > 0)
        return s->layout.coalesce_bytes;
    return device == 0 ? weight_bytes[0] + weight_bytes[2] : weight_bytes[1];
}

/* Host memory that the backups of the weights on a device take while they are paused. */
static uint64_t weights_host_bytes(const scene *s, int device)
{
    return s->layout.backup == RVL_BACKUP_HOST ? weights_bytes(s, device) : 0;
}

static scene open_scene(layout how)
{
    scene s = {.layout = how};
    s.context = support_open((support_options){.devices = 2,
                                               .capacity_bytes = CAPACITY,
                                               .granularity_bytes = GRANULE,
                                               .keep_bytes = how.keep_bytes,
                                               .disk_directory = "/tmp"},
                             &s.fault);
    rvl_tag_options options = {.struct_size = sizeof options,
                               .block_bytes = how.coalesce_bytes > 0 ? 0 : 2 * GRANULE,
                               .coalesce_bytes = how.coalesce_bytes,
                               .flags = how.retain ? RVL_TAG_RETAIN_BACKUPS : 0};
    assert_int_equal(rvl_tag_define(s.context, "weights", &options, &s.weights_tag), RVL_OK);
    for (int i = 0; i < WEIGHTS; i++) {
        s.weights[i] = support_alloc(s.context, "weights", i % 2, weight_bytes[i], how.backup);
        support_fill(s.weights[i], weight_bytes[i], (uint64_t)i);
    }
    options =
        (rvl_tag_options){.struct_size = sizeof options, .flags = how.poison ? RVL_TAG_POISON : 0};
    assert_int_equal(rvl_tag_define(s.context, "cache", &options, &s.cache_tag), RVL_OK);
    s.cache = support_alloc(s.context, "cache", 0, 4 * GRANULE, RVL_BACKUP_NONE);
    support_fill(s.cache, 4 * GRANULE, 77);
    assert_int_equal(rvl_stage(s.context, "work"), RVL_OK);
    return s;
}

/* ---- What must not change ---- */

typedef struct snapshot {
    rvl_device_stats devices[2];
    rvl_tag_stats tags[2];
    rvl_stage_stats stages[2][2];
    rvl_state states[WEIGHTS + 1];
    uint64_t backup_bytes[WEIGHTS + 1];
    uint64_t free_bytes[2];
    uint32_t stage_count;
} snapshot;

static uint64_t free_bytes(rvl_context *context, int device)
{
    rvl_device_stats stats = support_stats(context, device);
    return stats.capacity_bytes - stats.used_bytes;
}

static snapshot take(const scene *s)
{
    snapshot shot;
    memset(&shot, 0, sizeof shot);
    const rvl_tag tags[2] = {s->weights_tag, s->cache_tag};
    shot.stage_count = rvl_stage_count(s->context);
    for (int device = 0; device < 2; device++) {
        rvl_device_stats stats = support_stats(s->context, device);
        stats.transition_ns = 0; /* time passes also for calls that fail */
        shot.devices[device] = stats;
        shot.free_bytes[device] = free_bytes(s->context, device);
        shot.tags[device].struct_size = sizeof shot.tags[device];
        assert_int_equal(rvl_tag_get_stats(s->context, tags[device], -1, &shot.tags[device]),
                         RVL_OK);
        for (uint32_t stage = 0; stage < 2; stage++) {
            shot.stages[device][stage].struct_size = sizeof(rvl_stage_stats);
            assert_int_equal(
                rvl_stage_get_stats(s->context, stage, device, &shot.stages[device][stage]),
                RVL_OK);
            shot.stages[device][stage].transition_ns = 0;
        }
    }
    for (int i = 0; i <= WEIGHTS; i++) {
        rvl_allocation allocation = {.struct_size = sizeof allocation};
        rvl_addr addr = i < WEIGHTS ? s->weights[i] : s->cache;
        assert_int_equal(rvl_allocation_find(s->context, addr, &allocation), RVL_OK);
        shot.states[i] = allocation.state;
        shot.backup_bytes[i] = allocation.backup_bytes;
    }
    return shot;
}

/* Field by field: padding between fields is anybody's. */
static void check_same(const snapshot *before, const snapshot *after)
{
    assert_int_equal(before->stage_count, after->stage_count);
    for (int device = 0; device < 2; device++) {
        const rvl_device_stats *was = &before->devices[device], *is = &after->devices[device];
#define SAME_COUNTER(field) assert_int_equal(was->field, is->field);
        RVL_DEVICE_COUNTER_MAP(SAME_COUNTER)
#undef SAME_COUNTER
        assert_int_equal(was->peak_stage, is->peak_stage);
        assert_int_equal(was->oom.happened, is->oom.happened);
        assert_int_equal(before->free_bytes[device], after->free_bytes[device]);
        assert_memory_equal(&before->tags[device], &after->tags[device], sizeof(rvl_tag_stats));
        for (int stage = 0; stage < 2; stage++) {
            const rvl_stage_stats *old = &before->stages[device][stage];
            const rvl_stage_stats *new = &after->stages[device][stage];
            assert_int_equal(old->peak_bytes, new->peak_bytes);
            assert_int_equal(old->end_bytes, new->end_bytes);
            assert_int_equal(old->host_bytes, new->host_bytes);
        }
    }
    assert_memory_equal(before->states, after->states, sizeof before->states);
    assert_memory_equal(before->backup_bytes, after->backup_bytes, sizeof before->backup_bytes);
}

#define CHANGED_SEED 40

static bool weight_holds(const scene *s, int i)
{
    if (i != 0 || !s->changed)
        return support_holds(s->weights[i], weight_bytes[i], (uint64_t)i);
    return support_holds(s->weights[0], GRANULE, 0) &&
           support_holds(s->weights[0] + GRANULE, GRANULE, CHANGED_SEED);
}

/* Content of what is active; after a failed pause also of what has no backup. */
static void check_content(const scene *s, bool cache_too)
{
    for (int i = 0; i < WEIGHTS; i++)
        if (s->weights[i] != 0 && support_state(s->context, s->weights[i]) == RVL_STATE_ACTIVE)
            assert_true(weight_holds(s, i));
    if (cache_too && support_state(s->context, s->cache) == RVL_STATE_ACTIVE)
        assert_true(support_holds(s->cache, 4 * GRANULE, 77));
}

/* ---- The calls ---- */

typedef struct call {
    const char *name;
    void (*prepare)(scene *s);
    rvl_status (*run)(scene *s);
    void (*check)(scene *s); /* its effect, once it has succeeded */
} call;

static void nothing(scene *s)
{
    (void)s;
}

static rvl_status run_alloc(scene *s)
{
    const int access[] = {1};
    rvl_alloc_options options = {
        .struct_size = sizeof options,
        .tag = "weights",
        .access = access,
        .access_count = 1,
    };
    return rvl_alloc(s->context, 5 * GRANULE, &options, &s->made);
}

static void check_alloc(scene *s)
{
    support_fill(s->made, 5 * GRANULE, 5);
    assert_true(support_holds(s->made, 5 * GRANULE, 5));
    assert_int_equal(support_stats(s->context, 0).allocation_count, 4);
}

/* Small enough to share a block, and the first of its policy. */
static rvl_status run_small_alloc(scene *s)
{
    rvl_alloc_options options = {.struct_size = sizeof options, .tag = "weights"};
    return rvl_alloc(s->context, GRANULE, &options, &s->made);
}

static void check_small_alloc(scene *s)
{
    support_fill(s->made, GRANULE, 5);
    assert_true(support_holds(s->made, GRANULE, 5));
    rvl_device_stats stats = support_stats(s->context, 0);
    uint64_t own = stats.used_bytes - weights_bytes(s, 0) - 4 * GRANULE;
    /* Where a shared block was refused it has a block of its own. */
    assert_true(own == GRANULE || (own > 0 && own == s->layout.coalesce_bytes));
    assert_int_equal(stats.allocation_count, 4);
}

/* One of two that share a block, where blocks are shared. */
static rvl_status run_free_of_two(scene *s)
{
    return rvl_free(s->context, s->weights[0]);
}

static void check_free_of_two(scene *s)
{
    rvl_device_stats stats = support_stats(s->context, 0);
    uint64_t left = s->layout.coalesce_bytes > 0 ? weights_bytes(s, 0) : weight_bytes[2];
    assert_int_equal(stats.used_bytes - stats.kept_bytes, left + 4 * GRANULE);
    assert_int_equal(stats.allocation_count, 2);
    s->weights[0] = 0;
}

static rvl_status run_free(scene *s)
{
    return rvl_free(s->context, s->weights[1]);
}

/* A freed weight is 0 from then on. */
static void check_free(scene *s)
{
    rvl_allocation allocation = {.struct_size = sizeof allocation};
    assert_int_equal(rvl_allocation_find(s->context, s->weights[1], &allocation),
                     RVL_ERR_NOT_FOUND);
    rvl_device_stats stats = support_stats(s->context, 1);
    assert_int_equal(stats.used_bytes, stats.kept_bytes);
    s->weights[1] = 0;
}

static void check_free_of_paused(scene *s)
{
    assert_int_equal(support_stats(s->context, 1).host_backup_bytes, 0);
    s->weights[1] = 0;
}

static rvl_status run_pause(scene *s)
{
    const rvl_tag tags[] = {s->weights_tag, s->cache_tag};
    return rvl_pause(s->context, tags, 2, NULL);
}

static void check_pause(scene *s)
{
    for (int i = 0; i < WEIGHTS; i++)
        assert_int_equal(support_state(s->context, s->weights[i]), RVL_STATE_PAUSED);
    assert_int_equal(support_state(s->context, s->cache), RVL_STATE_PAUSED);
    rvl_device_stats stats = support_stats(s->context, 0);
    assert_int_equal(stats.used_bytes, stats.kept_bytes);
    assert_int_equal(stats.host_backup_bytes, weights_host_bytes(s, 0));
    assert_int_equal(stats.host_backup_bytes + stats.disk_backup_bytes, weights_bytes(s, 0));
    assert_int_equal(stats.pauses, 3);
}

static void prepare_resume(scene *s)
{
    assert_int_equal(run_pause(s), RVL_OK);
}

static rvl_status run_resume(scene *s)
{
    const rvl_tag tags[] = {s->weights_tag, s->cache_tag};
    return rvl_resume(s->context, tags, 2, NULL);
}

static void check_resume(scene *s)
{
    for (int i = 0; i < WEIGHTS; i++) {
        assert_int_equal(support_state(s->context, s->weights[i]), RVL_STATE_ACTIVE);
        assert_true(weight_holds(s, i));
    }
    assert_int_equal(support_stats(s->context, 0).host_backup_bytes,
                     s->layout.retain ? weights_bytes(s, 0) : 0);
    assert_int_equal(support_stats(s->context, 0).disk_backup_bytes, 0);
    assert_int_equal(support_stats(s->context, 0).used_bytes, weights_bytes(s, 0) + 4 * GRANULE);
    assert_int_equal(support_stats(s->context, 0).resumes, 3);
    for (uint64_t i = 0; i < 4 * GRANULE && s->layout.poison; i++)
        assert_int_equal(((const unsigned char *)(uintptr_t)s->cache)[i], 0xFF);
}

/* Some of what was paused before has changed since. */
static void prepare_second_pause(scene *s)
{
    assert_int_equal(run_pause(s), RVL_OK);
    assert_int_equal(run_resume(s), RVL_OK);
    support_fill(s->cache, 4 * GRANULE, 77); /* it had no backup */
    support_fill(s->weights[0] + GRANULE, GRANULE, CHANGED_SEED);
    s->changed = true;
}

static void check_second_pause(scene *s)
{
    rvl_device_stats stats = support_stats(s->context, 0);
    assert_int_equal(stats.host_backup_bytes + stats.disk_backup_bytes, weights_bytes(s, 0));
    assert_int_equal(run_resume(s), RVL_OK);
    for (int i = 0; i < WEIGHTS; i++)
        assert_true(weight_holds(s, i));
}

/* ---- In two phases ---- */

typedef rvl_status (*end_fn)(rvl_transition *transition);

static rvl_status pause_in_two(scene *s, end_fn end)
{
    const rvl_tag tags[] = {s->weights_tag, s->cache_tag};
    rvl_transition *transition = NULL;
    rvl_status status = rvl_pause_prepare(s->context, tags, 2, NULL, &transition);
    assert_int_equal(transition != NULL, status == RVL_OK);
    return status == RVL_OK ? end(transition) : status;
}

static rvl_status resume_in_two(scene *s, end_fn end)
{
    const rvl_tag tags[] = {s->weights_tag, s->cache_tag};
    rvl_transition *transition = NULL;
    rvl_status status = rvl_resume_prepare(s->context, tags, 2, NULL, &transition);
    assert_int_equal(transition != NULL, status == RVL_OK);
    return status == RVL_OK ? end(transition) : status;
}

/* Whatever fails. */
static rvl_status commit(rvl_transition *transition)
{
    assert_int_equal(rvl_transition_commit(transition), RVL_OK);
    return RVL_OK;
}

static rvl_status run_prepared_pause(scene *s)
{
    return pause_in_two(s, commit);
}

static rvl_status run_prepared_resume(scene *s)
{
    return resume_in_two(s, commit);
}

static rvl_status run_aborted_pause(scene *s)
{
    return pause_in_two(s, rvl_transition_abort);
}

static rvl_status run_aborted_resume(scene *s)
{
    return resume_in_two(s, rvl_transition_abort);
}

static void check_aborted_pause(scene *s)
{
    rvl_device_stats stats = support_stats(s->context, 0);
    assert_int_equal(stats.used_bytes, weights_bytes(s, 0) + 4 * GRANULE);
    assert_int_equal(stats.host_backup_bytes + stats.disk_backup_bytes, 0);
    assert_int_equal(stats.pauses, 0);
    for (int i = 0; i < WEIGHTS; i++)
        assert_int_equal(support_state(s->context, s->weights[i]), RVL_STATE_ACTIVE);
    assert_int_equal(support_state(s->context, s->cache), RVL_STATE_ACTIVE);
    check_content(s, true);
}

/* And the content comes back. */
static void check_aborted_resume(scene *s)
{
    check_pause(s);
    assert_int_equal(support_stats(s->context, 0).resumes, 0);
    assert_int_equal(run_resume(s), RVL_OK);
    check_resume(s);
}

/* ---- In parts ---- */

#define IMAGES 8
#define IMAGE_BYTES (8 * GRANULE)

/* What a neighbour would bring: the pieces of the other part, by their place in the list. */
static struct {
    char bytes[IMAGES][IMAGE_BYTES];
    size_t count;
} neighbour;

static rvl_status prepare_part(scene *s, uint32_t index, uint64_t flags,
                               rvl_transition **transition_out)
{
    const rvl_tag tags[] = {s->weights_tag, s->cache_tag};
    const rvl_resume_options options = {
        .struct_size = sizeof options, .flags = flags, .part_index = index, .part_count = 2};
    return rvl_resume_prepare(s->context, tags, 2, &options, transition_out);
}

static size_t list_pieces(rvl_transition *transition, rvl_piece *pieces)
{
    size_t count = 0;
    assert_int_equal(rvl_transition_copy_pieces(transition, pieces, sizeof *pieces, IMAGES, &count),
                     RVL_OK);
    assert_true(count >= 2 && count <= IMAGES);
    return count;
}

static void prepare_parts(scene *s)
{
    rvl_transition *transition = NULL;
    rvl_piece pieces[IMAGES];
    prepare_resume(s);
    assert_int_equal(prepare_part(s, 1, 0, &transition), RVL_OK);
    neighbour.count = list_pieces(transition, pieces);
    for (size_t i = 0; i < neighbour.count; i++)
        if (pieces[i].state == RVL_PIECE_RESTORED)
            memcpy(neighbour.bytes[i], (void *)(uintptr_t)pieces[i].addr, pieces[i].size_bytes);
    assert_int_equal(rvl_transition_abort(transition), RVL_OK);
}

/* Of what is open the first is brought right, the second wrong, the third not at all. */
static void bring_pieces(rvl_transition *transition, bool *filled)
{
    rvl_piece pieces[IMAGES];
    assert_int_equal(list_pieces(transition, pieces), neighbour.count);
    for (size_t i = 0, open = 0; i < neighbour.count; i++) {
        char *bytes = (char *)(uintptr_t)pieces[i].addr;
        filled[i] = pieces[i].state == RVL_PIECE_OPEN && open != 2;
        if (filled[i])
            memcpy(bytes, neighbour.bytes[i], pieces[i].size_bytes);
        if (filled[i] && open == 1)
            bytes[GRANULE / 2] ^= 1;
        open += pieces[i].state == RVL_PIECE_OPEN;
    }
}

/* Up to an own piece that fails, if one does. */
static rvl_status load_pieces(rvl_transition *transition)
{
    rvl_status status = RVL_OK;
    size_t piece = 0, count = 0;
    assert_int_equal(rvl_transition_copy_pieces(transition, NULL, 0, 0, &count), RVL_OK);
    while (piece < count && status == RVL_OK)
        status = rvl_transition_load_next(transition, &piece);
    return status;
}

static rvl_status run_parts(scene *s, uint64_t flags)
{
    rvl_transition *transition = NULL;
    bool filled[IMAGES] = {false};
    rvl_status status = prepare_part(s, 0, flags, &transition);
    if (status != RVL_OK)
        return status;
    status = load_pieces(transition);
    if (status == RVL_OK) {
        bring_pieces(transition, filled);
        status = rvl_transition_fill(transition, filled, neighbour.count);
    }
    if (status == RVL_OK)
        return commit(transition);
    rvl_error why = {.struct_size = sizeof why};
    assert_int_equal(rvl_last_error(&why), RVL_OK);
    rvl_status aborted = rvl_transition_abort(transition);
    assert_true(aborted == RVL_OK || aborted == why.status);
    return status;
}

static rvl_status run_in_parts(scene *s)
{
    return run_parts(s, 0);
}

static rvl_status run_by_pieces(scene *s)
{
    return run_parts(s, RVL_RESUME_BY_PIECES);
}

static void check_in_parts(scene *s)
{
    check_resume(s);
    rvl_device_stats first = support_stats(s->context, 0), second = support_stats(s->context, 1);
    assert_true(first.filled_in_bytes + second.filled_in_bytes > 0);
    assert_int_equal(first.filled_in_bytes + first.backup_in_bytes, weights_bytes(s, 0));
}

/* ---- Forecasts and marks ---- */

static rvl_status run_pause_forecast(scene *s)
{
    rvl_forecast forecast = {.struct_size = sizeof forecast};
    rvl_status status = rvl_pause_forecast(s->context, &s->weights_tag, 1, NULL, &forecast);
    if (status == RVL_OK)
        assert_int_equal(forecast.host_bytes + forecast.disk_bytes,
                         weights_bytes(s, 0) + weights_bytes(s, 1));
    return status;
}

static rvl_status run_resume_forecast(scene *s)
{
    rvl_forecast forecast = {.struct_size = sizeof forecast};
    rvl_status status = rvl_resume_forecast(s->context, &s->weights_tag, 1, NULL, &forecast);
    if (status == RVL_OK)
        assert_int_equal(forecast.allocation_count, WEIGHTS);
    return status;
}

static rvl_status run_external(scene *s)
{
    return rvl_external_set(s->context, 0, "nccl", 2 * GRANULE);
}

static void check_external(scene *s)
{
    assert_int_equal(support_stats(s->context, 0).external_bytes, 2 * GRANULE);
}

static const call calls[] = {
    {"alloc", nothing, run_alloc, check_alloc},
    {"small alloc", nothing, run_small_alloc, check_small_alloc},
    {"free", nothing, run_free, check_free},
    {"free of one of two", nothing, run_free_of_two, check_free_of_two},
    {"free of paused", prepare_resume, run_free, check_free_of_paused},
    {"pause", nothing, run_pause, check_pause},
    {"resume", prepare_resume, run_resume, check_resume},
    {"second pause", prepare_second_pause, run_pause, check_second_pause},
    {"pause in two phases", nothing, run_prepared_pause, check_pause},
    {"resume in two phases", prepare_resume, run_prepared_resume, check_resume},
    {"aborted pause", nothing, run_aborted_pause, check_aborted_pause},
    {"aborted resume", prepare_resume, run_aborted_resume, check_aborted_resume},
    {"resume in parts", prepare_parts, run_in_parts, check_in_parts},
    {"resume by pieces", prepare_parts, run_by_pieces, check_in_parts},
    {"pause forecast", nothing, run_pause_forecast, nothing},
    {"resume forecast", prepare_resume, run_resume_forecast, nothing},
    {"external", nothing, run_external, check_external},
};

#define CALLS (sizeof calls / sizeof *calls)
#define ALL_OPS ((UINT64_C(1) << RVLI_OP_COUNT) - 1)

/* memory_info serves error records only where a call has failed already. */
static uint64_t ops_of(const call *c)
{
    bool asks = strstr(c->name, "forecast") != NULL;
    return asks ? ALL_OPS : ALL_OPS & ~(UINT64_C(1) << RVLI_OP_memory_info);
}

/* ---- Once ---- */

/* Fails the n-th op. Returns false when the call made fewer than n ops. */
static bool fail_once(const call *c, uint64_t n, layout how)
{
    scene s = open_scene(how);
    c->prepare(&s);
    snapshot before = take(&s);
    fault_set(s.fault, &(fault_plan){.op_mask = ops_of(c), .countdown = n});
    rvl_status status = c->run(&s);
    bool hit = fault_failures(s.fault) > 0;
    fault_set(s.fault, &(fault_plan){0});
    if (status != RVL_OK) {
        rvl_error error = {.struct_size = sizeof error};
        assert_int_equal(rvl_last_error(&error), RVL_OK);
        assert_int_equal(error.status, status);
        assert_true(error.op[0] != '\0');
        snapshot after = take(&s);
        check_same(&before, &after);
        check_content(&s, true);
        assert_int_equal(c->run(&s), RVL_OK);
    }
    c->check(&s);
    check_content(&s, false);
    assert_int_equal(rvl_context_close(s.context, NULL), RVL_OK);
    return hit;
}

static void every_op_fails_once(void **state)
{
    (void)state;
    for (size_t i = 0; i < CALLS; i++)
        for (size_t k = 0; k < LAYOUTS; k++) {
            uint64_t n = 1;
            while (fail_once(&calls[i], n, layouts[k]))
                n++;
            assert_true(n > 1 || calls[i].run == run_free_of_two); /* it made at least one op */
        }
}

/* ---- For good ---- */

/* From the n-th call of an op on, that op fails. What a backup holds comes back afterwards. */
static bool fail_for_good(const call *c, rvli_op op, uint64_t n, layout how)
{
    scene s = open_scene(how);
    c->prepare(&s);
    fault_set(s.fault,
              &(fault_plan){.op_mask = UINT64_C(1) << op, .countdown = n, .for_good = true});
    c->run(&s);
    bool hit = fault_failures(s.fault) > 0;
    fault_set(s.fault, &(fault_plan){0});

    /* Resume what is paused or lost; then all that had a backup is there, byte for byte. */
    assert_int_equal(rvl_resume(s.context, NULL, 0, NULL), RVL_OK);
    for (int i = 0; i < WEIGHTS; i++) {
        rvl_allocation allocation = {.struct_size = sizeof allocation};
        if (rvl_allocation_find(s.context, s.weights[i], &allocation) != RVL_OK)
            continue; /* freed */
        assert_int_equal(allocation.state, RVL_STATE_ACTIVE);
        assert_true(weight_holds(&s, i));
    }
    rvl_context_close(s.context, NULL);
    return hit;
}

static void every_op_fails_for_good(void **state)
{
    (void)state;
    for (size_t i = 0; i < CALLS; i++)
        for (int op = 0; op < RVLI_OP_COUNT; op++)
            for (size_t k = 0; k < LAYOUTS; k += 2)
                for (uint64_t n = 1; fail_for_good(&calls[i], (rvli_op)op, n, layouts[k]); n++) {
                }
}

/* Everything fails from the n-th op on, as on a lost device. */
static void device_is_lost(void **state)
{
    (void)state;
    for (size_t i = 0; i < CALLS * LAYOUTS; i++) {
        bool hit = true;
        const call *c = &calls[i / LAYOUTS];
        for (uint64_t n = 1; hit; n++) {
            scene s = open_scene(layouts[i % LAYOUTS]);
            c->prepare(&s);
            fault_set(s.fault, &(fault_plan){.op_mask = ALL_OPS,
                                             .countdown = n,
                                             .for_good = true,
                                             .status = RVL_ERR_DEVICE_LOST});
            rvl_status status = c->run(&s);
            hit = fault_failures(s.fault) > 0;
            fault_set(s.fault, &(fault_plan){0});
            assert_true(status == RVL_OK || status == RVL_ERR_DEVICE_LOST);
            for (int w = 0; w < WEIGHTS; w++) {
                rvl_allocation allocation = {.struct_size = sizeof allocation};
                if (rvl_allocation_find(s.context, s.weights[w], &allocation) != RVL_OK)
                    continue;
                /* What is not active has its backup, or never left its memory. */
                if (allocation.state == RVL_STATE_PAUSED)
                    assert_int_equal(allocation.backup_bytes,
                                     s.layout.backup == RVL_BACKUP_HOST ? weight_bytes[w] : 0);
            }
            rvl_context_close(s.context, NULL);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_op_fails_once),
        cmocka_unit_test(every_op_fails_for_good),
        cmocka_unit_test(device_is_lost),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
