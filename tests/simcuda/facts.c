/* SPDX-License-Identifier: MIT */
/*
 * CUDA's results for memory, captures and pools, one fact per line. The same program runs on a
 * card and on a simulated one, and prints the same (facts.h200.txt has the card's output). Words
 * select the parts: rules graphs graph_pools objects implicit full cost pools orders managed
 * arrays streams modules; or a word is the path of a file of device code.
 */
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#include "facts.h"

#define MIB ((size_t)1 << 20)
#define GIB ((size_t)1 << 30)

const char *name_of(cudaError_t error)
{
    (void)cudaGetLastError();
    return cudaGetErrorName(error);
}

long long used(void)
{
    size_t left = 0, total = 0;
    NEED(cudaMemGetInfo(&left, &total));
    return (long long)(total - left);
}

static void moment(long milliseconds)
{
    const struct timespec time = {.tv_sec = milliseconds / 1000,
                                  .tv_nsec = milliseconds % 1000 * 1000000};
    nanosleep(&time, NULL);
}

/* ---- Kernels that do nothing, with and without parameters ---- */

static const char code[] = ".version 7.0\n.target sm_70\n.address_size 64\n"
                           ".visible .entry none() { ret; }\n"
                           ".visible .entry some(.param .align 8 .b8 p[256]) { ret; }\n"
                           ".visible .entry many(.param .align 8 .b8 p[2048]) { ret; }\n";
static CUmodule module;
static CUfunction none, some, many;

static void load_kernels(void)
{
    if (module != NULL)
        return;
    NEED(cuModuleLoadData(&module, code));
    NEED(cuModuleGetFunction(&none, module, "none"));
    NEED(cuModuleGetFunction(&some, module, "some"));
    NEED(cuModuleGetFunction(&many, module, "many"));
}

static CUresult launch(CUfunction kernel, cudaStream_t stream)
{
    static char bytes[2048];
    void *parameters[] = {bytes};
    return cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL);
}

static void launch_all(void)
{
    load_kernels();
    NEED(launch(none, NULL));
    NEED(launch(some, NULL));
    NEED(launch(many, NULL));
    NEED(cudaDeviceSynchronize());
}

/* ---- Rules of capture ---- */

static cudaStream_t captured, other, blocking;
static cudaEvent_t before, inside;
static void *device_memory, *pinned, *pooled;
static char host_memory[1 << 14] __attribute__((aligned(4096)));
static int value;

static void nothing(void *user)
{
    (void)user;
}

static void CUDART_CB called_back(cudaStream_t stream, cudaError_t status, void *user)
{
    (void)stream, (void)status, (void)user;
}

#define CALL(word, expression)                                                                     \
    static cudaError_t call_##word(void)                                                           \
    {                                                                                              \
        return (cudaError_t)(expression);                                                          \
    }
CALL(malloc, cudaMalloc(&device_memory, 4096))
CALL(free, cudaFree(device_memory))
CALL(host_alloc, cudaHostAlloc(&pinned, 4096, 0))
CALL(free_host, cudaFreeHost(pinned))
CALL(host_register, cudaHostRegister(host_memory, 4096, 0))
CALL(malloc_async_other, cudaMallocAsync(&pooled, 4096, other))
CALL(mem_get_info, cudaMemGetInfo(&(size_t){0}, &(size_t){0}))
CALL(memcpy_sync, cudaMemcpy(device_memory, host_memory, 16, cudaMemcpyHostToDevice))
CALL(memset_sync, cudaMemset(device_memory, 0, 16))
CALL(memcpy_async,
     cudaMemcpyAsync(device_memory, host_memory, 16, cudaMemcpyHostToDevice, captured))
CALL(memcpy_async_other,
     cudaMemcpyAsync(device_memory, host_memory, 16, cudaMemcpyHostToDevice, other))
CALL(memset_async, cudaMemsetAsync(device_memory, 0, 16, captured))
CALL(device_synchronize, cudaDeviceSynchronize())
CALL(stream_synchronize, cudaStreamSynchronize(captured))
CALL(stream_synchronize_other, cudaStreamSynchronize(other))
CALL(stream_query, cudaStreamQuery(captured))
CALL(stream_query_other, cudaStreamQuery(other))
CALL(stream_query_null, cudaStreamQuery(NULL))
CALL(stream_synchronize_null, cudaStreamSynchronize(NULL))
CALL(event_query_before, cudaEventQuery(before))
CALL(event_synchronize_before, cudaEventSynchronize(before))
CALL(event_create, cudaEventCreate(&(cudaEvent_t){NULL}))
CALL(event_record, cudaEventRecord(inside, captured))
CALL(event_record_other, cudaEventRecord(inside, other))
CALL(event_record_null, cudaEventRecord(inside, NULL))
CALL(stream_create, cudaStreamCreateWithFlags(&(cudaStream_t){NULL}, cudaStreamNonBlocking))
CALL(wait_before, cudaStreamWaitEvent(captured, before, 0))
CALL(launch, launch(none, captured))
CALL(launch_other, launch(none, other))
CALL(launch_null, launch(none, NULL))
CALL(launch_blocking, launch(none, blocking))
CALL(host_function, cudaLaunchHostFunc(captured, nothing, NULL))
CALL(callback, cudaStreamAddCallback(captured, called_back, NULL, 0))
CALL(begin_again, cudaStreamBeginCapture(captured, cudaStreamCaptureModeRelaxed))
CALL(set_device, cudaSetDevice(0))
CALL(get_attribute, cudaDeviceGetAttribute(&value, cudaDevAttrWarpSize, 0))
CALL(priority, cudaStreamGetPriority(captured, &value))
CALL(module_load, cuModuleLoadData(&(CUmodule){NULL}, code))
CALL(pointer, cudaPointerGetAttributes(&(struct cudaPointerAttributes){0}, device_memory))

static cudaError_t call_event_query_inside(void)
{
    NEED(cudaEventRecord(inside, captured));
    return cudaEventQuery(inside);
}

static cudaError_t call_event_synchronize_inside(void)
{
    NEED(cudaEventRecord(inside, captured));
    return cudaEventSynchronize(inside);
}

static cudaError_t call_event_elapsed_inside(void)
{
    float milliseconds;
    NEED(cudaEventRecord(inside, captured));
    return cudaEventElapsedTime(&milliseconds, before, inside);
}

static cudaError_t call_create_graph(void)
{
    cudaGraph_t graph;
    cudaError_t error = cudaGraphCreate(&graph, 0);
    return error == cudaSuccess ? cudaGraphDestroy(graph) : error;
}

/* vmm calls are not allocations of the runtime. */
static cudaError_t call_mem_create(void)
{
    CUmemAllocationProp kind = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    CUmemGenericAllocationHandle handle;
    CUresult result = cuMemCreate(&handle, 2 * MIB, &kind, 0);
    return (cudaError_t)(result == CUDA_SUCCESS ? cuMemRelease(handle) : result);
}

static void *malloc_in_thread(void *user)
{
    *(cudaError_t *)user = cudaMalloc(&device_memory, 4096);
    return NULL;
}

static cudaError_t call_malloc_in_thread(void)
{
    cudaError_t error = cudaErrorUnknown;
    pthread_t thread;
    pthread_create(&thread, NULL, malloc_in_thread, &error);
    pthread_join(thread, NULL);
    return error;
}

static cudaError_t call_malloc_relaxed(void)
{
    enum cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    NEED(cudaThreadExchangeStreamCaptureMode(&mode));
    cudaError_t error = cudaMalloc(&device_memory, 4096);
    NEED(cudaThreadExchangeStreamCaptureMode(&mode));
    return error;
}

