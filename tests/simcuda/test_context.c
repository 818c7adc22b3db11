/* SPDX-License-Identifier: MIT */
/*
 * Contexts that are destroyed release what they held, and can be made again. Run by `reveille
 * run --gpus 2 --host-memory 4MiB`. NVML, which needs no context, reports the bytes in use.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <spawn.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)
#define PAGE (2 * MIB)
#define CHUNK (32 * MIB)          /* of a pool */
#define BATCH (64 * PAGE)         /* of managed memory */
#define SHARE ((size_t)548995072) /* of a context */
#define ONCE ((size_t)3407872)    /* while the process has any context on the device */
#define MANAGED_ONLY "--managed"
#define ENDS_MS 10000

static char *own_path;
static int (*nvml_find)(unsigned, void **);
static int (*nvml_ask)(void *, void *);
static void *nvml_library;

static size_t in_use(int device)
{
    unsigned long long memory[3]; /* total, free, used */
    void *handle;
    assert_int_equal(nvml_find((unsigned)device, &handle), 0);
    assert_int_equal(nvml_ask(handle, memory), 0);
    return (size_t)memory[2];
}

static int active(int device)
{
    unsigned flags;
    int is = -1;
    assert_int_equal(cuDevicePrimaryCtxGetState(device, &flags, &is), CUDA_SUCCESS);
    return is;
}

static CUcontext enter(int device)
{
    CUcontext context;
    assert_int_equal(cuDevicePrimaryCtxRetain(&context, device), CUDA_SUCCESS);
    assert_int_equal(cuCtxSetCurrent(context), CUDA_SUCCESS);
    return context;
}

static void make_streams(int count)
{
    CUstream stream;
    for (int i = 0; i < count; i++)
        assert_int_equal(cuStreamCreate(&stream, 0), CUDA_SUCCESS);
}

/* A graph that allocates, and does not free. */
static CUdeviceptr allocate_by_graph(size_t bytes)
{
    CUgraph graph;
    CUgraphExec exec;
    CUgraphNode node;
    CUDA_MEM_ALLOC_NODE_PARAMS wanted = {
        .poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}},
        .bytesize = bytes};
    assert_int_equal(cuGraphCreate(&graph, 0), CUDA_SUCCESS);
    assert_int_equal(cuGraphAddMemAllocNode(&node, graph, NULL, 0, &wanted), CUDA_SUCCESS);
    assert_int_equal(cuGraphInstantiate(&exec, graph, 0), CUDA_SUCCESS);
    assert_int_equal(cuGraphLaunch(exec, NULL), CUDA_SUCCESS);
    return wanted.dptr;
}

/* Memory that stays after the end of a context. */
typedef struct stays {
    CUdeviceptr pooled;
    CUdeviceptr graph;
} stays;

/* Takes memory of every kind that belongs to a context or its device, and 4 MiB of pinned
 * memory. */
static stays fill(void)
{
    stays kept;
    CUdeviceptr addr;
    void *pinned;
    char *registered = NULL;
    assert_int_equal(cuMemAlloc(&addr, 1000), CUDA_SUCCESS);
    assert_int_equal(cuMemAlloc(&addr, 3 * MIB), CUDA_SUCCESS);
    assert_int_equal(cuMemAllocAsync(&kept.pooled, 40 * MIB, NULL), CUDA_SUCCESS);
    assert_int_equal(cuMemAllocAsync(&addr, 40 * MIB, NULL), CUDA_SUCCESS);
    assert_int_equal(cuMemFreeAsync(addr, NULL), CUDA_SUCCESS);
    make_streams(9);
    kept.graph = allocate_by_graph(MIB);
    assert_int_equal(cuMemHostAlloc(&pinned, 3 * MIB, 0), CUDA_SUCCESS);
    registered = test_malloc(MIB);
    assert_int_equal(cuMemHostRegister(registered, MIB - 8192, 0), CUDA_SUCCESS);
    test_free(registered); /* it stays counted until it is unregistered */
    return kept;
}

