/* SPDX-License-Identifier: MIT */
/* Allocations and transitions through the public API, on simulated devices with real bytes. */
#include <stdio.h>
#include <string.h>

#include "core/memory/blocks.h"
#include "core/prefetch.h"
#include "tests/support/support.h"

static rvl_error last_error(void)
{
    rvl_error error = {.struct_size = sizeof error};
    assert_int_equal(rvl_last_error(&error), RVL_OK);
    return error;
}

/* ---- Allocating ---- */

static void sizes_are_rounded_and_described(void **state)
{
    (void)state;
    rvl_context *context = support_open((support_options){.devices = 3}, NULL);
    const int access[] = {2, 0};
    rvl_alloc_options options = {.struct_size = sizeof options,
                                 .tag = "weights",
                                 .device = 1,
                                 .backup = RVL_BACKUP_HOST,
                                 .access = access,
                                 .access_count = 2};
    rvl_addr addr = 0;
    assert_int_equal(rvl_alloc(context, GRANULE + 1, &options, &addr), RVL_OK);

    rvl_allocation found = {.struct_size = sizeof found};
    assert_int_equal(rvl_allocation_find(context, addr + GRANULE + 5, &found), RVL_OK);
    assert_int_equal(found.addr, addr);
    assert_int_equal(found.size_bytes, 2 * GRANULE);
    assert_int_equal(found.id, 1);
    assert_string_equal(rvl_tag_name(context, found.tag), "weights");
    assert_int_equal(found.device, 1);
    assert_int_equal(found.backup, RVL_BACKUP_HOST);
    assert_int_equal(found.state, RVL_STATE_ACTIVE);
    assert_int_equal(found.access_mask, 7);
    assert_int_equal(support_stats(context, 1).used_bytes, 2 * GRANULE);
    assert_int_equal(support_stats(context, 0).used_bytes, 0);
    assert_int_equal(rvl_allocation_find(context, addr + 2 * GRANULE, &found), RVL_ERR_NOT_FOUND);
    assert_int_equal(rvl_free(context, addr), RVL_OK);
    assert_int_equal(support_stats(context, 1).used_bytes, 0);
    assert_int_equal(rvl_context_close(context, NULL), RVL_OK);
}

/* A hint changes nothing, whatever address it is given. */
static void hints_change_nothing(void **state)
{
    (void)state;
    rvl_context *context = support_open((support_options){.memory = RVL_SIM_ACCOUNTED}, NULL);
    rvl_addr first = support_alloc(context, "a", 0, GRANULE, RVL_BACKUP_NONE);
    rvl_addr second = support_alloc(context, "a", 0, 3 * GRANULE, RVL_BACKUP_NONE);
    rvl_device_stats before = support_stats(context, 0);
    const rvl_addr addrs[] = {first, second, first + GRANULE, 0, 4096, UINT64_MAX};
    for (size_t i = 0; i < sizeof addrs / sizeof addrs[0]; i++)
        for (int depth = -1; depth < 4; depth++)
            assert_int_equal(rvl_private_prefetch(context, addrs[i], depth), RVL_OK);
    rvl_device_stats after = support_stats(context, 0);
    assert_memory_equal(&before, &after, sizeof before);
    assert_int_equal(rvl_private_prefetch(NULL, first, 0), RVL_ERR_INVALID);
    assert_int_equal(rvl_free(context, first), RVL_OK);
    assert_int_equal(rvl_free(context, second), RVL_OK);
    assert_int_equal(rvl_context_close(context, NULL), RVL_OK);

    context = support_open((support_options){.memory = RVL_SIM_BACKED}, NULL);
    first = support_alloc(context, "a", 0, GRANULE, RVL_BACKUP_NONE);
    for (int depth = 0; depth < 3; depth++)
        assert_int_equal(rvl_private_prefetch(context, first, depth), RVL_OK);
    assert_int_equal(rvl_context_close(context, NULL), RVL_OK);
}

static void check_host_memory(rvl_context *context, uint64_t used, uint64_t pinned)
{
    rvl_host_memory memory = {.struct_size = sizeof memory};
    assert_int_equal(rvl_host_get_memory(context, &memory), RVL_OK);
    assert_int_equal(memory.used_bytes, used);
    assert_int_equal(memory.pinned_bytes, pinned);
    assert_int_equal(memory.pageable_bytes, 0);
    assert_int_equal(memory.staged_copy_bytes, 0);
    assert_int_equal(memory.registering_refused, 0);
}

static void host_memory_of_simulated_devices_is_pinned_and_kept(void **state)
{
    (void)state;
    const rvl_sim_memory kinds[] = {RVL_SIM_BACKED, RVL_SIM_ACCOUNTED};
    for (int i = 0; i < 2; i++) {
        rvl_context *context =
            support_open((support_options){.devices = 2, .memory = kinds[i]}, NULL);
        support_alloc(context, "a", 0, GRANULE, RVL_BACKUP_HOST);
        support_alloc(context, "a", 1, 3 * GRANULE, RVL_BACKUP_HOST);
        rvl_tag tag = support_tag(context, "a");
        check_host_memory(context, 0, 0);
        assert_int_equal(rvl_pause(context, &tag, 1, NULL), RVL_OK);
        check_host_memory(context, 4 * GRANULE, 4 * GRANULE);
        assert_int_equal(rvl_resume(context, &tag, 1, NULL), RVL_OK);
        check_host_memory(context, 0, 4 * GRANULE);
        assert_int_equal(rvl_context_close(context, NULL), RVL_OK);
    }
}