static cudaError_t call_malloc_thread_local(void)
{
    enum cudaStreamCaptureMode mode = cudaStreamCaptureModeThreadLocal;
    NEED(cudaThreadExchangeStreamCaptureMode(&mode));
    cudaError_t error = cudaMalloc(&device_memory, 4096);
    NEED(cudaThreadExchangeStreamCaptureMode(&mode));
    return error;
}

static const struct {
    const char *name;
    cudaError_t (*make)(void);
} calls[] = {
#define CALLED(word)                                                                               \
    {                                                                                              \
#word, call_##word                                                                         \
    }
    CALLED(malloc),
    CALLED(free),
    CALLED(host_alloc),
    CALLED(free_host),
    CALLED(host_register),
    CALLED(malloc_async_other),
    CALLED(mem_get_info),
    CALLED(memcpy_sync),
    CALLED(memset_sync),
    CALLED(memcpy_async),
    CALLED(memcpy_async_other),
    CALLED(memset_async),
    CALLED(device_synchronize),
    CALLED(stream_synchronize),
    CALLED(stream_synchronize_other),
    CALLED(stream_synchronize_null),
    CALLED(stream_query),
    CALLED(stream_query_other),
    CALLED(stream_query_null),
    CALLED(event_query_before),
    CALLED(event_synchronize_before),
    CALLED(event_query_inside),
    CALLED(event_synchronize_inside),
    CALLED(event_elapsed_inside),
    CALLED(event_create),
    CALLED(event_record),
    CALLED(event_record_other),
    CALLED(event_record_null),
    CALLED(stream_create),
    CALLED(wait_before),
    CALLED(launch),
    CALLED(launch_other),
    CALLED(launch_null),
    CALLED(launch_blocking),
    CALLED(host_function),
    CALLED(callback),
    CALLED(begin_again),
    CALLED(set_device),
    CALLED(get_attribute),
    CALLED(priority),
    CALLED(module_load),
    CALLED(pointer),
    CALLED(create_graph),
    CALLED(mem_create),
    CALLED(malloc_in_thread),
    CALLED(malloc_relaxed),
    CALLED(malloc_thread_local),
};

static const char *const modes[] = {"global", "thread_local", "relaxed"};

static cudaGraph_t end_quietly(cudaStream_t stream)
{
    cudaGraph_t graph = NULL;
    (void)cudaStreamEndCapture(stream, &graph);
    (void)cudaGetLastError();
    return graph;
}

/* The result of a call during a capture, the capture's status then, and the result of its end. */
static void rule(enum cudaStreamCaptureMode mode, size_t index)
{
    enum cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    cudaGraph_t graph = NULL;
    NEED(cudaMalloc(&device_memory, 4096));
    NEED(cudaHostAlloc(&pinned, 4096, 0));
    NEED(cudaStreamCreateWithFlags(&captured, cudaStreamNonBlocking));
    NEED(cudaStreamBeginCapture(captured, mode));
    cudaError_t error = calls[index].make();
    const char *called = name_of(error);
    cudaError_t asked = cudaStreamIsCapturing(captured, &status);
    const char *ended = name_of(cudaStreamEndCapture(captured, &graph));
    say("rules %s %s: %s, %s %d, end %s%s", modes[mode], calls[index].name, called,
        asked == cudaSuccess ? "status" : cudaGetErrorName(asked), (int)status, ended,
        graph == NULL ? ", no graph" : "");
    if (graph != NULL)
        NEED(cudaGraphDestroy(graph));
    (void)cudaGetLastError();
    (void)cudaHostUnregister(host_memory);
    (void)cudaGetLastError();
}

