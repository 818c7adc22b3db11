/* SPDX-License-Identifier: MIT */
/* The fake driver itself: start, contexts, faults, configuration, what is left at a reset. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "driver.h"

static void test_before_init(void **state)
{
    (void)state;
    int number = 0;
    CUcontext context;
    CUmemAllocationProp properties = driver_properties(0);
    CUmemGenericAllocationHandle handle;
    const char *text = "";
    assert_int_equal(cu.cuDeviceGetCount(&number), CUDA_ERROR_NOT_INITIALIZED);
    assert_int_equal(cu.cuCtxGetCurrent(&context), CUDA_ERROR_NOT_INITIALIZED);
    assert_int_equal(cu.cuMemCreate(&handle, GRANULE, &properties, 0), CUDA_ERROR_NOT_INITIALIZED);
    assert_int_equal(cu.cuStreamSynchronize(NULL), CUDA_ERROR_NOT_INITIALIZED);
    assert_int_equal(cu.cuDriverGetVersion(&number), CUDA_SUCCESS);
    assert_int_equal(number, 13000);
    assert_int_equal(cu.cuGetErrorName(CUDA_ERROR_ILLEGAL_ADDRESS, &text), CUDA_SUCCESS);
    assert_string_equal(text, "CUDA_ERROR_ILLEGAL_ADDRESS");
    assert_int_equal(cu.cuGetErrorName((CUresult)12345, &text), CUDA_ERROR_INVALID_VALUE);
    assert_null(text);
    assert_int_equal(cu.cuInit(1), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cu.cuInit(0), CUDA_SUCCESS);
    assert_int_equal(cu.cuInit(0), CUDA_SUCCESS);
    assert_int_equal(cu.cuDeviceGetCount(&number), CUDA_SUCCESS);
    assert_int_equal(number, 2);
    fake_reset();
    assert_int_equal(cu.cuDeviceGetCount(&number), CUDA_ERROR_NOT_INITIALIZED);
}

static void *address_of(const char *symbol, int version, CUresult expected,
                        CUdriverProcAddressQueryResult expected_status)
{
    void *pointer = &pointer;
    CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SUCCESS;
    assert_int_equal(cu.cuGetProcAddress(symbol, &pointer, version, 0, &status), expected);
    assert_int_equal(status, expected_status);
    return pointer;
}

static void test_get_proc_address(void **state)
{
    (void)state;
    void *pointer = NULL;
    const CUresult none = CUDA_ERROR_NOT_FOUND;
    assert_null(address_of("cuNoSuchThing", 12000, none, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND));
    assert_null(address_of("cuMemMap", 10010, none, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT));
    assert_int_equal(cu.cuGetProcAddress("cuMemMap", &pointer, 13010, 0, NULL),
                     CUDA_ERROR_INVALID_VALUE); /* newer than the driver */
    void *old = address_of("cuCtxSynchronize", 12080, CUDA_SUCCESS, CU_GET_PROC_ADDRESS_SUCCESS);
    void *new = address_of("cuCtxSynchronize", 13000, CUDA_SUCCESS, CU_GET_PROC_ADDRESS_SUCCESS);
    assert_non_null(old);
    assert_non_null(new);
    assert_ptr_not_equal(old, new);
    const fake_config config = {.missing_symbol = "cuMemcpyDtoHAsync"};
    fake_configure(&config);
    assert_null(address_of("cuMemcpyDtoHAsync", 12000, none, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND));
    assert_non_null(
        address_of("cuMemcpyHtoDAsync", 12000, CUDA_SUCCESS, CU_GET_PROC_ADDRESS_SUCCESS));
    fake_reset();
    address_of("cuMemcpyDtoHAsync", 12000, CUDA_SUCCESS, CU_GET_PROC_ADDRESS_SUCCESS);
}