static void host_memory_is_refused_to_the_wrong(void **state)
{
    (void)state;
    fault_injector *fault = NULL;
    rvl_error error = {.struct_size = sizeof error};
    rvl_host_memory memory = {0};
    rvl_context *context = support_open((support_options){0}, &fault);
    assert_int_equal(rvl_host_get_memory(NULL, &memory), RVL_ERR_INVALID);
    assert_int_equal(rvl_host_get_memory(context, NULL), RVL_ERR_INVALID);
    assert_int_equal(rvl_host_get_memory(context, &memory), RVL_ERR_INVALID); /* no struct_size */
    memory.struct_size = sizeof memory;
    fault_set(fault, &(fault_plan){.op_mask = UINT64_C(1) << RVLI_OP_host_memory,
                                   .countdown = 1,
                                   .status = RVL_ERR_NOT_SUPPORTED});
    memory.used_bytes = 7;
    assert_int_equal(rvl_host_get_memory(context, &memory), RVL_ERR_NOT_SUPPORTED);
    assert_int_equal(memory.used_bytes, 7);
    assert_int_equal(rvl_last_error(&error), RVL_OK);
    assert_string_equal(error.op, "host_memory");
    check_host_memory(context, 0, 0);
    assert_int_equal(rvl_context_close(context, NULL), RVL_OK);
}

static void check_summary(rvl_context *context, int device, const char *expected)
{
    char text[RVL_SUMMARY_BYTES], whole[RVL_SUMMARY_BYTES + 32];
    snprintf(whole, sizeof whole, "Reveille %s, %s", rvl_version(), expected);
    assert_int_equal(rvl_device_get_summary(context, device, text, sizeof text), RVL_OK);
    assert_string_equal(text, whole);
}

static void a_summary_says_who_holds_what(void **state)
{
    (void)state;
    fault_injector *fault = NULL;
    rvl_error error = {.struct_size = sizeof error};
    char text[24] = "as before";
    rvl_tag tag;
    rvl_context *context = support_open(
        (support_options){.devices = 2, .memory = RVL_SIM_ACCOUNTED, .capacity_bytes = 1 * GIB},
        &fault);
    check_summary(context, 1, "device 1: 1.0 GiB, 1.0 GiB free; nothing is held here");
    support_alloc(context, "weights", 1, 100 * MIB, RVL_BACKUP_NONE);
    support_alloc(context, "cache", 1, 300 * MIB, RVL_BACKUP_NONE);
    assert_int_equal(rvl_tag_find(context, 0, "weights", &tag), RVL_OK);
    assert_int_equal(rvl_pause(context, &tag, 1, NULL), RVL_OK);
    support_alloc(context, "weights", 1, 20 * MIB, RVL_BACKUP_NONE);
    support_alloc(context, "", 1, 2 * MIB, RVL_BACKUP_NONE);
    assert_int_equal(rvl_external_set(context, 1, "neighbour", 50 * MIB), RVL_OK);
    check_summary(context, 1,
                  "device 1: 1.0 GiB, 652.0 MiB free; held here: cache 300.0 MiB, weights "
                  "20.0 MiB and 100.0 MiB paused, untagged 2.0 MiB; by all else 50.0 MiB");
    check_summary(context, 0, "device 0: 1.0 GiB, 1.0 GiB free; nothing is held here");

    char name[] = "tag0";
    for (; name[3] < '8'; name[3]++)
        support_alloc(context, name, 0, 2 * MIB, RVL_BACKUP_NONE);
    name[3] = 'x';
    support_alloc(context, name, 0, 4 * MIB, RVL_BACKUP_NONE);
    check_summary(context, 0,
                  "device 0: 1.0 GiB, 1004.0 MiB free; held here: tagx 4.0 MiB, tag0 2.0 "
                  "MiB, tag1 2.0 MiB, tag2 2.0 MiB, tag3 2.0 MiB, tag4 2.0 MiB, tag5 2.0 MiB, tag6 "
                  "2.0 MiB and 1 more tags");

    assert_int_equal(rvl_device_get_summary(context, 2, text, sizeof text), RVL_ERR_NO_DEVICE);
    assert_int_equal(rvl_device_get_summary(context, 0, NULL, 9), RVL_ERR_INVALID);
    assert_int_equal(rvl_device_get_summary(context, 0, text, 0), RVL_ERR_INVALID);
    fault_set(fault, &(fault_plan){.op_mask = UINT64_C(1) << RVLI_OP_memory_info,
                                   .countdown = 1,
                                   .status = RVL_ERR_DEVICE_LOST});
    assert_int_equal(rvl_device_get_summary(context, 0, text, sizeof text), RVL_ERR_DEVICE_LOST);
    assert_int_equal(rvl_last_error(&error), RVL_OK);
    assert_string_equal(error.op, "memory_info");
    assert_string_equal(text, "as before");
    assert_int_equal(rvl_device_get_summary(context, 0, text, 9), RVL_OK);
    assert_string_equal(text, "Reveille");
    assert_int_equal(rvl_context_close(context, NULL), RVL_OK);
}

static void host_memory_is_trimmed_or_refused(void **state)
{
    (void)state;
    fault_injector *fault = NULL;
    rvl_error error = {.struct_size = sizeof error};
    rvl_context *context = support_open((support_options){0}, &fault);
    assert_int_equal(rvl_host_trim(NULL, 0), RVL_ERR_INVALID);
    assert_int_equal(rvl_host_trim(context, 0), RVL_OK);
    fault_set(fault, &(fault_plan){.op_mask = UINT64_C(1) << RVLI_OP_host_trim,
                                   .countdown = 1,
                                   .status = RVL_ERR_NOT_SUPPORTED});
    assert_int_equal(rvl_host_trim(context, 0), RVL_ERR_NOT_SUPPORTED);
    assert_int_equal(rvl_last_error(&error), RVL_OK);
    assert_string_equal(error.op, "host_trim");
    assert_int_equal(rvl_context_close(context, NULL), RVL_OK);
}