static void begin_streams(void)
{
    NEED(cudaStreamCreateWithFlags(&captured, cudaStreamNonBlocking));
    NEED(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
    NEED(cudaStreamCreate(&blocking));
    NEED(cudaEventCreate(&before));
    NEED(cudaEventCreate(&inside));
    NEED(cudaEventRecord(before, other));
    NEED(cudaDeviceSynchronize());
}

static void *end_in_thread(void *user)
{
    cudaGraph_t graph = NULL;
    *(cudaError_t *)user = cudaStreamEndCapture(captured, &graph);
    return NULL;
}

static void ends(void)
{
    cudaGraph_t graph = NULL;
    enum cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    say("ends begin_null: %s", name_of(cudaStreamBeginCapture(NULL, 0)));
    say("ends end_not_begun: %s", name_of(cudaStreamEndCapture(captured, &graph)));

    NEED(cudaStreamBeginCapture(captured, 0));
    NEED(cudaEventRecord(inside, captured));
    NEED(cudaStreamWaitEvent(other, inside, 0));
    NEED(cudaStreamIsCapturing(other, &status));
    say("ends forked: status %d", (int)status);
    NEED(launch(none, other));
    say("ends unjoined: %s", name_of(cudaStreamEndCapture(captured, &graph)));
    NEED(cudaStreamIsCapturing(other, &status));
    say("ends unjoined_other: status %d", (int)status);

    NEED(cudaStreamBeginCapture(captured, 0));
    NEED(cudaEventRecord(inside, captured));
    NEED(cudaStreamWaitEvent(other, inside, 0));
    say("ends by_another_stream: %s", name_of(cudaStreamEndCapture(other, &graph)));
    NEED(cudaStreamIsCapturing(captured, &status));
    say("ends by_another_stream: status %d", (int)status);
    say("ends after_another_stream: %s", name_of(cudaStreamEndCapture(captured, &graph)));

    for (int mode = 0; mode < 3; mode++) {
        cudaError_t error = cudaErrorUnknown;
        pthread_t thread;
        NEED(cudaStreamBeginCapture(captured, (enum cudaStreamCaptureMode)mode));
        pthread_create(&thread, NULL, end_in_thread, &error);
        pthread_join(thread, NULL);
        say("ends in_thread %s: %s", modes[mode], cudaGetErrorName(error));
        NEED(cudaStreamIsCapturing(captured, &status));
        say("ends in_thread %s: status %d", modes[mode], (int)status);
        if (status != cudaStreamCaptureStatusNone)
            say("ends after_thread %s: %s", modes[mode],
                name_of(cudaStreamEndCapture(captured, &graph)));
    }

    NEED(cudaStreamBeginCapture(captured, 0));
    NEED(cudaStreamBeginCapture(other, 0));
    NEED(cudaEventRecord(inside, captured));
    say("ends merge: %s", name_of(cudaStreamWaitEvent(other, inside, 0)));
    NEED(cudaStreamIsCapturing(captured, &status));
    say("ends merge captured: status %d", (int)status);
    NEED(cudaStreamIsCapturing(other, &status));
    say("ends merge other: status %d", (int)status);
    say("ends merge end captured: %s", name_of(cudaStreamEndCapture(captured, &graph)));
    say("ends merge end other: %s", name_of(cudaStreamEndCapture(other, &graph)));

    NEED(cudaStreamBeginCapture(captured, 0));
    NEED(cudaEventRecord(inside, captured));
    graph = end_quietly(captured);
    say("ends event_after query: %s", name_of(cudaEventQuery(inside)));
    say("ends event_after wait: %s", name_of(cudaStreamWaitEvent(other, inside, 0)));
    say("ends event_after record: %s", name_of(cudaEventRecord(inside, other)));
    say("ends event_after query again: %s",
        cudaDeviceSynchronize() == cudaSuccess ? name_of(cudaEventQuery(inside)) : "");
    NEED(cudaGraphDestroy(graph));

    cudaStream_t gone;
    NEED(cudaStreamCreateWithFlags(&gone, cudaStreamNonBlocking));
    NEED(cudaStreamBeginCapture(gone, 0));
    say("ends destroy_stream: %s", name_of(cudaStreamDestroy(gone)));
    say("ends destroy_stream malloc after: %s", name_of(cudaMalloc(&device_memory, 4096)));
}

static void rules(void)
{
    begin_streams();
    launch_all();
    void *first;
    (void)name_of(cudaMallocAsync(&first, 4096, other)); /* makes the pool exist */
    NEED(cudaDeviceSynchronize());
    for (int mode = 0; mode < 3; mode++)
        for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
            rule((enum cudaStreamCaptureMode)mode, i);
    NEED(cudaStreamCreateWithFlags(&captured, cudaStreamNonBlocking));
    ends();
}

/* ---- Graphs ---- */

#define NODES_MAX 64

static void say_nodes(const char *what, cudaGraph_t graph)
{
    cudaGraphNode_t nodes[NODES_MAX];
    size_t count = 0, edges = 0, roots = 0;
    NEED(cudaGraphGetNodes(graph, NULL, &count));
    NEED(cudaGraphGetRootNodes(graph, NULL, &roots));
    NEED(cudaGraphGetEdges(graph, NULL, NULL, NULL, &edges));
    printf("graphs %s: %zu nodes, %zu roots, %zu edges, types", what, count, roots, edges);
    NEED(cudaGraphGetNodes(graph, nodes, &count));
    for (size_t i = 0; i < count; i++) {
        enum cudaGraphNodeType type;
        size_t dependencies = 0;
        NEED(cudaGraphNodeGetType(nodes[i], &type));
        NEED(cudaGraphNodeGetDependencies(nodes[i], NULL, NULL, &dependencies));
        printf(" %d(%zu)", (int)type, dependencies);
    }
    putchar('\n');
}

static int host_calls;

static void count_call(void *user)
{
    host_calls += *(int *)user;
}

static cudaGraph_t capture_mixed(void)
{
    static int one = 1;
    cudaGraph_t graph;
    enum cudaStreamCaptureStatus status;
    unsigned long long id = 0;
    cudaGraph_t part = NULL;
    size_t dependencies = 99;
    const cudaGraphNode_t *last = NULL;
    NEED(cudaStreamBeginCapture(captured, cudaStreamCaptureModeGlobal));
    NEED(launch(none, captured));
    NEED(cudaMemsetAsync(device_memory, 0, 16, captured));
    NEED(cudaEventRecord(inside, captured));
    NEED(cudaStreamWaitEvent(other, inside, 0));
    NEED(launch(some, other));
    NEED(cudaMemcpyAsync(device_memory, host_memory, 16, cudaMemcpyHostToDevice, captured));
    NEED(cudaLaunchHostFunc(captured, count_call, &one));
    NEED(cudaEventRecord(before, other));
    NEED(cudaStreamWaitEvent(captured, before, 0));
    NEED(cudaStreamGetCaptureInfo(captured, &status, &id, &part, &last, NULL, &dependencies));
    say("graphs info: status %d, id %s, graph %s, %zu dependencies", (int)status,
        id > 0 ? "some" : "0", part != NULL ? "some" : "none", dependencies);
    NEED(launch(many, captured));
    NEED(cudaMemcpyAsync(host_memory, device_memory, 16, cudaMemcpyDeviceToHost, captured));
    NEED(cudaStreamEndCapture(captured, &graph));
    return graph;
}

static void made_by_hand(void)
{
    cudaGraph_t graph, clone;
    cudaGraphNode_t empty, kernel, set, host, child;
    static int ten = 10;
    struct cudaMemsetParams fill = {
        .dst = device_memory, .elementSize = 1, .width = 16, .height = 1};
    struct cudaHostNodeParams call = {.fn = count_call, .userData = &ten};
    NEED(cudaGraphCreate(&graph, 0));
    NEED(cudaGraphAddEmptyNode(&empty, graph, NULL, 0));
    NEED(cudaGraphAddMemsetNode(&set, graph, &empty, 1, &fill));
    NEED(cudaGraphAddHostNode(&host, graph, &set, 1, &call));
    NEED(cudaGraphClone(&clone, graph));
    NEED(cudaGraphAddChildGraphNode(&child, graph, &host, 1, clone));
    CUDA_KERNEL_NODE_PARAMS launched = {.func = none,
                                        .gridDimX = 1,
                                        .gridDimY = 1,
                                        .gridDimZ = 1,
                                        .blockDimX = 1,
                                        .blockDimY = 1,
                                        .blockDimZ = 1};
    NEED(cuGraphAddKernelNode((CUgraphNode *)&kernel, graph, (CUgraphNode *)&host, 1, &launched));
    say_nodes("made", graph);
    say("graphs made cycle: %s", name_of(cudaGraphAddDependencies(graph, &child, &empty, NULL, 1)));
    cudaGraphExec_t exec;
    say("graphs made instantiate: %s", name_of(cudaGraphInstantiate(&exec, graph, 0)));
    (void)name_of(cudaGraphRemoveDependencies(graph, &child, &empty, NULL, 1));
    say("graphs made instantiate again: %s", name_of(cudaGraphInstantiate(&exec, graph, 0)));
    host_calls = 0;
    NEED(cudaGraphLaunch(exec, captured));
    NEED(cudaStreamSynchronize(captured));
    say("graphs made host calls: %d", host_calls);
    NEED(cudaGraphDestroyNode(child));
    say_nodes("made less the child", graph);
    cudaGraphExecUpdateResultInfo update = {0};
    say("graphs made update: %s", name_of(cudaGraphExecUpdate(exec, graph, &update)));
    say("graphs made update result: %d", (int)update.result);
    NEED(cudaGraphExecDestroy(exec));
    NEED(cudaGraphDestroy(graph));
    NEED(cudaGraphDestroy(clone));
}

static void graphs(void)
{
    begin_streams();
    launch_all();
    NEED(cudaMalloc(&device_memory, 4096));
    cudaGraph_t graph = capture_mixed(), again;
    cudaGraphExec_t exec;
    say_nodes("captured", graph);
    say("graphs host calls while capturing: %d", host_calls);
    NEED(cudaGraphInstantiate(&exec, graph, 0));
    for (int i = 0; i < 3; i++)
        NEED(cudaGraphLaunch(exec, captured));
    NEED(cudaStreamSynchronize(captured));
    say("graphs host calls after three launches: %d", host_calls);
    again = capture_mixed();
    cudaGraphExecUpdateResultInfo update = {0};
    say("graphs update: %s", name_of(cudaGraphExecUpdate(exec, again, &update)));
    say("graphs update result: %d", (int)update.result);
    NEED(cudaGraphLaunch(exec, captured));
    NEED(cudaStreamSynchronize(captured));
    say("graphs host calls after the update: %d", host_calls);

    /* A graph launched during another capture becomes a node of it. */
    cudaGraph_t outer;
    NEED(cudaStreamBeginCapture(captured, 0));
    say("graphs launch in capture: %s", name_of(cudaGraphLaunch(exec, captured)));
    say("graphs launch in capture, end: %s", name_of(cudaStreamEndCapture(captured, &outer)));
    say("graphs launch on null: %s", name_of(cudaGraphLaunch(exec, NULL)));

    /* An empty capture. */
    NEED(cudaStreamBeginCapture(captured, 0));
    NEED(cudaStreamEndCapture(captured, &outer));
    say_nodes("empty", outer);
    cudaGraphExec_t idle;
    say("graphs empty instantiate: %s", name_of(cudaGraphInstantiate(&idle, outer, 0)));
    say("graphs empty launch: %s", name_of(cudaGraphLaunch(idle, captured)));

    made_by_hand();
    NEED(cudaGraphExecDestroy(exec));
    NEED(cudaGraphDestroy(graph));
    say("graphs instantiate nothing: %s", name_of(cudaGraphInstantiate(&exec, NULL, 0)));
    say("graphs destroy nothing: %s", name_of(cudaGraphDestroy(NULL)));
    say("graphs exec destroy nothing: %s", name_of(cudaGraphExecDestroy(NULL)));
}

/* Memory of a pool inside a graph. */
static void graph_pools(void)
{
    cudaGraph_t outer;
    cudaGraphExec_t idle;
    begin_streams();
    void *got = NULL;
    long long was = used();
    NEED(cudaStreamBeginCapture(captured, 0));
    NEED(cudaMallocAsync(&got, 4 * MIB, captured));
    NEED(cudaMemsetAsync(got, 0, 16, captured));
    say("graph_pools free: %s", name_of(cudaFreeAsync(got, captured)));
    NEED(cudaStreamEndCapture(captured, &outer));
    say_nodes("pool", outer);
    say("graph_pools captured: %lld", used() - was);
    NEED(cudaGraphInstantiate(&idle, outer, 0));
    say("graph_pools instantiated: %lld", used() - was);
    NEED(cudaGraphLaunch(idle, captured));
    NEED(cudaStreamSynchronize(captured));
    uint64_t now = 0, reserved = 0;
    NEED(cudaDeviceGetGraphMemAttribute(0, cudaGraphMemAttrUsedMemCurrent, &now));
    NEED(cudaDeviceGetGraphMemAttribute(0, cudaGraphMemAttrReservedMemCurrent, &reserved));
    say("graph_pools launched: %lld, used %llu, reserved %llu", used() - was,
        (unsigned long long)now, (unsigned long long)reserved);
    NEED(cudaGraphExecDestroy(idle));
    NEED(cudaGraphDestroy(outer));
    say("graph_pools destroyed: %lld", used() - was);
    NEED(cudaDeviceGraphMemTrim(0));
    say("graph_pools trimmed: %lld", used() - was);
}

/* ---- User objects ---- */

static volatile int destroyed;

static void count_destroyed(void *user)
{
    destroyed += *(int *)user;
}

static int destroyed_now(void)
{
    moment(100);
    return destroyed;
}

static void objects(void)
{
    static int one = 1;
    cudaUserObject_t object;
    cudaGraph_t graph, clone;
    cudaGraphExec_t exec;
    NEED(cudaUserObjectCreate(&object, &one, count_destroyed, 1, cudaUserObjectNoDestructorSync));
    NEED(cudaUserObjectRetain(object, 2));
    NEED(cudaUserObjectRelease(object, 2));
    say("objects released to one: %d", destroyed_now());
    NEED(cudaUserObjectRelease(object, 1));
    say("objects released: %d", destroyed_now());

    destroyed = 0;
    NEED(cudaGraphCreate(&graph, 0));
    NEED(cudaUserObjectCreate(&object, &one, count_destroyed, 1, cudaUserObjectNoDestructorSync));
    NEED(cudaGraphRetainUserObject(graph, object, 1, cudaGraphUserObjectMove));
    NEED(cudaGraphInstantiate(&exec, graph, 0));
    NEED(cudaGraphDestroy(graph));
    say("objects graph destroyed: %d", destroyed_now());
    NEED(cudaGraphExecDestroy(exec));
    say("objects exec destroyed: %d", destroyed_now());

    destroyed = 0;
    NEED(cudaGraphCreate(&graph, 0));
    NEED(cudaUserObjectCreate(&object, &one, count_destroyed, 1, cudaUserObjectNoDestructorSync));
    NEED(cudaGraphRetainUserObject(graph, object, 2, 0));
    NEED(cudaUserObjectRelease(object, 1));
    NEED(cudaGraphClone(&clone, graph));
    NEED(cudaGraphReleaseUserObject(graph, object, 1));
    say("objects one of two: %d", destroyed_now());
    NEED(cudaGraphDestroy(graph));
    say("objects clone is left: %d", destroyed_now());
    NEED(cudaGraphDestroy(clone));
    say("objects clone destroyed: %d", destroyed_now());
    say("objects no flag: %s", name_of(cudaUserObjectCreate(&object, &one, count_destroyed, 1, 0)));
    say("objects no count: %s",
        name_of(cudaUserObjectCreate(&object, &one, count_destroyed, 0, 1)));

    /* A user object that a capture's graph keeps, as frameworks use it. */
    destroyed = 0;
    enum cudaStreamCaptureStatus status;
    unsigned long long id;
    NEED(cudaUserObjectCreate(&object, &one, count_destroyed, 1, cudaUserObjectNoDestructorSync));
    begin_streams();
    launch_all();
    NEED(cudaStreamBeginCapture(captured, cudaStreamCaptureModeGlobal));
    NEED(launch(none, captured));
    NEED(cudaStreamGetCaptureInfo(captured, &status, &id, &graph, NULL, NULL, NULL));
    NEED(cudaGraphRetainUserObject(graph, object, 1, cudaGraphUserObjectMove));
    NEED(cudaStreamEndCapture(captured, &clone));
    say("objects graph of the capture: %s", graph == clone ? "the same" : "another");
    NEED(cudaGraphInstantiate(&exec, clone, 0));
    NEED(cudaGraphDestroy(clone));
    NEED(cudaGraphLaunch(exec, captured));
    NEED(cudaStreamSynchronize(captured));
    say("objects launched: %d", destroyed_now());
    NEED(cudaGraphExecDestroy(exec));
    say("objects executed and destroyed: %d", destroyed_now());
}

/* ---- Memory of a graph ---- */

static cudaGraph_t capture_kernels(CUfunction kernel, int count)
{
    cudaGraph_t graph;
    NEED(cudaStreamBeginCapture(captured, cudaStreamCaptureModeGlobal));
    for (int i = 0; i < count; i++)
        NEED(launch(kernel, captured));
    NEED(cudaStreamEndCapture(captured, &graph));
    return graph;
}

static void cost_of(const char *name, CUfunction kernel, int nodes)
{
    cudaGraphExec_t exec;
    long long was = used();
    cudaGraph_t graph = capture_kernels(kernel, nodes);
    long long with_graph = used() - was;
    NEED(cudaGraphInstantiate(&exec, graph, 0));
    long long with_exec = used() - was;
    NEED(cudaGraphLaunch(exec, captured));
    NEED(cudaDeviceSynchronize());
    long long launched = used() - was;
    NEED(cudaGraphLaunch(exec, captured));
    NEED(cudaDeviceSynchronize());
    long long twice = used() - was;
    NEED(cudaGraphExecDestroy(exec));
    NEED(cudaGraphDestroy(graph));
    say("cost %s %d nodes: captured %lld, instantiated %lld, launched %lld, twice %lld, left %lld",
        name, nodes, with_graph, with_exec, launched, twice, used() - was);
}

static void cost(void)
{
    static const int counts[] = {1, 16, 64, 256, 1024, 4096};
    begin_streams();
    launch_all();
    NEED(launch(none, captured));
    NEED(cudaDeviceSynchronize());
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        cost_of("none", none, counts[i]);
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        cost_of("some", some, counts[i]);
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        cost_of("many", many, counts[i]);

    /* Many graphs at once, as in an engine with one for each batch size. */
    cudaGraphExec_t execs[64];
    long long was = used();
    for (int i = 0; i < 64; i++) {
        cudaGraph_t graph = capture_kernels(some, 300);
        NEED(cudaGraphInstantiate(&execs[i], graph, 0));
        NEED(cudaGraphDestroy(graph));
        NEED(cudaGraphLaunch(execs[i], captured));
        NEED(cudaDeviceSynchronize());
        if (((i + 1) & i) == 0)
            say("cost some 300 nodes, %d graphs: %lld", i + 1, used() - was);
    }
    for (int i = 0; i < 64; i++)
        NEED(cudaGraphExecDestroy(execs[i]));
    say("cost some 300 nodes, destroyed: %lld", used() - was);

    /* Branches. */
    cudaStream_t branches[16];
    cudaEvent_t joins[16];
    for (int i = 0; i < 16; i++) {
        NEED(cudaStreamCreateWithFlags(&branches[i], cudaStreamNonBlocking));
        NEED(cudaEventCreateWithFlags(&joins[i], cudaEventDisableTiming));
    }
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    was = used();
    NEED(cudaStreamBeginCapture(captured, cudaStreamCaptureModeGlobal));
    NEED(launch(none, captured));
    NEED(cudaEventRecord(inside, captured));
    for (int i = 0; i < 16; i++) {
        NEED(cudaStreamWaitEvent(branches[i], inside, 0));
        for (int j = 0; j < 8; j++)
            NEED(launch(some, branches[i]));
        NEED(cudaEventRecord(joins[i], branches[i]));
        NEED(cudaStreamWaitEvent(captured, joins[i], 0));
    }
    NEED(cudaStreamEndCapture(captured, &graph));
    NEED(cudaGraphInstantiate(&exec, graph, 0));
    say("cost 16 branches of 8: instantiated %lld", used() - was);
    NEED(cudaGraphLaunch(exec, captured));
    NEED(cudaDeviceSynchronize());
    say("cost 16 branches of 8: launched %lld", used() - was);
    NEED(cudaGraphExecDestroy(exec));
    say("cost 16 branches of 8: left %lld", used() - was);
}

/* ---- Pools ---- */

static cudaMemPool_t pool;
static long long pool_base;

static void say_pool(const char *what)
{
    uint64_t reserved = 0, high = 0, in_use = 0, use_high = 0;
    NEED(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReservedMemCurrent, &reserved));
    NEED(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReservedMemHigh, &high));
    NEED(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrUsedMemCurrent, &in_use));
    NEED(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrUsedMemHigh, &use_high));
    say("pools %s: reserved %llu (%llu), used %llu (%llu), device %lld", what,
        (unsigned long long)reserved, (unsigned long long)high, (unsigned long long)in_use,
        (unsigned long long)use_high, used() - pool_base);
}

