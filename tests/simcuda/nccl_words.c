/* SPDX-License-Identifier: MIT */
#include "nccl_words.h"

#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "nccl_contents.h"
#include "nccl_polled.h"
#include "simcuda/nccl/nccl.h"

#define RANKS_MAX 8
#define NODES_MOST 16 /* of a graph */
#define ELEMENTS 256
#define WAIT_US 20000
#define WAITS_MOST 12500 /* 250 s */

static rvli_comm *comm;
static rvli_comm *all[RANKS_MAX];
static void *library;
static void *allocated;

void make_mark(const char *file)
{
    FILE *made = fopen(file, "w");
    if (made == NULL || fclose(made) != 0)
        exit(7);
}

bool await_mark(const char *file)
{
    for (int i = 0; i < WAITS_MOST && access(file, F_OK) != 0; i++)
        usleep(WAIT_US);
    return access(file, F_OK) == 0;
}

/* A function of the library. */
#define FIND(name) ((__typeof__(&name))(uintptr_t)find(#name))

static void *find(const char *name)
{
    void *found = dlsym(library, name);
    if (found == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        exit(8);
    }
    return found;
}

static void say(rvli_nccl_result result)
{
    printf("%d\n", (int)result);
    fflush(stdout);
    if (result != RVLI_NCCL_SUCCESS)
        fprintf(stderr, "%s: %s\n", FIND(ncclGetErrorString)(result), FIND(ncclGetLastError)(comm));
}

/* ---- Communicators ---- */

static rvli_nccl_result write_id(const char *path)
{
    rvli_nccl_id id;
    rvli_nccl_result result = FIND(ncclGetUniqueId)(&id);
    char beside[4096];
    snprintf(beside, sizeof beside, "%s.new", path);
    FILE *file = fopen(beside, "w");
    if (file == NULL || fwrite(&id, sizeof id, 1, file) != 1 || fclose(file) != 0 ||
        rename(beside, path) != 0)
        exit(7);
    return result;
}

static rvli_nccl_id read_id(const char *path)
{
    rvli_nccl_id id;
    FILE *file = await_mark(path) ? fopen(path, "r") : NULL;
    if (file == NULL || fread(&id, sizeof id, 1, file) != 1)
        exit(7);
    fclose(file);
    return id;
}

static rvli_nccl_config config_of(int blocking, int share)
{
    return (rvli_nccl_config){.size_bytes = sizeof(rvli_nccl_config),
                              .magic = RVLI_NCCL_CONFIG_MAGIC,
                              .version = RVLI_NCCL_VERSION,
                              .blocking = blocking,
                              .cluster_size = RVLI_NCCL_NOT_SET,
                              .blocks_least = RVLI_NCCL_NOT_SET,
                              .blocks_most = RVLI_NCCL_NOT_SET,
                              .split_share = share};
}

static rvli_nccl_result init(char **words)
{
    return FIND(ncclCommInitRank)(&comm, atoi(words[3]), read_id(words[1]), atoi(words[2]));
}

static rvli_nccl_result begin(char **words)
{
    const rvli_nccl_config config = config_of(0, RVLI_NCCL_NOT_SET);
    return FIND(ncclCommInitRankConfig)(&comm, atoi(words[3]), read_id(words[1]), atoi(words[2]),
                                        &config);
}

static rvli_nccl_result finish(void)
{
    rvli_nccl_result state, result;
    while ((result = FIND(ncclCommGetAsyncError)(comm, &state)) == RVLI_NCCL_SUCCESS &&
           state == RVLI_NCCL_IN_PROGRESS)
        usleep(1000);
    return result == RVLI_NCCL_SUCCESS ? state : result;
}

static rvli_nccl_result init_all(int ranks)
{
    rvli_nccl_result result = FIND(ncclCommInitAll)(all, ranks, NULL);
    comm = all[0];
    return result;
}

/* Every communicator of `all`, in one group. */
static rvli_nccl_result move_all(bool suspended)
{
    rvli_nccl_result result = FIND(ncclGroupStart)();
    for (int i = 0; i < RANKS_MAX && all[i] != NULL && result == RVLI_NCCL_SUCCESS; i++)
        result = suspended ? FIND(ncclCommSuspend)(all[i], RVLI_NCCL_SUSPEND_MEMORY)
                           : FIND(ncclCommResume)(all[i]);
    rvli_nccl_result ended = FIND(ncclGroupEnd)();
    return result == RVLI_NCCL_SUCCESS ? ended : result;
}

