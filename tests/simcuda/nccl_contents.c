/* SPDX-License-Identifier: MIT */
#include "nccl_contents.h"

#include <cuda_runtime_api.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nccl_words.h"

#define NUMBERS_MAX 64
#define BUFFER_BYTES 4096
#define LARGE_BYTES ((size_t)1 << 20)

static const struct {
    const char *name;
    rvli_nccl_type type;
    size_t bytes;
} types[] = {
    {"i8", RVLI_NCCL_INT8, 1},          {"u8", RVLI_NCCL_UINT8, 1},
    {"i32", RVLI_NCCL_INT32, 4},        {"u32", RVLI_NCCL_UINT32, 4},
    {"i64", RVLI_NCCL_INT64, 8},        {"u64", RVLI_NCCL_UINT64, 8},
    {"f16", RVLI_NCCL_FLOAT16, 2},      {"f32", RVLI_NCCL_FLOAT32, 4},
    {"f64", RVLI_NCCL_FLOAT64, 8},      {"bf16", RVLI_NCCL_BFLOAT16, 2},
    {"e4m3", RVLI_NCCL_FLOAT8_E4M3, 1}, {"e5m2", RVLI_NCCL_FLOAT8_E5M2, 1},
};
static const char *const operations[] = {"sum", "prod", "max", "min", "avg"};

static char *from, *to, *other;
static size_t type_index, count;
static char factor[8];
static void *factor_at;
static int factor_residence = 1;
static void *(*find_name)(const char *name);

#define FIND(name) ((__typeof__(&name))(uintptr_t)find_name(#name))

static void say(int result)
{
    printf("%d\n", result);
    fflush(stdout);
}

/* ---- Numbers ---- */

static void encode(const char *text, char *number)
{
    const char *name = types[type_index].name;
    uint64_t whole = strtoull(text, NULL, name[0] == 'i' || name[0] == 'u' ? 10 : 16);
    float single = strtof(text, NULL);
    double wide = strtod(text, NULL);
    if (strcmp(name, "f32") == 0)
        memcpy(number, &single, sizeof single);
    else if (strcmp(name, "f64") == 0)
        memcpy(number, &wide, sizeof wide);
    else
        memcpy(number, &whole, types[type_index].bytes); /* little-endian, and -1 is all ones */
}

static void print(const char *number)
{
    const char *name = types[type_index].name;
    size_t bytes = types[type_index].bytes;
    uint64_t whole = 0;
    float single;
    double wide;
    memcpy(&whole, number, bytes);
    memcpy(&single, number, sizeof single);
    memcpy(&wide, number, sizeof wide);
    if (strcmp(name, "f32") == 0)
        printf("%.9g ", (double)single);
    else if (strcmp(name, "f64") == 0)
        printf("%.17g ", wide);
    else if (name[0] == 'i')
        printf("%" PRId64 " ", (int64_t)(whole << (64 - 8 * bytes)) >> (64 - 8 * bytes));
    else if (name[0] == 'u')
        printf("%" PRIu64 " ", whole);
    else
        printf("%" PRIx64 " ", whole);
}

static void make_buffers(void)
{
    if (from == NULL && (cudaMalloc((void **)&from, BUFFER_BYTES) != cudaSuccess ||
                         cudaMalloc((void **)&to, BUFFER_BYTES) != cudaSuccess ||
                         cudaMalloc((void **)&other, BUFFER_BYTES) != cudaSuccess))
        exit(7);
}

static void put(const char *type, char *numbers)
{
    char number[8];
    for (type_index = 0; strcmp(types[type_index].name, type) != 0; type_index++)
        ;
    count = 0;
    for (char *each = strtok(numbers, ","); each != NULL; each = strtok(NULL, ",")) {
        encode(each, number);
        if (strcmp(each, "-") != 0)
            cudaMemcpy(from + count * types[type_index].bytes, number, types[type_index].bytes,
                       cudaMemcpyHostToDevice);
        count++;
    }
}

