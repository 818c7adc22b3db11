/* SPDX-License-Identifier: MIT */
/* The fake driver's device memory: blocks, ranges, mappings, access, sharing. */
#include <unistd.h>

#include "driver.h"

static CUresult create(uint64_t size, int device)
{
    CUmemGenericAllocationHandle handle = 0;
    CUmemAllocationProp properties = driver_properties(device);
    CUresult result = cu.cuMemCreate(&handle, size, &properties, 0);
    if (result == CUDA_SUCCESS)
        assert_int_equal(cu.cuMemRelease(handle), CUDA_SUCCESS);
    return result;
}

static uint64_t free_bytes(void)
{
    size_t free = 0, total = 0;
    assert_int_equal(cu.cuMemGetInfo(&free, &total), CUDA_SUCCESS);
    assert_int_equal(total, 1024 * MIB);
    return free;
}

static void test_create(void **state)
{
    (void)state;
    size_t granularity = 0;
    CUmemAllocationProp properties = driver_properties(0);
    assert_int_equal(cu.cuMemGetAllocationGranularity(&granularity, &properties,
                                                      CU_MEM_ALLOC_GRANULARITY_MINIMUM),
                     CUDA_SUCCESS);
    assert_int_equal(granularity, GRANULE);
    assert_int_equal(create(MIB, 0), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(create(0, 0), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(create(GRANULE, 2), CUDA_ERROR_INVALID_DEVICE);
    assert_int_equal(create(1026 * MIB, 0), CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(create(GRANULE, 1), CUDA_SUCCESS);
    assert_int_equal(cu.cuMemRelease(77), CUDA_ERROR_INVALID_VALUE);

    CUmemGenericAllocationHandle handle = driver_create(GRANULE);
    assert_int_equal(free_bytes(), 1022 * MIB);
    assert_int_equal(cu.cuMemRelease(handle), CUDA_SUCCESS);
    assert_int_equal(free_bytes(), 1024 * MIB);
    assert_int_equal(cu.cuMemRelease(handle), CUDA_ERROR_INVALID_VALUE);
}

static void test_rdma_refused(void **state)
{
    (void)state;
    CUmemGenericAllocationHandle handle = 0;
    CUmemAllocationProp properties = driver_properties(0);
    properties.allocFlags.gpuDirectRDMACapable = 1;
    assert_int_equal(cu.cuMemCreate(&handle, GRANULE, &properties, 0), CUDA_SUCCESS);
    assert_int_equal(cu.cuMemRelease(handle), CUDA_SUCCESS);
    const fake_config config = {.rdma_refused = true};
    fake_configure(&config);
    assert_int_equal(cu.cuMemCreate(&handle, GRANULE, &properties, 0), CUDA_ERROR_NOT_SUPPORTED);
    assert_int_equal(create(GRANULE, 0), CUDA_SUCCESS);
}

static void test_export_refused(void **state)
{
    (void)state;
    CUmemGenericAllocationHandle handle = 0;
    CUmemAllocationProp properties = driver_properties(0);
    properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    assert_int_equal(cu.cuMemCreate(&handle, GRANULE, &properties, 0), CUDA_SUCCESS);
    assert_int_equal(cu.cuMemRelease(handle), CUDA_SUCCESS);
    const fake_config config = {.export_refused = true};
    fake_configure(&config);
    assert_int_equal(cu.cuMemCreate(&handle, GRANULE, &properties, 0), CUDA_ERROR_NOT_SUPPORTED);
    properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_NONE;
    assert_int_equal(cu.cuMemCreate(&handle, GRANULE, &properties, 0), CUDA_SUCCESS);
    assert_int_equal(cu.cuMemRelease(handle), CUDA_SUCCESS);
}

static void test_take(void **state)
{
    (void)state;
    assert_false(fake_take(2, 0));
    assert_false(fake_take(0, 1025 * MIB));
    assert_true(fake_take(0, 1022 * MIB));
    assert_int_equal(free_bytes(), GRANULE);
    assert_int_equal(create(2 * GRANULE, 0), CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(create(2 * GRANULE, 1), CUDA_SUCCESS);
    assert_int_equal(create(GRANULE, 0), CUDA_SUCCESS);
    assert_true(fake_take(0, 0));
    assert_int_equal(free_bytes(), 1024 * MIB);
}

static void test_ranges(void **state)
{
    (void)state;
    CUdeviceptr addr = 0;
    assert_int_equal(cu.cuMemAddressReserve(&addr, MIB, 0, 0, 0), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cu.cuMemAddressReserve(&addr, GRANULE, 3, 0, 0), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cu.cuMemAddressReserve(&addr, 3 * GRANULE, 64 * MIB, 0, 0), CUDA_SUCCESS);
    assert_int_equal(addr % (64 * MIB), 0);
    assert_int_equal(cu.cuMemAddressFree(addr, GRANULE), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cu.cuMemAddressFree(addr + GRANULE, GRANULE), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cu.cuMemAddressFree(addr, 3 * GRANULE), CUDA_SUCCESS);
    addr = driver_map(GRANULE);
    assert_int_equal(addr % GRANULE, 0);
    assert_int_equal(cu.cuMemAddressFree(addr, GRANULE), CUDA_ERROR_INVALID_VALUE);
    driver_unmap(addr, GRANULE);
}

static void test_map_rules(void **state)
{
    (void)state;
    CUmemGenericAllocationHandle handle = driver_create(2 * GRANULE);
    CUdeviceptr addr = driver_reserve(4 * GRANULE);
    assert_int_equal(cu.cuMemMap(addr, GRANULE, GRANULE, handle, 0), CUDA_ERROR_NOT_SUPPORTED);
    assert_int_equal(cu.cuMemMap(addr, GRANULE, 0, handle, 0), CUDA_ERROR_NOT_SUPPORTED);
    assert_int_equal(cu.cuMemMap(addr, 4 * GRANULE, 0, handle, 0), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cu.cuMemMap(addr, 2 * GRANULE, 0, 99, 0), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cu.cuMemMap(addr + MIB, 2 * GRANULE, 0, handle, 0), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cu.cuMemMap(addr + 3 * GRANULE, 2 * GRANULE, 0, handle, 0),
                     CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cu.cuMemMap(addr, 2 * GRANULE, 0, handle, 0), CUDA_SUCCESS);
    assert_int_equal(cu.cuMemMap(addr + GRANULE, 2 * GRANULE, 0, handle, 0),
                     CUDA_ERROR_INVALID_VALUE); /* overlaps */
    assert_int_equal(cu.cuMemMap(addr + 2 * GRANULE, 2 * GRANULE, 0, handle, 0), CUDA_SUCCESS);

    const CUmemAccess_flags both = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    assert_int_equal(driver_access(addr, GRANULE, 0, both), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(driver_access(addr, 3 * GRANULE, 0, both), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(driver_access(addr, 4 * GRANULE, 2, both), CUDA_ERROR_INVALID_DEVICE);
    assert_int_equal(driver_access(addr, 4 * GRANULE, 0, both), CUDA_SUCCESS);
    bytes_at(addr)[5] = 42; /* the same block at two addresses */
    assert_int_equal(bytes_at(addr + 2 * GRANULE)[5], 42);

    assert_int_equal(cu.cuMemUnmap(addr, GRANULE), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cu.cuMemUnmap(addr + GRANULE, 2 * GRANULE), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cu.cuMemUnmap(addr, 4 * GRANULE), CUDA_SUCCESS);
    assert_int_equal(cu.cuMemUnmap(addr, 4 * GRANULE), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cu.cuMemRelease(handle), CUDA_SUCCESS);
    assert_int_equal(cu.cuMemAddressFree(addr, 4 * GRANULE), CUDA_SUCCESS);
}

/* Blocks of two devices side by side, and a device that may only read. */
static void test_devices_in_one_range(void **state)
{
    (void)state;
    CUmemGenericAllocationHandle first = driver_create(GRANULE), second = 0;
    CUmemAllocationProp properties = driver_properties(1);
    assert_int_equal(cu.cuMemCreate(&second, GRANULE, &properties, 0), CUDA_SUCCESS);
    CUdeviceptr addr = driver_reserve(2 * GRANULE);
    assert_int_equal(cu.cuMemMap(addr, GRANULE, 0, first, 0), CUDA_SUCCESS);
    assert_int_equal(cu.cuMemMap(addr + GRANULE, GRANULE, 0, second, 0), CUDA_SUCCESS);
    assert_int_equal(fake_stats_get().used_bytes[1], GRANULE);
    char host[16];
    assert_int_equal(cu.cuMemcpyDtoHAsync(host, addr, 16, NULL), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(driver_access(addr, 2 * GRANULE, 1, CU_MEM_ACCESS_FLAGS_PROT_READWRITE),
                     CUDA_SUCCESS);
    assert_int_equal(cu.cuMemcpyDtoHAsync(host, addr, 16, NULL), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(driver_access(addr, 2 * GRANULE, 0, CU_MEM_ACCESS_FLAGS_PROT_READ),
                     CUDA_SUCCESS);
    assert_int_equal(cu.cuMemcpyDtoHAsync(host, addr + GRANULE - 8, 16, NULL), CUDA_SUCCESS);
    assert_int_equal(cu.cuMemcpyHtoDAsync(addr, host, 16, NULL), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cu.cuCtxSynchronize(), CUDA_SUCCESS);
    assert_int_equal(cu.cuMemRelease(first), CUDA_SUCCESS);
    assert_int_equal(cu.cuMemRelease(second), CUDA_SUCCESS);
    driver_unmap(addr, 2 * GRANULE);
}

/* ---- Lifetimes ---- */

static void test_memory_lives_while_mapped(void **state)
{
    (void)state;
    CUdeviceptr addr = driver_map(GRANULE); /* released its handle already */
    assert_int_equal(fake_stats_get().live.handles, 0);
    assert_int_equal(free_bytes(), 1022 * MIB);
    bytes_at(addr)[GRANULE - 1] = 7;
    assert_int_equal(bytes_at(addr)[GRANULE - 1], 7);
    driver_unmap(addr, GRANULE);
    assert_int_equal(free_bytes(), 1024 * MIB);
}

static void test_share(void **state)
{
    (void)state;
    const CUmemAllocationHandleType type = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    CUmemGenericAllocationHandle plain = 0, imported = 0;
    CUmemGenericAllocationHandle handle = driver_create(GRANULE);
    CUmemAllocationProp properties = driver_properties(0);
    int fd = -1;
    properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_NONE;
    assert_int_equal(cu.cuMemCreate(&plain, GRANULE, &properties, 0), CUDA_SUCCESS);
    assert_int_equal(cu.cuMemExportToShareableHandle(&fd, plain, type, 0),
                     CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cu.cuMemRelease(plain), CUDA_SUCCESS);
    assert_int_equal(cu.cuMemExportToShareableHandle(&fd, handle, type, 0), CUDA_SUCCESS);
    int copy = dup(fd);
    close(fd);
    assert_int_equal(cu.cuMemRelease(handle), CUDA_SUCCESS);
    assert_int_equal(free_bytes(), 1022 * MIB); /* held by the descriptor's copy */
    assert_int_equal(
        cu.cuMemImportFromShareableHandle(&imported, (void *)(intptr_t)STDIN_FILENO, type),
        CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cu.cuMemImportFromShareableHandle(&imported, (void *)(intptr_t)copy, type),
                     CUDA_SUCCESS);
    close(copy);
    assert_int_equal(fake_stats_get().live.exports, 0);
    assert_int_equal(free_bytes(), 1022 * MIB); /* held by the import */
    CUdeviceptr addr = driver_reserve(GRANULE);
    assert_int_equal(cu.cuMemMap(addr, GRANULE, 0, imported, 0), CUDA_SUCCESS);
    assert_int_equal(cu.cuMemRelease(imported), CUDA_SUCCESS);
    driver_unmap(addr, GRANULE);
    assert_int_equal(free_bytes(), 1024 * MIB);
}

int test_memory(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_create, driver_start, driver_end),
        cmocka_unit_test_setup_teardown(test_rdma_refused, driver_start, driver_end),
        cmocka_unit_test_setup_teardown(test_export_refused, driver_start, driver_end),
        cmocka_unit_test_setup_teardown(test_take, driver_start, driver_end),
        cmocka_unit_test_setup_teardown(test_ranges, driver_start, driver_end),
        cmocka_unit_test_setup_teardown(test_map_rules, driver_start, driver_end),
        cmocka_unit_test_setup_teardown(test_devices_in_one_range, driver_start, driver_end),
        cmocka_unit_test_setup_teardown(test_memory_lives_while_mapped, driver_start, driver_end),
        cmocka_unit_test_setup_teardown(test_share, driver_start, driver_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