static void misuse_is_answered(void **state)
{
    (void)state;
    rvl_context *context = support_open((support_options){0}, NULL);
    rvl_addr addr = 42;
    rvl_alloc_options options = {.struct_size = sizeof options};

    assert_int_equal(rvl_alloc(NULL, GRANULE, NULL, &addr), RVL_ERR_INVALID);
    assert_int_equal(rvl_alloc(context, GRANULE, NULL, NULL), RVL_ERR_INVALID);
    assert_int_equal(rvl_alloc(context, 0, NULL, &addr), RVL_ERR_INVALID);
    assert_int_equal(rvl_alloc(context, UINT64_MAX, NULL, &addr), RVL_ERR_INVALID);
    assert_int_equal(rvl_alloc(context, (uint64_t)INT64_MAX, NULL, &addr), RVL_ERR_INVALID);
    options.device = 1;
    assert_int_equal(rvl_alloc(context, GRANULE, &options, &addr), RVL_ERR_NO_DEVICE);
    options.device = 0;
    options.flags = 1u << 30;
    assert_int_equal(rvl_alloc(context, GRANULE, &options, &addr), RVL_ERR_VERSION);
    options.flags = 0;
    options.tag_id = 9;
    assert_int_equal(rvl_alloc(context, GRANULE, &options, &addr), RVL_ERR_INVALID);
    options.tag_id = 0;
    options.process = 5;
    assert_int_equal(rvl_alloc(context, GRANULE, &options, &addr), RVL_ERR_INVALID);
    options.process = 0;
    options.backup = RVL_BACKUP_DISK; /* and no directory */
    assert_int_equal(rvl_alloc(context, GRANULE, &options, &addr), RVL_ERR_INVALID);
    options.backup = (rvl_backup)9;
    assert_int_equal(rvl_alloc(context, GRANULE, &options, &addr), RVL_ERR_INVALID);
    options.backup = RVL_BACKUP_NONE;
    options.struct_size = 2;
    assert_int_equal(rvl_alloc(context, GRANULE, &options, &addr), RVL_ERR_INVALID);
    assert_int_equal(addr, 42);

    const rvl_tag unknown = 7;
    assert_int_equal(rvl_pause(context, &unknown, 1, NULL), RVL_ERR_INVALID);
    assert_int_equal(rvl_resume(context, &unknown, 1, NULL), RVL_ERR_INVALID);
    assert_int_equal(rvl_pause(context, NULL, 1, NULL), RVL_ERR_INVALID);
    /* Counts with sizes that wrap: there is no memory for them, and none that is too small. */
    for (size_t count = SIZE_MAX; count > SIZE_MAX / 32;
         count = count / 2 + 1 - (count == SIZE_MAX))
        assert_int_equal(rvl_pause(context, &unknown, count, NULL), RVL_ERR_HOST_OOM);
    assert_int_equal(rvl_free(context, 12345), RVL_ERR_INVALID);
    assert_int_equal(rvl_stage(context, ""), RVL_ERR_INVALID);
    assert_int_equal(rvl_stage(context, NULL), RVL_ERR_INVALID);
    rvl_tag tag;
    rvl_tag_options tag_options = {.struct_size = sizeof tag_options, .block_bytes = 3};
    assert_int_equal(rvl_tag_define(context, "odd", &tag_options, &tag), RVL_ERR_INVALID);
    assert_int_equal(rvl_tag_find(context, 0, "odd", &tag), RVL_ERR_NOT_FOUND);

    /* The context is as good as new. */
    addr = support_alloc(context, "weights", 0, GRANULE, RVL_BACKUP_NONE);
    assert_int_equal(rvl_free(context, addr + 1), RVL_ERR_INVALID);
    assert_int_equal(rvl_free(context, addr), RVL_OK);
    assert_int_equal(rvl_free(context, addr), RVL_ERR_INVALID);
    assert_string_equal(last_error().message,
                        "no allocation begins at this address (freed already?)");
    assert_int_equal(support_stats(context, 0).alloc_calls, 1);
    assert_int_equal(rvl_context_close(context, NULL), RVL_OK);
    assert_int_equal(rvl_context_close(NULL, NULL), RVL_OK);
}

static void opening_can_be_refused(void **state)
{
    (void)state;
    rvl_context *context = NULL;
    assert_int_equal(rvl_context_open("tpu", NULL, &context), RVL_ERR_NO_BACKEND);
    assert_non_null(strstr(last_error().message, "this build has no backend of that name: "));
    assert_non_null(strstr(last_error().message, " sim "));
    assert_int_equal(rvl_context_open(NULL, NULL, &context), RVL_ERR_INVALID);
    assert_int_equal(rvl_context_open("sim", NULL, NULL), RVL_ERR_INVALID);
    struct {
        rvl_context_options known;
        uint64_t newer;
    } future = {.known = {.struct_size = sizeof future}, .newer = 1};
    assert_int_equal(rvl_context_open("sim", &future.known, &context), RVL_ERR_VERSION);
    assert_null(context);
    future.newer = 0;
    assert_int_equal(rvl_context_open("sim", &future.known, &context), RVL_OK);
    assert_int_equal(rvl_device_count(context), 1);
    assert_int_equal(rvl_context_close(context, NULL), RVL_OK);
}

static void closing_releases_and_counts(void **state)
{
    (void)state;
    uint64_t live = 99;
    rvl_context *context = support_open((support_options){0}, NULL);
    support_alloc(context, "a", 0, GRANULE, RVL_BACKUP_NONE);
    support_alloc(context, NULL, 0, GRANULE, RVL_BACKUP_HOST);
    rvl_addr paused = support_alloc(context, "b", 0, GRANULE, RVL_BACKUP_HOST);
    rvl_tag tag = support_tag(context, "b");
    assert_int_equal(rvl_pause(context, &tag, 1, NULL), RVL_OK);
    assert_int_equal(support_state(context, paused), RVL_STATE_PAUSED);
    assert_int_equal(rvl_context_close(context, &live), RVL_OK);
    assert_int_equal(live, 3);
}

static void allocations_are_iterated_in_order(void **state)
{
    (void)state;
    rvl_context *context = support_open((support_options){0}, NULL);
    uint64_t sum = 0, seen = 0;
    for (uint64_t i = 1; i <= 5; i++) {
        support_alloc(context, "t", 0, i * GRANULE, RVL_BACKUP_NONE);
        sum += i * GRANULE;
    }
    rvl_allocation each = {.struct_size = sizeof each};
    rvl_addr last = 0;
    for (rvl_addr from = 0; rvl_allocation_next(context, from, &each) == RVL_OK;
         from = each.addr + 1) {
        assert_true(each.addr > last);
        last = each.addr;
        seen += each.size_bytes;
    }
    assert_int_equal(seen, sum);
    assert_int_equal(rvl_context_close(context, NULL), RVL_OK);
}

