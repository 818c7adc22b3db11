/* SPDX-License-Identifier: MIT */
#include "driver.h"

#include <dlfcn.h>
#include <string.h>

driver cu;

int driver_load(void **state)
{
    (void)state;
    __typeof__(&cuGetProcAddress) get;
    void *library = dlopen(RVL_CUDA_FAKE_PATH, RTLD_NOW | RTLD_LOCAL);
    assert_non_null(library);
    void *symbol = dlsym(library, "cuGetProcAddress_v2");
    assert_non_null(symbol);
    memcpy(&get, &symbol, sizeof get);
#define DRIVER_LOAD(name, version)                                                                 \
    assert_int_equal(get(#name, &symbol, version, CU_GET_PROC_ADDRESS_LEGACY_STREAM, NULL),        \
                     CUDA_SUCCESS);                                                                \
    memcpy(&cu.name, &symbol, sizeof symbol);
    FAKE_ENTRY_MAP(DRIVER_LOAD)
#undef DRIVER_LOAD
    fake_reset();
    return 0;
}

int driver_start(void **state)
{
    (void)state;
    CUcontext context;
    assert_int_equal(cu.cuInit(0), CUDA_SUCCESS);
    assert_int_equal(cu.cuDevicePrimaryCtxRetain(&context, 0), CUDA_SUCCESS);
    assert_int_equal(cu.cuCtxSetCurrent(context), CUDA_SUCCESS);
    return 0;
}

int driver_end(void **state)
{
    (void)state;
    const fake_live only_the_context = {.context_references = 1};
    fake_live live = fake_reset();
    assert_memory_equal(&live, &only_the_context, sizeof live);
    return 0;
}

CUmemAllocationProp driver_properties(int device)
{
    return (CUmemAllocationProp){
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
    };
}

CUmemGenericAllocationHandle driver_create(uint64_t size)
{
    CUmemGenericAllocationHandle handle = 0;
    CUmemAllocationProp properties = driver_properties(0);
    assert_int_equal(cu.cuMemCreate(&handle, size, &properties, 0), CUDA_SUCCESS);
    return handle;
}

CUdeviceptr driver_reserve(uint64_t size)
{
    CUdeviceptr addr = 0;
    assert_int_equal(cu.cuMemAddressReserve(&addr, size, 0, 0, 0), CUDA_SUCCESS);
    return addr;
}

CUresult driver_access(CUdeviceptr addr, uint64_t size, int device, CUmemAccess_flags flags)
{
    CUmemAccessDesc desc = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
                            .flags = flags};
    return cu.cuMemSetAccess(addr, size, &desc, 1);
}

CUdeviceptr driver_map(uint64_t size)
{
    CUdeviceptr addr = driver_reserve(size);
    CUmemGenericAllocationHandle handle = driver_create(size);
    assert_int_equal(cu.cuMemMap(addr, size, 0, handle, 0), CUDA_SUCCESS);
    assert_int_equal(cu.cuMemRelease(handle), CUDA_SUCCESS);
    assert_int_equal(driver_access(addr, size, 0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE),
                     CUDA_SUCCESS);
    return addr;
}

void driver_unmap(CUdeviceptr addr, uint64_t size)
{
    assert_int_equal(cu.cuMemUnmap(addr, size), CUDA_SUCCESS);
    assert_int_equal(cu.cuMemAddressFree(addr, size), CUDA_SUCCESS);
}