/* It can be freed in a later context. */
static void give_back_pooled(CUdeviceptr pooled)
{
    CUmemoryPool pool;
    assert_int_equal(cuMemFreeAsync(pooled, NULL), CUDA_SUCCESS);
    assert_int_equal(cuStreamSynchronize(NULL), CUDA_SUCCESS);
    assert_int_equal(cuDeviceGetDefaultMemPool(&pool, 0), CUDA_SUCCESS);
    assert_int_equal(cuMemPoolTrimTo(pool, 0), CUDA_SUCCESS);
}

static void give_back(stays kept)
{
    (void)enter(0);
    give_back_pooled(kept.pooled);
    assert_int_equal(cuMemFree(kept.graph), CUDA_SUCCESS);
    assert_int_equal(cuDeviceGraphMemTrim(0), CUDA_SUCCESS);
    assert_int_equal(in_use(0), SHARE + ONCE);
    assert_int_equal(cuDevicePrimaryCtxRelease(0), CUDA_SUCCESS);
}

/* Three of the pages are for 9 streams and a graph: 9 streams fill two. */
#define FILLED (PAGE + 2 * PAGE + 3 * CHUNK + 3 * PAGE + CHUNK)
#define STAYS (2 * CHUNK + CHUNK) /* pools: allocated memory; graphs */

static void what_the_primary_context_held_goes_back(void **state)
{
    CUdeviceptr addr;
    (void)state;
    assert_int_equal(in_use(0), 0);
    for (int round = 0; round < 3; round++) {
        CUdevice device = -1;
        char byte;
        (void)enter(0);
        assert_int_equal(in_use(0), SHARE + ONCE);
        stays kept = fill();
        assert_int_equal(in_use(0), SHARE + ONCE + FILLED);
        assert_int_equal(cuMemAlloc(&addr, 1), CUDA_SUCCESS);
        assert_int_equal(cuDevicePrimaryCtxRelease(0), CUDA_SUCCESS);
        assert_int_equal(in_use(0), STAYS);
        assert_int_equal(active(0), 0);
        assert_int_equal(cuMemFree(addr), CUDA_ERROR_CONTEXT_IS_DESTROYED);
        assert_int_equal(cuMemcpyDtoH(&byte, addr, 1), CUDA_ERROR_CONTEXT_IS_DESTROYED);
        assert_int_equal(cuCtxGetDevice(&device), CUDA_SUCCESS);
        assert_int_equal(device, 0);
        assert_int_equal(cuMemAlloc(&addr, 1), CUDA_ERROR_CONTEXT_IS_DESTROYED);
        assert_int_equal(cuCtxSynchronize(), CUDA_ERROR_CONTEXT_IS_DESTROYED);
        give_back(kept);
        assert_int_equal(in_use(0), 0);
    }
    assert_int_equal(cuDevicePrimaryCtxRelease(0), CUDA_ERROR_INVALID_CONTEXT);
}

static void manage(size_t bytes)
{
    const CUmemLocation here = {.type = CU_MEM_LOCATION_TYPE_DEVICE};
    CUdeviceptr addr;
    assert_int_equal(cuMemAllocManaged(&addr, bytes, CU_MEM_ATTACH_GLOBAL), CUDA_SUCCESS);
    assert_int_equal(cuMemPrefetchAsync(addr, bytes, here, 0, NULL), CUDA_SUCCESS);
}

/* In a separate process. Pages that were not assigned stay, and the next context gets them. */
static void managed_memory_of_two_contexts(void **state)
{
    (void)state;
    size_t before = in_use(0);
    (void)enter(0);
    manage(3 * PAGE);
    assert_int_equal(in_use(0) - before, SHARE + ONCE + BATCH);
    assert_int_equal(cuDevicePrimaryCtxRelease(0), CUDA_SUCCESS);
    assert_int_equal(in_use(0) - before, BATCH - 3 * PAGE);
    (void)enter(0);
    manage(2 * PAGE);
    assert_int_equal(in_use(0) - before, SHARE + ONCE + BATCH - 3 * PAGE);
    assert_int_equal(cuDevicePrimaryCtxRelease(0), CUDA_SUCCESS);
    assert_int_equal(in_use(0) - before, BATCH - 5 * PAGE);
}