static void test_devices(void **state)
{
    (void)state;
    CUdevice device = -1;
    char text[32];
    int number = -1;
    size_t bytes = 0;
    assert_int_equal(cu.cuDeviceGet(&device, 2), CUDA_ERROR_INVALID_DEVICE);
    assert_int_equal(cu.cuDeviceGet(&device, 1), CUDA_SUCCESS);
    assert_int_equal(device, 1);
    assert_int_equal(cu.cuDeviceGetName(text, sizeof text, 0), CUDA_SUCCESS);
    assert_string_equal(text, "Fake GPU");
    assert_int_equal(cu.cuDeviceGetPCIBusId(text, sizeof text, 1), CUDA_SUCCESS);
    assert_string_equal(text, "0000:1A:00.0");
    assert_int_equal(cu.cuDeviceGetPCIBusId(text, 12, 1), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cu.cuDeviceTotalMem(&bytes, 0), CUDA_SUCCESS);
    assert_int_equal(bytes, 1024 * MIB);
    const CUdevice_attribute vmm = CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED;
    assert_int_equal(cu.cuDeviceGetAttribute(&number, vmm, 0), CUDA_SUCCESS);
    assert_int_equal(number, 1);
    fake_attribute_set(vmm, 0);
    assert_int_equal(cu.cuDeviceGetAttribute(&number, vmm, 0), CUDA_SUCCESS);
    assert_int_equal(number, 0);
    assert_int_equal(cu.cuDeviceGetAttribute(&number, CU_DEVICE_ATTRIBUTE_MAX, 0),
                     CUDA_ERROR_INVALID_VALUE);
}

/* ---- Contexts ---- */

static void test_context_needed(void **state)
{
    (void)state;
    size_t free, total;
    CUstream stream;
    CUevent event;
    void *host = &free;
    assert_int_equal(cu.cuCtxSetCurrent(NULL), CUDA_SUCCESS);
    assert_int_equal(cu.cuMemGetInfo(&free, &total), CUDA_ERROR_INVALID_CONTEXT);
    assert_int_equal(cu.cuStreamCreate(&stream, 0), CUDA_ERROR_INVALID_CONTEXT);
    assert_int_equal(cu.cuEventCreate(&event, 0), CUDA_ERROR_INVALID_CONTEXT);
    assert_int_equal(cu.cuCtxSynchronize(), CUDA_ERROR_INVALID_CONTEXT);
    assert_int_equal(cu.cuMemHostRegister(host, 8, 0), CUDA_ERROR_INVALID_CONTEXT);
    CUdeviceptr addr = driver_map(GRANULE); /* needs none */
    driver_unmap(addr, GRANULE);
    const fake_config strict = {.memory_needs_context = true};
    fake_configure(&strict);
    assert_int_equal(cu.cuMemAddressReserve(&addr, GRANULE, 0, 0, 0), CUDA_ERROR_INVALID_CONTEXT);
}

static CUcontext current(void)
{
    CUcontext context = NULL;
    assert_int_equal(cu.cuCtxGetCurrent(&context), CUDA_SUCCESS);
    return context;
}

static void *other_thread(void *context)
{
    CUcontext popped = NULL;
    CUresult *result = malloc(sizeof *result);
    *result = CUDA_SUCCESS;
    if (current() != NULL || cu.cuCtxPopCurrent(&popped) != CUDA_ERROR_INVALID_CONTEXT ||
        cu.cuCtxPushCurrent(context) != CUDA_SUCCESS || current() != context)
        *result = CUDA_ERROR_UNKNOWN;
    return result;
}

static void test_context_stack(void **state)
{
    (void)state;
    CUcontext first = current(), second = NULL, popped = NULL;
    CUdevice device = -1;
    unsigned flags = 1;
    int active = -1;
    assert_int_equal(cu.cuDevicePrimaryCtxGetState(1, &flags, &active), CUDA_SUCCESS);
    assert_int_equal(active, 0);
    assert_int_equal(flags, 0);
    assert_int_equal(cu.cuDevicePrimaryCtxGetState(99, &flags, &active), CUDA_ERROR_INVALID_DEVICE);
    assert_int_equal(cu.cuDevicePrimaryCtxGetState(1, NULL, &active), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cu.cuDevicePrimaryCtxRetain(&second, 1), CUDA_SUCCESS);
    assert_int_equal(cu.cuDevicePrimaryCtxGetState(1, &flags, &active), CUDA_SUCCESS);
    assert_int_equal(active, 1);
    assert_ptr_not_equal(first, second);
    assert_int_equal(cu.cuCtxPushCurrent(second), CUDA_SUCCESS);
    assert_ptr_equal(current(), second);
    assert_int_equal(cu.cuCtxGetDevice(&device), CUDA_SUCCESS);
    assert_int_equal(device, 1);
    pthread_t thread;
    void *result = NULL;
    assert_int_equal(pthread_create(&thread, NULL, other_thread, first), 0);
    assert_int_equal(pthread_join(thread, &result), 0);
    assert_int_equal(*(CUresult *)result, CUDA_SUCCESS);
    free(result);
    assert_ptr_equal(current(), second);
    assert_int_equal(cu.cuCtxPopCurrent(&popped), CUDA_SUCCESS);
    assert_ptr_equal(popped, second);
    assert_ptr_equal(current(), first);
    assert_int_equal(cu.cuCtxPopCurrent(NULL), CUDA_SUCCESS);
    assert_null(current());
    assert_int_equal(cu.cuCtxPopCurrent(&popped), CUDA_ERROR_INVALID_CONTEXT);
    assert_int_equal(cu.cuCtxPushCurrent(NULL), CUDA_ERROR_INVALID_CONTEXT);
    assert_int_equal(cu.cuDevicePrimaryCtxRelease(1), CUDA_SUCCESS);
}