static void reset_highs(void)
{
    uint64_t zero = 0;
    NEED(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReservedMemHigh, &zero));
    NEED(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrUsedMemHigh, &zero));
}

static void one_size(size_t bytes)
{
    char what[64];
    void *got = NULL;
    reset_highs();
    cudaError_t error = cudaMallocAsync(&got, bytes, captured);
    snprintf(what, sizeof what, "%zu bytes: %s", bytes, name_of(error));
    say_pool(what);
    if (error != cudaSuccess || got == NULL)
        return;
    NEED(cudaFreeAsync(got, captured));
    NEED(cudaStreamSynchronize(captured));
    say_pool("freed");
}

static long long offset(const void *of, const void *from)
{
    return (long long)((intptr_t)of - (intptr_t)from);
}

static void layout(void)
{
    void *a, *b, *c, *d, *e, *f;
    uint64_t all = UINT64_MAX;
    NEED(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &all));
    NEED(cudaMallocAsync(&a, MIB, captured));
    NEED(cudaMallocAsync(&b, MIB, captured));
    NEED(cudaMallocAsync(&c, 4 * MIB, captured));
    NEED(cudaMallocAsync(&d, MIB, other));
    say_pool("four");
    say("pools places: 0 %lld %lld %lld", offset(b, a), offset(c, a), offset(d, a));
    NEED(cudaFreeAsync(b, captured));
    NEED(cudaFreeAsync(c, captured));
    NEED(cudaDeviceSynchronize());
    say_pool("two of four");
    NEED(cudaMallocAsync(&e, MIB / 2, captured));
    NEED(cudaMallocAsync(&f, MIB / 2, other));
    say("pools places after: %lld %lld", offset(e, a), offset(f, a));
    NEED(cudaMallocAsync(&b, 3 * MIB, other));
    say("pools place of 3 MiB: %lld", offset(b, a));
    NEED(cudaMallocAsync(&c, 30 * MIB, other));
    say_pool("with 30 MiB");
    NEED(cudaMemPoolTrimTo(pool, 0));
    say_pool("trimmed in use");
    NEED(cudaFreeAsync(a, captured));
    NEED(cudaFreeAsync(b, captured));
    NEED(cudaFreeAsync(c, captured));
    NEED(cudaFreeAsync(d, captured));
    NEED(cudaFreeAsync(e, captured));
    NEED(cudaFreeAsync(f, captured));
    NEED(cudaDeviceSynchronize());
    say_pool("all freed");
    NEED(cudaMemPoolTrimTo(pool, 40 * MIB));
    say_pool("trimmed to 40 MiB");
    NEED(cudaMemPoolTrimTo(pool, 32 * MIB));
    say_pool("trimmed to 32 MiB");
    NEED(cudaMemPoolTrimTo(pool, 1));
    say_pool("trimmed to 1");
    NEED(cudaMemPoolTrimTo(pool, 0));
    say_pool("trimmed to 0");
}