static void a_process_keeps_managed_memory_to_its_end(void **state)
{
    char *words[] = {own_path, MANAGED_ONLY, NULL};
    int ended = -1;
    pid_t child;
    (void)state;
    assert_int_equal(posix_spawn(&child, own_path, NULL, NULL, words, environ), 0);
    assert_int_equal(waitpid(child, &ended, 0), child);
    assert_int_equal(ended, 0);
    /* The machine may receive the end of the process a moment later. */
    for (int waited_ms = 0; in_use(0) != 0 && waited_ms < ENDS_MS; waited_ms++)
        usleep(1000);
    assert_int_equal(in_use(0), 0);
}

/* Handles of cuMemCreate() need no context. Memory of another device is not affected. */
static void what_is_not_the_contexts_stays(void **state)
{
    const CUmemAllocationProp kind = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    CUmemGenericAllocationHandle handle;
    CUdeviceptr other;
    size_t size_bytes = 0;
    (void)state;
    (void)enter(1);
    assert_int_equal(cuMemAlloc(&other, 3 * MIB), CUDA_SUCCESS);
    (void)enter(0);
    assert_int_equal(cuMemCreate(&handle, PAGE, &kind, 0), CUDA_SUCCESS);
    assert_int_equal(cuDevicePrimaryCtxRelease(0), CUDA_SUCCESS);
    assert_int_equal(in_use(0), PAGE);
    assert_int_equal(in_use(1), SHARE + ONCE + 2 * PAGE);
    assert_int_equal(cuMemGetAddressRange(NULL, &size_bytes, other), CUDA_SUCCESS);
    assert_int_equal(size_bytes, 3 * MIB);
    assert_int_equal(cuMemRelease(handle), CUDA_SUCCESS);
    assert_int_equal(cuDevicePrimaryCtxRelease(1), CUDA_SUCCESS);
    assert_int_equal(in_use(0) + in_use(1), 0);
}

/* A reset releases nothing: users must still release the context, and the next retain makes it
 * again. */
static void a_reset_context_is_made_again(void **state)
{
    CUcontext first = enter(0), again;
    CUdeviceptr addr;
    (void)state;
    assert_ptr_equal(enter(0), first);
    assert_int_equal(cuMemAlloc(&addr, 3 * MIB), CUDA_SUCCESS);
    assert_int_equal(cuDevicePrimaryCtxReset(0), CUDA_SUCCESS);
    assert_int_equal(in_use(0), 0);
    assert_int_equal(active(0), 0);
    assert_int_equal(cuDevicePrimaryCtxReset(0), CUDA_SUCCESS);
    again = enter(0);
    assert_int_equal(active(0), 1);
    assert_int_equal(in_use(0), SHARE + ONCE);
    assert_int_equal(cuMemAlloc(&addr, 3 * MIB), CUDA_SUCCESS);
    for (int users = 3; users > 1; users--)
        assert_int_equal(cuDevicePrimaryCtxRelease(0), CUDA_SUCCESS);
    assert_int_equal(in_use(0), SHARE + ONCE + 2 * PAGE);
    assert_int_equal(cuDevicePrimaryCtxRelease(0), CUDA_SUCCESS);
    assert_int_equal(in_use(0), 0);
    assert_int_equal(cuDevicePrimaryCtxReset(9), CUDA_ERROR_INVALID_DEVICE);
    assert_int_equal(cuCtxSetCurrent(again), CUDA_SUCCESS); /* unchanged until it is retained */
}

