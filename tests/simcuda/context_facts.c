/* SPDX-License-Identifier: MIT */
/*
 * What a context returns when it ends, and the results of its handles afterwards, one fact per
 * line. The same program runs on a card and on a simulated one, and prints the same. NVML, which
 * needs no context, reports the bytes in use. Words select the parts: release reset destroy
 * handles runtime.
 */
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "facts_need.h"

#define MIB ((size_t)1 << 20)
#define SIZE (64 * MIB)
#define STREAMS 34

static const char *name_of(CUresult result)
{
    const char *name = NULL;
    return cuGetErrorName(result, &name) == CUDA_SUCCESS ? name : "no name";
}

static const char *name_of_runtime(cudaError_t error)
{
    (void)cudaGetLastError();
    return cudaGetErrorName(error);
}

static int (*nvml_ask)(void *, void *);
static void *nvml_device;

static void open_nvml(void)
{
    int (*begin)(void);
    int (*find)(unsigned, void **);
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    if (library == NULL) {
        puts("no libnvidia-ml.so.1");
        exit(1);
    }
    *(void **)&begin = dlsym(library, "nvmlInit_v2");
    *(void **)&find = dlsym(library, "nvmlDeviceGetHandleByIndex_v2");
    *(void **)&nvml_ask = dlsym(library, "nvmlDeviceGetMemoryInfo");
    if (begin() != 0 || find(0, &nvml_device) != 0)
        exit(1);
}

/* Bytes in use on the device, after earlier frees have taken effect. */
static long long used(void)
{
    const struct timespec time = {.tv_nsec = 100000000};
    unsigned long long memory[3] = {0};     /* total, free, used */
    if (getenv("REVEILLE_MACHINE") == NULL) /* a simulated card is up to date at once */
        nanosleep(&time, NULL);
    if (nvml_ask(nvml_device, memory) != 0)
        exit(1);
    return (long long)memory[2];
}

/* ---- Contents of a context ---- */

static CUdeviceptr made;
static CUmemGenericAllocationHandle handle;

static void hold_nothing(void)
{
}

static void hold_allocation(void)
{
    NEED(cuMemAlloc(&made, SIZE));
}

static void hold_pool(void)
{
    NEED(cuMemAllocAsync(&made, SIZE, NULL));
    NEED(cuStreamSynchronize(NULL));
}

static void hold_freed_pool(void)
{
    CUmemoryPool pool = NULL;
    unsigned long long all = ~0ULL;
    NEED(cuDeviceGetDefaultMemPool(&pool, 0));
    NEED(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &all));
    hold_pool();
    NEED(cuMemFreeAsync(made, NULL));
    NEED(cuStreamSynchronize(NULL));
}

static void hold_own_pool(void)
{
    CUmemoryPool pool = NULL;
    const CUmemPoolProps wanted = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                   .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    NEED(cuMemPoolCreate(&pool, &wanted));
    NEED(cuMemAllocFromPoolAsync(&made, SIZE, pool, NULL));
    NEED(cuStreamSynchronize(NULL));
}

static void hold_pinned(void)
{
    void *pinned = NULL;
    NEED(cuMemHostAlloc(&pinned, 1024 * MIB, 0));
}

static void hold_streams(void)
{
    CUstream stream = NULL;
    for (int i = 0; i < STREAMS; i++)
        NEED(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
}

static void hold_created(void)
{
    const CUmemAllocationProp wanted = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    NEED(cuMemCreate(&handle, SIZE, &wanted, 0));
}

static void hold_mapped(void)
{
    const CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE},
                                    .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    hold_created();
    NEED(cuMemAddressReserve(&made, SIZE, 0, 0, 0));
    NEED(cuMemMap(made, SIZE, 0, handle, 0));
    NEED(cuMemSetAccess(made, SIZE, &access, 1));
}

static void hold_graph(void)
{
    CUgraph graph = NULL;
    CUgraphExec exec = NULL;
    CUgraphNode node = NULL;
    CUDA_MEM_ALLOC_NODE_PARAMS wanted = {
        .poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}},
        .bytesize = SIZE};
    NEED(cuGraphCreate(&graph, 0));
    NEED(cuGraphAddMemAllocNode(&node, graph, NULL, 0, &wanted));
    NEED(cuGraphInstantiate(&exec, graph, 0));
    NEED(cuGraphLaunch(exec, NULL));
    NEED(cuStreamSynchronize(NULL));
}

static void hold_managed(void)
{
    const CUmemLocation here = {.type = CU_MEM_LOCATION_TYPE_DEVICE};
    NEED(cuMemAllocManaged(&made, SIZE, CU_MEM_ATTACH_GLOBAL));
    NEED(cuMemPrefetchAsync(made, SIZE, here, 0, NULL));
    NEED(cuStreamSynchronize(NULL));
}

static const struct kind {
    const char *name;
    void (*hold)(void);
} kinds[] = {{"nothing", hold_nothing},
             {"an allocation", hold_allocation},
             {"a pool", hold_pool},
             {"a freed pool", hold_freed_pool},
             {"an own pool", hold_own_pool},
             {"pinned memory", hold_pinned},
             {"streams", hold_streams},
             {"a graph", hold_graph},
             {"managed memory", hold_managed},
             {"created memory", hold_created},
             {"mapped memory", hold_mapped}};

