/* SPDX-License-Identifier: MIT */
/*
 * When the first layer runs after a wake in order, against a wake that hands over all at once.
 *
 * A layer is one allocation, and one captured graph that reads all of it. Layers are needed in the
 * opposite order of their allocation. Three ways to the first replay, in turns: rvl_resume();
 * rvl_resume_start() with that order, waiting for the layer before its graph is launched; and the
 * same with the graphs of all layers behind it. What the graphs have read, and all layers at the
 * end, are compared with what was written.
 *
 *     bench_wake [--small] [--cycles N]      prints one JSON object a line
 *
 * Without a GPU: RVL_CUDA_LIBRARY=.../libcuda-fake.so bench_wake --small. That driver has no
 * graphs: layers are read by copies then.
 */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "content.h"
#include "driver.h"
#include "need.h"
#include "reveille/cuda.h"
#include "reveille/reveille.h"
#include "subject.h"

#define TAG "weights"

static const work works[] = {
    {.name = "64x256MiB", .count = 64, .size = 256 * MIB, .backup = BACKUP_KEPT},
    {.name = "102x160MiB", .count = 102, .size = 160 * MIB, .backup = BACKUP_KEPT},
    {.name = "8192x2MiB", .count = 8192, .size = 2 * MIB, .backup = BACKUP_KEPT},
    {.name = "coalesced_8192x2MiB",
     .count = 8192,
     .size = 2 * MIB,
     .backup = BACKUP_KEPT,
     .coalesce_bytes = 128 * MIB},
};
#define WORKS (sizeof works / sizeof *works)

typedef enum way { ALL_AT_ONCE, IN_ORDER, IN_ORDER_ALL_LAYERS, WAYS } way;
static const char *const way_names[] = {"all_at_once", "in_order", "in_order_all_layers"};

typedef struct bench {
    const work *w;
    rvl_context *context;
    rvl_tag tag;
    uint64_t *addrs; /* by allocation */
    uint64_t *order; /* by use */
    content *written;
    CUstream stream;
    CUdeviceptr result; /* where a layer is read to */
    void *through;      /* on the way there, without graphs */
    CUgraphExec *graphs;
} bench;

/* Entry points that the other benchmarks do not need. */
static struct {
    __typeof__(&cuStreamCreate) stream_create;
    __typeof__(&cuStreamSynchronize) stream_synchronize;
    __typeof__(&cuMemcpyDtoDAsync) copy;
    __typeof__(&cuStreamBeginCapture) begin_capture;
    __typeof__(&cuStreamEndCapture) end_capture;
    __typeof__(&cuGraphInstantiateWithFlags) instantiate;
    __typeof__(&cuGraphLaunch) launch;
    __typeof__(&cuGraphDestroy) destroy;
    bool graphs; /* the driver has them */
} more;

static void need_ok(rvl_status status, const char *what)
{
    rvl_error error = {.struct_size = sizeof error};
    if (status == RVL_OK)
        return;
    rvl_last_error(&error);
    fprintf(stderr, "bench_wake: %s: %s: %s\n", what, rvl_status_name(status), error.message);
    exit(1);
}

static bool find(const char *name, int version, void *pointer)
{
    void *entry = NULL;
    if (rvl_cuda_get_entry(name, version, &entry) != RVL_OK)
        return false;
    memcpy(pointer, &entry, sizeof entry);
    return true;
}

static void find_more(void)
{
    need(find("cuStreamCreate", 2000, &more.stream_create) &&
             find("cuStreamSynchronize", 2000, &more.stream_synchronize),
         "entry points of the driver");
    more.graphs = find("cuMemcpyDtoDAsync", 3020, &more.copy) &&
                  find("cuStreamBeginCapture", 10010, &more.begin_capture) &&
                  find("cuStreamEndCapture", 10000, &more.end_capture) &&
                  find("cuGraphInstantiateWithFlags", 11040, &more.instantiate) &&
                  find("cuGraphLaunch", 10000, &more.launch) &&
                  find("cuGraphDestroy", 10000, &more.destroy);
}

/* ---- Layers ---- */

static void read_through_host(const bench *b, size_t use)
{
    uint64_t bytes = b->w->size;
    cuda_need(cuda.cuMemcpyDtoHAsync(b->through, b->order[use], bytes, b->stream), "reading");
    cuda_need(cuda.cuMemcpyHtoDAsync(b->result, b->through, bytes, b->stream), "reading");
}

static CUgraphExec capture(const bench *b, size_t use)
{
    CUgraph graph = NULL;
    CUgraphExec exec = NULL;
    cuda_need(more.begin_capture(b->stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), "capturing");
    cuda_need(more.copy(b->result, b->order[use], b->w->size, b->stream), "reading a layer");
    cuda_need(more.end_capture(b->stream, &graph), "capturing");
    cuda_need(more.instantiate(&exec, graph, 0), "a graph");
    cuda_need(more.destroy(graph), "a graph");
    return exec;
}

static void run_layer(const bench *b, size_t use)
{
    if (more.graphs)
        cuda_need(more.launch(b->graphs[use], b->stream), "replaying a layer");
    else
        read_through_host(b, use);
}

static void wait_for_layers(const bench *b)
{
    cuda_need(more.stream_synchronize(b->stream), "running layers");
}

/* ---- One wake ---- */

typedef struct times {
    double first_s, layers_s, whole_s;
    size_t missing; /* layers that had not arrived when the first had run */
    bool same;      /* what the last graph read is what was written there */
} times;

