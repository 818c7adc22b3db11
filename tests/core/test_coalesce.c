/* SPDX-License-Identifier: MIT */
/* Small allocations of a tag that share blocks: placement, numbers, content, limits. */
#include <stdlib.h>
#include <unistd.h>

#include "reveille/trace.h"
#include "tests/support/support.h"

#define CARRIER (8 * GRANULE)

static rvl_tag define(rvl_context *context, const char *name, uint64_t coalesce_bytes)
{
    rvl_tag tag = 0;
    rvl_tag_options options = {.struct_size = sizeof options, .coalesce_bytes = coalesce_bytes};
    assert_int_equal(rvl_tag_define(context, name, &options, &tag), RVL_OK);
    return tag;
}

static rvl_tag_stats tag_stats(rvl_context *context, rvl_tag tag)
{
    rvl_tag_stats stats = {.struct_size = sizeof stats};
    assert_int_equal(rvl_tag_get_stats(context, tag, -1, &stats), RVL_OK);
    return stats;
}

static void options_are_checked(void **state)
{
    (void)state;
    rvl_context *context = support_open((support_options){0}, NULL);
    rvl_tag tag = 0;
    const struct {
        uint64_t block_bytes, coalesce_bytes;
        rvl_status status;
    } cases[] = {
        {0, GRANULE + 4096, RVL_ERR_INVALID},
        {0, 65 * GRANULE, RVL_ERR_INVALID},
        {0, 64 * GRANULE, RVL_OK},
        {GRANULE, 8 * GRANULE, RVL_ERR_INVALID},
        {GRANULE, 0, RVL_OK},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        rvl_tag_options options = {.struct_size = sizeof options,
                                   .block_bytes = cases[i].block_bytes,
                                   .coalesce_bytes = cases[i].coalesce_bytes};
        assert_int_equal(rvl_tag_define(context, "t", &options, &tag), cases[i].status);
    }
    assert_int_equal(rvl_context_close(context, NULL), RVL_OK);
}

static void neighbours_share_a_block(void **state)
{
    (void)state;
    rvl_context *context = support_open((support_options){0}, NULL);
    rvl_tag tag = define(context, "kv", CARRIER);
    rvl_addr addrs[9];
    for (int i = 0; i < 9; i++)
        addrs[i] = support_alloc(context, "kv", 0, GRANULE, RVL_BACKUP_NONE);
    for (uint64_t i = 1; i < 8; i++)
        assert_int_equal(addrs[i], addrs[0] + i * GRANULE);
    assert_int_equal(tag_stats(context, tag).active_bytes, 2 * CARRIER);
    assert_int_equal(tag_stats(context, tag).allocation_count, 9);
    assert_int_equal(support_stats(context, 0).alloc_calls, 9);

    rvl_allocation found = {.struct_size = sizeof found};
    assert_int_equal(rvl_allocation_find(context, addrs[3] + 5, &found), RVL_OK);
    assert_int_equal(found.addr, addrs[3]);
    assert_int_equal(found.size_bytes, GRANULE);
    assert_int_equal(found.tag, tag);

    /* What is freed in the middle is used again; the last one takes the block along. */
    assert_int_equal(rvl_free(context, addrs[3]), RVL_OK);
    assert_int_equal(rvl_allocation_find(context, addrs[3], &found), RVL_ERR_NOT_FOUND);
    assert_int_equal(rvl_free(context, addrs[3]), RVL_ERR_INVALID);
    assert_int_equal(support_alloc(context, "kv", 0, GRANULE, RVL_BACKUP_NONE), addrs[3]);
    for (int i = 0; i < 8; i++)
        assert_int_equal(rvl_free(context, addrs[i]), RVL_OK);
    assert_int_equal(tag_stats(context, tag).active_bytes, CARRIER);
    assert_int_equal(rvl_free(context, addrs[8]), RVL_OK);
    assert_int_equal(support_stats(context, 0).used_bytes, 0);
    assert_int_equal(support_stats(context, 0).allocation_count, 0);
    assert_int_equal(support_stats(context, 0).free_calls, 10);
    assert_int_equal(rvl_context_close(context, NULL), RVL_OK);
}