static void get(size_t numbers)
{
    char there[NUMBERS_MAX * 8 + 8];
    size_t bytes = types[type_index].bytes;
    cudaError_t result = cudaMemcpy(there, to, numbers * bytes, cudaMemcpyDeviceToHost);
    if (result != cudaSuccess)
        printf("%d", (int)result);
    for (size_t i = 0; result == cudaSuccess && i < numbers; i++)
        print(there + i * bytes);
    printf("\n");
    fflush(stdout);
}

/* ---- Operations ---- */

static int operation_of(rvli_comm *comm, const char *name)
{
    int made = 0;
    for (int i = 0; i < RVLI_NCCL_OPERATIONS; i++)
        if (strcmp(operations[i], name) == 0)
            return i;
    if (FIND(ncclRedOpCreatePreMulSum)(&made, factor_residence == 0 ? factor_at : factor,
                                       types[type_index].type, factor_residence, comm) != 0)
        exit(7);
    return made;
}

/* On a blocking stream. */
static int streamed(rvli_comm *comm, int operation)
{
    cudaStream_t stream;
    cudaStreamCreate(&stream);
    int result =
        (int)FIND(ncclAllReduce)(from, to, count, types[type_index].type, operation, comm, stream);
    cudaStreamDestroy(stream);
    return result;
}

static cudaGraphExec_t kept;

/* Keeps a graph with an all-reduce for later. */
static int keep(rvli_comm *comm, int operation)
{
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaStreamCreate(&stream);
    cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed);
    int result =
        (int)FIND(ncclAllReduce)(from, to, count, types[type_index].type, operation, comm, stream);
    if (cudaStreamEndCapture(stream, &graph) != cudaSuccess ||
        cudaGraphInstantiate(&kept, graph, 0) != cudaSuccess ||
        cudaGraphDestroy(graph) != cudaSuccess || cudaStreamDestroy(stream) != cudaSuccess)
        return 98;
    return result;
}

static int captured(rvli_comm *comm, int operation)
{
    int result = keep(comm, operation);
    cudaMemset(to, 1, BUFFER_BYTES);
    if (result != 98 &&
        (cudaGraphLaunch(kept, NULL) != cudaSuccess || cudaGraphExecDestroy(kept) != cudaSuccess))
        return 99;
    return result;
}

static int many(rvli_comm *comm, int times)
{
    int result = 0;
    for (int i = 0; i < times && result == 0; i++)
        result = (int)FIND(ncclAllReduce)(from, other + i % 4096, 1, RVLI_NCCL_INT8, 0, comm, NULL);
    return result;
}

static int large(rvli_comm *comm, int times, const char *called)
{
    char *ones, *buffers, first = 9, last = 9;
    int result = 0;
    cudaMalloc((void **)&ones, LARGE_BYTES);
    cudaMalloc((void **)&buffers, (size_t)times * LARGE_BYTES);
    cudaMemset(ones, 1, LARGE_BYTES);
    for (int i = 0; i < times && result == 0; i++)
        result = (int)FIND(ncclAllReduce)(ones, buffers + (size_t)i * LARGE_BYTES, LARGE_BYTES,
                                          RVLI_NCCL_INT8, 0, comm, NULL);
    make_mark(called);
    cudaMemcpy(&first, buffers, 1, cudaMemcpyDeviceToHost);
    cudaMemcpy(&last, buffers + (size_t)(times - 1) * LARGE_BYTES, 1, cudaMemcpyDeviceToHost);
    printf("%d %d\n", first, last);
    cudaFree(ones);
    cudaFree(buffers);
    return result;
}

