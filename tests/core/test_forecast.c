/* SPDX-License-Identifier: MIT */
/*
 * Forecasts against what then happens: a thousand transitions of random contexts, each forecast,
 * done, and compared to the last nanosecond of the simulated clock.
 *
 * The contexts have what a price depends on: several devices, blocks and carriers, kept blocks,
 * retained backups, backups on disk, content that is discarded or not restored. Where memory is
 * backed all content changes between two pauses, as a forecast assumes it.
 */
#include <stdlib.h>
#include <string.h>

#include "tests/support/short_memory.h"
#include "tests/support/support.h"

#define TAGS 3
#define DEVICES 2
#define SEEDS 60
#define ROUNDS 9

SHORT_MALLOC
SHORT_CALLOC

static const char *const tag_names[TAGS] = {"weights", "kv_cache", "graphs"};

typedef struct scene {
    rvl_context *context;
    rvl_tag tags[TAGS];
    rvl_addr addrs[64];
    uint64_t sizes[64];
    int tag_of[64];
    int count;
    bool backed;
    uint64_t random;
} scene;

static uint64_t draw(scene *s, uint64_t below)
{
    s->random = s->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (s->random >> 33) % below;
}

/* ---- Contexts ---- */

static void define_tags(scene *s)
{
    for (int i = 0; i < TAGS; i++) {
        rvl_tag_options options = {.struct_size = sizeof options};
        /* In a carrier there is room that nobody writes to, so not all of its content changes. */
        options.flags = draw(s, 2) == 0 && !(s->backed && i == 2) ? RVL_TAG_RETAIN_BACKUPS : 0;
        if (draw(s, 4) == 0)
            options.flags |= RVL_TAG_POISON; /* filling it takes time */
        if (i == 1)
            options.block_bytes = 2 * GRANULE;
        if (i == 2)
            options.coalesce_bytes = 8 * GRANULE;
        assert_int_equal(rvl_tag_define(s->context, tag_names[i], &options, &s->tags[i]), RVL_OK);
    }
}

static void allocate_some(scene *s)
{
    /* A backed disk goes through a ring of buffers, which a forecast leaves out. */
    rvl_backup backups = s->backed ? RVL_BACKUP_DISK : RVL_BACKUP_DISK + 1;
    for (int i = 0; i < 12; i++) {
        int tag = (int)draw(s, TAGS);
        uint64_t size = (1 + draw(s, 6)) * GRANULE - draw(s, 2) * 4096;
        s->addrs[i] = support_alloc(s->context, tag_names[tag], (int)draw(s, DEVICES), size,
                                    (rvl_backup)draw(s, backups));
        s->sizes[i] = size;
        s->tag_of[i] = tag;
        s->count = i + 1;
    }
}

static scene open_scene(uint64_t seed)
{
    scene s = {.random = seed, .backed = seed % 6 == 0};
    s.context =
        support_open((support_options){.devices = DEVICES,
                                       .capacity_bytes = 512 * MIB,
                                       .memory = s.backed ? RVL_SIM_BACKED : RVL_SIM_ACCOUNTED,
                                       .keep_bytes = seed % 2 * 12 * GRANULE,
                                       .no_verify = seed % 5 == 0},
                     NULL);
    define_tags(&s);
    allocate_some(&s);
    return s;
}

/* ---- Transitions ---- */

static void change_content(const scene *s, uint64_t seed)
{
    for (int i = 0; i < s->count && s->backed; i++)
        if (support_state(s->context, s->addrs[i]) == RVL_STATE_ACTIVE)
            support_fill(s->addrs[i], s->sizes[i], seed);
}

static void pause_as_forecast(scene *s, const rvl_tag *tags, size_t count)
{
    rvl_pause_options options = {.struct_size = sizeof options,
                                 .flags = (draw(s, 4) == 0) ? RVL_PAUSE_DISCARD : 0};
    rvl_forecast forecast = {.struct_size = sizeof forecast};
    change_content(s, s->random);
    assert_int_equal(rvl_pause_forecast(s->context, tags, count, &options, &forecast), RVL_OK);
    uint64_t start_ns = rvl_clock_ns(s->context);
    assert_int_equal(rvl_pause(s->context, tags, count, &options), RVL_OK);
    assert_int_equal(forecast.time_ns, rvl_clock_ns(s->context) - start_ns);
}