/* Each context takes its share, and has its own memory. A pool belongs to the device. */
static void contexts_of_the_programs_own(void **state)
{
    CUcontext first, second, there;
    CUdeviceptr addr, pooled;
    (void)state;
    assert_int_equal(cuCtxCreate(&first, NULL, 0, 0), CUDA_SUCCESS);
    assert_int_equal(cuMemAlloc(&addr, 3 * MIB), CUDA_SUCCESS);
    assert_int_equal(cuCtxCreate(&second, NULL, 0, 0), CUDA_SUCCESS);
    assert_int_equal(in_use(0), 2 * SHARE + ONCE + 2 * PAGE);
    assert_int_equal(cuMemAlloc(&addr, 5 * MIB), CUDA_SUCCESS);
    assert_int_equal(cuMemAllocAsync(&pooled, MIB, NULL), CUDA_SUCCESS);
    assert_int_equal(in_use(0), 2 * SHARE + ONCE + 5 * PAGE + CHUNK);
    assert_int_equal(cuCtxDestroy(second), CUDA_SUCCESS);
    assert_int_equal(in_use(0), SHARE + ONCE + 2 * PAGE + CHUNK);
    assert_int_equal(cuCtxDestroy(second), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    assert_int_equal(cuCtxGetCurrent(&there), CUDA_SUCCESS);
    assert_ptr_equal(there, first);
    assert_int_equal(cuCtxDestroy(first), CUDA_SUCCESS);
    assert_int_equal(in_use(0), CHUNK);
    (void)enter(0);
    give_back_pooled(pooled);
    assert_int_equal(cuDevicePrimaryCtxRelease(0), CUDA_SUCCESS);
    assert_int_equal(in_use(0), 0);
    assert_int_equal(cuCtxDestroy(NULL), CUDA_ERROR_INVALID_CONTEXT);
    assert_int_equal(cuCtxDestroy((CUcontext)&there), CUDA_ERROR_INVALID_CONTEXT);
}

/* Settings without an effect here must not fail. */
static void settings_of_a_device(void **state)
{
    unsigned flags = 0;
    enum cudaFuncCache config = cudaFuncCachePreferEqual;
    (void)state;
    assert_int_equal(cuCtxSetCurrent(NULL), CUDA_SUCCESS);
    assert_int_equal(cudaSetDevice(0), cudaSuccess);
    assert_int_equal(cudaGetDeviceFlags(&flags), cudaSuccess);
    assert_int_equal(flags, cudaDeviceMapHost);
    assert_int_equal(cudaSetDeviceFlags(cudaDeviceScheduleBlockingSync), cudaSuccess);
    assert_int_equal(cudaGetDeviceFlags(&flags), cudaSuccess);
    assert_int_equal(flags, cudaDeviceScheduleBlockingSync | cudaDeviceMapHost);
    assert_int_equal(cudaSetDeviceFlags(0x100), cudaErrorInvalidValue);
    assert_int_equal(cudaSetDeviceFlags(cudaDeviceScheduleSpin | cudaDeviceScheduleYield),
                     cudaErrorInvalidValue);
    assert_int_equal(cudaSetDeviceFlags(0), cudaSuccess);
    assert_int_equal(cudaDeviceGetCacheConfig(&config), cudaSuccess);
    assert_int_equal(config, cudaFuncCachePreferNone);
    assert_int_equal(cudaDeviceSetCacheConfig(cudaFuncCachePreferShared), cudaSuccess);
    assert_int_equal(cudaDeviceGetCacheConfig(&config), cudaSuccess);
    assert_int_equal(config, cudaFuncCachePreferShared);
    assert_int_equal(cudaDeviceSetCacheConfig((enum cudaFuncCache)4), cudaErrorInvalidValue);
    assert_int_equal(cudaFuncSetCacheConfig(NULL, cudaFuncCachePreferL1),
                     cudaErrorInvalidDeviceFunction);
    assert_int_equal(cudaFuncSetCacheConfig(&config, cudaFuncCachePreferL1), cudaSuccess);
    assert_int_equal(cudaDeviceReset(), cudaSuccess);
}

/* Rows of a pitch, and a copy from device to device. */
static void rows_and_peers(void **state)
{
    char *here, *there, read[24] = "", zeros[24] = {0};
    (void)state;
    assert_int_equal(cudaSetDevice(1), cudaSuccess);
    assert_int_equal(cudaMalloc((void **)&there, 24), cudaSuccess);
    assert_int_equal(cudaSetDevice(0), cudaSuccess);
    assert_int_equal(cudaMalloc((void **)&here, 24), cudaSuccess);
    assert_int_equal(cudaMemcpy(here, zeros, 24, cudaMemcpyHostToDevice), cudaSuccess);
    assert_int_equal(cudaMemset2D(here, 8, 'a', 5, 3), cudaSuccess);
    assert_int_equal(cudaMemset2DAsync(here, 1, 'b', 2, 1, NULL), cudaSuccess);
    assert_int_equal(cudaMemset2D(here, 4, 'c', 5, 2), cudaErrorInvalidValue);
    assert_int_equal(cudaMemcpyPeer(there, 1, here, 0, 24), cudaSuccess);
    assert_int_equal(cudaMemcpy(read, there, 24, cudaMemcpyDeviceToHost), cudaSuccess);
    assert_memory_equal(read, "bbaaa\0\0\0aaaaa\0\0\0aaaaa\0\0", 24);
    assert_int_equal(cudaDeviceReset(), cudaSuccess);
    assert_int_equal(cudaSetDevice(1), cudaSuccess);
    assert_int_equal(cudaDeviceReset(), cudaSuccess);
    assert_int_equal(cudaSetDevice(0), cudaSuccess);
}

/* cuda.h: an event and the stream on which it is recorded belong to one context. */
static void events_belong_to_contexts(void **state)
{
    CUcontext contexts[3];
    CUevent events[3];
    CUstream streams[3];
    (void)state;
    contexts[0] = enter(0);
    contexts[1] = enter(1);
    assert_int_equal(cuCtxCreate(&contexts[2], NULL, 0, 1), CUDA_SUCCESS);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(cuCtxSetCurrent(contexts[i]), CUDA_SUCCESS);
        assert_int_equal(cuEventCreate(&events[i], 0), CUDA_SUCCESS);
        assert_int_equal(cuStreamCreate(&streams[i], 0), CUDA_SUCCESS);
    }
    for (int current = 0; current < 3; current++) {
        assert_int_equal(cuCtxSetCurrent(contexts[current]), CUDA_SUCCESS);
        for (int event = 0; event < 3; event++) {
            for (int stream = 0; stream < 3; stream++)
                assert_int_equal(cuEventRecord(events[event], streams[stream]),
                                 event == stream ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE);
            CUresult own = event == current ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
            assert_int_equal(cuEventRecord(events[event], NULL), own);
            assert_int_equal(cuEventRecord(events[event], CU_STREAM_PER_THREAD), own);
            assert_int_equal(cuStreamWaitEvent(streams[current], events[event], 0), CUDA_SUCCESS);
            assert_int_equal(cuEventQuery(events[event]), CUDA_SUCCESS);
        }
    }
    for (int i = 2; i >= 0; i--) {
        assert_int_equal(cuStreamDestroy(streams[i]), CUDA_SUCCESS);
        assert_int_equal(cuEventDestroy(events[i]), CUDA_SUCCESS);
    }
    assert_int_equal(cuCtxDestroy(contexts[2]), CUDA_SUCCESS);
    assert_int_equal(cuDevicePrimaryCtxRelease(0), CUDA_SUCCESS);
    assert_int_equal(cuDevicePrimaryCtxRelease(1), CUDA_SUCCESS);
}