/* Only what is paused together, and restored alike, lies together. */
static void strangers_do_not_share(void **state)
{
    (void)state;
    rvl_context *context =
        support_open((support_options){.devices = 2, .capacity_bytes = 512 * MIB}, NULL);
    define(context, "a", CARRIER);
    define(context, "b", CARRIER);
    const int peer[] = {1};
    const struct {
        rvl_alloc_options options;
        uint64_t size;
        uint64_t used_bytes[2]; /* afterwards */
    } cases[] = {
        {{.tag = "a"}, GRANULE, {CARRIER, 0}},
        {{.tag = "b"}, GRANULE, {2 * CARRIER, 0}},
        {{.tag = "a", .backup = RVL_BACKUP_HOST}, GRANULE, {3 * CARRIER, 0}},
        {{.tag = "a", .device = 1}, GRANULE, {3 * CARRIER, CARRIER}},
        {{.tag = "a", .access = peer, .access_count = 1}, GRANULE, {4 * CARRIER, CARRIER}},
        {{.tag = "a", .flags = RVL_ALLOC_RDMA}, GRANULE, {5 * CARRIER, CARRIER}},
        {{.tag = "a", .flags = RVL_ALLOC_EXPORTABLE}, GRANULE, {5 * CARRIER + GRANULE, CARRIER}},
        {{.tag = "a"}, 5 * GRANULE, {5 * CARRIER + 6 * GRANULE, CARRIER}},
        {{.tag = "a"}, 4 * GRANULE, {5 * CARRIER + 6 * GRANULE, CARRIER}},
        {{.tag = "a"}, 3 * GRANULE, {5 * CARRIER + 6 * GRANULE, CARRIER}},
        {{.tag = "a", .flags = RVL_ALLOC_PAUSED}, GRANULE, {5 * CARRIER + 6 * GRANULE, CARRIER}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        rvl_alloc_options options = cases[i].options;
        options.struct_size = sizeof options;
        rvl_addr addr = 0;
        assert_int_equal(rvl_alloc(context, cases[i].size, &options, &addr), RVL_OK);
        for (int device = 0; device < 2; device++)
            assert_int_equal(support_stats(context, device).used_bytes,
                             cases[i].used_bytes[device]);
    }
    uint64_t live = 0;
    assert_int_equal(rvl_context_close(context, &live), RVL_OK);
    assert_int_equal(live, sizeof cases / sizeof *cases);
}

static void content_survives_a_pause(void **state)
{
    (void)state;
    rvl_context *context = support_open((support_options){0}, NULL);
    rvl_tag tag = define(context, "w", CARRIER);
    rvl_addr addrs[6];
    for (uint64_t i = 0; i < 6; i++) {
        addrs[i] = support_alloc(context, "w", 0, GRANULE, RVL_BACKUP_HOST);
        support_fill(addrs[i], GRANULE, i);
    }
    assert_int_equal(rvl_pause(context, &tag, 1, NULL), RVL_OK);
    assert_int_equal(support_stats(context, 0).used_bytes, 0);
    assert_int_equal(tag_stats(context, tag).paused_bytes, CARRIER);
    assert_int_equal(tag_stats(context, tag).pauses, 6);
    for (int i = 0; i < 6; i++)
        assert_int_equal(support_state(context, addrs[i]), RVL_STATE_PAUSED);

    const void *host = NULL;
    uint64_t size = 0;
    assert_int_equal(rvl_backup_find(context, addrs[4] + 4096, &host, &size), RVL_OK);
    assert_int_equal(size, GRANULE - 4096);
    assert_true(support_holds((uintptr_t)host - 4096, GRANULE, 4));

    /* Freed while paused, and made while the others are paused: neither touches the rest. */
    assert_int_equal(rvl_free(context, addrs[2]), RVL_OK);
    rvl_addr late = support_alloc(context, "w", 0, GRANULE, RVL_BACKUP_HOST);
    support_fill(late, GRANULE, 9);
    assert_int_equal(support_state(context, late), RVL_STATE_ACTIVE);
    assert_int_equal(support_stats(context, 0).used_bytes, CARRIER);
    assert_int_equal(rvl_resume(context, &tag, 1, NULL), RVL_OK);
    for (uint64_t i = 0; i < 6; i++)
        if (i != 2)
            assert_true(support_holds(addrs[i], GRANULE, i));
    assert_true(support_holds(late, GRANULE, 9));
    assert_int_equal(rvl_context_close(context, NULL), RVL_OK);
}

/* Where a whole block has no room, a small allocation still may. */
static void little_memory_is_used(void **state)
{
    (void)state;
    rvl_context *context = support_open((support_options){.capacity_bytes = 10 * GRANULE}, NULL);
    rvl_tag tag = define(context, "w", CARRIER);
    for (int i = 0; i < 10; i++)
        support_alloc(context, "w", 0, GRANULE, RVL_BACKUP_NONE);
    assert_int_equal(tag_stats(context, tag).active_bytes, 10 * GRANULE);
    rvl_addr addr = 0;
    rvl_alloc_options options = {.struct_size = sizeof options, .tag_id = tag};
    assert_int_equal(rvl_alloc(context, GRANULE, &options, &addr), RVL_ERR_DEVICE_OOM);
    rvl_error error = {.struct_size = sizeof error};
    assert_int_equal(rvl_last_error(&error), RVL_OK);
    assert_int_equal(error.requested_bytes, GRANULE);
    assert_int_equal(tag_stats(context, tag).allocation_count, 10);
    assert_int_equal(rvl_context_close(context, NULL), RVL_OK);
}

/* A block of one tag that is handed over to another does not bring its content along. */
static void tags_cannot_read_each_other(void **state)
{
    (void)state;
    rvl_context *context = support_open((support_options){.keep_bytes = 4 * CARRIER}, NULL);
    define(context, "a", CARRIER);
    define(context, "b", CARRIER);
    rvl_addr secret = support_alloc(context, "a", 0, 4 * GRANULE, RVL_BACKUP_NONE);
    support_fill(secret, 4 * GRANULE, 1);
    assert_int_equal(rvl_free(context, secret), RVL_OK);
    assert_int_equal(support_stats(context, 0).kept_bytes, CARRIER);
    rvl_addr reader = support_alloc(context, "b", 0, 4 * GRANULE, RVL_BACKUP_NONE);
    assert_int_equal(support_stats(context, 0).kept_bytes, 0); /* the very block */
    for (uint64_t place = 0; place < 4 * GRANULE; place += 4096)
        assert_int_equal(*(volatile uint64_t *)(uintptr_t)(reader + place), 0);
    assert_int_equal(rvl_context_close(context, NULL), RVL_OK);
}

/* A recording holds the allocations, not the blocks that they share. */
static void recordings_hold_allocations(void **state)
{
    (void)state;
    char path[] = "/tmp/reveille-coalesce-XXXXXX";
    int file = mkstemp(path);
    assert_true(file >= 0);
    close(file);
    rvl_context *context = support_open((support_options){0}, NULL);
    rvl_tag tag = define(context, "w", CARRIER);
    rvl_addr before = support_alloc(context, "w", 0, GRANULE, RVL_BACKUP_HOST);
    assert_int_equal(rvl_record_start(context, path), RVL_OK);
    rvl_addr after = support_alloc(context, "w", 0, 2 * GRANULE, RVL_BACKUP_HOST);
    assert_int_equal(rvl_pause(context, &tag, 1, NULL), RVL_OK);
    assert_int_equal(rvl_free(context, before), RVL_OK);
    assert_int_equal(rvl_free(context, after), RVL_OK);
    assert_int_equal(rvl_record_stop(context), RVL_OK);

    const char *paths[] = {path};
    rvl_trace_reader *reader = NULL;
    assert_int_equal(rvl_trace_reader_open(paths, 1, NULL, &reader), RVL_OK);
    static const rvl_event_kind kinds[] = {RVL_EVENT_ALLOC, RVL_EVENT_ALLOC, RVL_EVENT_PAUSE,
                                           RVL_EVENT_FREE, RVL_EVENT_FREE};
    static const uint64_t sizes[] = {GRANULE, 2 * GRANULE};
    rvl_trace_event event;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        do
            assert_int_equal(rvl_trace_reader_next(reader, &event, sizeof event), RVL_OK);
        while (event.kind == RVL_EVENT_SAMPLE || event.kind == RVL_EVENT_STAGE);
        assert_int_equal(event.kind, kinds[i]);
        if (i < 2)
            assert_int_equal(event.bytes, sizes[i]);
    }
    rvl_trace_reader_close(reader);
    assert_int_equal(rvl_context_close(context, NULL), RVL_OK);
    assert_int_equal(unlink(path), 0);
}

