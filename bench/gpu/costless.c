/* SPDX-License-Identifier: MIT */
/*
 * A driver with calls for memory that cost nothing and do nothing. What is left of the time is what
 * a library adds. Everything else is the fake driver of the tests.
 */
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>

#include <cuda.h>

static _Atomic uint64_t next_addr = UINT64_C(1) << 45;
static _Atomic uint64_t next_block = 1;

static CUresult reserve(CUdeviceptr *addr_out, size_t size, size_t alignment, CUdeviceptr wanted,
                        unsigned long long flags)
{
    (void)alignment, (void)wanted, (void)flags;
    *addr_out = atomic_fetch_add_explicit(&next_addr, size, memory_order_relaxed);
    return CUDA_SUCCESS;
}

static CUresult create(CUmemGenericAllocationHandle *block_out, size_t size,
                       const CUmemAllocationProp *properties, unsigned long long flags)
{
    (void)size, (void)properties, (void)flags;
    *block_out = atomic_fetch_add_explicit(&next_block, 1, memory_order_relaxed);
    return CUDA_SUCCESS;
}

static CUresult map(CUdeviceptr addr, size_t size, size_t offset,
                    CUmemGenericAllocationHandle block, unsigned long long flags)
{
    (void)addr, (void)size, (void)offset, (void)block, (void)flags;
    return CUDA_SUCCESS;
}

static CUresult set_access(CUdeviceptr addr, size_t size, const CUmemAccessDesc *access,
                           size_t count)
{
    (void)addr, (void)size, (void)access, (void)count;
    return CUDA_SUCCESS;
}

static CUresult forget_range(CUdeviceptr addr, size_t size)
{
    (void)addr, (void)size;
    return CUDA_SUCCESS;
}

static CUresult forget_block(CUmemGenericAllocationHandle block)
{
    (void)block;
    return CUDA_SUCCESS;
}

static CUresult name(char *name_out, int length, CUdevice device)
{
    (void)device;
    strncpy(name_out, "costless", (size_t)length);
    return CUDA_SUCCESS;
}

/* Takes the address of a function of any type. */
#define ENTRY(name, function)                                                                      \
    if (strcmp(symbol, name) == 0) {                                                               \
        __typeof__(&function) pointer = function;                                                  \
        memcpy(pointer_out, &pointer, sizeof pointer);                                             \
        return;                                                                                    \
    }

static void take_ours(const char *symbol, void **pointer_out)
{
    ENTRY("cuDeviceGetName", name)
    ENTRY("cuMemAddressReserve", reserve)
    ENTRY("cuMemAddressFree", forget_range)
    ENTRY("cuMemCreate", create)
    ENTRY("cuMemRelease", forget_block)
    ENTRY("cuMemMap", map)
    ENTRY("cuMemUnmap", forget_range)
    ENTRY("cuMemSetAccess", set_access)
}

__attribute__((visibility("default"))) CUresult
cuGetProcAddress_v2(const char *symbol, void **pointer_out, int version, cuuint64_t flags,
                    CUdriverProcAddressQueryResult *status_out)
{
    __typeof__(&cuGetProcAddress_v2) fake = NULL;
    void *next = dlsym(RTLD_NEXT, "cuGetProcAddress_v2");
    memcpy(&fake, &next, sizeof next);
    if (fake == NULL)
        return CUDA_ERROR_NOT_FOUND;
    CUresult result = fake(symbol, pointer_out, version, flags, status_out);
    if (result == CUDA_SUCCESS)
        take_ours(symbol, pointer_out);
    return result;
}