/* Programs for older versions pass other arguments. */
static void contexts_by_older_forms(void **state)
{
    typedef CUresult (*second)(CUcontext *, unsigned, CUdevice);
    typedef CUresult (*third)(CUcontext *, void *, int, unsigned, CUdevice);
    static const struct {
        int version;
        const char *form;
    } versions[] = {{11030, "cuCtxCreate_v2"},
                    {11040, "cuCtxCreate_v3"},
                    {12040, "cuCtxCreate_v3"},
                    {12050, "cuCtxCreate_v4"},
                    {13000, "cuCtxCreate_v4"}};
    void *library = dlopen("libcuda.so.1", RTLD_NOW), *got[5];
    CUcontext made[2];
    unsigned flags = 0;
    (void)state;
    for (int i = 0; i < 5; i++) {
        assert_int_equal(cuGetProcAddress("cuCtxCreate", &got[i], versions[i].version, 0, NULL),
                         CUDA_SUCCESS);
        assert_ptr_equal(got[i], dlsym(library, versions[i].form));
    }
    assert_int_equal(((second)(uintptr_t)got[0])(&made[0], CU_CTX_SCHED_SPIN, 1), CUDA_SUCCESS);
    assert_int_equal(((third)(uintptr_t)got[1])(&made[1], NULL, 0, CU_CTX_SCHED_YIELD, 1),
                     CUDA_SUCCESS);
    assert_int_equal(in_use(1), 2 * SHARE + ONCE);
    assert_int_equal(cuCtxGetFlags(&flags), CUDA_SUCCESS);
    assert_int_equal(flags, CU_CTX_SCHED_YIELD);
    assert_int_equal(cuCtxDestroy(made[1]), CUDA_SUCCESS);
    assert_int_equal(cuCtxGetFlags(&flags), CUDA_SUCCESS);
    assert_int_equal(flags, CU_CTX_SCHED_SPIN);
    assert_int_equal(cuCtxDestroy(made[0]), CUDA_SUCCESS);
    assert_int_equal(in_use(1), 0);
}

