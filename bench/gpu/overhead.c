/* SPDX-License-Identifier: MIT */
#include "overhead.h"

#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "driver.h"
#include "need.h"

enum { ALLOC, PAUSE, RESUME, FREE, PHASES };
enum { REVEILLE, BARE, ARMS };

static const char *const phase_names[PHASES] = {"alloc", "pause", "resume", "free"};

/* Of one phase of one round. */
typedef struct cost {
    double cpu_s;
    uint64_t calls; /* of the driver, where it counts them */
} cost;

/* Of the host. */
typedef struct memory {
    double heap_bytes;
    double resident_bytes;
} memory;

typedef struct state {
    const work *w;
    char device[64];
    uint64_t *addrs;
    CUmemGenericAllocationHandle *blocks;
    struct rvl_context *context;
    int rounds;
    cost *costs[ARMS][PHASES];
    memory live[ARMS]; /* what the allocations took, in the last round */
} state;

/* The library may use threads of its own: their time counts. */
static cost cost_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (cost){(double)now.tv_sec + (double)now.tv_nsec * 1e-9, driver_calls()};
}

/* By the allocator, and by the kernel: large tables are mapped past the allocator. */
static memory memory_now(void)
{
    struct mallinfo2 info = mallinfo2();
    memory now = {.heap_bytes = (double)info.uordblks + (double)info.hblkhd};
    char line[128];
    FILE *file = fopen("/proc/self/status", "re");
    need(file != NULL, "/proc/self/status");
    while (fgets(line, sizeof line, file) != NULL)
        if (strncmp(line, "RssAnon:", 8) == 0)
            now.resident_bytes = strtod(line + 8, NULL) * 1024;
    fclose(file);
    return now;
}

/* ---- The same calls without the library ---- */

static void create(state *s, size_t i)
{
    static const CUmemAllocationProp properties = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE},
        .allocFlags = {.gpuDirectRDMACapable = 1}};
    cuda_need(cuda.cuMemCreate(&s->blocks[i], s->w->size, &properties, 0), "create");
}

static void map(const state *s, size_t i)
{
    static const CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE},
                                           .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    cuda_need(cuda.cuMemMap(s->addrs[i], s->w->size, 0, s->blocks[i], 0), "map");
    cuda_need(cuda.cuMemSetAccess(s->addrs[i], s->w->size, &access, 1), "set access");
}

static void bare_alloc(state *s)
{
    for (size_t i = 0; i < s->w->count; i++) {
        CUdeviceptr addr = 0;
        cuda_need(cuda.cuMemAddressReserve(&addr, s->w->size, 0, 0, 0), "reserve");
        s->addrs[i] = addr;
        create(s, i);
        map(s, i);
    }
}

static void bare_pause(state *s)
{
    cuda_need(cuda.cuCtxSynchronize(), "waiting for the device");
    for (size_t i = 0; i < s->w->count; i++)
        cuda_need(cuda.cuMemUnmap(s->addrs[i], s->w->size), "unmap");
    for (size_t i = 0; i < s->w->count; i++)
        cuda_need(cuda.cuMemRelease(s->blocks[i]), "release");
}

static void bare_resume(state *s)
{
    for (size_t i = 0; i < s->w->count; i++)
        create(s, i);
    for (size_t i = 0; i < s->w->count; i++)
        map(s, i);
}

static void bare_free(state *s)
{
    for (size_t i = 0; i < s->w->count; i++) {
        cuda_need(cuda.cuMemUnmap(s->addrs[i], s->w->size), "unmap");
        cuda_need(cuda.cuMemRelease(s->blocks[i]), "release");
        cuda_need(cuda.cuMemAddressFree(s->addrs[i], s->w->size), "free the range");
    }
}

/* ---- With it ---- */

static void reveille_phase_alloc(state *s)
{
    reveille_allocate(s->context, s->w, "first", s->addrs);
}

static void reveille_phase_pause(state *s)
{
    reveille_pause(s->context, "first");
}

static void reveille_phase_resume(state *s)
{
    reveille_resume(s->context, "first");
}

static void reveille_phase_free(state *s)
{
    reveille_free(s->context, s->w, s->addrs);
}