/* Sizes one after another without synchronization, and the growth of the pool. */
static void growth(void)
{
    static const size_t sizes[] = {1, 20, 32, 33, 64, 100, 500, 1000};
    void *got[8];
    char what[64];
    for (size_t i = 0; i < 8; i++) {
        NEED(cudaMallocAsync(&got[i], sizes[i] * MIB, captured));
        snprintf(what, sizeof what, "and %zu MiB", sizes[i]);
        say_pool(what);
    }
    for (size_t i = 0; i < 8; i++) {
        NEED(cudaFreeAsync(got[i], captured));
        NEED(cudaStreamSynchronize(captured));
        snprintf(what, sizeof what, "less %zu MiB", sizes[i]);
        say_pool(what);
    }
    NEED(cudaMallocAsync(&got[0], 1200 * MIB, captured));
    say_pool("1200 MiB of pieces");
    NEED(cudaFreeAsync(got[0], captured));
    NEED(cudaDeviceSynchronize());
    NEED(cudaMemPoolTrimTo(pool, 0));
    say_pool("trimmed");
}

static void thresholds(void)
{
    uint64_t bytes = 64 * MIB, zero = 0;
    void *a, *b;
    NEED(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &bytes));
    NEED(cudaMallocAsync(&a, 100 * MIB, captured));
    NEED(cudaMallocAsync(&b, 30 * MIB, captured));
    NEED(cudaFreeAsync(a, captured));
    say_pool("threshold, freed");
    NEED(cudaStreamSynchronize(captured));
    say_pool("threshold, synchronized");
    NEED(cudaFreeAsync(b, captured));
    NEED(cudaEventRecord(before, captured));
    NEED(cudaEventSynchronize(before));
    say_pool("threshold, event");
    NEED(cudaDeviceSynchronize());
    say_pool("threshold, device");
    NEED(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &zero));
    say_pool("threshold 0");
    NEED(cudaDeviceSynchronize());
    say_pool("threshold 0, device");
}

