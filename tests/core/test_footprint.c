/* SPDX-License-Identifier: MIT */
/*
 * Host memory of live allocations, measured through the public API. At the first count the tables
 * that double have just grown: there they cost most.
 */
#include <stdio.h>
#include <unistd.h>

#include "reveille/memory.h"
#include "reveille/sim.h"
#include "tests/support/support.h"

#define BYTES_EACH_MAX 256u
#define SIZES 8u

static uint64_t resident_bytes(void)
{
    unsigned long total = 0, resident = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    assert_non_null(file);
    assert_int_equal(fscanf(file, "%lu %lu", &total, &resident), 2);
    fclose(file);
    return (uint64_t)resident * (uint64_t)sysconf(_SC_PAGESIZE);
}

static void open_large_device(rvl_context **context_out)
{
    rvl_profile profile = {.struct_size = sizeof profile};
    const rvl_profile *devices[] = {&profile};
    rvl_sim_options sim = {.struct_size = sizeof sim,
                           .memory = RVL_SIM_ACCOUNTED,
                           .flags = RVL_SIM_OVERCOMMIT,
                           .devices = devices,
                           .device_count = 1};
    rvl_context_options options = {.struct_size = sizeof options, .backend_options = &sim};
    assert_int_equal(rvl_profile_find("1048576GiB", &profile), RVL_OK);
    assert_int_equal(rvl_context_open("sim", &options, context_out), RVL_OK);
}

static void check_bytes_each(uint64_t count)
{
    rvl_context *context;
    rvl_alloc_options options = {.struct_size = sizeof options, .tag = "weights"};
    rvl_allocation found = {.struct_size = sizeof found};
    rvl_addr addr = 0;
    open_large_device(&context);
    uint64_t before = resident_bytes();
    for (uint64_t i = 0; i < count; i++)
        assert_int_equal(rvl_alloc(context, (1 + i % SIZES) * GRANULE, &options, &addr), RVL_OK);
    /* An interior address is looked up in the order of addresses, which is made now. */
    assert_int_equal(rvl_allocation_find(context, addr + 1, &found), RVL_OK);
    assert_int_equal(found.addr, addr);
    uint64_t each = (resident_bytes() - before) / count;
    print_message("%lu allocations: %lu bytes each\n", (unsigned long)count, (unsigned long)each);
    assert_true(each > 0 && each <= BYTES_EACH_MAX);
    assert_int_equal(rvl_context_close(context, NULL), RVL_OK);
}

static void test_a_million_allocations(void **state)
{
    (void)state;
    check_bytes_each(787000);
    check_bytes_each(1000000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_a_million_allocations)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