static void the_runtime_goes_on_after_a_reset(void **state)
{
    void *addr;
    cudaStream_t stream;
    (void)state;
    assert_int_equal(cuCtxSetCurrent(NULL), CUDA_SUCCESS);
    for (int round = 0; round < 2; round++) {
        assert_int_equal(cudaMalloc(&addr, 3 * MIB), cudaSuccess);
        for (int i = 0; i < 5; i++)
            assert_int_equal(cudaStreamCreate(&stream), cudaSuccess);
        assert_int_equal(in_use(0), SHARE + ONCE + 3 * PAGE);
        assert_int_equal(cudaDeviceReset(), cudaSuccess);
        assert_int_equal(in_use(0), 0);
        assert_int_equal(cudaFree(addr), cudaErrorInvalidValue);
        assert_int_equal(cudaDeviceReset(), cudaSuccess);
    }
    assert_int_equal(cudaMalloc(&addr, 3 * MIB), cudaSuccess);
    assert_int_equal(cuDevicePrimaryCtxRelease(0), CUDA_SUCCESS);
    assert_int_equal(in_use(0), 0);
    assert_int_equal(cudaMalloc(&addr, 3 * MIB), cudaSuccess); /* as with the card's runtime */
    assert_int_equal(in_use(0), SHARE + ONCE + 2 * PAGE);
    assert_int_equal(cudaDeviceReset(), cudaSuccess);
    assert_int_equal(in_use(0), 0);
}

/* As on a card, without a message: loggers of power, clocks and utilization continue with what
 * is supported. */
static void loggers_hear_what_is_not_supported(void **state)
{
    static const char *const names[] = {"nvmlDeviceGetUtilizationRates",
                                        "nvmlDeviceGetPowerUsage",
                                        "nvmlDeviceGetTemperature",
                                        "nvmlDeviceGetClockInfo",
                                        "nvmlDeviceGetFieldValues",
                                        "nvmlDeviceGetPciInfo_v3",
                                        "nvmlDeviceGetPcieThroughput",
                                        "nvmlDeviceGetTotalEccErrors",
                                        "nvmlDeviceGetFanSpeed",
                                        "nvmlDeviceGetDisplayActive",
                                        "nvmlDeviceGetEncoderStats",
                                        "nvmlDeviceGetBAR1MemoryInfo",
                                        "nvmlDeviceGetMemoryBusWidth",
                                        "nvmlDeviceGetGpuFabricInfoV",
                                        "nvmlDeviceSetPowerManagementLimit"};
    void *handle;
    unsigned char out[256];
    (void)state;
    assert_int_equal(nvml_find(0, &handle), 0);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        int (*ask)(void *, int, void *, void *) =
            (int (*)(void *, int, void *, void *))(uintptr_t)dlsym(nvml_library, names[i]);
        assert_non_null(ask);
        memset(out, 0x5a, sizeof out);
        assert_int_equal(ask(handle, 0, out, out), 3);
        assert_int_equal(ask(NULL, 0, out, out), 2);
        for (size_t k = 0; k < sizeof out; k++)
            assert_int_equal(out[k], 0x5a);
    }
}