/* ---- Transitions ---- */

static void content_comes_back_at_the_same_address(void **state)
{
    (void)state;
    rvl_context *context = support_open((support_options){.devices = 2}, NULL);
    rvl_addr weights = support_alloc(context, "weights", 0, 3 * GRANULE, RVL_BACKUP_HOST);
    rvl_addr cache = support_alloc(context, "cache", 1, 2 * GRANULE, RVL_BACKUP_NONE);
    rvl_tag tag = support_tag(context, "weights");
    support_fill(weights, 3 * GRANULE, 1);
    support_fill(cache, 2 * GRANULE, 2);

    assert_int_equal(rvl_pause(context, &tag, 1, NULL), RVL_OK);
    assert_int_equal(support_state(context, weights), RVL_STATE_PAUSED);
    assert_int_equal(support_state(context, cache), RVL_STATE_ACTIVE);
    assert_true(support_holds(cache, 2 * GRANULE, 2));
    rvl_device_stats stats = support_stats(context, 0);
    assert_int_equal(stats.used_bytes, 0);
    assert_int_equal(stats.host_backup_bytes, 3 * GRANULE);
    assert_int_equal(stats.backup_out_bytes, 3 * GRANULE);

    /* The backup can be read through its pointer, interior addresses included. */
    const void *host = NULL;
    uint64_t size = 0;
    assert_int_equal(rvl_backup_find(context, weights + GRANULE + 8192, &host, &size), RVL_OK);
    assert_int_equal(size, 2 * GRANULE - 8192);
    uint64_t word, expected_word;
    memcpy(&word, host, sizeof word);
    assert_int_equal(rvl_backup_find(context, cache, &host, &size), RVL_ERR_NOT_FOUND);

    assert_int_equal(rvl_pause(context, &tag, 1, NULL), RVL_OK); /* changes nothing */
    assert_int_equal(support_stats(context, 0).pauses, 1);
    assert_int_equal(rvl_resume(context, &tag, 1, NULL), RVL_OK);
    assert_true(support_holds(weights, 3 * GRANULE, 1));
    memcpy(&expected_word, (const void *)(uintptr_t)(weights + GRANULE + 8192),
           sizeof expected_word);
    assert_int_equal(word, expected_word);
    assert_int_equal(rvl_resume(context, &tag, 1, NULL), RVL_OK);
    stats = support_stats(context, 0);
    assert_int_equal(stats.resumes, 1);
    assert_int_equal(stats.used_bytes, 3 * GRANULE);
    assert_int_equal(stats.host_backup_bytes, 0);
    assert_int_equal(stats.host_peak_bytes, 3 * GRANULE);
    assert_int_equal(stats.backup_in_bytes, 3 * GRANULE);
    assert_int_equal(rvl_backup_find(context, weights, &host, &size), RVL_ERR_NOT_FOUND);
    assert_int_equal(rvl_context_close(context, NULL), RVL_OK);
}

static void content_without_backup_is_poisoned(void **state)
{
    (void)state;
    rvl_context *context = support_open((support_options){0}, NULL);
    rvl_addr weights = support_alloc(context, "weights", 0, GRANULE, RVL_BACKUP_HOST);
    rvl_addr cache = support_alloc(context, "cache", 0, GRANULE, RVL_BACKUP_NONE);
    rvl_tag tag = support_tag(context, "weights");
    const unsigned char *bytes = (const unsigned char *)(uintptr_t)cache;
    support_fill(weights, GRANULE, 1);
    support_fill(cache, GRANULE, 2);

    assert_int_equal(rvl_pause(context, NULL, 0, NULL), RVL_OK);
    assert_int_equal(support_stats(context, 0).used_bytes, 0);
    assert_int_equal(rvl_resume(context, NULL, 0, NULL), RVL_OK);
    assert_true(support_holds(weights, GRANULE, 1));
    for (uint64_t i = 0; i < GRANULE; i += 511)
        assert_int_equal(bytes[i], 0xA5);

    /* Discarded at pause: nothing is copied, nothing comes back. */
    rvl_pause_options discard = {.struct_size = sizeof discard, .flags = RVL_PAUSE_DISCARD};
    assert_int_equal(rvl_pause(context, &tag, 1, &discard), RVL_OK);
    assert_int_equal(support_stats(context, 0).host_backup_bytes, 0);
    assert_int_equal(rvl_resume(context, &tag, 1, NULL), RVL_OK);
    assert_int_equal(*(const unsigned char *)(uintptr_t)weights, 0xA5);

    /* Not restored at resume: the backup is dropped. */
    support_fill(weights, GRANULE, 3);
    rvl_resume_options no_restore = {.struct_size = sizeof no_restore,
                                     .flags = RVL_RESUME_NO_RESTORE};
    assert_int_equal(rvl_pause(context, &tag, 1, NULL), RVL_OK);
    assert_int_equal(rvl_resume(context, &tag, 1, &no_restore), RVL_OK);
    assert_int_equal(*(const unsigned char *)(uintptr_t)weights, 0xA5);
    assert_int_equal(support_stats(context, 0).host_backup_bytes, 0);
    assert_int_equal(rvl_context_close(context, NULL), RVL_OK);
}