static rvli_nccl_result split(char **words, int share)
{
    const rvli_nccl_config config = config_of(RVLI_NCCL_NOT_SET, share);
    rvli_comm *made = NULL;
    rvli_nccl_result result =
        FIND(ncclCommSplit)(comm, atoi(words[1]), atoi(words[2]), &made, &config);
    comm = made;
    return result;
}

static rvli_nccl_result shrink(int without)
{
    rvli_comm *made = NULL;
    rvli_nccl_result result = FIND(ncclCommShrink)(comm, &without, 1, &made, NULL, 0);
    comm = made;
    return result;
}

static void who(void)
{
    int rank = -1, ranks = -1, device = -1;
    if (comm == NULL) {
        puts("none");
        return;
    }
    FIND(ncclCommUserRank)(comm, &rank);
    FIND(ncclCommCount)(comm, &ranks);
    FIND(ncclCommCuDevice)(comm, &device);
    printf("%d/%d on %d\n", rank, ranks, device);
}

/* ---- Operations ---- */

static rvli_nccl_result reduce(void)
{
    char *from, *to;
    int made = 0, root = 0, ranks = 0, rank = 0;
    float half = 0.5f;
    FIND(ncclCommCount)(comm, &ranks);
    FIND(ncclCommUserRank)(comm, &rank);
    int next = (rank + 1) % ranks, before = (rank + ranks - 1) % ranks;
    size_t bytes = ELEMENTS * sizeof(float) * (size_t)ranks;
    if (cudaMalloc((void **)&from, bytes) != cudaSuccess ||
        cudaMalloc((void **)&to, bytes) != cudaSuccess)
        return RVLI_NCCL_CUDA_ERROR;
    const rvli_nccl_type type = RVLI_NCCL_FLOAT32;
    FIND(ncclGroupStart)();
    rvli_nccl_result results[] = {
        FIND(ncclRedOpCreatePreMulSum)(&made, &half, type, 1, comm),
        FIND(ncclAllReduce)(from, to, ELEMENTS, type, made, comm, NULL),
        FIND(ncclRedOpDestroy)(made, comm),
        FIND(ncclReduce)(from, to, ELEMENTS, type, 0, root, comm, NULL),
        FIND(ncclBroadcast)(from, to, ELEMENTS, type, root, comm, NULL),
        FIND(ncclBcast)(to, ELEMENTS, type, root, comm, NULL),
        FIND(ncclReduceScatter)(from, to, ELEMENTS, type, 0, comm, NULL),
        FIND(ncclAllGather)(from, to, ELEMENTS, type, comm, NULL),
        FIND(ncclAlltoAll)(from, to, ELEMENTS, type, comm, NULL),
        FIND(ncclGather)(from, to, ELEMENTS, type, root, comm, NULL),
        FIND(ncclScatter)(from, to, ELEMENTS, type, root, comm, NULL),
        FIND(ncclSend)(from, ELEMENTS, type, next, comm, NULL),
        FIND(ncclRecv)(to, ELEMENTS, type, before, comm, NULL),
        FIND(ncclGroupEnd)(),
    };
    if (all[1] == NULL) { /* a free waits for the other ranks; if all ranks are in this process,
                             they have not called yet */
        cudaFree(from);
        cudaFree(to);
    }
    for (size_t i = 0; i < sizeof results / sizeof *results; i++)
        if (results[i] != RVLI_NCCL_SUCCESS)
            return results[i];
    return RVLI_NCCL_SUCCESS;
}

/* Collectives in place, while a stream is captured. Prints the number of kernels in the graph. */
static rvli_nccl_result capture(void)
{
    void *place;
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphNode_t nodes[NODES_MOST];
    enum cudaGraphNodeType type;
    size_t count = NODES_MOST, kernels = 0;
    if (cudaMalloc(&place, ELEMENTS * sizeof(float)) != cudaSuccess ||
        cudaStreamCreate(&stream) != cudaSuccess ||
        cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed) != cudaSuccess)
        return RVLI_NCCL_CUDA_ERROR;
    rvli_nccl_result result = RVLI_NCCL_SUCCESS;
    for (int i = 0; i < 5 && result == RVLI_NCCL_SUCCESS; i++) {
        if (i == 2)
            FIND(ncclGroupStart)();
        result = FIND(ncclAllReduce)(place, place, i == 1 ? 0 : ELEMENTS, RVLI_NCCL_FLOAT32, 0,
                                     comm, stream);
    }
    FIND(ncclSend)(place, ELEMENTS, RVLI_NCCL_FLOAT32, 0, comm, stream);
    FIND(ncclGroupEnd)();
    FIND(ncclSend)(place, ELEMENTS, RVLI_NCCL_FLOAT32, 0, comm, stream);
    FIND(ncclRecv)(place, ELEMENTS, RVLI_NCCL_FLOAT32, 0, comm, stream);
    if (cudaStreamEndCapture(stream, &graph) != cudaSuccess ||
        cudaGraphGetNodes(graph, nodes, &count) != cudaSuccess)
        return RVLI_NCCL_CUDA_ERROR;
    for (size_t i = 0; i < count; i++)
        kernels +=
            cudaGraphNodeGetType(nodes[i], &type) == cudaSuccess && type == cudaGraphNodeTypeKernel;
    printf("%zu kernels\n", kernels);
    cudaGraphDestroy(graph);
    cudaStreamDestroy(stream);
    cudaFree(place);
    return result;
}

