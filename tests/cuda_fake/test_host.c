/* SPDX-License-Identifier: MIT */
/* The fake driver's pinned host memory, and which copies count as pinned. */
#include <string.h>

#include "driver.h"

static unsigned char host[4096];

static void test_register_rules(void **state)
{
    (void)state;
    assert_int_equal(cu.cuMemHostRegister(NULL, 8, 0), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cu.cuMemHostRegister(host, 0, 0), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cu.cuMemHostRegister(host, 64, 0x100), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cu.cuMemHostRegister(host + 64, 64, 0), CUDA_SUCCESS);
    const CUresult taken = CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    assert_int_equal(cu.cuMemHostRegister(host + 64, 64, 0), taken);
    assert_int_equal(cu.cuMemHostRegister(host, 65, 0), taken);
    assert_int_equal(cu.cuMemHostRegister(host, sizeof host, 0), taken);
    assert_int_equal(cu.cuMemHostRegister(host + 127, 1, 0), taken);
    assert_int_equal(cu.cuMemHostRegister(host, 64, 0), CUDA_SUCCESS);
    assert_int_equal(cu.cuMemHostRegister(host + 128, 64, 0), CUDA_SUCCESS);
    assert_int_equal(cu.cuMemHostUnregister(host + 65), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
    for (int i = 0; i < 3; i++)
        assert_int_equal(cu.cuMemHostUnregister(host + 64 * i), CUDA_SUCCESS);
    assert_int_equal(cu.cuMemHostUnregister(host), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
}

static void test_register_limit(void **state)
{
    (void)state;
    const fake_config config = {.registered_limit_bytes = 100};
    void *allocated;
    fake_configure(&config);
    assert_int_equal(cu.cuMemHostRegister(host, 101, 0), CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(cu.cuMemHostRegister(host, 60, 0), CUDA_SUCCESS);
    assert_int_equal(cu.cuMemHostAlloc(&allocated, 41, 0), CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(cu.cuMemHostAlloc(&allocated, 40, 0), CUDA_SUCCESS);
    assert_int_equal(fake_stats_get().pinned_bytes, 100);
    assert_int_equal(cu.cuMemHostUnregister(allocated), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
    assert_int_equal(cu.cuMemFreeHost(host), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cu.cuMemFreeHost(allocated), CUDA_SUCCESS);
    assert_int_equal(cu.cuMemHostUnregister(host), CUDA_SUCCESS);
}

static void test_what_counts_as_pinned(void **state)
{
    (void)state;
    CUdeviceptr addr = driver_map(GRANULE);
    assert_int_equal(cu.cuMemHostRegister(host, 64, 0), CUDA_SUCCESS);
    assert_int_equal(cu.cuMemHostRegister(host + 64, 64, 0), CUDA_SUCCESS);
    assert_int_equal(cu.cuMemcpyDtoHAsync(host, addr, 64, NULL), CUDA_SUCCESS);
    assert_int_equal(cu.cuMemcpyDtoHAsync(host + 32, addr, 33, NULL), CUDA_SUCCESS); /* straddles */
    assert_int_equal(cu.cuMemcpyDtoHAsync(host + 120, addr, 9, NULL),
                     CUDA_SUCCESS); /* sticks out */
    assert_int_equal(cu.cuMemcpyHtoDAsync(addr, host + 70, 5, NULL), CUDA_SUCCESS);
    assert_int_equal(cu.cuMemcpyHtoDAsync(addr, host + 1000, 3, NULL), CUDA_SUCCESS);
    assert_int_equal(cu.cuMemsetD8Async(addr, 0, 11, NULL), CUDA_SUCCESS);
    fake_stats stats = fake_stats_get();
    assert_int_equal(stats.to_host_pinned_bytes, 0); /* nobody has waited */
    assert_int_equal(stats.pending, 6);
    assert_int_equal(cu.cuStreamSynchronize(NULL), CUDA_SUCCESS);
    stats = fake_stats_get();
    assert_int_equal(stats.to_host_pinned_bytes, 64);
    assert_int_equal(stats.to_host_pageable_bytes, 42);
    assert_int_equal(stats.to_device_pinned_bytes, 5);
    assert_int_equal(stats.to_device_pageable_bytes, 3);
    assert_int_equal(stats.set_bytes, 11);
    assert_int_equal(stats.pending, 0);
    assert_int_equal(cu.cuMemHostUnregister(host), CUDA_SUCCESS);
    assert_int_equal(cu.cuMemHostUnregister(host + 64), CUDA_SUCCESS);
    driver_unmap(addr, GRANULE);
}

static void test_unregister_under_a_copy(void **state)
{
    (void)state;
    CUdeviceptr addr = driver_map(GRANULE);
    assert_int_equal(cu.cuMemHostRegister(host, 64, 0), CUDA_SUCCESS);
    assert_int_equal(cu.cuMemcpyDtoHAsync(host, addr, 64, NULL), CUDA_SUCCESS);
    assert_int_equal(cu.cuMemHostUnregister(host), CUDA_SUCCESS);
    assert_int_equal(cu.cuMemHostRegister(host, 64, 0), CUDA_SUCCESS); /* not the same region */
    assert_int_equal(cu.cuStreamSynchronize(NULL), CUDA_ERROR_ILLEGAL_ADDRESS);
    assert_int_equal(cu.cuMemHostUnregister(host), CUDA_ERROR_ILLEGAL_ADDRESS);
    driver_unmap(addr, GRANULE);
    assert_int_equal(fake_reset().registrations, 1);
    driver_start(NULL);
}

int test_host(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_register_rules, driver_start, driver_end),
        cmocka_unit_test_setup_teardown(test_register_limit, driver_start, driver_end),
        cmocka_unit_test_setup_teardown(test_what_counts_as_pinned, driver_start, driver_end),
        cmocka_unit_test_setup_teardown(test_unregister_under_a_copy, driver_start, driver_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
