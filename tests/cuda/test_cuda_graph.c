/* SPDX-License-Identifier: MIT */
/*
 * Captured CUDA graphs: they hold pointers, and must replay correctly after a resume; and capturing
 * must not be disturbed by allocating, nor by a pause that knows of it. On a card, and on simulated
 * GPUs.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <semaphore.h>
#include <string.h>

#include "gpu.h"

/* The entry points that only this test needs. */
static struct {
    __typeof__(&cuStreamBeginCapture) begin_capture;
    __typeof__(&cuStreamEndCapture) end_capture;
    __typeof__(&cuGraphInstantiateWithFlags) instantiate;
    __typeof__(&cuGraphLaunch) launch;
    __typeof__(&cuGraphExecDestroy) destroy_exec;
    __typeof__(&cuGraphDestroy) destroy_graph;
    __typeof__(&cuMemcpyDtoDAsync) copy;
} graphs;

static void find(void *library, const char *name, void *pointer)
{
    void *symbol = dlsym(library, name);
    assert_non_null(symbol);
    memcpy(pointer, &symbol, sizeof symbol);
}

static int open_driver(void **state)
{
    (void)state;
    CUdevice device;
    CUcontext primary;
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    assert_non_null(library);
    find(library, "cuStreamBeginCapture_v2", &graphs.begin_capture);
    find(library, "cuStreamEndCapture", &graphs.end_capture);
    find(library, "cuGraphInstantiateWithFlags", &graphs.instantiate);
    find(library, "cuGraphLaunch", &graphs.launch);
    find(library, "cuGraphExecDestroy", &graphs.destroy_exec);
    find(library, "cuGraphDestroy", &graphs.destroy_graph);
    find(library, "cuMemcpyDtoDAsync_v2", &graphs.copy);
    assert_int_equal(rvli_cuda.cuDeviceGet(&device, 0), CUDA_SUCCESS);
    assert_int_equal(rvli_cuda.cuDevicePrimaryCtxRetain(&primary, device), CUDA_SUCCESS);
    assert_int_equal(rvli_cuda.cuCtxSetCurrent(primary), CUDA_SUCCESS);
    return 0;
}