static CUcontext enter(void)
{
    CUcontext context = NULL;
    NEED(cuDevicePrimaryCtxRetain(&context, 0));
    NEED(cuCtxSetCurrent(context));
    return context;
}

/* What is left of each kind after a context has ended in this way. */
static void ends(const char *way, CUresult (*begin)(void), CUresult (*end)(void))
{
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        long long before = used();
        NEED(begin());
        kinds[i].hold();
        NEED(end());
        say("%s %s: %lld bytes left", way, kinds[i].name, used() - before);
    }
}

static CUresult begin_primary(void)
{
    (void)enter();
    return CUDA_SUCCESS;
}

static CUresult end_release(void)
{
    return cuDevicePrimaryCtxRelease(0);
}

static CUresult end_reset(void)
{
    CUresult reset = cuDevicePrimaryCtxReset(0);
    (void)cuDevicePrimaryCtxRelease(0);
    return reset;
}

static CUcontext own;

static CUresult begin_own(void)
{
    return cuCtxCreate(&own, NULL, 0, 0);
}

static CUresult end_own(void)
{
    return cuCtxDestroy(own);
}

/* ---- Results of handles of a context that has ended ---- */

static void ask_about(const char *when, CUdeviceptr addr)
{
    CUcontext context = NULL;
    CUdevice device = -1;
    CUdeviceptr other = 0;
    unsigned kind = 0;
    char byte = 0;
    CUresult current = cuCtxGetCurrent(&context);
    say("%s cuCtxGetCurrent: %s%s", when, name_of(current), context == NULL ? ", none" : "");
    say("%s cuCtxGetDevice: %s", when, name_of(cuCtxGetDevice(&device)));
    say("%s cuCtxSynchronize: %s", when, name_of(cuCtxSynchronize()));
    say("%s cuMemAlloc: %s", when, name_of(cuMemAlloc(&other, MIB)));
    say("%s cuMemFree: %s", when, name_of(cuMemFree(addr)));
    say("%s cuMemsetD8: %s", when, name_of(cuMemsetD8(addr, 1, 16)));
    say("%s cuMemcpyDtoH: %s", when, name_of(cuMemcpyDtoH(&byte, addr, 1)));
    say("%s cuPointerGetAttribute: %s", when,
        name_of(cuPointerGetAttribute(&kind, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, addr)));
}

static void handles(void)
{
    CUdeviceptr addr = 0;
    CUcontext context = enter();
    NEED(cuMemAlloc(&addr, SIZE));
    NEED(cuDevicePrimaryCtxRelease(0));
    ask_about("released", addr);
    say("released again: %s", name_of(cuDevicePrimaryCtxRelease(0)));
    say("retained, the same context: %d", enter() == context);
    ask_about("retained", addr);
    NEED(cuDevicePrimaryCtxReset(0));
    ask_about("reset", addr);
    NEED(cuDevicePrimaryCtxReset(0));
    NEED(cuCtxSetCurrent(NULL));
    NEED(cuCtxCreate(&own, NULL, 0, 0));
    NEED(cuMemAlloc(&addr, SIZE));
    NEED(cuCtxDestroy(own));
    ask_about("destroyed", addr);
}

/* ---- The runtime ---- */

static void runtime(void)
{
    void *old = NULL, *next = NULL;
    cudaStream_t stream = NULL;
    char byte = 0;
    NEED(cudaMalloc(&old, SIZE));
    NEED(cudaStreamCreate(&stream));
    say("cudaDeviceReset: %s", name_of_runtime(cudaDeviceReset()));
    say("reset cudaGetLastError: %s", cudaGetErrorName(cudaGetLastError()));
    say("reset cudaFree of old memory: %s", name_of_runtime(cudaFree(old)));
    say("reset cudaMalloc: %s", name_of_runtime(cudaMalloc(&next, SIZE)));
    say("reset cudaMemcpy from new memory: %s",
        name_of_runtime(cudaMemcpy(&byte, next, 1, cudaMemcpyDefault)));
    say("reset cudaDeviceSynchronize: %s", name_of_runtime(cudaDeviceSynchronize()));
    NEED(cuDevicePrimaryCtxRelease(0));
    say("released below the runtime, cudaMalloc: %s", name_of_runtime(cudaMalloc(&next, SIZE)));
    say("released below the runtime, cudaDeviceSynchronize: %s",
        name_of_runtime(cudaDeviceSynchronize()));
}

int main(int count, char **words)
{
    NEED(cuInit(0));
    open_nvml();
    for (int i = 1; i < count; i++) {
        if (strcmp(words[i], "release") == 0)
            ends("release", begin_primary, end_release);
        else if (strcmp(words[i], "reset") == 0)
            ends("reset", begin_primary, end_reset);
        else if (strcmp(words[i], "destroy") == 0)
            ends("destroy", begin_own, end_own);
        else if (strcmp(words[i], "handles") == 0)
            handles();
        else if (strcmp(words[i], "runtime") == 0)
            runtime();
        else
            return 2;
    }
    return 0;
}