/* ---- A thousand steps against a model ---- */

#define SLOTS 48

typedef struct slot {
    rvl_addr addr;
    uint64_t size;
    uint64_t seed;
    int tag;
} slot;

static uint64_t random_next(uint64_t *random)
{
    *random = *random * UINT64_C(6364136223846793005) + 1442695040888963407u;
    return *random >> 33;
}

static void step_slot(rvl_context *context, slot *s, bool paused[2], uint64_t *random)
{
    static const char *const names[] = {"a", "b"};
    if (s->addr != 0) {
        if (!paused[s->tag])
            assert_true(support_holds(s->addr, s->size, s->seed));
        assert_int_equal(rvl_free(context, s->addr), RVL_OK);
        s->addr = 0;
        return;
    }
    s->tag = (int)(random_next(random) % 2);
    s->size = (random_next(random) % 6 + 1) * GRANULE;
    s->seed = random_next(random);
    if (paused[s->tag])
        return;
    s->addr = support_alloc(context, names[s->tag], 0, s->size, RVL_BACKUP_HOST);
    support_fill(s->addr, s->size, s->seed);
}

static void steps_follow_a_model(void **state)
{
    (void)state;
    rvl_context *context =
        support_open((support_options){.capacity_bytes = 2 * GIB, .keep_bytes = 2 * CARRIER}, NULL);
    const rvl_tag tags[2] = {define(context, "a", CARRIER), define(context, "b", 16 * GRANULE)};
    bool paused[2] = {false, false};
    slot slots[SLOTS] = {0};
    uint64_t random = 20261121;
    for (int i = 0; i < 1000; i++) {
        if (i % 16 == 15) {
            int tag = (int)(random_next(&random) % 2);
            assert_int_equal(paused[tag] ? rvl_resume(context, &tags[tag], 1, NULL)
                                         : rvl_pause(context, &tags[tag], 1, NULL),
                             RVL_OK);
            paused[tag] = !paused[tag];
        }
        step_slot(context, &slots[random_next(&random) % SLOTS], paused, &random);
    }
    for (int tag = 0; tag < 2; tag++)
        assert_int_equal(rvl_resume(context, &tags[tag], 1, NULL), RVL_OK);
    uint64_t live = 0;
    for (int i = 0; i < SLOTS; i++) {
        if (slots[i].addr == 0)
            continue;
        live++;
        assert_true(support_holds(slots[i].addr, slots[i].size, slots[i].seed));
    }
    assert_int_equal(support_stats(context, 0).allocation_count, live);
    for (int i = 0; i < SLOTS; i++)
        if (slots[i].addr != 0)
            assert_int_equal(rvl_free(context, slots[i].addr), RVL_OK);
    rvl_device_stats stats = support_stats(context, 0);
    assert_int_equal(stats.used_bytes, stats.kept_bytes);
    assert_int_equal(stats.host_backup_bytes, 0);
    assert_int_equal(rvl_context_close(context, NULL), RVL_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(options_are_checked),
        cmocka_unit_test(neighbours_share_a_block),
        cmocka_unit_test(strangers_do_not_share),
        cmocka_unit_test(content_survives_a_pause),
        cmocka_unit_test(little_memory_is_used),
        cmocka_unit_test(tags_cannot_read_each_other),
        cmocka_unit_test(recordings_hold_allocations),
        cmocka_unit_test(steps_follow_a_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