static void kinds(void)
{
    void *a = NULL, *b = NULL;
    struct cudaPointerAttributes what = {0};
    void *of = NULL;
    struct cudaMemPoolProps kind = {.allocType = cudaMemAllocationTypePinned,
                                    .location = {.type = cudaMemLocationTypeDevice, .id = 0}};
    NEED(cudaMallocAsync(&a, 3 * MIB, captured));
    NEED(cudaPointerGetAttributes(&what, a));
    say("pools pointer: type %d, device %d", (int)what.type, what.device);
    NEED(cuPointerGetAttribute(&of, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, (CUdeviceptr)a));
    say("pools pointer's pool: %s", of == (void *)pool ? "the same" : "another");
    CUdeviceptr base = 0;
    size_t bytes = 0;
    NEED(cuMemGetAddressRange(&base, &bytes, (CUdeviceptr)a + 5));
    say("pools range: %lld, %zu", offset((void *)base, a), bytes);
    say("pools cudaFree: %s", name_of(cudaFree(a)));
    say_pool("cudaFree");
    say("pools free again: %s", name_of(cudaFreeAsync(a, captured)));
    NEED(cudaMalloc(&b, MIB));
    say("pools cudaFreeAsync of cudaMalloc: %s", name_of(cudaFreeAsync(b, captured)));
    NEED(cudaDeviceSynchronize());
    say("pools cudaFree after: %s", name_of(cudaFree(b)));
    say("pools nothing: %s", name_of(cudaMallocAsync(&a, 0, captured)));
    say("pools free nothing: %s", name_of(cudaFreeAsync(NULL, captured)));
    say("pools too much: %s", name_of(cudaMallocAsync(&a, 400 * GIB, captured)));
    say_pool("too much");
    uint64_t seven = 7;
    say("pools high of 7: %s",
        name_of(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrUsedMemHigh, &seven)));
    say("pools set reserved: %s",
        name_of(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReservedMemCurrent, &seven)));
    int follow = -1, opportunistic = -1, internal = -1;
    NEED(cudaMemPoolGetAttribute(pool, cudaMemPoolReuseFollowEventDependencies, &follow));
    NEED(cudaMemPoolGetAttribute(pool, cudaMemPoolReuseAllowOpportunistic, &opportunistic));
    NEED(cudaMemPoolGetAttribute(pool, cudaMemPoolReuseAllowInternalDependencies, &internal));
    say("pools reuse: %d %d %d", follow, opportunistic, internal);
    say("pools destroy default: %s", name_of(cudaMemPoolDestroy(pool)));

    cudaMemPool_t usual = pool, now = NULL;
    kind.maxSize = 0;
    NEED(cudaMemPoolCreate(&pool, &kind));
    pool_base = used();
    say_pool("own");
    NEED(cudaMallocFromPoolAsync(&a, 3 * MIB, pool, captured));
    say_pool("own 3 MiB");
    NEED(cudaDeviceSetMemPool(0, pool));
    NEED(cudaDeviceGetMemPool(&now, 0));
    say("pools current: %s", now == pool ? "own" : now == usual ? "default" : "another");
    NEED(cudaMallocAsync(&b, 3 * MIB, captured));
    say_pool("own 6 MiB");
    say("pools destroy in use: %s", name_of(cudaMemPoolDestroy(pool)));
    NEED(cudaDeviceGetMemPool(&now, 0));
    say("pools current after: %s", now == usual ? "default" : "another");
    say("pools destroyed: device %lld", used() - pool_base);
    NEED(cudaFreeAsync(a, captured));
    NEED(cudaFreeAsync(b, captured));
    NEED(cudaDeviceSynchronize());
    say("pools destroyed and freed: device %lld", used() - pool_base);

    kind.maxSize = 50 * MIB;
    NEED(cudaMemPoolCreate(&pool, &kind));
    say("pools bounded: %s", name_of(cudaMallocFromPoolAsync(&a, 40 * MIB, pool, captured)));
    say_pool("bounded");
    say("pools bounded again: %s", name_of(cudaMallocFromPoolAsync(&b, 40 * MIB, pool, captured)));
    NEED(cudaFreeAsync(a, captured));
    NEED(cudaDeviceSynchronize());
    NEED(cudaMemPoolDestroy(pool));
    pool = usual;
}

/* Whether others can use memory that a pool keeps. Sizes are fractions of the device. */
static void pressure(void)
{
    void *a, *b = NULL;
    uint64_t all = UINT64_MAX;
    size_t left, total;
    NEED(cudaMemGetInfo(&left, &total));
    size_t most = left / 10 * 6 / (32 * MIB) * (32 * MIB);
    NEED(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &all));
    NEED(cudaMallocAsync(&a, most, captured));
    NEED(cudaFreeAsync(a, captured));
    NEED(cudaDeviceSynchronize());
    say("pools pressure kept: %d", used() - pool_base >= (long long)most);
    say("pools pressure cudaMalloc: %s", name_of(cudaMalloc(&b, most)));
    say("pools pressure after: %d", used() - pool_base >= (long long)most * 2);
    if (b != NULL)
        NEED(cudaFree(b));
    NEED(cudaMemPoolTrimTo(pool, 0));
    NEED(cudaMallocAsync(&a, most, captured));
    NEED(cudaFreeAsync(a, captured));
    NEED(cudaDeviceSynchronize());
    CUmemAllocationProp kind = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    CUmemGenericAllocationHandle handle;
    CUresult result = cuMemCreate(&handle, most, &kind, 0);
    say("pools pressure cuMemCreate: %s", name_of((cudaError_t)result));
    if (result == CUDA_SUCCESS)
        NEED(cuMemRelease(handle));
    NEED(cudaMemPoolTrimTo(pool, 0));
    say_pool("pressure gone");
}

static void pools(void)
{
    static const size_t sizes[] = {0,        1,         512,       513,      65536,
                                   MIB,      2 * MIB,   20 * MIB,  32 * MIB, 33 * MIB,
                                   64 * MIB, 100 * MIB, 1000 * MIB};
    begin_streams();
    NEED(cudaDeviceGetDefaultMemPool(&pool, 0));
    pool_base = used();
    say_pool("at first");
    uint64_t threshold = 99;
    NEED(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &threshold));
    say("pools threshold: %llu", (unsigned long long)threshold);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        one_size(sizes[i]);
    layout();
    growth();
    thresholds();
    kinds();
    pool_base = used();
    pressure();
}

/* ---- Which streams can reuse memory that another stream has freed ---- */

