/* SPDX-License-Identifier: MIT */
/*
 * What each of the driver's calls for device memory takes, by what lies before it: releases and
 * rests, asleep or spinning; places in one piece or none; the processor that it runs on.
 *
 *   cc -O2 -I/usr/local/cuda/include bench/gpu/driver/call_times.c -o call_times -ldl
 *   call_times OUT.jsonl [PART...]
 *
 * A line for each call or row of calls: when it ended, the processor, bytes, nanoseconds. Behind
 * the calls the speed of the processor is measured: arithmetic, and a walk through 1 MiB. All parts
 * take 50 s and 60 GiB.
 */
#define _GNU_SOURCE
#include <cuda.h>
#include <dlfcn.h>
#include <sched.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define MIB (UINT64_C(1) << 20)
#define GIB (UINT64_C(1) << 30)
/* X(call, its name in the driver) */
#define CALLS(X)                                                                                   \
    X(cuInit, "cuInit")                                                                            \
    X(cuDeviceGet, "cuDeviceGet")                                                                  \
    X(cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain")                                        \
    X(cuCtxSetCurrent, "cuCtxSetCurrent")                                                          \
    X(cuMemGetInfo, "cuMemGetInfo_v2")                                                             \
    X(cuMemAddressReserve, "cuMemAddressReserve")                                                  \
    X(cuMemAddressFree, "cuMemAddressFree")                                                        \
    X(cuMemCreate, "cuMemCreate")                                                                  \
    X(cuMemRelease, "cuMemRelease")                                                                \
    X(cuMemMap, "cuMemMap")                                                                        \
    X(cuMemUnmap, "cuMemUnmap")                                                                    \
    X(cuMemSetAccess, "cuMemSetAccess")

#define POINTER(name, text) static __typeof__(&name) p_##name;
CALLS(POINTER)

static FILE *out;
static uint64_t began;
static volatile uint64_t sink;

static uint64_t now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void rest(double ms)
{
    struct timespec t = {.tv_sec = (time_t)(ms / 1e3),
                         .tv_nsec = (long)((ms - 1e3 * (int)(ms / 1e3)) * 1e6)};
    if (ms > 0)
        nanosleep(&t, NULL);
}

static void spin(double ms)
{
    uint64_t end = now() + (uint64_t)(ms * 1e6);
    while (now() < end) {
    }
}

/* How fast this processor is now: 40000 dependent steps, and a walk through 1 MiB. */
static uint64_t reference(void)
{
    uint64_t begin = now(), x = sink;
    for (int i = 0; i < 40000; i++)
        x = x * 6364136223846793005u + 1442695040888963407u;
    sink = x;
    return now() - begin;
}

static uint64_t walk(void)
{
    static uint64_t memory[131072];
    uint64_t begin = now(), x = 0;
    for (int i = 0; i < 131072; i += 8)
        memory[i] += x++;
    sink += memory[7 * 8];
    return now() - begin;
}

static void say(const char *format, ...)
{
    va_list words;
    va_start(words, format);
    fprintf(out, "{\"at_ms\":%.2f,\"cpu\":%d,", (double)(now() - began) / 1e6, sched_getcpu());
    vfprintf(out, format, words);
    fprintf(out, "}\n");
    va_end(words);
}

static void need(CUresult result, const char *what)
{
    if (result == CUDA_SUCCESS)
        return;
    say("\"failed\":\"%s\",\"result\":%d", what, (int)result);
    fclose(out);
    exit(1);
}

typedef struct block {
    CUmemGenericAllocationHandle handle;
    uint64_t bytes;
    CUdeviceptr addr;
} block;
static int rdma = 1;
#define TIMED(call, what)                                                                          \
    uint64_t t0_ = now();                                                                          \
    need(call, what);                                                                              \
    return now() - t0_
/* Some systems refuse blocks for RDMA: then none is asked for. */
static CUresult try_create(block *b, uint64_t bytes)
{
    CUmemAllocationProp kind = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
    kind.allocFlags.gpuDirectRDMACapable = (unsigned char)rdma;
    b->bytes = bytes;
    return p_cuMemCreate(&b->handle, bytes, &kind, 0);
}

static uint64_t create(block *b, uint64_t bytes)
{
    TIMED(try_create(b, bytes), "create");
}

static uint64_t map(block *b)
{
    TIMED(p_cuMemMap(b->addr, b->bytes, 0, b->handle, 0), "map");
}

static uint64_t set_access(block *b)
{
    CUmemAccessDesc a = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0},
                         .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    TIMED(p_cuMemSetAccess(b->addr, b->bytes, &a, 1), "access");
}