/* Addresses within allocations, riders of carriers among them, and some that are nothing's. */
static size_t draw_order(scene *s, rvl_addr order[8])
{
    size_t count = draw(s, 3) > 0 ? draw(s, 9) : 0;
    for (size_t i = 0; i < count; i++) {
        uint64_t which = draw(s, (uint64_t)s->count);
        order[i] = s->addrs[which] + draw(s, s->sizes[which] + GRANULE);
    }
    return count;
}

static void resume_as_forecast(scene *s, const rvl_tag *tags, size_t count)
{
    rvl_addr order[8];
    rvl_resume_options options = {.struct_size = sizeof options,
                                  .flags = (draw(s, 4) == 0) ? RVL_RESUME_NO_RESTORE : 0,
                                  .timeout_ns = draw(s, 3) == 0 ? 1000000 : 0,
                                  .order = order,
                                  .order_count = draw_order(s, order)};
    rvl_forecast forecast = {.struct_size = sizeof forecast};
    assert_int_equal(rvl_resume_forecast(s->context, tags, count, &options, &forecast), RVL_OK);
    assert_true(forecast.fits);
    uint64_t start_ns = rvl_clock_ns(s->context);
    assert_int_equal(rvl_resume(s->context, tags, count, &options), RVL_OK);
    assert_int_equal(forecast.time_ns, rvl_clock_ns(s->context) - start_ns);
}

/* The host memory that it made stays with the backend. */
static void give_a_pause_up(scene *s)
{
    rvl_transition *transition = NULL;
    assert_int_equal(rvl_pause_prepare(s->context, NULL, 0, NULL, &transition), RVL_OK);
    assert_int_equal(rvl_transition_abort(transition), RVL_OK);
}

static void time_is_forecast_exactly(void **state)
{
    (void)state;
    uint64_t moved_ns = 0;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        scene s = open_scene(seed);
        if (seed % 4 == 1)
            give_a_pause_up(&s);
        for (int round = 0; round < ROUNDS; round++) {
            size_t first = draw(&s, TAGS), count = 1 + draw(&s, TAGS - first);
            pause_as_forecast(&s, &s.tags[first], count);
            if (draw(&s, 3) > 0)
                resume_as_forecast(&s, &s.tags[first], count);
        }
        resume_as_forecast(&s, NULL, 0);
        moved_ns += rvl_clock_ns(s.context);
        assert_int_equal(rvl_context_close(s.context, NULL), RVL_OK);
    }
    assert_true(moved_ns > SEEDS * UINT64_C(1000000)); /* it took time at all */
}

/* Memory without content is made while content is copied, if that is begun first. */
static void an_order_that_takes_longer_is_forecast(void **state)
{
    (void)state;
    rvl_context *context =
        support_open((support_options){.capacity_bytes = GIB, .memory = RVL_SIM_ACCOUNTED}, NULL);
    rvl_addr large = support_alloc(context, "large", 0, 512 * MIB, RVL_BACKUP_NONE);
    rvl_addr weights = support_alloc(context, "weights", 0, 64 * MIB, RVL_BACKUP_HOST);
    uint64_t taken_ns[2];
    for (int last = 0; last < 2; last++) {
        const rvl_resume_options options = {
            .struct_size = sizeof options, .order = last ? &large : &weights, .order_count = 1};
        rvl_forecast forecast = {.struct_size = sizeof forecast};
        assert_int_equal(rvl_pause(context, NULL, 0, NULL), RVL_OK);
        assert_int_equal(rvl_resume_forecast(context, NULL, 0, &options, &forecast), RVL_OK);
        uint64_t start_ns = rvl_clock_ns(context);
        assert_int_equal(rvl_resume(context, NULL, 0, &options), RVL_OK);
        taken_ns[last] = rvl_clock_ns(context) - start_ns;
        assert_int_equal(forecast.time_ns, taken_ns[last]);
    }
    assert_true(taken_ns[0] < taken_ns[1]);
    assert_int_equal(rvl_context_close(context, NULL), RVL_OK);
}