static void born_paused_and_allocated_under_a_paused_tag(void **state)
{
    (void)state;
    rvl_context *context = support_open((support_options){0}, NULL);
    rvl_addr early = 0;
    rvl_alloc_options options = {
        .struct_size = sizeof options, .tag = "cache", .flags = RVL_ALLOC_PAUSED};
    assert_int_equal(rvl_alloc(context, 4 * GRANULE, &options, &early), RVL_OK);
    assert_int_equal(support_state(context, early), RVL_STATE_PAUSED);
    assert_int_equal(support_stats(context, 0).used_bytes, 0);
    rvl_addr late = support_alloc(context, "cache", 0, GRANULE, RVL_BACKUP_NONE);
    assert_int_equal(support_state(context, late), RVL_STATE_ACTIVE);
    rvl_tag tag = support_tag(context, "cache");
    rvl_tag_stats stats = {.struct_size = sizeof stats};
    assert_int_equal(rvl_tag_get_stats(context, tag, 0, &stats), RVL_OK);
    assert_int_equal(stats.active_bytes, GRANULE);
    assert_int_equal(stats.paused_bytes, 4 * GRANULE);
    assert_int_equal(rvl_resume(context, &tag, 1, NULL), RVL_OK);
    support_fill(early, 4 * GRANULE, 9);
    assert_true(support_holds(early, 4 * GRANULE, 9));
    assert_int_equal(rvl_tag_get_stats(context, tag, -1, &stats), RVL_OK);
    assert_int_equal(stats.active_bytes, 5 * GRANULE);
    assert_int_equal(stats.paused_bytes, 0);
    assert_int_equal(stats.resumes, 1);
    assert_int_equal(rvl_context_close(context, NULL), RVL_OK);
}

static void out_of_memory_on_resume_loses_nothing(void **state)
{
    (void)state;
    rvl_context *context = support_open((support_options){.capacity_bytes = 16 * MIB}, NULL);
    rvl_addr weights = support_alloc(context, "weights", 0, 4 * MIB, RVL_BACKUP_HOST);
    rvl_addr more = support_alloc(context, "weights", 0, 6 * MIB, RVL_BACKUP_HOST);
    support_fill(weights, 4 * MIB, 1);
    support_fill(more, 6 * MIB, 2);
    rvl_tag tag = support_tag(context, "weights");
    assert_int_equal(rvl_pause(context, &tag, 1, NULL), RVL_OK);
    rvl_addr copy = support_alloc(context, "training_copy", 0, 8 * MIB, RVL_BACKUP_NONE);

    rvl_forecast forecast = {.struct_size = sizeof forecast};
    assert_int_equal(rvl_resume_forecast(context, &tag, 1, NULL, &forecast), RVL_OK);
    assert_false(forecast.fits);
    assert_int_equal(forecast.needed_bytes, 10 * MIB);
    assert_int_equal(forecast.free_bytes, 8 * MIB);

    assert_int_equal(rvl_resume(context, &tag, 1, NULL), RVL_ERR_DEVICE_OOM);
    rvl_error error = last_error();
    assert_int_equal(error.status, RVL_ERR_DEVICE_OOM);
    assert_int_equal(error.requested_bytes, 10 * MIB);
    assert_int_equal(error.free_bytes, 8 * MIB);
    assert_int_equal(error.device, 0);
    assert_string_equal(error.op, "create");
    assert_string_equal(error.tag, "weights");
    const char *start = "resume of \"weights\" needs 10.0 MiB, 8.0 MiB free on device 0: ";
    assert_memory_equal(error.message, start, strlen(start));
    assert_int_equal(support_state(context, weights), RVL_STATE_PAUSED);
    assert_int_equal(support_state(context, more), RVL_STATE_PAUSED);
    assert_int_equal(support_stats(context, 0).used_bytes, 8 * MIB);

    rvl_resume_options wait = {.struct_size = sizeof wait, .timeout_ns = 5000000};
    assert_int_equal(rvl_resume(context, &tag, 1, &wait), RVL_ERR_TIMEOUT);
    assert_int_equal(last_error().requested_bytes, 10 * MIB);

    assert_int_equal(rvl_free(context, copy), RVL_OK);
    assert_int_equal(rvl_resume(context, &tag, 1, &wait), RVL_OK);
    assert_true(support_holds(weights, 4 * MIB, 1));
    assert_true(support_holds(more, 6 * MIB, 2));
    assert_int_equal(rvl_context_close(context, NULL), RVL_OK);
}

static void tags_belong_to_processes(void **state)
{
    (void)state;
    rvl_context *context = support_open((support_options){0}, NULL);
    rvl_process trainer;
    assert_int_equal(rvl_process_define(context, "trainer", &trainer), RVL_OK);
    assert_int_equal(trainer, 1);
    rvl_process again;
    assert_int_equal(rvl_process_define(context, "trainer", &again), RVL_OK);
    assert_int_equal(again, trainer);
    assert_int_equal(rvl_process_define(context, "", &again), RVL_ERR_INVALID);

    rvl_addr mine = support_alloc(context, "weights", 0, GRANULE, RVL_BACKUP_NONE);
    rvl_alloc_options options = {
        .struct_size = sizeof options, .tag = "weights", .process = trainer};
    rvl_addr theirs;
    assert_int_equal(rvl_alloc(context, GRANULE, &options, &theirs), RVL_OK);
    rvl_tag mine_tag, their_tag;
    assert_int_equal(rvl_tag_find(context, 0, "weights", &mine_tag), RVL_OK);
    assert_int_equal(rvl_tag_find(context, trainer, "weights", &their_tag), RVL_OK);
    assert_int_not_equal(mine_tag, their_tag);

    rvl_pause_options all = {.struct_size = sizeof all, .process = trainer};
    assert_int_equal(rvl_pause(context, NULL, 0, &all), RVL_OK);
    assert_int_equal(support_state(context, mine), RVL_STATE_ACTIVE);
    assert_int_equal(support_state(context, theirs), RVL_STATE_PAUSED);
    assert_int_equal(rvl_context_close(context, NULL), RVL_OK);
}

/* ---- Callbacks ---- */

typedef struct caller {
    rvl_context *context;
    rvl_status veto;
    rvl_status tried;
    uint64_t used_bytes;
    int before, after;
} caller;

static rvl_status before_unmap(void *user, rvl_tag tag)
{
    caller *c = user;
    c->before++;
    c->tried = rvl_pause(c->context, &tag, 1, NULL);
    c->used_bytes = support_stats(c->context, 0).used_bytes;
    return c->veto;
}

