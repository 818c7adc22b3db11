/* SPDX-License-Identifier: MIT */
#include "driver.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/digest.h"
#include "need.h"
#include "subject.h"

driver cuda;

static void *library;

typedef CUresult (*get_proc_address_fn)(const char *symbol, void **pointer_out, int version,
                                        cuuint64_t flags,
                                        CUdriverProcAddressQueryResult *status_out);

void cuda_need(CUresult result, const char *what)
{
    if (result == CUDA_SUCCESS)
        return;
    fprintf(stderr, "bench_gpu: %s: CUresult %d\n", what, (int)result);
    exit(1);
}

static void open_library(void)
{
    const char *path = getenv("RVL_CUDA_LIBRARY");
    library = dlopen(path != NULL && path[0] != '\0' ? path : "libcuda.so.1", RTLD_NOW);
    if (library != NULL)
        return;
    fprintf(stderr, "bench_gpu: skipped: no CUDA driver\n");
    exit(SKIPPED);
}

static void *find(get_proc_address_fn get, const char *name, int version)
{
    void *symbol = NULL;
    CUdriverProcAddressQueryResult found;
    cuda_need(get(name, &symbol, version, CU_GET_PROC_ADDRESS_DEFAULT, &found), name);
    need(symbol != NULL, name);
    return symbol;
}

/* ---- On the fake driver ---- */

/* The kernel of digest.cu, by the same parameters. */
static void fake_digest(void **params)
{
    uint64_t granules, granule_bytes, granule_count, digests;
    memcpy(&granules, params[0], sizeof granules);
    memcpy(&granule_bytes, params[1], sizeof granule_bytes);
    memcpy(&granule_count, params[2], sizeof granule_count);
    memcpy(&digests, params[3], sizeof digests);
    for (uint64_t i = 0; i < granule_count; i++)
        ((rvli_digest *)(uintptr_t)digests)[i] = rvli_digest_of(
            (const void *)(uintptr_t)((const uint64_t *)(uintptr_t)granules)[i], granule_bytes);
}

static void set_fake_kernel(void)
{
    static const size_t sizes[] = {8, 8, 8, 8};
    bool (*set)(const char *, void (*)(void **), size_t, const size_t *) = NULL;
    void *symbol = dlsym(library, "fake_kernel_set");
    if (symbol == NULL)
        return; /* a real driver */
    memcpy(&set, &symbol, sizeof set);
    need(set("rvl_digest", fake_digest, 4, sizes) &&
             set("rvl_secret_digest", fake_digest, 4, sizes),
         "giving the fake driver its kernels");
}

uint64_t driver_calls(void)
{
    uint64_t (*calls)(const char *) = NULL;
    void *symbol = dlsym(library, "fake_calls");
    if (symbol == NULL)
        return 0;
    memcpy(&calls, &symbol, sizeof calls);
    return calls(NULL);
}

/* ---- Opening ---- */

void driver_open(void)
{
    CUdevice device;
    CUcontext context;
    get_proc_address_fn get = NULL;
    open_library();
    void *symbol = dlsym(library, "cuGetProcAddress_v2");
    need(symbol != NULL, "the CUDA driver is older than 12.0");
    memcpy(&get, &symbol, sizeof get);
#define LOAD(name, version)                                                                        \
    symbol = find(get, #name, version);                                                            \
    memcpy(&cuda.name, &symbol, sizeof symbol);
    ENTRIES(LOAD)
#undef LOAD
    cuda_need(cuda.cuInit(0), "starting the driver");
    set_fake_kernel();
    cuda_need(cuda.cuDeviceGet(&device, 0), "device 0");
    cuda_need(cuda.cuDevicePrimaryCtxRetain(&context, device), "the primary context");
    cuda_need(cuda.cuCtxSetCurrent(context), "the primary context");
}

CUdeviceptr map_block(uint64_t size)
{
    CUdeviceptr addr;
    CUmemGenericAllocationHandle block;
    CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    CUmemAccessDesc access = {.location = properties.location,
                              .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    cuda_need(cuda.cuMemAddressReserve(&addr, size, 0, 0, 0), "reserve");
    cuda_need(cuda.cuMemCreate(&block, size, &properties, 0), "create");
    cuda_need(cuda.cuMemMap(addr, size, 0, block, 0), "map");
    cuda_need(cuda.cuMemSetAccess(addr, size, &access, 1), "set access");
    return addr;
}