/* An operation on a stream with an invalidated capture. */
static rvli_nccl_result capture_lost(void)
{
    void *place;
    cudaStream_t stream;
    cudaGraph_t graph;
    if (cudaMalloc(&place, ELEMENTS * sizeof(float)) != cudaSuccess ||
        cudaStreamCreate(&stream) != cudaSuccess ||
        cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed) != cudaSuccess)
        return RVLI_NCCL_CUDA_ERROR;
    cudaStreamSynchronize(stream);
    rvli_nccl_result result =
        FIND(ncclAllReduce)(place, place, ELEMENTS, RVLI_NCCL_FLOAT32, 0, comm, stream);
    cudaStreamEndCapture(stream, &graph);
    cudaStreamDestroy(stream);
    cudaFree(place);
    return result;
}

/* Calls that NCCL refuses. Each prints its result. */
static void bad(void)
{
    char *buffer;
    cudaMalloc((void **)&buffer, 4096);
    say(FIND(ncclAllReduce)(buffer, buffer, 1, RVLI_NCCL_TYPES, 0, comm, NULL));
    say(FIND(ncclAllReduce)(buffer, buffer, 1, RVLI_NCCL_FLOAT32, 99, comm, NULL));
    say(FIND(ncclBroadcast)(buffer, buffer, 1, RVLI_NCCL_FLOAT32, 99, comm, NULL));
    say(FIND(ncclAllGather)(buffer, buffer + 64, 1u << 20, RVLI_NCCL_FLOAT32, comm, NULL));
    say(FIND(ncclSend)(buffer, 1, RVLI_NCCL_FLOAT32, -1, comm, NULL));
    say(FIND(ncclAllReduce)(buffer, buffer, 1, RVLI_NCCL_FLOAT32, 0, NULL, NULL));
    say(FIND(ncclGroupEnd)());
    cudaFree(buffer);
}

/* ---- Memory ---- */

static void stats(void)
{
    for (int what = 0; what <= RVLI_NCCL_MEMORY_TOTAL; what++) {
        uint64_t value = 0;
        FIND(ncclCommMemStats)(comm, (rvli_nccl_memory)what, &value);
        printf("%llu ", (unsigned long long)value);
    }
    printf("\n");
}

static rvli_nccl_result window(void)
{
    rvli_window *made = NULL;
    void *handle = NULL, *there = NULL, *memory = NULL;
    rvli_nccl_result result = FIND(ncclMemAlloc)(&memory, 1 << 20);
    if (result == RVLI_NCCL_SUCCESS)
        result = FIND(ncclCommRegister)(comm, memory, 1 << 20, &handle);
    if (result == RVLI_NCCL_SUCCESS)
        result = FIND(ncclCommWindowRegister)(comm, memory, 1 << 20, &made, 1);
    if (result == RVLI_NCCL_SUCCESS)
        result = FIND(ncclWinGetUserPtr)(comm, made, &there);
    if (result == RVLI_NCCL_SUCCESS && there != memory)
        return RVLI_NCCL_INTERNAL_ERROR;
    if (result == RVLI_NCCL_SUCCESS)
        result = FIND(ncclCommWindowDeregister)(comm, made);
    if (result == RVLI_NCCL_SUCCESS)
        result = FIND(ncclCommDeregister)(comm, handle);
    return result == RVLI_NCCL_SUCCESS ? FIND(ncclMemFree)(memory) : result;
}

static void memory(void)
{
    size_t left = 0, total = 0;
    cudaMemGetInfo(&left, &total);
    printf("%zu\n", total - left);
    fflush(stdout);
}

/* ---- Waiting ---- */