static int act_on(rvli_comm *comm, char **words)
{
    const rvli_nccl_type type = types[type_index].type;
    const char *word = words[0], *named = words[1] != NULL ? words[1] : "";
    int rank = atoi(named), ranks = 1;
    FIND(ncclCommCount)(comm, &ranks);
    size_t part = count / (size_t)ranks;
    if (strcmp(word, "allgather") == 0)
        return say((int)FIND(ncclAllGather)(from, to, count, type, comm, NULL)), 1;
    if (strcmp(word, "alltoall") == 0)
        return say((int)FIND(ncclAlltoAll)(from, to, part, type, comm, NULL)), 1;
    if (strcmp(word, "onward") == 0)
        return say((int)FIND(ncclAllReduce)(to, to, count, type, 0, comm, NULL)), 1;
    if (strcmp(word, "broadcast") == 0)
        return say((int)FIND(ncclBroadcast)(from, to, count, type, rank, comm, NULL)), 2;
    if (strcmp(word, "gather") == 0)
        return say((int)FIND(ncclGather)(from, to, count, type, rank, comm, NULL)), 2;
    if (strcmp(word, "scatter") == 0)
        return say((int)FIND(ncclScatter)(from, to, part, type, rank, comm, NULL)), 2;
    if (strcmp(word, "send") == 0)
        return say((int)FIND(ncclSend)(from, count, type, rank, comm, NULL)), 2;
    if (strcmp(word, "recv") == 0)
        return say((int)FIND(ncclRecv)(to, count, type, rank, comm, NULL)), 2;
    if (strcmp(word, "large") == 0)
        return say(large(comm, rank, words[2])), 3;
    if (strcmp(word, "many") == 0)
        return say(many(comm, rank)), 2;
    if (strcmp(word, "allreduce") == 0)
        return say((int)FIND(ncclAllReduce)(from, to, count, type, operation_of(comm, named), comm,
                                            NULL)),
               2;
    if (strcmp(word, "reducescatter") == 0)
        return say((int)FIND(ncclReduceScatter)(from, to, part, type, operation_of(comm, named),
                                                comm, NULL)),
               2;
    if (strcmp(word, "streamed") == 0)
        return say(streamed(comm, operation_of(comm, named))), 2;
    if (strcmp(word, "keep") == 0)
        return say(keep(comm, operation_of(comm, named))), 2;
    if (strcmp(word, "captured") == 0)
        return say(captured(comm, operation_of(comm, named))), 2;
    if (strcmp(word, "reduceto") == 0)
        return say((int)FIND(ncclReduce)(from, to, count, type, operation_of(comm, named),
                                         atoi(words[2]), comm, NULL)),
               3;
    return 0;
}

/* ---- Words ---- */

static void swap(void)
{
    char *was = from;
    from = to;
    to = was;
}

static void set_factor(const char *text, int residence)
{
    encode(text, factor);
    factor_residence = residence;
    if (residence == 0 && (cudaMalloc(&factor_at, sizeof factor) != cudaSuccess ||
                           cudaMemcpy(factor_at, factor, sizeof factor, cudaMemcpyDefault) != 0))
        exit(7);
}

static void write_over(const char *text)
{
    char number[8];
    encode(text, number);
    cudaMemcpy(to + types[type_index].bytes, number, types[type_index].bytes,
               cudaMemcpyHostToDevice);
}

static void copied(void)
{
    char *was = to;
    cudaMemcpy(other, to, 512, cudaMemcpyDeviceToDevice);
    to = other;
    other = was;
}

int nccl_contents_act(rvli_comm *comm, char **words, void *(*find)(const char *name))
{
    const char *named = words[1] != NULL ? words[1] : "";
    find_name = find;
    if (strcmp(words[0], "put") == 0)
        return make_buffers(), put(named, words[2]), 3;
    if (strcmp(words[0], "launch") == 0)
        return say((int)cudaGraphLaunch(kept, NULL)), 1;
    if (strcmp(words[0], "get") == 0)
        return get((size_t)atoll(named)), 2;
    if (strcmp(words[0], "swap") == 0)
        return swap(), 1;
    if (strcmp(words[0], "copied") == 0)
        return copied(), 1;
    if (strcmp(words[0], "over") == 0)
        return write_over(named), 2;
    if (strcmp(words[0], "factor") == 0)
        return set_factor(named, 1), 2;
    if (strcmp(words[0], "factoron") == 0)
        return set_factor(named, 0), 2;
    return comm != NULL && from != NULL ? act_on(comm, words) : 0;
}