static size_t count_missing(const bench *b)
{
    size_t missing = 0;
    for (size_t use = 0; use < b->w->count; use++)
        missing += rvl_allocation_wait(b->context, b->order[use], 0) == RVL_ERR_TIMEOUT;
    return missing;
}

static times wake_at_once(const bench *b)
{
    double begin = now_s();
    need_ok(rvl_resume(b->context, &b->tag, 1, NULL), "resume");
    times t = {.whole_s = now_s() - begin};
    run_layer(b, 0);
    wait_for_layers(b);
    t.first_s = t.layers_s = now_s() - begin;
    t.same = content_is_at(b->written, b->w->count - 1, b->result);
    return t;
}

static times wake_in_order(const bench *b, size_t layers)
{
    rvl_resuming *wake = NULL;
    const rvl_resume_options options = {
        .struct_size = sizeof options, .order = b->order, .order_count = b->w->count};
    times t = {0};
    double begin = now_s();
    need_ok(rvl_resume_start(b->context, &b->tag, 1, &options, &wake), "start");
    for (size_t use = 0; use < layers; use++) {
        need_ok(rvl_allocation_wait(b->context, b->order[use], RVL_WAIT_FOREVER), "wait");
        run_layer(b, use);
        if (use > 0)
            continue;
        wait_for_layers(b);
        t.first_s = now_s() - begin;
        t.missing = count_missing(b);
    }
    wait_for_layers(b);
    t.layers_s = now_s() - begin;
    need_ok(rvl_resume_finish(wake), "finish");
    t.whole_s = now_s() - begin;
    t.same = content_is_at(b->written, b->w->count - layers, b->result);
    return t;
}

static bool run_cycle(const bench *b, way how, int cycle, bool whole)
{
    double begin = now_s();
    need_ok(rvl_pause(b->context, &b->tag, 1, NULL), "pause");
    double pause_s = now_s() - begin;
    usleep(300000); /* the driver clears what was released; somebody else works meanwhile */
    times t =
        how == ALL_AT_ONCE ? wake_at_once(b) : wake_in_order(b, how == IN_ORDER ? 1 : b->w->count);
    bool same = t.same && content_is_there(b->written, whole);
    uint64_t bytes = b->w->count * b->w->size;
    printf("{\"work\":\"%s\",\"way\":\"%s\",\"cycle\":%d,\"bytes\":%llu,\"graph\":%s,"
           "\"pause_s\":%.6f,\"first_layer_s\":%.6f,\"layers_s\":%.6f,\"whole_s\":%.6f,"
           "\"missing_at_first\":%zu,\"content\":\"%s\"}\n",
           b->w->name, way_names[how], cycle, (unsigned long long)bytes,
           more.graphs ? "true" : "false", pause_s, t.first_s, t.layers_s, t.whole_s, t.missing,
           same ? "same" : "DIFFERENT");
    fflush(stdout);
    return same;
}

/* ---- A work ---- */

static void open_bench(bench *b)
{
    size_t count = b->w->count;
    b->context = reveille_open(b->w);
    b->addrs = calloc(count, sizeof *b->addrs);
    b->order = calloc(count, sizeof *b->order);
    b->graphs = calloc(count, sizeof(CUgraphExec));
    need(b->addrs != NULL && b->order != NULL && b->graphs != NULL, "host memory");
    reveille_allocate(b->context, b->w, TAG, b->addrs);
    need_ok(rvl_tag_find(b->context, 0, TAG, &b->tag), "tag");
    for (size_t i = 0; i < count; i++)
        b->order[i] = b->addrs[count - 1 - i];
    b->written = content_new(b->w, b->addrs);
    content_change_all(b->written);
    b->result = map_block(b->w->size);
    cuda_need(cuda.cuMemHostAlloc(&b->through, b->w->size, 0), "pinned memory");
    cuda_need(more.stream_create(&b->stream, CU_STREAM_NON_BLOCKING), "a stream");
    for (size_t use = 0; use < count && more.graphs; use++)
        b->graphs[use] = capture(b, use);
}

static bool run_work(const work *w, int cycles)
{
    bench b = {.w = w};
    bool same = true;
    open_bench(&b);
    for (int cycle = 0; cycle < cycles; cycle++)
        for (way how = ALL_AT_ONCE; how < WAYS; how++)
            same = run_cycle(&b, how, cycle, cycle == cycles - 1 && how == IN_ORDER) && same;
    reveille_free(b.context, w, b.addrs);
    reveille_close(b.context);
    return same;
}

int main(int argc, char **argv)
{
    static const struct option options[] = {
        {"small", no_argument, NULL, 's'}, {"cycles", required_argument, NULL, 'c'}, {0}};
    bool small = false, same = true;
    int cycles = 3;
    for (int option; (option = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        small = small || option == 's';
        if (option == 'c')
            cycles = atoi(optarg);
        if (option == '?' || cycles < 1) {
            fprintf(stderr, "usage: bench_wake [--small] [--cycles N], N at least 1\n");
            return 2;
        }
    }
    driver_open();
    find_more();
    for (size_t i = 0; i < WORKS; i++) {
        work w = works[i];
        w.count = small ? w.count / 8 : w.count;
        w.size = small ? 2 * MIB : w.size;
        w.count = small && w.count > 32 ? 32 : w.count;
        w.coalesce_bytes = small && w.coalesce_bytes > 0 ? 16 * MIB : w.coalesce_bytes;
        same = run_work(&w, cycles) && same;
    }
    return same ? 0 : 1;
}