static uint64_t unmap(block *b)
{
    TIMED(p_cuMemUnmap(b->addr, b->bytes), "unmap");
}

static uint64_t release(block *b)
{
    TIMED(p_cuMemRelease(b->handle), "release");
}

static CUdeviceptr range(uint64_t bytes)
{
    CUdeviceptr addr = 0;
    need(p_cuMemAddressReserve(&addr, bytes, 0, 0, 0), "reserve");
    return addr;
}

static uint64_t free_bytes(void)
{
    size_t left = 0, total = 0;
    need(p_cuMemGetInfo(&left, &total), "meminfo");
    return left;
}

/* So long that all is cleared; then a small block takes what there is to be paid. */
static uint64_t collect(uint64_t released)
{
    block small;
    rest(20 + 4.0 * (double)released / (double)GIB);
    uint64_t taken = create(&small, 2 * MIB);
    release(&small);
    return taken;
}

/* ---- A row: blocks of one size through a pause and a resume ---- */
typedef struct sums {
    uint64_t sum, first, most, half; /* half: of the second half */
} sums;
static void add(sums *s, uint64_t i, uint64_t n, uint64_t ns)
{
    s->sum += ns;
    s->half += i >= n / 2 ? ns : 0;
    s->most = ns > s->most ? ns : s->most;
    if (i == 0)
        s->first = ns;
}

static void show(const char *part, const char *op, uint64_t bytes, uint64_t n, const sums *s,
                 double how, const char *how_kind)
{
    say("\"part\":\"%s\",\"op\":\"%s\",\"bytes\":%lu,\"n\":%lu,\"sum\":%lu,\"first\":%lu,\"most\":%"
        "lu,\"half\":%lu,\"rest\":%g,\"kind\":\"%s\"",
        part, op, bytes, n, s->sum, s->first, s->most, s->half, how, how_kind);
}

static block *up(const char *part, uint64_t bytes, uint64_t n, double how, const char *kind)
{
    block *blocks = calloc(n, sizeof *blocks);
    sums c = {0}, m = {0}, a = {0};
    for (uint64_t i = 0; i < n; i++)
        blocks[i].addr = range(bytes);
    if (strcmp(kind, "spin") == 0)
        spin(how);
    else
        rest(how);
    for (uint64_t i = 0; i < n; i++)
        add(&c, i, n, create(&blocks[i], bytes));
    for (uint64_t i = 0; i < n; i++) {
        add(&m, i, n, map(&blocks[i]));
        add(&a, i, n, set_access(&blocks[i]));
    }
    uint64_t r = reference(), w = walk();
    show(part, "create", bytes, n, &c, how, kind);
    show(part, "map", bytes, n, &m, how, kind);
    show(part, "access", bytes, n, &a, how, kind);
    say("\"part\":\"%s\",\"op\":\"speed\",\"ns\":%lu,\"walk\":%lu", part, r, w);
    return blocks;
}

static void down(const char *part, block *blocks, uint64_t n, double how, const char *kind)
{
    sums u = {0}, f = {0};
    if (strcmp(kind, "spin") == 0)
        spin(how);
    else
        rest(how);
    for (uint64_t i = 0; i < n; i++)
        add(&u, i, n, unmap(&blocks[i]));
    for (uint64_t i = 0; i < n; i++)
        add(&f, i, n, release(&blocks[i]));
    uint64_t r = reference(), w = walk();
    show(part, "unmap", blocks[0].bytes, n, &u, how, kind);
    show(part, "release", blocks[0].bytes, n, &f, how, kind);
    say("\"part\":\"%s\",\"op\":\"speed\",\"ns\":%lu,\"walk\":%lu", part, r, w);
    for (uint64_t i = 0; i < n; i++)
        p_cuMemAddressFree(blocks[i].addr, blocks[i].bytes);
    free(blocks);
}

/* ---- The parts ---- */
/* Without the card: whether the processor has two speeds. */
static void part_speed(void)
{
    for (int i = 0; i < 400; i++)
        say("\"part\":\"speed\",\"op\":\"spinning\",\"ns\":%lu,\"walk\":%lu", reference(), walk());
    for (int i = 0; i < 100; i++) {
        rest(10);
        say("\"part\":\"speed\",\"op\":\"rested\",\"ns\":%lu,\"walk\":%lu", reference(), walk());
    }
}