static void orders(void)
{
    void *a, *b, *c;
    int no = 0;
    uint64_t all = UINT64_MAX;
    struct cudaMemPoolProps kind = {.allocType = cudaMemAllocationTypePinned,
                                    .location = {.type = cudaMemLocationTypeDevice, .id = 0}};
    begin_streams();
    NEED(cudaMemPoolCreate(&pool, &kind));
    pool_base = used();
    NEED(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &all));
    NEED(cudaMallocFromPoolAsync(&a, MIB, pool, captured));
    NEED(cudaFreeAsync(a, captured));
    NEED(cudaMallocFromPoolAsync(&b, MIB, pool, other));
    say("orders usual, another stream: %lld", offset(b, a));
    NEED(cudaFreeAsync(b, other));
    NEED(cudaMemPoolSetAttribute(pool, cudaMemPoolReuseAllowOpportunistic, &no));
    NEED(cudaMemPoolSetAttribute(pool, cudaMemPoolReuseAllowInternalDependencies, &no));
    NEED(cudaDeviceSynchronize());
    NEED(cudaMallocFromPoolAsync(&a, 20 * MIB, pool, captured));
    NEED(cudaFreeAsync(a, captured));
    NEED(cudaMallocFromPoolAsync(&b, 20 * MIB, pool, other));
    NEED(cudaMallocFromPoolAsync(&c, 20 * MIB, pool, captured));
    say("orders strict: another stream %d, its own %d", a == b, a == c);
    say_pool("orders strict");
    NEED(cudaFreeAsync(c, captured));
    NEED(cudaStreamSynchronize(captured));
    NEED(cudaFreeAsync(b, other));
    NEED(cudaMallocFromPoolAsync(&b, 20 * MIB, pool, other));
    NEED(cudaMallocFromPoolAsync(&c, 20 * MIB, pool, other));
    say_pool("orders synchronized");
    say("orders too much: %s", name_of(cudaMallocFromPoolAsync(&a, 300 * GIB, pool, other)));
    say_pool("orders too much");
    NEED(cudaFreeAsync(b, other));
    NEED(cudaFreeAsync(c, other));
    NEED(cudaDeviceSynchronize());
    NEED(cudaMemPoolDestroy(pool));
    say("orders destroyed: %lld", used() - pool_base);

    /* Memory that a graph allocates and does not free. */
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    uint64_t now = 0;
    NEED(cudaStreamBeginCapture(captured, 0));
    NEED(cudaMallocAsync(&a, 40 * MIB, captured));
    NEED(cudaMemsetAsync(a, 0, 40 * MIB, captured));
    NEED(cudaStreamEndCapture(captured, &graph));
    say("orders graph, freed too early: %s", name_of(cudaFreeAsync(a, captured)));
    NEED(cudaGraphInstantiate(&exec, graph, 0));
    NEED(cudaGraphLaunch(exec, captured));
    NEED(cudaDeviceGetGraphMemAttribute(0, cudaGraphMemAttrUsedMemCurrent, &now));
    say("orders graph: used %llu, device %lld", (unsigned long long)now, used() - pool_base);
    say("orders graph again: %s", name_of(cudaGraphLaunch(exec, captured)));
    NEED(cudaDeviceGraphMemTrim(0));
    say("orders graph, trimmed in use: device %lld", used() - pool_base);
    NEED(cudaFreeAsync(a, captured));
    say("orders graph, freed: %s", name_of(cudaGraphLaunch(exec, captured)));
    NEED(cudaGraphExecDestroy(exec));
    NEED(cudaGraphInstantiate(&exec, graph, cudaGraphInstantiateFlagAutoFreeOnLaunch));
    NEED(cudaGraphLaunch(exec, captured));
    NEED(cudaGraphLaunch(exec, captured));
    NEED(cudaDeviceGetGraphMemAttribute(0, cudaGraphMemAttrUsedMemCurrent, &now));
    say("orders graph, freed by launches: used %llu", (unsigned long long)now);
    NEED(cudaGraphExecDestroy(exec));
    NEED(cudaGraphDestroy(graph));
    say("orders graph, what is left in use: %lld", used() - pool_base);
    NEED(cudaFree(a));
    NEED(cudaDeviceGraphMemTrim(0));
    say("orders graph, trimmed: %lld", used() - pool_base);
}

/* ---- Managed memory ---- */

static void managed(void)
{
    static const size_t sizes[] = {1, 65536, 2 * MIB, 3 * MIB, 64 * MIB};
    const struct cudaMemLocation card = {.type = cudaMemLocationTypeDevice, .id = 0};
    const struct cudaMemLocation host = {.type = cudaMemLocationTypeHost};
    begin_streams();
    int able = 0, concurrent = 0;
    NEED(cudaDeviceGetAttribute(&able, cudaDevAttrManagedMemory, 0));
    NEED(cudaDeviceGetAttribute(&concurrent, cudaDevAttrConcurrentManagedAccess, 0));
    say("managed: able %d, concurrent %d", able, concurrent);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        char *got = NULL;
        long long was = used();
        NEED(cudaMallocManaged((void **)&got, sizes[i], cudaMemAttachGlobal));
        long long made = used() - was;
        memset(got, 1, sizes[i]);
        long long by_host = used() - was;
        NEED(cudaMemPrefetchAsync(got, sizes[i], card, 0, captured));
        NEED(cudaDeviceSynchronize());
        long long there = used() - was;
        int sum = got[0];
        long long read = used() - was;
        NEED(cudaMemPrefetchAsync(got, sizes[i], host, 0, captured));
        NEED(cudaDeviceSynchronize());
        long long back = used() - was;
        NEED(cudaMemset(got, 2, sizes[i]));
        NEED(cudaDeviceSynchronize());
        long long set = used() - was;
        sum += got[sizes[i] - 1];
        long long seen = used() - was;
        NEED(cudaFree(got));
        say("managed %zu: made %lld, host %lld, prefetched %lld, read %lld, back %lld, set %lld, "
            "seen %lld (%d), freed %lld",
            sizes[i], made, by_host, there, read, back, set, seen, sum, used() - was);
    }
    struct cudaPointerAttributes what = {0};
    void *got;
    NEED(cudaMallocManaged(&got, MIB, cudaMemAttachGlobal));
    NEED(cudaPointerGetAttributes(&what, got));
    say("managed pointer: type %d, device %d, both %d", (int)what.type, what.device,
        what.devicePointer == got && what.hostPointer == got);
    NEED(cudaFree(got));
    say("managed nothing: %s", name_of(cudaMallocManaged(&got, 0, cudaMemAttachGlobal)));
    say("managed no flag: %s", name_of(cudaMallocManaged(&got, MIB, 0)));
}

/* ---- Arrays ---- */

static void arrays(void)
{
    static const size_t sides[][3] = {{1, 0, 0},     {1024, 0, 0},    {64, 64, 0},
                                      {100, 100, 0}, {1024, 1024, 0}, {1000, 1000, 0},
                                      {64, 64, 64},  {100, 100, 100}, {2000, 3000, 0}};
    static const size_t widths[] = {1, 512, 513, 1000, 4096};
    struct cudaChannelFormatDesc one = {32, 0, 0, 0, cudaChannelFormatKindFloat};
    for (size_t i = 0; i < sizeof sides / sizeof *sides; i++) {
        cudaArray_t array;
        long long was = used();
        const struct cudaExtent size = {sides[i][0], sides[i][1], sides[i][2]};
        NEED(cudaMalloc3DArray(&array, &one, size, 0));
        long long made = used() - was;
        NEED(cudaFreeArray(array));
        say("arrays %zu x %zu x %zu floats: made %lld, freed %lld", size.width, size.height,
            size.depth, made, used() - was);
    }
    cudaArray_t held[40];
    long long was = used();
    for (int i = 0; i < 40; i++)
        NEED(cudaMallocArray(&held[i], &one, 64, 64, 0));
    say("arrays 40 of 64 x 64: %lld", used() - was);
    for (int i = 0; i < 40; i++)
        NEED(cudaFreeArray(held[i]));
    cudaMipmappedArray_t levels;
    was = used();
    const struct cudaExtent size = {1024, 1024, 0};
    NEED(cudaMallocMipmappedArray(&levels, &one, size, 11, 0));
    say("arrays 11 levels of 1024 x 1024: %lld", used() - was);
    NEED(cudaFreeMipmappedArray(levels));
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++) {
        void *got;
        size_t pitch = 0;
        NEED(cudaMallocPitch(&got, &pitch, widths[i], 10));
        say("arrays pitch of %zu: %zu", widths[i], pitch);
        NEED(cudaFree(got));
    }
    struct cudaPitchedPtr pitched;
    const struct cudaExtent box = {1000, 10, 10};
    NEED(cudaMalloc3D(&pitched, box));
    say("arrays 3D: pitch %zu, %zu x %zu", pitched.pitch, pitched.xsize, pitched.ysize);
    NEED(cudaFree(pitched.ptr));
    cudaArray_t array;
    struct cudaChannelFormatDesc back;
    struct cudaExtent sides_back;
    unsigned flags = 9;
    NEED(cudaMallocArray(&array, &one, 30, 20, 0));
    NEED(cudaArrayGetInfo(&back, &sides_back, &flags, array));
    say("arrays info: %d %d, %zu x %zu x %zu, %u", back.x, (int)back.f, sides_back.width,
        sides_back.height, sides_back.depth, flags);
    NEED(cudaFreeArray(array));
    say("arrays too large: %s", name_of(cudaMallocArray(&array, &one, 1 << 20, 1 << 20, 0)));
    say("arrays nothing: %s", name_of(cudaMallocArray(&array, &one, 0, 0, 0)));
    say("arrays free nothing: %s", name_of(cudaFreeArray(NULL)));
}