static void (*const phases[ARMS][PHASES])(state *s) = {
    {reveille_phase_alloc, reveille_phase_pause, reveille_phase_resume, reveille_phase_free},
    {bare_alloc, bare_pause, bare_resume, bare_free},
};

/* ---- Rounds ---- */

static void run_round(state *s, int arm, int round)
{
    memory before = memory_now();
    for (int phase = 0; phase < PHASES; phase++) {
        cost begin = cost_now();
        phases[arm][phase](s);
        cost end = cost_now();
        s->costs[arm][phase][round] = (cost){end.cpu_s - begin.cpu_s, end.calls - begin.calls};
        if (phase != ALLOC)
            continue;
        memory live = memory_now();
        s->live[arm] = (memory){live.heap_bytes - before.heap_bytes,
                                live.resident_bytes - before.resident_bytes};
    }
}

static int compare(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

static double median(double *values, int count)
{
    qsort(values, (size_t)count, sizeof *values, compare);
    return values[count / 2];
}

static void print_phase(const state *s, int phase)
{
    double *added = calloc((size_t)s->rounds, sizeof *added);
    double *bare = calloc((size_t)s->rounds, sizeof *bare);
    need(added != NULL && bare != NULL, "host memory");
    for (int i = 0; i < s->rounds; i++) {
        bare[i] = s->costs[BARE][phase][i].cpu_s / (double)s->w->count;
        added[i] = s->costs[REVEILLE][phase][i].cpu_s / (double)s->w->count - bare[i];
    }
    double added_s = median(added, s->rounds);
    printf("{\"overhead\":\"%s\",\"device\":\"%s\",\"count\":%zu,\"rounds\":%d,\"added_ns\":%.1f,"
           "\"added_quartiles_ns\":[%.1f,%.1f],\"bare_ns\":%.1f,\"calls\":[%llu,%llu]}\n",
           phase_names[phase], s->device, s->w->count, s->rounds, added_s * 1e9,
           added[s->rounds / 4] * 1e9, added[s->rounds * 3 / 4] * 1e9,
           median(bare, s->rounds) * 1e9,
           (unsigned long long)s->costs[REVEILLE][phase][s->rounds - 1].calls,
           (unsigned long long)s->costs[BARE][phase][s->rounds - 1].calls);
    fflush(stdout);
    free(added);
    free(bare);
}

/*
 * Tables keep their size once they have grown, so the library's first round tells what a live
 * allocation takes; the driver's have grown before that. It warms everything up too.
 */
static void measure_memory(state *s)
{
    double count = (double)s->w->count;
    run_round(s, BARE, 0);
    run_round(s, BARE, 0);
    malloc_trim(0); /* else the library would live in pages that are there already */
    run_round(s, REVEILLE, 0);
    printf("{\"overhead\":\"host_memory\",\"device\":\"%s\",\"count\":%zu,\"heap_bytes\":%.1f,"
           "\"resident_bytes\":%.1f}\n",
           s->device, s->w->count,
           (s->live[REVEILLE].heap_bytes - s->live[BARE].heap_bytes) / count,
           (s->live[REVEILLE].resident_bytes - s->live[BARE].resident_bytes) / count);
    fflush(stdout);
}

void measure_overhead(const work *w, int rounds)
{
    state s = {.w = w, .rounds = rounds};
    cuda_need(cuda.cuDeviceGetName(s.device, (int)sizeof s.device, 0), "name");
    s.context = reveille_open(w);
    s.addrs = calloc(w->count, sizeof *s.addrs);
    s.blocks = calloc(w->count, sizeof *s.blocks);
    need(s.addrs != NULL && s.blocks != NULL, "host memory");
    for (int arm = 0; arm < ARMS; arm++)
        for (int phase = 0; phase < PHASES; phase++) {
            s.costs[arm][phase] = calloc((size_t)rounds, sizeof(cost));
            need(s.costs[arm][phase] != NULL, "host memory");
        }
    measure_memory(&s);
    for (int round = 0; round < rounds; round++) {
        run_round(&s, round % 2, round);
        run_round(&s, 1 - round % 2, round);
    }
    for (int phase = 0; phase < PHASES; phase++)
        print_phase(&s, phase);
    reveille_close(s.context);
}