static void part_cpus(void)
{
    cpu_set_t all, one;
    sched_getaffinity(0, sizeof all, &all);
    int count = CPU_COUNT(&all), step = count > 16 ? 2 : 1, seen = 0;
    for (int turn = 0; turn < 2; turn++)
        for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
            if (!CPU_ISSET(cpu, &all) || seen++ % step != 0)
                continue;
            CPU_ZERO(&one);
            CPU_SET(cpu, &one);
            sched_setaffinity(0, sizeof one, &one);
            spin(1);
            for (int i = 0; i < 2; i++)
                down("cpus", up("cpus", 4 * GIB, 1, 1, "spin"), 1, 1, "spin");
            down("cpus", up("cpus", 2 * MIB, 128, 1, "spin"), 128, 1, "spin");
            collect(9 * GIB);
        }
    sched_setaffinity(0, sizeof all, &all);
}

static void part_rest(void)
{
    static const double rests[] = {0, 1, 10, 100, 400};
    for (int turn = 0; turn < 3; turn++)
        for (size_t i = 0; i < 5; i++)
            for (int kind = 0; kind < 2; kind++) {
                const char *how = kind ? "spin" : "sleep";
                if (rests[i] >= 400 && turn > 1)
                    continue;
                down("rest", up("rest", 8 * GIB, 1, rests[i], how), 1, rests[i], how);
                collect(8 * GIB);
                down("rest", up("rest", 20 * MIB, 64, rests[i], how), 64, rests[i], how);
                collect(2 * GIB);
            }
}

/* What a release pays for an earlier one. */
static void part_frees(void)
{
    static const uint64_t before[] = {0, 2 * GIB, 8 * GIB, 24 * GIB}, own[] = {2 * MIB, 4 * GIB};
    static const double waits[] = {0, 5, 150};
    for (int turn = 0; turn < 3; turn++)
        for (size_t a = 0; a < 4; a++)
            for (size_t w = 0; w < (a ? 3 : 1); w++)
                for (size_t b = 0; b < 2; b++) {
                    block first, second;
                    uint64_t t1 = 0;
                    if (before[a])
                        create(&first, before[a]);
                    create(&second, own[b]);
                    if (before[a])
                        t1 = release(&first);
                    spin(waits[w]);
                    uint64_t t2 = release(&second);
                    uint64_t left = collect(before[a] + own[b]);
                    say("\"part\":\"frees\",\"before\":%lu,\"own\":%lu,\"wait_ms\":%g,\"first\":%"
                        "lu,\"second\":%lu,\"left\":%lu,\"speed\":%lu",
                        before[a], own[b], waits[w], t1, t2, left, reference());
                }
}

/* What a create pays for an earlier release. */
static void part_creates(void)
{
    static const uint64_t own[] = {2 * MIB, 512 * MIB, 8 * GIB};
    static const double waits[] = {0, 5, 20, 100, 400};
    for (int turn = 0; turn < 3; turn++)
        for (size_t b = 0; b < 3; b++)
            for (size_t w = 0; w < 5; w++) {
                block first, second, third;
                create(&first, 16 * GIB);
                uint64_t t1 = release(&first);
                if (turn == 1)
                    rest(waits[w]);
                else
                    spin(waits[w]);
                uint64_t t2 = create(&second, own[b]), t3 = create(&third, own[b]);
                release(&second);
                release(&third);
                uint64_t left = collect(16 * GIB + 2 * own[b]);
                say("\"part\":\"creates\",\"own\":%lu,\"wait_ms\":%g,\"first\":%lu,\"second\":%lu,"
                    "\"third\":%lu,\"left\":%lu,\"speed\":%lu",
                    own[b], waits[w], t1, t2, t3, left, reference());
            }
}