/* Waits for an event recorded after the calls, or for a stream that waits for the event. */
static rvli_nccl_result wait_by_event(bool by_stream)
{
    cudaEvent_t event;
    cudaStream_t stream;
    if (cudaEventCreate(&event) != cudaSuccess || cudaStreamCreate(&stream) != cudaSuccess ||
        cudaStreamSynchronize(stream) != cudaSuccess || cudaEventRecord(event, NULL) != cudaSuccess)
        return RVLI_NCCL_CUDA_ERROR;
    cudaError_t error = by_stream ? cudaStreamWaitEvent(stream, event, 0) : cudaSuccess;
    if (error == cudaSuccess)
        error = by_stream ? cudaStreamSynchronize(stream) : cudaEventSynchronize(event);
    cudaEventDestroy(event);
    cudaStreamDestroy(stream);
    return error == cudaSuccess ? RVLI_NCCL_SUCCESS : RVLI_NCCL_CUDA_ERROR;
}

/* A blocking stream without calls. */
static rvli_nccl_result wait_for_blocking(void)
{
    cudaStream_t stream;
    return cudaStreamCreate(&stream) == cudaSuccess && cudaStreamSynchronize(stream) == cudaSuccess
               ? RVLI_NCCL_SUCCESS
               : RVLI_NCCL_CUDA_ERROR;
}

/* The results of queries: of the stream of operations, an event after it, a stream that waits
 * for the event, and of asking for a time. */
static void query(void)
{
    float milliseconds;
    cudaEvent_t event;
    cudaStream_t stream;
    if (cudaEventCreate(&event) != cudaSuccess || cudaStreamCreate(&stream) != cudaSuccess ||
        cudaEventRecord(event, NULL) != cudaSuccess ||
        cudaStreamWaitEvent(stream, event, 0) != cudaSuccess)
        exit(7);
    printf("%d ", (int)cudaStreamQuery(NULL));
    printf("%d ", (int)cudaEventQuery(event));
    printf("%d ", (int)cudaStreamQuery(stream));
    printf("%d ", (int)cudaEventElapsedTime(&milliseconds, event, event));
    printf("%d\n", (int)cudaPeekAtLastError()); /* none */
    fflush(stdout);
    cudaEventDestroy(event);
    cudaStreamDestroy(stream);
}

/* A stream that waits for nothing, and an event recorded before. */
static rvli_nccl_result wait_for_nothing(void)
{
    static cudaEvent_t before;
    cudaStream_t stream;
    if (before == NULL)
        return cudaEventCreate(&before) == cudaSuccess &&
                       cudaEventRecord(before, NULL) == cudaSuccess
                   ? RVLI_NCCL_SUCCESS
                   : RVLI_NCCL_CUDA_ERROR;
    return cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess &&
                   cudaStreamSynchronize(stream) == cudaSuccess &&
                   cudaEventSynchronize(before) == cudaSuccess
               ? RVLI_NCCL_SUCCESS
               : RVLI_NCCL_CUDA_ERROR;
}

/* Waits until another rank has written this text to its file. */
static void hear(const char *file, const char *text)
{
    char said[8192] = "";
    for (int i = 0; i < WAITS_MOST && strstr(said, text) == NULL; i++) {
        FILE *open = fopen(file, "r");
        usleep(WAIT_US);
        if (open == NULL)
            continue;
        said[fread(said, 1, sizeof said - 1, open)] = '\0';
        fclose(open);
    }
}

static int act_waiting(char **words)
{
    if (strcmp(words[0], "sync") == 0)
        return say((rvli_nccl_result)cudaStreamSynchronize(NULL)), 1;
    if (strcmp(words[0], "free") == 0)
        return say((rvli_nccl_result)cudaFree(allocated)), 1;
    if (strcmp(words[0], "copy") == 0)
        return say((rvli_nccl_result)cudaMemcpy(allocated, words, 1, cudaMemcpyDefault)), 1;
    if (strcmp(words[0], "query") == 0)
        return query(), 1;
    if (strcmp(words[0], "polled") == 0)
        return nccl_polled(comm, find), 1;
    if (strcmp(words[0], "syncdevice") == 0)
        return say((rvli_nccl_result)cudaDeviceSynchronize()), 1;
    if (strcmp(words[0], "syncevent") == 0)
        return say(wait_by_event(false)), 1;
    if (strcmp(words[0], "syncbehind") == 0)
        return say(wait_by_event(true)), 1;
    if (strcmp(words[0], "syncblocking") == 0)
        return say(wait_for_blocking()), 1;
    if (strcmp(words[0], "syncnothing") == 0)
        return say(wait_for_nothing()), 1;
    if (strcmp(words[0], "mark") == 0)
        return make_mark(words[1]), 2;
    if (strcmp(words[0], "marked") == 0)
        return printf("%d\n", access(words[1], F_OK) == 0), 2;
    if (strcmp(words[0], "comes") == 0)
        return printf("%d\n", await_mark(words[1])), 2;
    if (strcmp(words[0], "hears") == 0)
        return hear(words[1], words[2]), 3;
    if (strcmp(words[0], "patience") == 0)
        return (void)setenv("REVEILLE_NCCL_TIMEOUT_S", words[1], 1), 2;
    return 0;
}