static void after_map(void *user, rvl_tag tag)
{
    caller *c = user;
    c->after++;
    c->tried = rvl_resume(c->context, &tag, 1, NULL);
}

static void callbacks_hear_and_may_veto(void **state)
{
    (void)state;
    rvl_context *context = support_open((support_options){0}, NULL);
    caller c = {.context = context, .veto = RVL_ERR_BUSY};
    rvl_tag_options options = {.struct_size = sizeof options,
                               .before_unmap = before_unmap,
                               .after_map = after_map,
                               .callback_user = &c};
    rvl_tag tag;
    assert_int_equal(rvl_tag_define(context, "weights", &options, &tag), RVL_OK);
    assert_int_equal(rvl_pause(context, &tag, 1, NULL), RVL_OK);
    assert_int_equal(c.before, 0); /* nothing moved */
    rvl_addr weights = support_alloc(context, "weights", 0, GRANULE, RVL_BACKUP_HOST);

    assert_int_equal(rvl_pause(context, &tag, 1, NULL), RVL_ERR_VETOED);
    assert_int_equal(c.before, 1);
    assert_int_equal(c.tried, RVL_ERR_STATE);
    assert_int_equal(c.used_bytes, GRANULE);
    assert_int_equal(support_state(context, weights), RVL_STATE_ACTIVE);
    c.veto = RVL_OK;
    assert_int_equal(rvl_pause(context, &tag, 1, NULL), RVL_OK);
    assert_int_equal(c.before, 2);
    c.tried = RVL_OK;
    assert_int_equal(rvl_resume(context, &tag, 1, NULL), RVL_OK);
    assert_int_equal(c.after, 1);
    assert_int_equal(c.tried, RVL_ERR_STATE);
    assert_int_equal(rvl_context_close(context, NULL), RVL_OK);
}

/* ---- Sharing ---- */

/* A simulated block has nothing that another process could open. */
static void simulated_memory_is_not_shared(void **state)
{
    (void)state;
    rvl_context *context = support_open((support_options){0}, NULL);
    const rvl_alloc_options options = {
        .struct_size = sizeof options, .tag = "weights", .flags = RVL_ALLOC_EXPORTABLE};
    rvl_addr addr = 0;
    rvl_import *import = NULL;
    int fd = -77;
    uint64_t bytes = GRANULE;
    rvl_export done = {.struct_size = sizeof done};
    assert_int_equal(rvl_alloc(context, GRANULE, &options, &addr), RVL_OK);
    assert_int_equal(rvl_allocation_export(context, addr, NULL, &fd, &bytes, 1, &done),
                     RVL_ERR_NOT_SUPPORTED);
    assert_int_equal(fd, -77);
    assert_int_equal(rvl_import_begin(context, GRANULE, NULL, &import), RVL_OK);
    assert_int_equal(rvl_import_add(import, &fd, &bytes, 1), RVL_ERR_NOT_SUPPORTED);
    rvl_import_cancel(import);
    assert_int_equal(support_stats(context, 0).imported_bytes, 0);
    assert_int_equal(support_stats(context, 0).used_bytes, GRANULE);
    assert_int_equal(rvl_context_close(context, NULL), RVL_OK);
}

/* ---- Hand-over ---- */

static void kept_blocks_are_handed_over_filled(void **state)
{
    (void)state;
    rvl_context *context =
        support_open((support_options){.capacity_bytes = 8 * MIB, .keep_bytes = 6 * MIB}, NULL);
    rvl_addr secret = support_alloc(context, "trainer", 0, 4 * MIB, RVL_BACKUP_NONE);
    support_fill(secret, 4 * MIB, 1);
    rvl_tag tag = support_tag(context, "trainer");
    assert_int_equal(rvl_pause(context, &tag, 1, NULL), RVL_OK);
    rvl_device_stats stats = support_stats(context, 0);
    assert_int_equal(stats.kept_bytes, 4 * MIB);
    assert_int_equal(stats.used_bytes, 4 * MIB);

    rvl_addr other = support_alloc(context, "engine", 0, 4 * MIB, RVL_BACKUP_NONE);
    for (uint64_t i = 0; i < 4 * MIB; i += 997)
        assert_int_equal(((const unsigned char *)(uintptr_t)other)[i], 0);
    stats = support_stats(context, 0);
    assert_int_equal(stats.kept_bytes, 0);
    assert_int_equal(stats.used_bytes, 4 * MIB);
    assert_int_equal(stats.peak_bytes, 4 * MIB); /* it never was 8 */

    /* Kept memory is given up before an allocation would fail. */
    assert_int_equal(rvl_free(context, other), RVL_OK);
    assert_int_equal(support_stats(context, 0).kept_bytes, 4 * MIB);
    support_alloc(context, "large", 0, 6 * MIB, RVL_BACKUP_NONE);
    assert_int_equal(support_stats(context, 0).kept_bytes, 0);
    assert_int_equal(support_stats(context, 0).used_bytes, 6 * MIB);
    assert_int_equal(rvl_context_close(context, NULL), RVL_OK);
}

/* Whether all of it holds a byte. */
static bool is_filled(rvl_addr addr, uint64_t size, unsigned char byte)
{
    const unsigned char *at = (const unsigned char *)(uintptr_t)addr;
    return at[0] == byte && memcmp(at, at + 1, size - 1) == 0;
}

static void resume_tag(rvl_context *context, rvl_tag tag, uint64_t flags)
{
    rvl_resume_options options = {.struct_size = sizeof options, .flags = flags};
    assert_int_equal(rvl_pause(context, &tag, 1, NULL), RVL_OK);
    assert_int_equal(rvl_resume(context, &tag, 1, &options), RVL_OK);
}