/* The same bytes released in blocks of several sizes, mapped before or not: what is left to pay. */
static void part_rows(void)
{
    static const struct {
        uint64_t bytes, n;
    } rows[] = {{16 * GIB, 1},    {4 * GIB, 4},    {1 * GIB, 16},
                {128 * MIB, 128}, {18 * MIB, 512}, {2 * MIB, 1024}};
    for (int turn = 0; turn < 3; turn++)
        for (size_t i = 0; i < 6; i++) {
            down("rows", up("rows", rows[i].bytes, rows[i].n, 50, "sleep"), rows[i].n, 50, "sleep");
            say("\"part\":\"rows\",\"op\":\"left\",\"bytes\":%lu,\"n\":%lu,\"ns\":%lu",
                rows[i].bytes, rows[i].n, collect(rows[i].bytes * rows[i].n));
            block *bare = calloc(rows[i].n, sizeof *bare);
            sums f = {0};
            for (uint64_t k = 0; k < rows[i].n; k++)
                create(&bare[k], rows[i].bytes);
            for (uint64_t k = 0; k < rows[i].n; k++)
                add(&f, k, rows[i].n, release(&bare[k]));
            show("rows", "release_bare", rows[i].bytes, rows[i].n, &f, 0, "");
            free(bare);
            collect(rows[i].bytes * rows[i].n);
        }
}

/* Blocks that find no place in one piece. */
static void part_holes(void)
{
    for (int turn = 0; turn < 2; turn++)
        for (uint64_t hole = 256 * MIB; hole <= 2 * GIB; hole *= 8) {
            uint64_t n = (free_bytes() - 600 * MIB) / hole;
            block *filled = calloc(n, sizeof *filled);
            for (uint64_t i = 0; i < n; i++)
                if (try_create(&filled[i], hole) != CUDA_SUCCESS)
                    n = i;
            uint64_t holes = n / 2 < 8 * GIB / hole + 2 ? n / 2 : 8 * GIB / hole + 2;
            for (uint64_t i = 0; i < holes; i++)
                release(&filled[2 * i]);
            collect(holes * hole);
            for (int again = 0; again < 2; again++) {
                down(hole < GIB ? "holes_256" : "holes_2048",
                     up(hole < GIB ? "holes_256" : "holes_2048", 7 * GIB, 1, 10, "spin"), 1, 10,
                     "spin");
                collect(7 * GIB);
            }
            for (uint64_t i = 0; i < n; i++)
                if (i % 2 == 1 || i / 2 >= holes)
                    release(&filled[i]);
            free(filled);
            collect(n * hole);
            rest(300);
            down("no_holes", up("no_holes", 7 * GIB, 1, 10, "spin"), 1, 10, "spin");
            collect(7 * GIB);
        }
}

static void part_sizes(void)
{
    static const uint64_t mib[] = {2,   4,   6,   10,  18,  22,   34,   64,   118,   160,
                                   256, 448, 512, 700, 900, 2048, 5120, 9216, 13312, 24576};
    for (int turn = 0; turn < 2; turn++)
        for (size_t i = 0; i < sizeof mib / sizeof *mib; i++) {
            uint64_t bytes = mib[i] * MIB, n = 8 * GIB / bytes;
            n = n < 1 ? 1 : n > 96 ? 96 : n;
            down("sizes", up("sizes", bytes, n, 20, "sleep"), n, 20, "sleep");
            collect(bytes * n);
        }
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } parts[] = {{"speed", part_speed}, {"frees", part_frees}, {"creates", part_creates},
                 {"rows", part_rows},   {"rest", part_rest},   {"sizes", part_sizes},
                 {"holes", part_holes}, {"cpus", part_cpus}};
    began = now();
    out = fopen(argv[1], "w");
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    if (library == NULL || out == NULL)
        return 2;
#define FIND(name, text)                                                                           \
    *(void **)&p_##name = dlsym(library, text);                                                    \
    if (p_##name == NULL)                                                                          \
        return 3;
    CALLS(FIND)
    CUdevice device;
    CUcontext context;
    need(p_cuInit(0), "init");
    need(p_cuDeviceGet(&device, 0), "device");
    need(p_cuDevicePrimaryCtxRetain(&context, device), "context");
    need(p_cuCtxSetCurrent(context), "current");
    block small;
    rdma = try_create(&small, 2 * MIB) == CUDA_SUCCESS;
    if (rdma)
        release(&small);
    say("\"part\":\"free\",\"bytes\":%lu", free_bytes());
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        bool wanted = argc == 2;
        for (int k = 2; k < argc; k++)
            wanted |= strcmp(argv[k], parts[i].name) == 0;
        uint64_t t0 = now();
        if (wanted)
            parts[i].run();
        if (wanted)
            say("\"part\":\"%s\",\"op\":\"took\",\"ns\":%lu,\"rdma\":%d", parts[i].name, now() - t0,
                rdma);
        fflush(out);
    }
    fclose(out);
    return 0;
}