/* ---- Words ---- */

static int act_alone(const char *word)
{
    rvli_nccl_result state = RVLI_NCCL_SUCCESS;
    int version = 0;
    if (strcmp(word, "who") == 0)
        who();
    else if (strcmp(word, "finish") == 0)
        say(finish());
    else if (strcmp(word, "reduce") == 0)
        say(reduce());
    else if (strcmp(word, "capture") == 0)
        say(capture());
    else if (strcmp(word, "lost") == 0)
        say(capture_lost());
    else if (strcmp(word, "bad") == 0)
        bad();
    else if (strcmp(word, "destroy") == 0)
        say(FIND(ncclCommDestroy)(comm));
    else if (strcmp(word, "finalize") == 0)
        say(FIND(ncclCommFinalize)(comm));
    else if (strcmp(word, "suspend") == 0)
        say(FIND(ncclCommSuspend)(comm, RVLI_NCCL_SUSPEND_MEMORY));
    else if (strcmp(word, "resume") == 0)
        say(FIND(ncclCommResume)(comm));
    else if (strcmp(word, "every") == 0)
        say(move_all(true));
    else if (strcmp(word, "again") == 0)
        say(move_all(false));
    else if (strcmp(word, "stats") == 0)
        stats();
    else if (strcmp(word, "async") == 0)
        say(FIND(ncclCommGetAsyncError)(comm, &state) == RVLI_NCCL_SUCCESS ? state : 99);
    else if (strcmp(word, "memfree") == 0)
        say(FIND(ncclMemFree)(allocated));
    else if (strcmp(word, "window") == 0)
        say(window());
    else if (strcmp(word, "unknown") == 0)
        say(((rvli_nccl_result(*)(void))(uintptr_t)find("ncclDevCommCreate"))());
    else if (strcmp(word, "memory") == 0)
        memory();
    else if (strcmp(word, "version") == 0 && FIND(ncclGetVersion)(&version) == RVLI_NCCL_SUCCESS)
        printf("%d\n", version);
    else if (strcmp(word, "end") == 0)
        raise(SIGKILL);
    else
        return 0;
    return 1;
}

static int act(char **words)
{
    int value = words[1] != NULL ? atoi(words[1]) : 0;
    if (strcmp(words[0], "id") == 0)
        return say(write_id(words[1])), 2;
    if (strcmp(words[0], "init") == 0)
        return say(init(words)), 4;
    if (strcmp(words[0], "begin") == 0)
        return say(begin(words)), 4;
    if (strcmp(words[0], "later") == 0)
        return say(begin(words)), say(finish()), 4;
    if (strcmp(words[0], "all") == 0)
        return say(init_all(value)), 2;
    if (strcmp(words[0], "split") == 0)
        return say(split(words, 0)), 3;
    if (strcmp(words[0], "share") == 0)
        return say(split(words, 1)), 3;
    if (strcmp(words[0], "shrink") == 0)
        return say(shrink(value)), 2;
    if (strcmp(words[0], "alloc") == 0)
        return say(FIND(ncclMemAlloc)(&allocated, (size_t)atoll(words[1]))), 2;
    if (strcmp(words[0], "malloc") == 0)
        return say((rvli_nccl_result)cudaMalloc(&allocated, (size_t)atoll(words[1]))), 2;
    if (strcmp(words[0], "device") == 0)
        return say((rvli_nccl_result)cudaSetDevice(value)), 2;
    if (strcmp(words[0], "held") == 0)
        return (void)sleep((unsigned)value), 2;
    return 0;
}

int nccl_words(char **words)
{
    library = dlopen("libnccl.so.2", RTLD_NOW);
    if (library == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        return 8;
    }
    while (*words != NULL) {
        int taken = act_alone(*words);
        taken = taken > 0 ? taken : act(words);
        taken = taken > 0 ? taken : act_waiting(words);
        taken = taken > 0 ? taken : nccl_contents_act(comm, words, find);
        if (taken == 0) {
            fprintf(stderr, "%s: no such word of NCCL\n", *words);
            return 9;
        }
        words += taken;
    }
    return 0;
}
