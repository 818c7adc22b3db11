/* SPDX-License-Identifier: MIT */
/*
 * What is left when a call, and the undoing of it, fail: nothing that stays in the way. And calls
 * that get over a failure: they leave the error record as it was.
 */
#include <stdio.h>
#include <string.h>

#include "backends/sim/sim.h"
#include "tests/support/support.h"

#define OP(name) (UINT64_C(1) << RVLI_OP_##name)

/* From the given call of these ops on, all fail. */
static void fail_from(fault_injector *fault, uint64_t ops, uint64_t countdown)
{
    fault_set(fault, &(fault_plan){.op_mask = ops, .countdown = countdown, .for_good = true});
}

static void fail_no_more(fault_injector *fault)
{
    fault_set(fault, &(fault_plan){0});
}

static rvl_addr alloc_in_blocks(rvl_context *context, rvl_tag *tag_out)
{
    rvl_tag_options options = {.struct_size = sizeof options, .block_bytes = GRANULE};
    assert_int_equal(rvl_tag_define(context, "weights", &options, tag_out), RVL_OK);
    return support_alloc(context, "weights", 0, 2 * GRANULE, RVL_BACKUP_HOST);
}

static void check_empty(rvl_context *context)
{
    rvl_device_stats stats = support_stats(context, 0);
    assert_int_equal(stats.used_bytes - stats.stranded_bytes, 0);
    assert_int_equal(stats.allocation_count, 0);
    assert_int_equal(rvl_context_close(context, NULL), RVL_OK);
}

/* One of two blocks stays mapped when a resume fails. */
static void what_is_mapped_in_part_can_be_freed(void **state)
{
    (void)state;
    fault_injector *fault;
    rvl_tag tag;
    rvl_context *context = support_open((support_options){0}, &fault);
    rvl_addr addr = alloc_in_blocks(context, &tag);
    assert_int_equal(rvl_pause(context, &tag, 1, NULL), RVL_OK);
    fail_from(fault, OP(map) | OP(unmap), 2);
    assert_int_not_equal(rvl_resume(context, &tag, 1, NULL), RVL_OK);
    fail_no_more(fault);
    assert_int_equal(support_state(context, addr), RVL_STATE_LOST);
    assert_int_equal(rvl_free(context, addr), RVL_OK);
    check_empty(context);
}

/* The memory of the first is made again, to undo the pause, and cannot be unmapped any more. */
static void what_an_undone_pause_left_mapped_comes_back(void **state)
{
    (void)state;
    fault_injector *fault;
    rvl_context *context = support_open((support_options){0}, &fault);
    rvl_addr addrs[2];
    for (int i = 0; i < 2; i++) {
        addrs[i] = support_alloc(context, "weights", 0, GRANULE, RVL_BACKUP_HOST);
        support_fill(addrs[i], GRANULE, (uint64_t)i);
    }
    rvl_tag tag = support_tag(context, "weights");
    fail_from(fault, OP(unmap) | OP(release) | OP(set_access), 4);
    assert_int_not_equal(rvl_pause(context, &tag, 1, NULL), RVL_OK);
    fail_no_more(fault);
    assert_int_equal(support_state(context, addrs[0]), RVL_STATE_LOST);
    assert_int_equal(rvl_resume(context, &tag, 1, NULL), RVL_OK);
    for (int i = 0; i < 2; i++) {
        assert_true(support_holds(addrs[i], GRANULE, (uint64_t)i));
        assert_int_equal(rvl_free(context, addrs[i]), RVL_OK);
    }
    check_empty(context);
}

/* An allocation fails, and its block can neither be used nor unmapped. */
static void closing_unmaps_what_is_stranded(void **state)
{
    (void)state;
    fault_injector *fault;
    rvl_context *context = support_open((support_options){0}, &fault);
    rvl_addr addr = 0;
    fail_from(fault, OP(set_access) | OP(unmap), 1);
    assert_int_not_equal(rvl_alloc(context, GRANULE, NULL, &addr), RVL_OK);
    fail_no_more(fault);
    assert_int_equal(support_stats(context, 0).stranded_bytes, GRANULE);
    check_empty(context);
}

/* ---- The error record ---- */

static rvl_error last_error(void)
{
    rvl_error error = {.struct_size = sizeof error};
    assert_int_equal(rvl_last_error(&error), RVL_OK);
    return error;
}

/* What a failure left that has nothing to do with what follows. */
static rvl_error begin_record(void)
{
    assert_int_equal(rvl_free(NULL, 1), RVL_ERR_INVALID);
    return last_error();
}

static void check_record(const rvl_error *before)
{
    rvl_error now = last_error();
    assert_memory_equal(&now, before, sizeof now);
}

static void success_after_a_second_try_leaves_the_error_record(void **state)
{
    (void)state;
    static const uint64_t tried_again[] = {OP(release), OP(host_free), OP(release_range)};
    for (size_t i = 0; i < sizeof tried_again / sizeof *tried_again; i++) {
        fault_injector *fault;
        rvl_context *context = support_open((support_options){0}, &fault);
        rvl_addr addr = support_alloc(context, "weights", 0, GRANULE, RVL_BACKUP_HOST);
        rvl_tag tag = support_tag(context, "weights");
        rvl_error before = begin_record();
        fault_set(fault, &(fault_plan){.op_mask = tried_again[i], .countdown = 1});
        assert_int_equal(rvl_pause(context, &tag, 1, NULL), RVL_OK);
        assert_int_equal(rvl_resume(context, &tag, 1, NULL), RVL_OK);
        assert_int_equal(rvl_free(context, addr), RVL_OK);
        assert_int_equal(fault_failures(fault), 1);
        check_record(&before);
        check_empty(context);
    }
}

