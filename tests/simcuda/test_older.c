/* SPDX-License-Identifier: MIT */
/*
 * The driver's functions as programs for older versions of CUDA find and call them: through
 * cuGetProcAddress() with a version, and by name. Run by `reveille run`.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>
#include <cuda.h>
#include <cudaTypedefs.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <string.h>

#define PAGE ((size_t)2 << 20)
#define BATCH (64 * PAGE) /* of managed memory */

static void *library;

static void *found(const char *name, int version, cuuint64_t flags)
{
    void *function = NULL;
    CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    assert_int_equal(cuGetProcAddress(name, &function, version, flags, &status), CUDA_SUCCESS);
    assert_int_equal(status, CU_GET_PROC_ADDRESS_SUCCESS);
    return function;
}

/* The function of a version, with its type in cudaTypedefs.h. */
#define OLDER(name, version) ((PFN_##name##_v##version)(uintptr_t)found(#name, version, 0))

/* The header has no types for these. */
typedef CUresult (*begin_fn)(CUstream);
typedef CUresult (*instantiate_fn)(CUgraphExec *, CUgraph, CUgraphNode *, char *, size_t);

/* ---- Finding ---- */

static void forms_by_version(void **state)
{
    static const struct {
        const char *name;
        int version; /* introduces the form, which holds up to the next version */
        const char *form;
    } forms[] = {
        {"cuMemAdvise", 8000, "cuMemAdvise"},
        {"cuMemAdvise", 12010, "cuMemAdvise"},
        {"cuMemAdvise", 12020, "cuMemAdvise_v2"},
        {"cuMemPrefetchAsync", 12010, "cuMemPrefetchAsync"},
        {"cuMemPrefetchAsync", 12020, "cuMemPrefetchAsync_v2"},
        {"cuStreamBeginCapture", 10000, "cuStreamBeginCapture"},
        {"cuStreamBeginCapture", 10010, "cuStreamBeginCapture_v2"},
        {"cuStreamGetCaptureInfo", 11020, "cuStreamGetCaptureInfo"},
        {"cuStreamGetCaptureInfo", 11030, "cuStreamGetCaptureInfo_v2"},
        {"cuStreamGetCaptureInfo", 12020, "cuStreamGetCaptureInfo_v2"},
        {"cuStreamGetCaptureInfo", 12030, "cuStreamGetCaptureInfo_v3"},
        {"cuStreamUpdateCaptureDependencies", 12020, "cuStreamUpdateCaptureDependencies"},
        {"cuStreamUpdateCaptureDependencies", 12030, "cuStreamUpdateCaptureDependencies_v2"},
        {"cuGraphGetEdges", 12020, "cuGraphGetEdges"},
        {"cuGraphGetEdges", 12030, "cuGraphGetEdges_v2"},
        {"cuGraphNodeGetDependencies", 12020, "cuGraphNodeGetDependencies"},
        {"cuGraphNodeGetDependentNodes", 12020, "cuGraphNodeGetDependentNodes"},
        {"cuGraphAddDependencies", 12020, "cuGraphAddDependencies"},
        {"cuGraphAddDependencies", 13000, "cuGraphAddDependencies_v2"},
        {"cuGraphRemoveDependencies", 12020, "cuGraphRemoveDependencies"},
        {"cuGraphAddKernelNode", 11080, "cuGraphAddKernelNode"},
        {"cuGraphAddKernelNode", 12000, "cuGraphAddKernelNode_v2"},
        {"cuGraphKernelNodeGetParams", 11080, "cuGraphKernelNodeGetParams"},
        {"cuGraphKernelNodeSetParams", 11080, "cuGraphKernelNodeSetParams"},
        {"cuGraphExecKernelNodeSetParams", 11080, "cuGraphExecKernelNodeSetParams"},
        {"cuGraphExecUpdate", 11080, "cuGraphExecUpdate"},
        {"cuGraphExecUpdate", 12000, "cuGraphExecUpdate_v2"},
        {"cuMemAlloc", 3010, "cuMemAlloc"},
        {"cuMemAlloc", 3020, "cuMemAlloc_v2"},
        {"cuMemAlloc", 11000, "cuMemAlloc_v2"},
        {"cuEventElapsedTime", 12070, "cuEventElapsedTime"},
        {"cuEventElapsedTime", CUDA_VERSION, "cuEventElapsedTime_v2"},
        {"cuMemcpyHtoD", 7000, "cuMemcpyHtoD_v2"},
        {"cuStreamQuery", 7000, "cuStreamQuery"},
        {"cuDeviceGetUuid", -1, "cuDeviceGetUuid_v2"}, /* the newest */
    };
    (void)state;
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        void *function = found(forms[i].name, forms[i].version, 0);
        if (function != dlsym(library, forms[i].form))
            fail_msg("%s of %d is not %s", forms[i].name, forms[i].version, forms[i].form);
    }
}