/* Tools take a library that lacks one of these for another version, and refuse it. */
static void no_process_and_no_part_is_seen(void **state)
{
    static const char *const names[] = {
        "nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetGraphicsRunningProcesses_v3",
        "nvmlDeviceGetMPSComputeRunningProcesses_v3", "nvmlDeviceGetGraphicsRunningProcesses_v2"};
    void *handle;
    (void)state;
    assert_int_equal(nvml_find(0, &handle), 0);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        int (*list)(void *, unsigned *, void *) =
            (int (*)(void *, unsigned *, void *))(uintptr_t)dlsym(nvml_library, names[i]);
        unsigned number = 9;
        assert_non_null(list);
        assert_int_equal(list(handle, &number, NULL), 0);
        assert_int_equal(number, 0);
        assert_int_equal(list(NULL, &number, NULL), 2);
    }
    int (*is_part)(void *, unsigned *) =
        (int (*)(void *, unsigned *))(uintptr_t)dlsym(nvml_library, "nvmlDeviceIsMigDeviceHandle");
    int (*version)(char *, unsigned) =
        (int (*)(char *, unsigned))(uintptr_t)dlsym(nvml_library, "nvmlSystemGetNVMLVersion");
    unsigned part = 9;
    char text[80];
    assert_int_equal(is_part(handle, &part), 0);
    assert_int_equal(part, 0);
    assert_int_equal(version(text, sizeof text), 0);
    assert_string_equal(text, "13.580.00");
}

static int begin(void **state)
{
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    (void)state;
    if (library == NULL || cuInit(0) != CUDA_SUCCESS)
        return -1;
    nvml_library = library;
    int (*init)(void) = (int (*)(void))(uintptr_t)dlsym(library, "nvmlInit_v2");
    nvml_find =
        (int (*)(unsigned, void **))(uintptr_t)dlsym(library, "nvmlDeviceGetHandleByIndex_v2");
    nvml_ask = (int (*)(void *, void *))(uintptr_t)dlsym(library, "nvmlDeviceGetMemoryInfo");
    return init();
}

int main(int argc, char **argv)
{
    const struct CMUnitTest managed[] = {cmocka_unit_test(managed_memory_of_two_contexts)};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_the_primary_context_held_goes_back),
        cmocka_unit_test(a_process_keeps_managed_memory_to_its_end),
        cmocka_unit_test(what_is_not_the_contexts_stays),
        cmocka_unit_test(a_reset_context_is_made_again),
        cmocka_unit_test(contexts_of_the_programs_own),
        cmocka_unit_test(events_belong_to_contexts),
        cmocka_unit_test(contexts_by_older_forms),
        cmocka_unit_test(the_runtime_goes_on_after_a_reset),
        cmocka_unit_test(settings_of_a_device),
        cmocka_unit_test(loggers_hear_what_is_not_supported),
        cmocka_unit_test(no_process_and_no_part_is_seen),
        cmocka_unit_test(rows_and_peers),
    };
    own_path = argv[0];
    if (argc > 1 && strcmp(argv[1], MANAGED_ONLY) == 0)
        return cmocka_run_group_tests(managed, begin, NULL);
    return cmocka_run_group_tests(tests, begin, NULL);
}