static void test_context_references(void **state)
{
    (void)state;
    CUcontext context = current(), again = NULL;
    CUstream stream;
    size_t free, total;
    assert_int_equal(cu.cuStreamCreate(&stream, 0), CUDA_SUCCESS);
    assert_int_equal(cu.cuDevicePrimaryCtxRetain(&again, 0), CUDA_SUCCESS);
    assert_ptr_equal(again, context);
    assert_int_equal(cu.cuDevicePrimaryCtxRelease(0), CUDA_SUCCESS);
    assert_int_equal(cu.cuMemGetInfo(&free, &total), CUDA_SUCCESS);
    assert_int_equal(cu.cuDevicePrimaryCtxRelease(0), CUDA_SUCCESS);
    assert_int_equal(cu.cuMemGetInfo(&free, &total), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    assert_int_equal(cu.cuCtxPushCurrent(context), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    assert_int_equal(cu.cuDevicePrimaryCtxRelease(0), CUDA_ERROR_INVALID_CONTEXT);
    assert_int_equal(cu.cuDevicePrimaryCtxRetain(&again, 0), CUDA_SUCCESS);
    assert_ptr_not_equal(again, context);
    assert_int_equal(cu.cuCtxSetCurrent(again), CUDA_SUCCESS);
    assert_int_equal(cu.cuStreamSynchronize(stream), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    assert_int_equal(fake_reset().streams, 1); /* went with its context, but nobody destroyed it */
    driver_start(NULL);
}

/* ---- Faults ---- */

static void test_faults(void **state)
{
    (void)state;
    CUmemGenericAllocationHandle handle = 0;
    CUmemAllocationProp properties = driver_properties(0);
    size_t free, total;
    assert_false(fake_fail("cuNoSuchThing", 1, CUDA_ERROR_UNKNOWN, false));
    assert_true(fake_fail("cuMemCreate", 2, CUDA_ERROR_OUT_OF_MEMORY, false));
    uint64_t before = fake_calls("cuMemCreate");
    handle = driver_create(GRANULE);
    CUmemGenericAllocationHandle untouched = handle;
    assert_int_equal(cu.cuMemCreate(&handle, GRANULE, &properties, 0), CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(handle, untouched);
    assert_int_equal(fake_stats_get().live.handles, 1);
    CUmemGenericAllocationHandle third = driver_create(GRANULE);
    assert_int_equal(fake_calls("cuMemCreate") - before, 3);
    assert_int_equal(fake_failures(), 1);
    assert_true(fake_fail("cuMemRelease", 1, CUDA_ERROR_UNKNOWN, true));
    for (int i = 0; i < 3; i++)
        assert_int_equal(cu.cuMemRelease(handle), CUDA_ERROR_UNKNOWN);
    assert_true(fake_fail("cuMemRelease", 0, CUDA_SUCCESS, false));
    assert_int_equal(cu.cuMemRelease(handle), CUDA_SUCCESS);
    assert_int_equal(cu.cuMemRelease(third), CUDA_SUCCESS);
    assert_int_equal(fake_failures(), 4);

    uint64_t all = fake_calls(NULL);
    const char *text;
    assert_true(fake_fail(NULL, 2, CUDA_ERROR_NOT_PERMITTED, false));
    assert_int_equal(cu.cuMemGetInfo(&free, &total), CUDA_SUCCESS);
    assert_int_equal(cu.cuGetErrorName(CUDA_SUCCESS, &text), CUDA_SUCCESS); /* not counted */
    assert_int_equal(cu.cuInit(0), CUDA_SUCCESS);
    assert_int_equal(cu.cuCtxSynchronize(), CUDA_ERROR_NOT_PERMITTED);
    assert_int_equal(cu.cuCtxSynchronize(), CUDA_SUCCESS);
    assert_int_equal(fake_calls(NULL) - all, 3);
    assert_int_equal(fake_failures(), 5);
}

/* ---- Configuration and resets ---- */

static void test_environment(void **state)
{
    (void)state;
    int number = 0;
    size_t bytes = 0;
    setenv("FAKE_CUDA_DEVICES", "3", 1);
    setenv("FAKE_CUDA_CAPACITY_BYTES", "4194304", 1);
    setenv("FAKE_CUDA_DRIVER_VERSION", "12080", 1);
    assert_int_equal(cu.cuInit(0), CUDA_SUCCESS);
    assert_int_equal(cu.cuDeviceGetCount(&number), CUDA_SUCCESS);
    assert_int_equal(number, 3);
    assert_int_equal(cu.cuDriverGetVersion(&number), CUDA_SUCCESS);
    assert_int_equal(number, 12080);
    assert_int_equal(cu.cuDeviceTotalMem(&bytes, 2), CUDA_SUCCESS);
    assert_int_equal(bytes, 4 * MIB);
    fake_reset();
    const fake_config none = {.devices = -1};
    fake_configure(&none); /* goes before the environment */
    assert_int_equal(cu.cuInit(0), CUDA_ERROR_NO_DEVICE);
    fake_reset();
    unsetenv("FAKE_CUDA_DEVICES");
    unsetenv("FAKE_CUDA_CAPACITY_BYTES");
    unsetenv("FAKE_CUDA_DRIVER_VERSION");
}

static void test_reset_counts_what_is_left(void **state)
{
    (void)state;
    CUstream stream;
    CUevent event;
    CUmodule module;
    CUcontext context;
    void *host;
    int fd = -1;
    static char registered[8];
    driver_start(NULL);
    CUdeviceptr addr = driver_map(GRANULE);
    CUmemGenericAllocationHandle handle = driver_create(2 * GRANULE);
    driver_reserve(GRANULE);
    assert_int_equal(
        cu.cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
        CUDA_SUCCESS);
    assert_int_equal(cu.cuStreamCreate(&stream, 0), CUDA_SUCCESS);
    assert_int_equal(cu.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING), CUDA_SUCCESS);
    assert_int_equal(cu.cuModuleLoadData(&module, "image"), CUDA_SUCCESS);
    assert_int_equal(cu.cuMemHostAlloc(&host, 100, 0), CUDA_SUCCESS);
    assert_int_equal(cu.cuMemHostRegister(registered, sizeof registered, 0), CUDA_SUCCESS);
    assert_int_equal(cu.cuDevicePrimaryCtxRetain(&context, 1), CUDA_SUCCESS);
    assert_int_equal(cu.cuMemsetD8Async(addr, 1, 16, stream), CUDA_SUCCESS);
    fake_stats stats = fake_stats_get();
    assert_int_equal(stats.pending, 1);
    assert_int_equal(stats.used_bytes[0], 3 * GRANULE);
    assert_int_equal(stats.pinned_bytes, 108);
    const fake_live expected = {.handles = 1,
                                .exports = 1,
                                .mappings = 1,
                                .ranges = 2,
                                .streams = 1,
                                .events = 1,
                                .modules = 1,
                                .registrations = 1,
                                .host_allocations = 1,
                                .context_references = 2};
    fake_live live = fake_reset();
    assert_memory_equal(&live, &expected, sizeof live);
    stats = fake_stats_get();
    const fake_stats nothing = {0};
    assert_memory_equal(&stats, &nothing, sizeof stats);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_before_init),
        cmocka_unit_test(test_get_proc_address),
        cmocka_unit_test_setup_teardown(test_devices, driver_start, driver_end),
        cmocka_unit_test_setup_teardown(test_context_needed, driver_start, driver_end),
        cmocka_unit_test_setup_teardown(test_context_stack, driver_start, driver_end),
        cmocka_unit_test_setup_teardown(test_context_references, driver_start, driver_end),
        cmocka_unit_test_setup_teardown(test_faults, driver_start, driver_end),
        cmocka_unit_test(test_environment),
        cmocka_unit_test(test_reset_counts_what_is_left),
    };
    int failed = cmocka_run_group_tests(tests, driver_load, NULL);
    return failed + test_memory() + test_host() + test_streams() != 0;
}