static void forms_of_streams_by_thread(void **state)
{
    static const cuuint64_t own = CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
    (void)state;
    assert_ptr_equal(found("cuStreamGetCaptureInfo", 12020, own),
                     dlsym(library, "cuStreamGetCaptureInfo_v2_ptsz"));
    assert_ptr_equal(found("cuStreamGetCaptureInfo", 13000, own),
                     dlsym(library, "cuStreamGetCaptureInfo_v3_ptsz"));
    assert_ptr_equal(found("cuMemPrefetchAsync", 12000, own),
                     dlsym(library, "cuMemPrefetchAsync_ptsz"));
    assert_ptr_equal(found("cuCtxGetCurrent", 12000, own), dlsym(library, "cuCtxGetCurrent"));
}

/* cuda.h: CUDA_SUCCESS, and NULL. Before CUDA 12 there was no status to report it. A form is not
 * a name. */
static void names_that_are_none(void **state)
{
    CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SUCCESS;
    void *function = &status;
    (void)state;
    assert_int_equal(cuGetProcAddress("cuNone", &function, 13000, 0, &status), CUDA_SUCCESS);
    assert_null(function);
    assert_int_equal(status, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
    function = &status;
    assert_int_equal(cuGetProcAddress("cuMemAlloc_v2", &function, 12000, 0, &status), CUDA_SUCCESS);
    assert_null(function);
    assert_int_equal(status, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
    CUresult (*first)(const char *, void **, int, cuuint64_t) =
        (__typeof__(first))(uintptr_t)dlsym(library, "cuGetProcAddress");
    function = &status;
    assert_int_equal(first("cuNone", &function, 11080, 0), CUDA_ERROR_NOT_FOUND);
    assert_ptr_equal(function, &status); /* unchanged */
    assert_int_equal(first("cuInit", NULL, 11080, 0), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(first("cuInit", &function, 11080, 0), CUDA_SUCCESS);
    assert_ptr_equal(function, dlsym(library, "cuInit"));
}

/* Functions requested with a version before the one that introduced them are not returned. */
static void functions_that_are_newer(void **state)
{
    static const struct {
        const char *name;
        int version; /* introduces the function, by its type in cudaTypedefs.h */
    } functions[] = {
        {"cuInit", 2000},
        {"cuMemAllocAsync", 11020},
        {"cuLibraryLoadData", 12000},
        {"cuMulticastCreate", 12010},
        {"cuMemAdvise", 8000}, /* in its first form */
    };
    CUresult (*first)(const char *, void **, int, cuuint64_t) =
        (__typeof__(first))(uintptr_t)dlsym(library, "cuGetProcAddress");
    (void)state;
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        const char *name = functions[i].name;
        CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SUCCESS;
        void *function = &status;
        int before = functions[i].version - 1;
        assert_int_equal(cuGetProcAddress(name, &function, before, 0, &status), CUDA_SUCCESS);
        assert_null(function);
        assert_int_equal(status, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
        function = &status;
        assert_int_equal(first(name, &function, before, 0), CUDA_ERROR_NOT_FOUND);
        assert_ptr_equal(function, &status); /* unchanged */
        assert_non_null(found(name, functions[i].version, 0));
    }
}

/* Versions unknown to the driver, and unknown flags. */
static void refused_questions(void **state)
{
    static const struct {
        int version;
        cuuint64_t flags;
    } questions[] = {{CUDA_VERSION + 1, 0}, {99990, 0}, {12000, 4}, {12000, 8}};
    CUresult (*first)(const char *, void **, int, cuuint64_t) =
        (__typeof__(first))(uintptr_t)dlsym(library, "cuGetProcAddress");
    (void)state;
    for (size_t i = 0; i < sizeof questions / sizeof *questions; i++) {
        CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT;
        void *function = &status;
        assert_int_equal(cuGetProcAddress("cuInit", &function, questions[i].version,
                                          questions[i].flags, &status),
                         CUDA_ERROR_INVALID_VALUE);
        assert_int_equal(first("cuInit", &function, questions[i].version, questions[i].flags),
                         CUDA_ERROR_INVALID_VALUE);
        assert_ptr_equal(function, &status);
        assert_int_equal(status, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
    }
    void *function = NULL;
    assert_int_equal(cudaGetDriverEntryPointByVersion("cuInit", &function, CUDA_VERSION + 1,
                                                      cudaEnableDefault, NULL),
                     cudaErrorInvalidValue);
    assert_null(function);
    assert_int_equal(cudaGetLastError(), cudaErrorInvalidValue);
}

/* ---- Calling ---- */

static size_t free_bytes(void)
{
    size_t bytes, total_bytes;
    assert_int_equal(cuMemGetInfo(&bytes, &total_bytes), CUDA_SUCCESS);
    return bytes;
}

static void managed_memory(void **state)
{
    PFN_cuMemAdvise_v8000 advise = OLDER(cuMemAdvise, 8000);
    PFN_cuMemPrefetchAsync_v8000 prefetch = OLDER(cuMemPrefetchAsync, 8000);
    CUdeviceptr addr;
    (void)state;
    assert_int_equal(cuMemAllocManaged(&addr, PAGE, CU_MEM_ATTACH_GLOBAL), CUDA_SUCCESS);
    size_t before = free_bytes();
    assert_int_equal(advise(addr, PAGE, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, 0), CUDA_SUCCESS);
    assert_int_equal(advise(addr, PAGE, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, CU_DEVICE_CPU),
                     CUDA_SUCCESS);
    assert_int_equal(advise(addr, PAGE, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, 7),
                     CUDA_ERROR_INVALID_DEVICE);
    assert_int_equal(prefetch(addr, PAGE, CU_DEVICE_CPU, NULL), CUDA_SUCCESS);
    assert_int_equal(free_bytes(), before);
    assert_int_equal(prefetch(addr, PAGE, 7, NULL), CUDA_ERROR_INVALID_DEVICE);
    assert_int_equal(prefetch(addr, PAGE, 0, NULL), CUDA_SUCCESS);
    assert_int_equal(before - free_bytes(), BATCH);
    assert_int_equal(cuMemFree(addr), CUDA_SUCCESS);
}

static void captures(void **state)
{
    CUstream stream;
    CUgraph graph = NULL, ended;
    CUgraphNode node;
    const CUgraphNode *nodes;
    CUstreamCaptureStatus status;
    cuuint64_t first = 0, second = 0;
    size_t count = 9;
    (void)state;
    assert_int_equal(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    assert_int_equal(((begin_fn)(uintptr_t)found("cuStreamBeginCapture", 10000, 0))(stream),
                     CUDA_SUCCESS);
    assert_int_equal(OLDER(cuStreamGetCaptureInfo, 10010)(stream, &status, &first), CUDA_SUCCESS);
    assert_int_equal(status, CU_STREAM_CAPTURE_STATUS_ACTIVE);
    PFN_cuStreamGetCaptureInfo_v11030 ask = OLDER(cuStreamGetCaptureInfo, 11030);
    assert_int_equal(ask(stream, &status, &second, &graph, &nodes, &count), CUDA_SUCCESS);
    assert_int_equal(second, first);
    assert_int_equal(count, 0);
    assert_int_equal(cuGraphAddEmptyNode(&node, graph, NULL, 0), CUDA_SUCCESS);
    assert_int_equal(OLDER(cuStreamUpdateCaptureDependencies,
                           11030)(stream, &node, 1, CU_STREAM_SET_CAPTURE_DEPENDENCIES),
                     CUDA_SUCCESS);
    assert_int_equal(ask(stream, &status, NULL, NULL, &nodes, &count), CUDA_SUCCESS);
    assert_int_equal(count, 1);
    assert_ptr_equal(nodes[0], node);
    assert_int_equal(cuStreamEndCapture(stream, &ended), CUDA_SUCCESS);
    assert_ptr_equal(ended, graph);
    assert_int_equal(cuGraphDestroy(graph), CUDA_SUCCESS);
    assert_int_equal(cuStreamDestroy(stream), CUDA_SUCCESS);
}

static void edges(void **state)
{
    CUgraph graph;
    CUgraphNode node[2], from[2], to[2];
    size_t count = 2;
    (void)state;
    assert_int_equal(cuGraphCreate(&graph, 0), CUDA_SUCCESS);
    for (int i = 0; i < 2; i++)
        assert_int_equal(cuGraphAddEmptyNode(&node[i], graph, NULL, 0), CUDA_SUCCESS);
    assert_int_equal(OLDER(cuGraphAddDependencies, 10000)(graph, &node[0], &node[1], 1),
                     CUDA_SUCCESS);
    assert_int_equal(OLDER(cuGraphGetEdges, 10000)(graph, from, to, &count), CUDA_SUCCESS);
    assert_int_equal(count, 1);
    assert_true(from[0] == node[0] && to[0] == node[1]);
    count = 2;
    assert_int_equal(OLDER(cuGraphNodeGetDependencies, 10000)(node[1], from, &count), CUDA_SUCCESS);
    assert_true(count == 1 && from[0] == node[0]);
    count = 2;
    assert_int_equal(OLDER(cuGraphNodeGetDependentNodes, 10000)(node[0], to, &count), CUDA_SUCCESS);
    assert_true(count == 1 && to[0] == node[1]);
    assert_int_equal(OLDER(cuGraphRemoveDependencies, 10000)(graph, &node[0], &node[1], 1),
                     CUDA_SUCCESS);
    count = 2;
    assert_int_equal(OLDER(cuGraphGetEdges, 10000)(graph, NULL, NULL, &count), CUDA_SUCCESS);
    assert_int_equal(count, 0);
    assert_int_equal(cuGraphDestroy(graph), CUDA_SUCCESS);
}

/* A kernel node, and the result of updating its graph. */
static void kernels_and_updates(void **state)
{
    static const char code[] = ".version 7.8\n.target sm_80\n.address_size 64\n"
                               ".visible .entry nothing()\n{\n    ret;\n}\n";
    CUDA_KERNEL_NODE_PARAMS_v1 launch = {.gridDimX = 1,
                                         .gridDimY = 1,
                                         .gridDimZ = 1,
                                         .blockDimX = 32,
                                         .blockDimY = 1,
                                         .blockDimZ = 1};
    CUDA_KERNEL_NODE_PARAMS_v1 read;
    CUmodule module;
    CUgraph graph, other;
    CUgraphExec exec;
    CUgraphNode node, wrong = NULL;
    CUgraphExecUpdateResult why;
    char log[8] = "xxxxxxx";
    (void)state;
    memset(&read, 0xff, sizeof read);
    assert_int_equal(cuModuleLoadData(&module, code), CUDA_SUCCESS);
    assert_int_equal(cuModuleGetFunction(&launch.func, module, "nothing"), CUDA_SUCCESS);
    assert_int_equal(cuGraphCreate(&graph, 0), CUDA_SUCCESS);
    PFN_cuGraphAddKernelNode_v10000 add = OLDER(cuGraphAddKernelNode, 10000);
    assert_int_equal(add(&node, graph, NULL, 0, NULL), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(add(&node, graph, NULL, 0, &launch), CUDA_SUCCESS);
    assert_int_equal(OLDER(cuGraphKernelNodeGetParams, 10000)(node, &read), CUDA_SUCCESS);
    assert_ptr_equal(read.func, launch.func);
    assert_int_equal(read.blockDimX, 32);
    launch.blockDimX = 64;
    assert_int_equal(OLDER(cuGraphKernelNodeSetParams, 10000)(node, &launch), CUDA_SUCCESS);
    assert_int_equal(OLDER(cuGraphKernelNodeGetParams, 10000)(node, &read), CUDA_SUCCESS);
    assert_int_equal(read.blockDimX, 64);
    assert_int_equal(((instantiate_fn)(uintptr_t)found("cuGraphInstantiate", 11000, 0))(
                         &exec, graph, &wrong, log, sizeof log),
                     CUDA_SUCCESS);
    assert_string_equal(log, "");
    assert_int_equal(OLDER(cuGraphExecKernelNodeSetParams, 10010)(exec, node, &launch),
                     CUDA_SUCCESS);
    PFN_cuGraphExecUpdate_v10020 update = OLDER(cuGraphExecUpdate, 10020);
    assert_int_equal(update(exec, graph, &wrong, &why), CUDA_SUCCESS);
    assert_int_equal(why, CU_GRAPH_EXEC_UPDATE_SUCCESS);
    assert_int_equal(cuGraphCreate(&other, 0), CUDA_SUCCESS);
    assert_int_equal(cuGraphAddEmptyNode(&node, other, NULL, 0), CUDA_SUCCESS);
    assert_int_equal(update(exec, other, &wrong, &why), CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
    assert_int_equal(why, CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED);
    assert_ptr_equal(wrong, node);
    assert_int_equal(cuGraphLaunch(exec, NULL), CUDA_SUCCESS);
    assert_int_equal(cuGraphExecDestroy(exec), CUDA_SUCCESS);
}

/* Names in programs that are linked with the driver, or look up its functions by name. */
static void names_of_older_programs(void **state)
{
    float milliseconds = -1;
    CUevent event[2];
    CUuuid uuid = {{0}}, other = {{1}};
    (void)state;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(cuEventCreate(&event[i], 0), CUDA_SUCCESS);
        assert_int_equal(cuEventRecord(event[i], NULL), CUDA_SUCCESS);
    }
    PFN_cuEventElapsedTime_v2000 elapsed =
        (PFN_cuEventElapsedTime_v2000)(uintptr_t)dlsym(library, "cuEventElapsedTime");
    assert_int_equal(elapsed(&milliseconds, event[0], event[1]), CUDA_SUCCESS);
    assert_true(milliseconds > 0);
    PFN_cuDeviceGetUuid_v9020 identify =
        (PFN_cuDeviceGetUuid_v9020)(uintptr_t)dlsym(library, "cuDeviceGetUuid");
    assert_int_equal(identify(&uuid, 0), CUDA_SUCCESS);
    assert_int_equal(cuDeviceGetUuid(&other, 0), CUDA_SUCCESS);
    assert_memory_equal(&uuid, &other, sizeof uuid);
    PFN_cuDevicePrimaryCtxRelease_v11000 release =
        (PFN_cuDevicePrimaryCtxRelease_v11000)(uintptr_t)dlsym(library,
                                                               "cuDevicePrimaryCtxRelease");
    CUcontext context;
    assert_int_equal(cuDevicePrimaryCtxRetain(&context, 0), CUDA_SUCCESS);
    assert_int_equal(release(0), CUDA_SUCCESS);
    assert_true(free_bytes() > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(forms_by_version),
        cmocka_unit_test(forms_of_streams_by_thread),
        cmocka_unit_test(names_that_are_none),
        cmocka_unit_test(functions_that_are_newer),
        cmocka_unit_test(refused_questions),
        cmocka_unit_test(managed_memory),
        cmocka_unit_test(captures),
        cmocka_unit_test(edges),
        cmocka_unit_test(kernels_and_updates),
        cmocka_unit_test(names_of_older_programs),
    };
    library = dlopen("libcuda.so.1", RTLD_NOW);
    if (library == NULL || cudaFree(NULL) != cudaSuccess)
        return EXIT_FAILURE;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
