/* SPDX-License-Identifier: MIT */
/* The ops table's checks and stubs, faults, and the log decorator. */
#include <string.h>

#include "backends/sim/sim.h"
#include "tests/support/support.h"

static rvli_backend_ops sim_ops(void)
{
    return rvli_sim_ops;
}

static rvl_status half_a_group(void *self, int device, rvli_handle block, int *fd_out)
{
    (void)self, (void)device, (void)block, (void)fd_out;
    return RVL_OK;
}

static void tables_are_checked(void **state)
{
    (void)state;
    rvli_backend_ops ops = sim_ops(), copy = {0};
    assert_int_equal(rvli_backend_ops_copy(&copy, &ops), RVL_OK);
    assert_ptr_equal(copy.create, ops.create);
    ops.version++;
    assert_int_equal(rvli_backend_ops_copy(&copy, &ops), RVL_ERR_VERSION);
    ops = sim_ops();
    ops.size = sizeof ops + 8;
    assert_int_equal(rvli_backend_ops_copy(&copy, &ops), RVL_ERR_VERSION);
    ops = sim_ops();
    ops.unmap = NULL;
    assert_int_equal(rvli_backend_ops_copy(&copy, &ops), RVL_ERR_INVALID);
    ops = sim_ops();
    ops.export_block = half_a_group;
    assert_int_equal(rvli_backend_ops_copy(&copy, &ops), RVL_ERR_INVALID);
}

static void what_is_missing_is_not_supported(void **state)
{
    (void)state;
    rvli_backend_ops ops = sim_ops(), copy;
    ops.external_set = NULL;
    ops.host_memory = NULL;
    ops.host_trim = NULL;
    ops.digest = NULL;
    assert_int_equal(rvli_backend_ops_copy(&copy, &ops), RVL_OK);
    int file = 0;
    rvli_handle block = 0;
    rvli_digest digest;
    rvli_host_facts facts;
    assert_int_equal(copy.external_set(NULL, 0, 1), RVL_ERR_NOT_SUPPORTED);
    assert_int_equal(copy.host_memory(NULL, &facts), RVL_ERR_NOT_SUPPORTED);
    assert_int_equal(copy.host_trim(NULL, 0), RVL_ERR_NOT_SUPPORTED);
    assert_int_equal(copy.digest(NULL, 0, 0, 0, false, NULL, &digest), RVL_ERR_NOT_SUPPORTED);
    assert_int_equal(copy.export_block(NULL, 0, 1, &file), RVL_ERR_NOT_SUPPORTED);
    assert_int_equal(copy.import_block(NULL, 0, 1, 1, &block), RVL_ERR_NOT_SUPPORTED);
}

static void ops_have_names(void **state)
{
    (void)state;
    assert_string_equal(rvli_op_name(RVLI_OP_reserve), "reserve");
    assert_string_equal(rvli_op_name(RVLI_OP_import_block), "import_block");
    assert_string_equal(rvli_op_name(RVLI_OP_COUNT), "?");
}

static void chosen_calls_fail(void **state)
{
    (void)state;
    fault_injector *fault = NULL;
    rvl_context *context = support_open((support_options){0}, &fault);
    rvl_addr addr;
    rvl_error error = {.struct_size = sizeof error};

    fault_set(fault, &(fault_plan){.op_mask = UINT64_C(1) << RVLI_OP_create, .countdown = 2});
    assert_int_equal(rvl_alloc(context, GRANULE, NULL, &addr), RVL_OK);
    assert_int_equal(rvl_alloc(context, GRANULE, NULL, &addr), RVL_ERR_DEVICE_OOM);
    assert_int_equal(rvl_last_error(&error), RVL_OK);
    assert_string_equal(error.op, "create");
    assert_int_equal(rvl_alloc(context, GRANULE, NULL, &addr), RVL_OK);
    assert_int_equal(fault_calls(fault, RVLI_OP_create), 3);
    assert_int_equal(fault_failures(fault), 1);

    fault_set(fault, &(fault_plan){.op_mask = UINT64_C(1) << RVLI_OP_map,
                                   .countdown = 1,
                                   .for_good = true,
                                   .status = RVL_ERR_DEVICE_LOST});
    for (int i = 0; i < 3; i++)
        assert_int_equal(rvl_alloc(context, GRANULE, NULL, &addr), RVL_ERR_DEVICE_LOST);
    assert_int_equal(fault_failures(fault), 3);
    fault_set(fault, &(fault_plan){0});
    assert_int_equal(support_stats(context, 0).used_bytes, 2 * GRANULE);
    assert_int_equal(rvl_context_close(context, NULL), RVL_OK);
}

typedef struct heard {
    int lines;
    char all[4096];
} heard;

static void hear(void *user, rvl_log_level level, const char *message)
{
    heard *h = user;
    assert_int_equal(level, RVL_LOG_DEBUG);
    h->lines++;
    strncat(h->all, message, sizeof h->all - strlen(h->all) - 2);
    strcat(h->all, "\n");
}

static void every_call_is_logged(void **state)
{
    (void)state;
    heard h = {0};
    rvl_context *context = NULL;
    rvl_addr addr = 0;
    rvl_context_options options = {
        .struct_size = sizeof options, .log = hear, .log_user = &h, .flags = RVL_CONTEXT_LOG_OPS};
    assert_int_equal(rvl_context_open("sim", &options, &context), RVL_OK);
    assert_int_equal(rvl_alloc(context, GRANULE, NULL, &addr), RVL_OK);
    assert_string_equal(h.all, "sim reserve: success\nsim create: success\nsim map: success\n"
                               "sim set_access: success\n");
    h.all[0] = '\0';
    assert_int_equal(rvl_alloc(context, UINT64_C(1) << 40, NULL, &addr), RVL_ERR_DEVICE_OOM);
    assert_string_equal(h.all, "sim reserve: success\nsim create: out of device memory\n"
                               "sim release_range: success\nsim memory_info: success\n");
    assert_int_equal(rvl_context_close(context, NULL), RVL_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tables_are_checked),   cmocka_unit_test(what_is_missing_is_not_supported),
        cmocka_unit_test(ops_have_names),       cmocka_unit_test(chosen_calls_fail),
        cmocka_unit_test(every_call_is_logged),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