/* ---- Streams ---- */

static void streams(void)
{
    cudaStream_t stream;
    long long was = used();
    for (int i = 1; i <= 128; i++) {
        NEED(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
        if ((i & (i - 1)) == 0 || i == 34)
            say("streams %d: %lld", i, used() - was);
    }
    for (int i = 1; i <= 64; i++) {
        NEED(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, -1));
        if ((i & (i - 1)) == 0)
            say("streams with priority %d: %lld", i, used() - was);
    }
    load_kernels();
    say("streams kernels loaded: %lld", used() - was);
    launch_all();
    say("streams launched: %lld", used() - was);
}

/* ---- Captures of a stream that synchronizes with the legacy stream ---- */

static void implicit(void)
{
    enum cudaStreamCaptureStatus status;
    cudaGraph_t graph = NULL;
    begin_streams();
    launch_all();
    NEED(cudaStreamBeginCapture(blocking, cudaStreamCaptureModeRelaxed));
    say("implicit launch: %s", name_of((cudaError_t)launch(none, NULL)));
    NEED(cudaStreamIsCapturing(blocking, &status));
    say("implicit status: %d", (int)status);
    say("implicit legacy status: %s", name_of(cudaStreamIsCapturing(NULL, &status)));
    say("implicit more work: %s", name_of((cudaError_t)launch(none, blocking)));
    say("implicit end: %s", name_of(cudaStreamEndCapture(blocking, &graph)));
    NEED(cudaStreamBeginCapture(captured, cudaStreamCaptureModeRelaxed));
    NEED(cudaEventRecord(inside, captured));
    say("implicit wait: %s", name_of(cudaStreamWaitEvent(NULL, inside, 0)));
    say("implicit wait, end: %s", name_of(cudaStreamEndCapture(captured, &graph)));
    graph = end_quietly(captured);

    /* Into an existing graph, and with dependencies that the program gives. */
    cudaGraphNode_t first;
    NEED(cudaGraphCreate(&graph, 0));
    NEED(cudaGraphAddEmptyNode(&first, graph, NULL, 0));
    NEED(cudaStreamBeginCaptureToGraph(captured, graph, &first, NULL, 1, 0));
    NEED(launch(none, captured));
    NEED(cudaStreamUpdateCaptureDependencies(captured, &first, NULL, 1, 0));
    NEED(launch(none, captured));
    NEED(cudaStreamUpdateCaptureDependencies(captured, NULL, NULL, 0, 1));
    NEED(launch(none, captured));
    cudaGraph_t got = NULL;
    say("implicit to graph: %s", name_of(cudaStreamEndCapture(captured, &got)));
    say("implicit to graph, the same: %d", got == graph);
    say_nodes("to graph", graph);
    NEED(cudaGraphDestroy(graph));

    /* An external event is recorded at the launch. */
    cudaGraphExec_t exec;
    float milliseconds = -1;
    NEED(cudaStreamBeginCapture(captured, 0));
    NEED(cudaEventRecordWithFlags(inside, captured, cudaEventRecordExternal));
    NEED(cudaStreamEndCapture(captured, &graph));
    say_nodes("external", graph);
    say("implicit external before: %s",
        name_of(cudaEventElapsedTime(&milliseconds, before, inside)));
    NEED(cudaGraphInstantiate(&exec, graph, 0));
    NEED(cudaGraphLaunch(exec, captured));
    cudaError_t error = cudaEventElapsedTime(&milliseconds, before, inside);
    say("implicit external after: %s, %d", name_of(error), milliseconds >= 0);
}

/* ---- A full device ---- */

static void full(void)
{
    cudaStream_t stream = NULL;
    cudaGraphExec_t exec = NULL;
    void *got = NULL;
    begin_streams();
    load_kernels();
    cudaGraph_t graph = capture_kernels(none, 4096);
    size_t left = 0, total = 0;
    NEED(cudaMemGetInfo(&left, &total));
    NEED(cudaMalloc(&got, left / (2 * MIB) * (2 * MIB)));
    long long was = used();
    say("full: %d left", (int)(total - (size_t)was) >> 21);
    for (int i = 0; i < 2; i++)
        say("full instantiate: %s, %lld", name_of(cudaGraphInstantiate(&exec, graph, 0)),
            used() - was);
    cudaError_t error = cudaSuccess;
    int made = 0;
    for (; error == cudaSuccess; made++)
        error = cudaStreamCreate(&stream);
    say("full stream: %s after %d, %lld", name_of(error), made - 1, used() - was);
    void *more = NULL;
    say("full pool: %s, %lld", name_of(cudaMallocAsync(&more, 1, captured)), used() - was);
    char *shared = NULL;
    const struct cudaMemLocation card = {.type = cudaMemLocationTypeDevice, .id = 0};
    NEED(cudaMallocManaged((void **)&shared, 2 * MIB, cudaMemAttachGlobal));
    say("full managed: %s, %lld", name_of(cudaMemPrefetchAsync(shared, MIB, card, 0, captured)),
        used() - was);
    NEED(cudaMemset(shared, 7, 2 * MIB));
    say("full managed reads: %d %d", shared[0], shared[2 * MIB - 1]);
    say("full managed beyond: %s",
        name_of(cudaMemPrefetchAsync(shared, 2 * MIB + 1, card, 0, captured)));
    NEED(cudaFree(shared));
    struct cudaChannelFormatDesc one = {32, 0, 0, 0, cudaChannelFormatKindFloat};
    cudaArray_t array = NULL;
    say("full array: %s, %lld", name_of(cudaMallocArray(&array, &one, 1024, 1024, 0)),
        used() - was);
    NEED(cudaFree(got));
    say("full instantiate with room: %s", name_of(cudaGraphInstantiate(&exec, graph, 0)));
    say("full stream with room: %s", name_of(cudaStreamCreate(&stream)));
    NEED(cudaGraphLaunch(exec, stream));
}

static const struct {
    const char *name;
    void (*tell)(void);
} parts[] = {
    {"rules", rules},       {"graphs", graphs}, {"graph_pools", graph_pools},
    {"implicit", implicit}, {"full", full},     {"orders", orders},
    {"objects", objects},   {"cost", cost},     {"pools", pools},
    {"managed", managed},   {"arrays", arrays}, {"streams", streams},
    {"modules", modules},
};

int main(int argc, char **argv)
{
    NEED(cudaFree(NULL));
    (void)used();
    for (int i = 1; i < argc; i++) {
        if (strchr(argv[i], '/') != NULL)
            tell_file(argv[i]);
        for (size_t j = 0; j < sizeof parts / sizeof *parts; j++)
            if (strcmp(argv[i], parts[j].name) == 0)
                parts[j].tell();
    }
    return 0;
}