/* With small ones that share a block, and blocks that were kept. */
static void what_comes_back_without_content_is_poisoned(void **state)
{
    (void)state;
    rvl_context *context =
        support_open((support_options){.capacity_bytes = 64 * MIB, .keep_bytes = 8 * MIB}, NULL);
    rvl_tag_options options = {
        .struct_size = sizeof options, .coalesce_bytes = 8 * GRANULE, .flags = RVL_TAG_POISON};
    rvl_tag tag;
    assert_int_equal(rvl_tag_define(context, "engine", &options, &tag), RVL_OK);
    rvl_addr weights = support_alloc(context, "engine", 0, 8 * MIB, RVL_BACKUP_HOST);
    rvl_addr cache = support_alloc(context, "engine", 0, 8 * MIB, RVL_BACKUP_NONE);
    rvl_addr small = support_alloc(context, "engine", 0, GRANULE, RVL_BACKUP_NONE);
    assert_false(is_filled(cache, 8 * MIB, 0xFF)); /* it is new, and nothing has come back */
    support_fill(weights, 8 * MIB, 1);
    support_fill(cache, 8 * MIB, 2);
    support_fill(small, GRANULE, 3);

    resume_tag(context, tag, 0);
    assert_true(support_holds(weights, 8 * MIB, 1));
    assert_true(is_filled(cache, 8 * MIB, 0xFF));
    assert_true(is_filled(small, GRANULE, 0xFF));
    uint32_t word;
    memcpy(&word, (const void *)(uintptr_t)cache, sizeof word);
    float number;
    memcpy(&number, &word, sizeof number);
    assert_true(number != number); /* NaN */

    /* A backup that is not restored: it is the caller who brings the content. */
    resume_tag(context, tag, RVL_RESUME_NO_RESTORE);
    assert_true(is_filled(weights, 8 * MIB, 0xFF));

    /* And without the flag: what the device gives. */
    options.flags = 0;
    assert_int_equal(rvl_tag_define(context, "engine", &options, &tag), RVL_OK);
    resume_tag(context, tag, 0);
    assert_false(is_filled(cache, 8 * MIB, 0xFF));
    options.flags = RVL_TAG_POISON << 1;
    assert_int_equal(rvl_tag_define(context, "engine", &options, &tag), RVL_ERR_VERSION);
    assert_int_equal(rvl_context_close(context, NULL), RVL_OK);
}

/* What somebody has taken and puts back finds its place still free: others may not fill it. */
static void kept_blocks_never_exceed_their_budget(void **state)
{
    (void)state;
    rvl_context *context = support_open((support_options){.keep_bytes = GRANULE}, NULL);
    rvl_addr first = support_alloc(context, "cache", 0, GRANULE, RVL_BACKUP_NONE);
    rvl_addr second = support_alloc(context, "cache", 0, GRANULE, RVL_BACKUP_NONE);
    rvl_alloc_options paused = {.struct_size = sizeof paused, .flags = RVL_ALLOC_PAUSED};
    rvl_addr waiting = 0;
    rvli_block *taken = NULL;
    assert_int_equal(rvl_alloc(context, GRANULE, &paused, &waiting), RVL_OK);
    assert_int_equal(rvl_free(context, first), RVL_OK);
    assert_int_equal(support_stats(context, 0).kept_bytes, GRANULE);

    rvli_lock(context);
    assert_int_equal(
        rvli_blocks_prepare(context, rvli_index_get(&context->by_addr, waiting), &taken), RVL_OK);
    rvli_unlock(context);
    assert_true(rvli_blocks_handed_over(taken));
    assert_int_equal(rvl_free(context, second), RVL_OK);
    rvli_blocks_undo_create(context, taken);
    assert_int_equal(support_stats(context, 0).kept_bytes, GRANULE);
    assert_int_equal(support_stats(context, 0).used_bytes, GRANULE);

    /* Once it has an owner there is room for another. */
    rvl_addr third = support_alloc(context, "cache", 0, GRANULE, RVL_BACKUP_NONE);
    assert_int_equal(support_stats(context, 0).kept_bytes, 0);
    assert_int_equal(rvl_free(context, third), RVL_OK);
    assert_int_equal(support_stats(context, 0).kept_bytes, GRANULE);
    assert_int_equal(rvl_context_close(context, NULL), RVL_OK);
}

static void blocks_of_a_tag_can_be_small(void **state)
{
    (void)state;
    rvl_context *context = support_open((support_options){.keep_bytes = 64 * MIB}, NULL);
    rvl_tag tag;
    rvl_tag_options options = {.struct_size = sizeof options, .block_bytes = GRANULE};
    assert_int_equal(rvl_tag_define(context, "weights", &options, &tag), RVL_OK);
    assert_int_equal(rvl_tag_define(context, "cache", &options, &tag), RVL_OK);
    rvl_addr weights = support_alloc(context, "weights", 0, 5 * GRANULE, RVL_BACKUP_HOST);
    support_fill(weights, 5 * GRANULE, 4);
    tag = support_tag(context, "weights");
    assert_int_equal(rvl_pause(context, &tag, 1, NULL), RVL_OK);
    assert_int_equal(support_stats(context, 0).kept_bytes, 5 * GRANULE);
    /* Another size, but blocks of the same size: handed over piece by piece. */
    support_alloc(context, "cache", 0, 3 * GRANULE, RVL_BACKUP_NONE);
    assert_int_equal(support_stats(context, 0).kept_bytes, 2 * GRANULE);
    assert_int_equal(rvl_resume(context, &tag, 1, NULL), RVL_OK);
    assert_int_equal(support_stats(context, 0).kept_bytes, 0);
    assert_int_equal(support_stats(context, 0).used_bytes, 8 * GRANULE);
    assert_true(support_holds(weights, 5 * GRANULE, 4));
    assert_int_equal(rvl_context_close(context, NULL), RVL_OK);
}

/* ---- Forecast ---- */