static CUstream new_stream(void)
{
    CUstream stream;
    assert_int_equal(rvli_cuda.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    return stream;
}

static CUgraphExec end_capture(CUstream stream)
{
    CUgraph graph = NULL;
    CUgraphExec exec = NULL;
    assert_int_equal(graphs.end_capture(stream, &graph), CUDA_SUCCESS);
    assert_non_null(graph);
    assert_int_equal(graphs.instantiate(&exec, graph, 0), CUDA_SUCCESS);
    assert_int_equal(graphs.destroy_graph(graph), CUDA_SUCCESS);
    return exec;
}

static void a_captured_graph_replays_after_resume(void **state)
{
    (void)state;
    const uint64_t size = 96 * MIB;
    rvl_context *context = gpu_open(NULL, NULL);
    rvl_addr weights = support_alloc(context, "weights", 0, size, RVL_BACKUP_HOST);
    rvl_addr output = support_alloc(context, "kv", 0, size, RVL_BACKUP_NONE);
    CUstream stream = new_stream();
    assert_int_equal(graphs.begin_capture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
    assert_int_equal(graphs.copy(output, weights, size, stream), CUDA_SUCCESS);
    CUgraphExec exec = end_capture(stream);
    for (uint64_t round = 0; round < 3; round++) {
        gpu_fill(context, 0, weights, size, round);
        gpu_fill(context, 0, output, size, 1000);
        if (round > 0) {
            assert_int_equal(rvl_pause(context, NULL, 0, NULL), RVL_OK);
            assert_int_equal(rvl_resume(context, NULL, 0, NULL), RVL_OK);
        }
        assert_int_equal(graphs.launch(exec, stream), CUDA_SUCCESS);
        assert_int_equal(rvli_cuda.cuStreamSynchronize(stream), CUDA_SUCCESS);
        assert_true(gpu_holds(context, 0, output, size, round));
    }
    assert_int_equal(graphs.destroy_exec(exec), CUDA_SUCCESS);
    assert_int_equal(rvli_cuda.cuStreamDestroy(stream), CUDA_SUCCESS);
    assert_int_equal(rvl_context_close(context, NULL), RVL_OK);
}

/* A wake that stands still once the first layer has arrived. */
typedef struct gate {
    sem_t first, go_on;
    int arrived;
} gate;

static void stand_still(void *user, const rvl_arrival *arrival)
{
    gate *g = user;
    (void)arrival;
    if (g->arrived++ > 0)
        return;
    sem_post(&g->first);
    sem_wait(&g->go_on);
}

static void a_layer_replays_before_the_rest_has_arrived(void **state)
{
    (void)state;
    enum { LAYERS = 4 };
    const uint64_t size = 32 * MIB;
    rvl_context *context = gpu_open(NULL, NULL);
    rvl_addr layers[LAYERS], output = support_alloc(context, "kv", 0, size, RVL_BACKUP_NONE);
    CUgraphExec graph[LAYERS];
    CUstream stream = new_stream();
    for (uint64_t i = 0; i < LAYERS; i++) {
        layers[i] = support_alloc(context, "weights", 0, size, RVL_BACKUP_HOST);
        gpu_fill(context, 0, layers[i], size, i);
        assert_int_equal(graphs.begin_capture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
        assert_int_equal(graphs.copy(output, layers[i], size, stream), CUDA_SUCCESS);
        graph[i] = end_capture(stream);
    }
    rvl_tag tag = support_tag(context, "weights");
    gate g = {0};
    sem_init(&g.first, 0, 0);
    sem_init(&g.go_on, 0, 0);
    const rvl_addr order[] = {layers[2], layers[0]};
    const uint64_t uses[LAYERS] = {2, 0, 1, 3};
    const rvl_resume_options options = {.struct_size = sizeof options,
                                        .order = order,
                                        .order_count = 2,
                                        .arrived = stand_still,
                                        .arrived_user = &g};
    rvl_resuming *wake = NULL;
    assert_int_equal(rvl_pause(context, &tag, 1, NULL), RVL_OK);
    assert_int_equal(rvl_resume_start(context, &tag, 1, &options, &wake), RVL_OK);
    sem_wait(&g.first);
    assert_int_equal(support_state(context, layers[3]), RVL_STATE_RESUMING);
    for (int i = 0; i < LAYERS; i++) {
        rvl_addr layer = layers[uses[i]];
        assert_int_equal(rvl_allocation_wait(context, layer, RVL_WAIT_FOREVER), RVL_OK);
        assert_int_equal(graphs.launch(graph[uses[i]], stream), CUDA_SUCCESS);
        assert_int_equal(rvli_cuda.cuStreamSynchronize(stream), CUDA_SUCCESS);
        assert_true(gpu_holds(context, 0, output, size, uses[i]));
        if (i == 0)
            assert_int_equal(rvl_allocation_wait(context, layers[3], 0), RVL_ERR_TIMEOUT);
        if (i == 0)
            sem_post(&g.go_on);
    }
    assert_int_equal(rvl_resume_finish(wake), RVL_OK);
    assert_int_equal(g.arrived, LAYERS);
    for (uint64_t i = 0; i < LAYERS; i++) {
        assert_true(gpu_holds(context, 0, layers[i], size, i));
        assert_int_equal(graphs.destroy_exec(graph[i]), CUDA_SUCCESS);
    }
    assert_int_equal(rvli_cuda.cuStreamDestroy(stream), CUDA_SUCCESS);
    assert_int_equal(rvl_context_close(context, NULL), RVL_OK);
    sem_destroy(&g.first);
    sem_destroy(&g.go_on);
}

/* What another thread does while a capture is running. */
typedef struct bystander {
    rvl_context *context;
    CUstream stream;
    rvl_status allocated, again, paused, refused, freed;
} bystander;

static void *stand_by(void *argument)
{
    bystander *b = argument;
    rvl_addr first = 0, second = 0;
    rvl_tag tag = support_tag(b->context, "engine");
    rvl_alloc_options options = {.struct_size = sizeof options, .tag_id = tag};
    void *const streams[] = {b->stream};
    rvl_pause_options named = {.struct_size = sizeof named, .streams = streams, .stream_count = 1};
    void *const none[] = {NULL};
    rvl_pause_options unwatched = {.struct_size = sizeof unwatched, .events = none};
    b->allocated = rvl_alloc(b->context, 32 * MIB, &options, &first);
    b->refused = rvl_pause(b->context, &tag, 1, &named);
    b->paused = rvl_pause(b->context, &tag, 1, &unwatched);        /* waits for no event */
    b->again = rvl_alloc(b->context, 32 * MIB, &options, &second); /* a kept block, filled */
    b->freed = rvl_free(b->context, second);
    return NULL;
}

static void captures_are_left_alone(void **state)
{
    (void)state;
    rvl_context *context = NULL;
    rvl_context_options options = {.struct_size = sizeof options, .keep_bytes = 256 * MIB};
    assert_int_equal(rvl_context_open("cuda", &options, &context), RVL_OK);
    rvl_addr addr = support_alloc(context, "engine", 0, 2 * MIB, RVL_BACKUP_NONE);
    rvl_addr other = support_alloc(context, "other", 0, 4 * MIB, RVL_BACKUP_NONE);
    static const CUstreamCaptureMode modes[] = {CU_STREAM_CAPTURE_MODE_GLOBAL,
                                                CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
                                                CU_STREAM_CAPTURE_MODE_RELAXED};
    (void)addr;
    for (size_t i = 0; i < sizeof modes / sizeof modes[0]; i++) {
        CUstream stream = new_stream();
        bystander b = {.context = context, .stream = stream};
        pthread_t thread;
        assert_int_equal(graphs.begin_capture(stream, modes[i]), CUDA_SUCCESS);
        assert_int_equal(rvli_cuda.cuMemsetD8Async(other, 1, 4 * MIB, stream), CUDA_SUCCESS);
        assert_int_equal(pthread_create(&thread, NULL, stand_by, &b), 0);
        pthread_join(thread, NULL);
        CUgraphExec exec = end_capture(stream); /* it is still valid */
        assert_int_equal(b.allocated, RVL_OK);
        assert_int_equal(b.refused, RVL_ERR_BUSY);
        assert_int_equal(b.paused, RVL_OK);
        assert_int_equal(b.again, RVL_OK);
        assert_int_equal(b.freed, RVL_OK);
        assert_int_equal(graphs.destroy_exec(exec), CUDA_SUCCESS);
        assert_int_equal(rvli_cuda.cuStreamDestroy(stream), CUDA_SUCCESS);
        assert_int_equal(rvl_resume(context, NULL, 0, NULL), RVL_OK);
    }
    assert_int_equal(rvl_context_close(context, NULL), RVL_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_captured_graph_replays_after_resume),
        cmocka_unit_test(a_layer_replays_before_the_rest_has_arrived),
        cmocka_unit_test(captures_are_left_alone),
    };
    if (!gpu_is_there())
        return SKIPPED;
    return cmocka_run_group_tests(tests, open_driver, NULL);
}