/* What a failed resume has made and given back is cleared by the driver, too. */
static void a_failed_resume_costs_the_next_one(void **state)
{
    (void)state;
    fault_injector *fault = NULL;
    rvl_context *context = support_open(
        (support_options){.capacity_bytes = 64 * GRANULE, .memory = RVL_SIM_ACCOUNTED}, &fault);
    rvl_forecast forecast = {.struct_size = sizeof forecast};
    (void)support_alloc(context, "weights", 0, GRANULE, RVL_BACKUP_HOST);
    assert_int_equal(rvl_pause(context, NULL, 0, NULL), RVL_OK);
    rvl_addr other = support_alloc(context, "other", 0, GRANULE, RVL_BACKUP_NONE);
    fault_set(fault, &(fault_plan){.op_mask = UINT64_C(1) << RVLI_OP_map, .countdown = 1});
    assert_int_equal(rvl_resume(context, NULL, 0, NULL), RVL_ERR_IO);
    fault_set(fault, &(fault_plan){0});
    assert_int_equal(rvl_free(context, other), RVL_OK);
    assert_int_equal(rvl_resume_forecast(context, NULL, 0, NULL, &forecast), RVL_OK);
    uint64_t start_ns = rvl_clock_ns(context);
    assert_int_equal(rvl_resume(context, NULL, 0, NULL), RVL_OK);
    assert_int_equal(rvl_clock_ns(context) - start_ns, forecast.time_ns);
    assert_int_equal(rvl_context_close(context, NULL), RVL_OK);
}

/* ---- Nothing comes of it ---- */

static void a_forecast_changes_nothing(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 6; seed++) {
        scene s = open_scene(seed);
        rvl_device_stats before[DEVICES];
        rvl_forecast forecast = {.struct_size = sizeof forecast};
        assert_int_equal(rvl_pause(s.context, s.tags, 1, NULL), RVL_OK);
        uint64_t start_ns = rvl_clock_ns(s.context);
        for (int device = 0; device < DEVICES; device++)
            before[device] = support_stats(s.context, device);
        assert_int_equal(rvl_resume_forecast(s.context, NULL, 0, NULL, &forecast), RVL_OK);
        assert_int_equal(rvl_pause_forecast(s.context, NULL, 0, NULL, &forecast), RVL_OK);
        assert_int_equal(rvl_clock_ns(s.context), start_ns);
        for (int device = 0; device < DEVICES; device++) {
            rvl_device_stats after = support_stats(s.context, device);
#define SAME(field) assert_int_equal(after.field, before[device].field);
            RVL_DEVICE_COUNTER_MAP(SAME)
#undef SAME
            assert_int_equal(after.oom.happened, before[device].oom.happened);
        }
        assert_int_equal(rvl_context_close(s.context, NULL), RVL_OK);
    }
}

/* ---- Host memory runs out ---- */

static void a_forecast_answers_that_memory_is_out(void **state)
{
    (void)state;
    scene s = open_scene(7); /* accounted: with backups on disk */
    assert_int_equal(rvl_pause(s.context, s.tags, 2, NULL), RVL_OK);
    const rvl_resume_options options = {
        .struct_size = sizeof options, .order = s.addrs, .order_count = (size_t)s.count};
    rvl_forecast expected = {.struct_size = sizeof expected};
    assert_int_equal(rvl_resume_forecast(s.context, NULL, 0, &options, &expected), RVL_OK);
    uint64_t refusals = 0;
    for (uint64_t n = 1;; n++) {
        rvl_forecast forecast = {.struct_size = sizeof forecast};
        short_memory_requests = 0;
        short_memory_refused_request = n;
        rvl_status status = rvl_resume_forecast(s.context, NULL, 0, &options, &forecast);
        short_memory_refused_request = 0;
        if (short_memory_requests < n)
            break;
        refusals++;
        assert_int_equal(status, RVL_ERR_HOST_OOM);
        assert_int_equal(forecast.time_ns, 0); /* nothing was written */
        assert_int_equal(rvl_resume_forecast(s.context, NULL, 0, &options, &forecast), RVL_OK);
        assert_int_equal(forecast.time_ns, expected.time_ns);
    }
    assert_true(refusals > 10);
    assert_int_equal(rvl_resume(s.context, NULL, 0, NULL), RVL_OK);
    assert_int_equal(rvl_context_close(s.context, NULL), RVL_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(time_is_forecast_exactly),
        cmocka_unit_test(an_order_that_takes_longer_is_forecast),
        cmocka_unit_test(a_failed_resume_costs_the_next_one),
        cmocka_unit_test(a_forecast_changes_nothing),
        cmocka_unit_test(a_forecast_answers_that_memory_is_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