static void forecasts_come_true(void **state)
{
    (void)state;
    rvl_context *context = support_open(
        (support_options){.memory = RVL_SIM_ACCOUNTED, .capacity_bytes = 100 * GIB}, NULL);
    for (int i = 0; i < 40; i++)
        support_alloc(context, "weights", 0, (uint64_t)(i + 1) * 20 * MIB,
                      i % 3 ? RVL_BACKUP_HOST : RVL_BACKUP_NONE);
    rvl_tag tag = support_tag(context, "weights");
    rvl_forecast forecast = {.struct_size = sizeof forecast};
    for (int round = 0; round < 3; round++) {
        assert_int_equal(rvl_pause_forecast(context, &tag, 1, NULL, &forecast), RVL_OK);
        uint64_t start = rvl_clock_ns(context);
        uint64_t host = support_stats(context, 0).host_backup_bytes;
        assert_int_equal(rvl_pause(context, &tag, 1, NULL), RVL_OK);
        assert_true(forecast.time_ns > 0);
        assert_int_equal(forecast.time_ns, rvl_clock_ns(context) - start);
        assert_int_equal(forecast.host_bytes, support_stats(context, 0).host_backup_bytes - host);
        assert_int_equal(forecast.allocation_count, 40);

        assert_int_equal(rvl_resume_forecast(context, &tag, 1, NULL, &forecast), RVL_OK);
        assert_true(forecast.fits);
        start = rvl_clock_ns(context);
        assert_int_equal(rvl_resume(context, &tag, 1, NULL), RVL_OK);
        assert_int_equal(forecast.time_ns, rvl_clock_ns(context) - start);
        assert_int_equal(forecast.needed_bytes, support_stats(context, 0).used_bytes);
    }
    assert_int_equal(rvl_context_close(context, NULL), RVL_OK);
}

/* ---- Host memory ahead ---- */

static uint64_t host_made(rvl_context *context)
{
    rvl_host_memory memory = {.struct_size = sizeof memory};
    assert_int_equal(rvl_host_get_memory(context, &memory), RVL_OK);
    return memory.pinned_bytes;
}

/* In steps of a chunk, for backups in host memory alone; the forecast knows of it. */
static void host_memory_is_wanted_ahead(void **state)
{
    (void)state;
    rvl_sim_options sim = {
        .struct_size = sizeof sim, .memory = RVL_SIM_ACCOUNTED, .flags = RVL_SIM_HOST_AHEAD};
    rvl_context_options options = {.struct_size = sizeof options, .backend_options = &sim};
    rvl_context *ahead = NULL, *late = NULL;
    assert_int_equal(rvl_context_open("sim", &options, &ahead), RVL_OK);
    sim.flags = 0;
    assert_int_equal(rvl_context_open("sim", &options, &late), RVL_OK);
    rvl_forecast soon = {.struct_size = sizeof soon}, later = {.struct_size = sizeof later};

    support_alloc(ahead, "cache", 0, 64 * RVL_HOST_CHUNK_BYTES, RVL_BACKUP_NONE);
    assert_int_equal(host_made(ahead), 0);
    rvl_addr addr = support_alloc(ahead, "weights", 0, 64 * RVL_HOST_CHUNK_BYTES, RVL_BACKUP_HOST);
    support_alloc(late, "weights", 0, 64 * RVL_HOST_CHUNK_BYTES, RVL_BACKUP_HOST);
    assert_int_equal(host_made(ahead), 64 * RVL_HOST_CHUNK_BYTES);
    assert_int_equal(host_made(late), 0);
    rvl_tag tag = support_tag(ahead, "weights");
    assert_int_equal(rvl_pause_forecast(ahead, &tag, 1, NULL, &soon), RVL_OK);
    rvl_tag tag_late = support_tag(late, "weights");
    assert_int_equal(rvl_pause_forecast(late, &tag_late, 1, NULL, &later), RVL_OK);
    assert_true(soon.time_ns < later.time_ns);

    support_alloc(ahead, "weights", 0, GRANULE, RVL_BACKUP_HOST);
    assert_int_equal(host_made(ahead), 64 * RVL_HOST_CHUNK_BYTES + GRANULE);
    support_alloc(ahead, "weights", 0, GRANULE, RVL_BACKUP_HOST); /* in the same chunk */
    assert_int_equal(host_made(ahead), 64 * RVL_HOST_CHUNK_BYTES + GRANULE);
    assert_int_equal(rvl_free(ahead, addr), RVL_OK); /* what is made is kept */
    assert_int_equal(host_made(ahead), 64 * RVL_HOST_CHUNK_BYTES + GRANULE);
    assert_int_equal(rvl_context_close(late, NULL), RVL_OK);
    assert_int_equal(rvl_context_close(ahead, NULL), RVL_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_are_rounded_and_described),
        cmocka_unit_test(hints_change_nothing),
        cmocka_unit_test(host_memory_of_simulated_devices_is_pinned_and_kept),
        cmocka_unit_test(host_memory_is_refused_to_the_wrong),
        cmocka_unit_test(a_summary_says_who_holds_what),
        cmocka_unit_test(host_memory_is_trimmed_or_refused),
        cmocka_unit_test(misuse_is_answered),
        cmocka_unit_test(opening_can_be_refused),
        cmocka_unit_test(closing_releases_and_counts),
        cmocka_unit_test(allocations_are_iterated_in_order),
        cmocka_unit_test(content_comes_back_at_the_same_address),
        cmocka_unit_test(content_without_backup_is_poisoned),
        cmocka_unit_test(born_paused_and_allocated_under_a_paused_tag),
        cmocka_unit_test(out_of_memory_on_resume_loses_nothing),
        cmocka_unit_test(tags_belong_to_processes),
        cmocka_unit_test(callbacks_hear_and_may_veto),
        cmocka_unit_test(simulated_memory_is_not_shared),
        cmocka_unit_test(kept_blocks_are_handed_over_filled),
        cmocka_unit_test(what_comes_back_without_content_is_poisoned),
        cmocka_unit_test(kept_blocks_never_exceed_their_budget),
        cmocka_unit_test(blocks_of_a_tag_can_be_small),
        cmocka_unit_test(forecasts_come_true),
        cmocka_unit_test(host_memory_is_wanted_ahead),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
