/* SPDX-License-Identifier: MIT */
#include "driver.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "subject.h"

driver cuda;

#define TEXT_OF(name) #name
#define SYMBOL(name) TEXT_OF(name) /* with the version that cuda.h gives it */

void cuda_need(CUresult result, const char *what)
{
    if (result == CUDA_SUCCESS)
        return;
    fprintf(stderr, "bench_gpu: %s: CUresult %d\n", what, (int)result);
    exit(1);
}

static void *find(void *library, const char *name)
{
    void *symbol = dlsym(library, name);
    need(symbol != NULL, name);
    return symbol;
}

void driver_open(void)
{
    CUdevice device;
    CUcontext context;
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    if (library == NULL) {
        fprintf(stderr, "bench_gpu: skipped: no CUDA driver\n");
        exit(77);
    }
#define LOAD(name)                                                                                 \
    {                                                                                              \
        void *symbol = find(library, SYMBOL(name));                                                \
        memcpy(&cuda.name, &symbol, sizeof symbol);                                                \
    }
    ENTRIES(LOAD)
#undef LOAD
    cuda_need(cuda.cuInit(0), "starting the driver");
    cuda_need(cuda.cuDeviceGet(&device, 0), "device 0");
    cuda_need(cuda.cuDevicePrimaryCtxRetain(&context, device), "the primary context");
    cuda_need(cuda.cuCtxSetCurrent(context), "the primary context");
}