/* A neighbour holds the memory at the first try. */
static void memory_that_comes_in_time_leaves_the_error_record(void **state)
{
    (void)state;
    fault_injector *fault;
    rvl_context *context = support_open((support_options){0}, &fault);
    support_alloc(context, "weights", 0, GRANULE, RVL_BACKUP_HOST);
    rvl_tag tag = support_tag(context, "weights");
    assert_int_equal(rvl_pause(context, &tag, 1, NULL), RVL_OK);
    rvl_error before = begin_record();
    rvl_resume_options options = {.struct_size = sizeof options,
                                  .timeout_ns = UINT64_C(60000000000)};
    fault_set(fault, &(fault_plan){.op_mask = OP(create), .countdown = 1});
    assert_int_equal(rvl_resume(context, &tag, 1, &options), RVL_OK);
    assert_int_equal(fault_failures(fault), 1);
    check_record(&before);
    assert_int_equal(rvl_context_close(context, NULL), RVL_OK);
}

/* A recording goes on without the sample. */
static void a_sample_that_fails_leaves_the_error_record(void **state)
{
    (void)state;
    fault_injector *fault;
    rvl_context *context = support_open((support_options){0}, &fault);
    assert_int_equal(rvl_record_start(context, "/dev/null"), RVL_OK);
    rvl_error before = begin_record();
    fault_set(fault, &(fault_plan){.op_mask = OP(memory_info), .countdown = 1});
    assert_int_equal(rvl_stage(context, "rollout"), RVL_OK);
    assert_int_equal(fault_failures(fault), 1);
    check_record(&before);
    assert_int_equal(rvl_context_close(context, NULL), RVL_OK);
}

static void kept_blocks_that_make_room_leave_the_error_record(void **state)
{
    (void)state;
    rvl_context *context = support_open(
        (support_options){.capacity_bytes = 4 * GRANULE, .keep_bytes = 4 * GRANULE}, NULL);
    rvl_addr addr = support_alloc(context, "weights", 0, 3 * GRANULE, RVL_BACKUP_NONE);
    assert_int_equal(rvl_free(context, addr), RVL_OK);
    rvl_error before = begin_record();
    addr = support_alloc(context, "weights", 0, 2 * GRANULE, RVL_BACKUP_NONE);
    check_record(&before);
    assert_int_equal(rvl_free(context, addr), RVL_OK);
    assert_int_equal(rvl_context_close(context, NULL), RVL_OK);
}

static void no_room_for_a_shared_block_leaves_the_error_record(void **state)
{
    (void)state;
    rvl_context *context = support_open((support_options){.capacity_bytes = 4 * GRANULE}, NULL);
    rvl_tag tag;
    rvl_tag_options options = {.struct_size = sizeof options, .coalesce_bytes = 8 * GRANULE};
    assert_int_equal(rvl_tag_define(context, "weights", &options, &tag), RVL_OK);
    rvl_error before = begin_record();
    rvl_addr addr = support_alloc(context, "weights", 0, GRANULE, RVL_BACKUP_NONE);
    check_record(&before);
    assert_int_equal(support_stats(context, 0).used_bytes, GRANULE);
    assert_int_equal(rvl_free(context, addr), RVL_OK);
    check_empty(context);
}

/* ---- The ledger, at the moment of a release ---- */

typedef struct watched {
    rvl_context *context;
    uint64_t used_bytes; /* when the backend had just released the block */
    int releases;
} watched;

static void look_after_release(void *user, rvl_log_level level, const char *message)
{
    watched *w = user;
    (void)level;
    if (strcmp(message, "sim release: success") != 0)
        return;
    w->used_bytes = support_stats(w->context, 0).used_bytes;
    w->releases++;
}

/* Others may have the memory at once, and must not be counted beside it. */
static void bytes_leave_the_ledger_before_others_can_have_them(void **state)
{
    (void)state;
    watched w = {0};
    rvl_context_options options = {.struct_size = sizeof options,
                                   .log = look_after_release,
                                   .log_user = &w,
                                   .flags = RVL_CONTEXT_LOG_OPS};
    assert_int_equal(rvl_context_open("sim", &options, &w.context), RVL_OK);
    rvl_addr addr = support_alloc(w.context, "weights", 0, GRANULE, RVL_BACKUP_HOST);
    rvl_tag tag = support_tag(w.context, "weights");
    assert_int_equal(rvl_pause(w.context, &tag, 1, NULL), RVL_OK);
    assert_int_equal(w.releases, 1);
    assert_int_equal(w.used_bytes, 0);
    assert_int_equal(rvl_resume(w.context, &tag, 1, NULL), RVL_OK);
    assert_int_equal(rvl_free(w.context, addr), RVL_OK);
    assert_int_equal(w.releases, 2);
    assert_int_equal(w.used_bytes, 0);
    check_empty(w.context);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_mapped_in_part_can_be_freed),
        cmocka_unit_test(what_an_undone_pause_left_mapped_comes_back),
        cmocka_unit_test(closing_unmaps_what_is_stranded),
        cmocka_unit_test(success_after_a_second_try_leaves_the_error_record),
        cmocka_unit_test(memory_that_comes_in_time_leaves_the_error_record),
        cmocka_unit_test(a_sample_that_fails_leaves_the_error_record),
        cmocka_unit_test(kept_blocks_that_make_room_leave_the_error_record),
        cmocka_unit_test(no_room_for_a_shared_block_leaves_the_error_record),
        cmocka_unit_test(bytes_leave_the_ledger_before_others_can_have_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
