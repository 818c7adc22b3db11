/* SPDX-License-Identifier: MIT */
/*
 * Pausing and resuming on a real GPU: Reveille, torch_memory_saver, and the bare limits, on the
 * same work in the same run.
 *
 * Each measurement is a process of its own, so that nobody profits from what another left behind;
 * limits are measured between them. Prints one JSON object a line; bench/gpu/table.py makes the
 * table with its ratios.
 *
 *     bench_gpu --peer LIBRARY              everything
 *     bench_gpu --one WORK SUBJECT          one measurement, here
 */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "driver.h"
#include "subject.h"

#define CYCLES 5

static const work works[] = {
    {"plain_256x160MiB", 256, 160 * MIB, BACKUP_NONE, false},
    {"plain_8192x2MiB", 8192, 2 * MIB, BACKUP_NONE, false},
    {"kept_102x160MiB", 102, 160 * MIB, BACKUP_KEPT, false},
    {"given_back_102x160MiB", 102, 160 * MIB, BACKUP_GIVEN_BACK, false},
    {"plain_2000x2MiB", 2000, 2 * MIB, BACKUP_NONE, false},
    {"kept_2000x2MiB", 2000, 2 * MIB, BACKUP_KEPT, false},
    {"kept_1x4GiB", 1, 4 * GIB, BACKUP_KEPT, false},
    {"hand_over_256x160MiB", 256, 160 * MIB, BACKUP_NONE, true},
};
#define WORKS (sizeof works / sizeof works[0])

static const subject *const subjects[] = {&subject_bare, &subject_reveille, &subject_peer};
#define SUBJECTS (sizeof subjects / sizeof subjects[0])

void need(bool good, const char *what)
{
    if (good)
        return;
    fprintf(stderr, "bench_gpu: %s\n", what);
    exit(1);
}

double now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/*
 * Memory that a virtual machine has not used lately is far slower to touch, since its host may have
 * taken it back. Just before a first pause is timed, processes touch a little more than it needs.
 */
static void warm_host_up(uint64_t bytes)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    uint64_t share = (bytes + bytes / 4) / (uint64_t)cores / (2 * MIB) * (2 * MIB);
    for (long i = 0; i < cores; i++) {
        if (fork() != 0)
            continue;
        char *memory =
            mmap(NULL, share, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (memory == MAP_FAILED)
            _exit(1);
        madvise(memory, share, MADV_HUGEPAGE);
        for (uint64_t at = 0; at < share; at += 4096)
            memory[at] = 1;
        sleep(1); /* until all hold theirs */
        _exit(0);
    }
    while (wait(NULL) > 0) {
    }
}

/* ---- Content ---- */

static void write_marks(const work *w, const uint64_t *addrs)
{
    for (size_t i = 0; i < w->count; i++)
        cuda_need(cuda.cuMemsetD32(addrs[i], (unsigned)(i * 2654435761u), w->size / 4), "marking");
    cuda_need(cuda.cuCtxSynchronize(), "marking");
}

static bool marks_are_there(const work *w, const uint64_t *addrs)
{
    static unsigned words[1024];
    for (size_t i = 0; i < w->count; i++) {
        uint64_t at = addrs[i] + w->size - sizeof words;
        cuda_need(cuda.cuMemcpyDtoH(words, at, sizeof words), "reading marks");
        for (size_t k = 0; k < sizeof words / sizeof words[0]; k++)
            if (words[k] != (unsigned)(i * 2654435761u))
                return false;
    }
    return true;
}

/* ---- One measurement ---- */

static void print_cycle(const work *w, const subject *s, int cycle, double pause_s, double resume_s,
                        const char *content)
{
    printf("{\"work\":\"%s\",\"subject\":\"%s\",\"cycle\":%d,\"bytes\":%llu,\"pause_s\":%.6f,"
           "\"resume_s\":%.6f,\"content\":\"%s\"}\n",
           w->name, s->name, cycle, (unsigned long long)(w->count * w->size), pause_s, resume_s,
           content);
    fflush(stdout);
}

static void run_cycles(const work *w, const subject *s, const char *library)
{
    uint64_t *addrs = calloc(w->count, sizeof *addrs);
    need(addrs != NULL, "host memory");
    s->open(w, library);
    s->allocate(w, "first", addrs);
    write_marks(w, addrs);
    if (w->backup != BACKUP_NONE)
        warm_host_up(w->count * w->size);
    for (int cycle = 0; cycle < CYCLES; cycle++) {
        double begin = now_s();
        s->pause("first");
        double paused = now_s();
        /*
         * The driver clears what was just released before it gives it out again. Where contents are
         * backed up, somebody else works in between, and copying is what is measured.
         */
        if (w->backup != BACKUP_NONE)
            usleep(300000);
        double middle = now_s();
        s->resume("first");
        double end = now_s();
        const char *content = w->backup == BACKUP_NONE ? "none" : "same";
        if (w->backup != BACKUP_NONE && !marks_are_there(w, addrs))
            content = "DIFFERENT";
        print_cycle(w, s, cycle, paused - begin, end - middle, content);
        if (w->backup == BACKUP_GIVEN_BACK)
            sleep(
                1); /* what goes on behind the caller's back must not be timed as the next pause */
    }
}

/* One tag's pause with another's resume: the step from trainer to engine and back. */
static void run_hand_over(const work *w, const subject *s, const char *library)
{
    static const char *const tags[] = {"first", "second"};
    uint64_t *addrs = calloc(w->count, sizeof *addrs);
    need(addrs != NULL, "host memory");
    s->open(w, library);
    s->allocate(w, tags[0], addrs);
    s->pause(tags[0]);
    s->allocate(w, tags[1], addrs);
    for (int cycle = 0; cycle < 2 * CYCLES; cycle++) {
        double begin = now_s();
        s->pause(tags[(cycle + 1) % 2]);
        double middle = now_s();
        s->resume(tags[cycle % 2]);
        print_cycle(w, s, cycle, middle - begin, now_s() - middle, "none");
    }
}

static int run_one(const char *work_name, const char *subject_name, const char *library)
{
    const work *w = NULL;
    const subject *s = NULL;
    for (size_t i = 0; i < WORKS; i++)
        if (strcmp(works[i].name, work_name) == 0)
            w = &works[i];
    for (size_t i = 0; i < SUBJECTS; i++)
        if (strcmp(subjects[i]->name, subject_name) == 0)
            s = subjects[i];
    need(w != NULL && s != NULL, "no such work, or nobody of that name");
    driver_open();
    if (w->hand_over)
        run_hand_over(w, s, library);
    else
        run_cycles(w, s, library);
    return 0;
}

/* ---- Limits ---- */

static CUdeviceptr map_block(uint64_t size)
{
    CUdeviceptr addr;
    CUmemGenericAllocationHandle block;
    CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    CUmemAccessDesc access = {.location = properties.location,
                              .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    cuda_need(cuda.cuMemAddressReserve(&addr, size, 0, 0, 0), "reserve");
    cuda_need(cuda.cuMemCreate(&block, size, &properties, 0), "create");
    cuda_need(cuda.cuMemMap(addr, size, 0, block, 0), "map");
    cuda_need(cuda.cuMemSetAccess(addr, size, &access, 1), "set access");
    return addr;
}

/* The link: 4 GiB of pinned memory, each way, best of five. */
static void measure_link(void)
{
    const uint64_t size = 4 * GIB;
    void *host;
    CUdeviceptr addr = map_block(size);
    cuda_need(cuda.cuMemHostAlloc(&host, size, 0), "pinned memory");
    double out_s = 1e9, in_s = 1e9;
    for (int i = 0; i < CYCLES; i++) {
        double begin = now_s();
        cuda_need(cuda.cuMemcpyDtoH(host, addr, size), "copy out");
        double middle = now_s();
        cuda_need(cuda.cuMemcpyHtoD(addr, host, size), "copy in");
        double end = now_s();
        out_s = middle - begin < out_s ? middle - begin : out_s;
        in_s = end - middle < in_s ? end - middle : in_s;
    }
    printf("{\"limit\":\"link\",\"bytes\":%llu,\"out_s\":%.6f,\"in_s\":%.6f}\n",
           (unsigned long long)size, out_s, in_s);
    fflush(stdout);
}

#ifdef RVL_HAVE_DIGEST_KERNEL

static const _Alignas(16) unsigned char digest_kernel[] = {
#include "digest.fatbin.inc"
};

/* Digests of 16 GiB by the library's kernel, in granules of 2 MiB, into pinned memory: best of
 * five. */
static void measure_digests(void)
{
    uint64_t size = 16 * GIB, granule = 2 * MIB, count = size / granule;
    CUdeviceptr addr = map_block(size);
    CUmodule module;
    CUfunction kernel;
    void *digests;
    double best_s = 1e9;
    cuda_need(cuda.cuModuleLoadData(&module, digest_kernel), "the kernel for digests");
    cuda_need(cuda.cuModuleGetFunction(&kernel, module, "rvl_digest"), "the kernel for digests");
    cuda_need(cuda.cuMemHostAlloc(&digests, count * 16, CU_MEMHOSTALLOC_DEVICEMAP), "results");
    cuda_need(cuda.cuMemsetD32(addr, 0x5EED5EED, size / 4), "filling");
    cuda_need(cuda.cuCtxSynchronize(), "filling");
    void *params[] = {&addr, &granule, &count, &digests};
    for (int i = 0; i < CYCLES; i++) {
        double begin = now_s();
        cuda_need(
            cuda.cuLaunchKernel(kernel, (unsigned)count, 1, 1, 512, 1, 1, 0, NULL, params, NULL),
            "computing digests");
        cuda_need(cuda.cuCtxSynchronize(), "computing digests");
        double taken_s = now_s() - begin;
        best_s = taken_s < best_s ? taken_s : best_s;
    }
    printf("{\"limit\":\"digest\",\"bytes\":%llu,\"digest_s\":%.6f}\n", (unsigned long long)size,
           best_s);
    fflush(stdout);
}

#endif

static int run_limits(void)
{
    char name[64] = "";
    int version = 0;
    driver_open();
    cuda_need(cuda.cuDeviceGetName(name, (int)sizeof name, 0), "name");
    cuda_need(cuda.cuDriverGetVersion(&version), "version");
    printf("{\"machine\":\"%s\",\"driver\":%d,\"cores\":%ld}\n", name, version,
           sysconf(_SC_NPROCESSORS_ONLN));
    fflush(stdout);
    measure_link();
#ifdef RVL_HAVE_DIGEST_KERNEL
    measure_digests();
#endif
    return 0;
}

/* ---- Everything ---- */

/* A process of its own; its lines go where ours go. */
static void in_a_process(const char *const *words)
{
    pid_t child = fork();
    if (child == 0) {
        execv("/proc/self/exe", (char *const *)words);
        _exit(127);
    }
    int status = 0;
    need(child > 0 && waitpid(child, &status, 0) == child, "starting a process");
    if (status != 0)
        fprintf(stderr, "bench_gpu: %s %s failed\n", words[2] ? words[2] : "limits",
                words[2] && words[3] ? words[3] : "");
}

static int run_all(const char *library, const char *only)
{
    const char *limits[] = {"bench_gpu", "--limits", NULL};
    in_a_process(limits);
    for (size_t i = 0; i < WORKS; i++) {
        if (only != NULL && strstr(works[i].name, only) == NULL)
            continue;
        for (size_t k = 0; k < SUBJECTS; k++) {
            bool possible = subjects[k] != &subject_bare || works[i].backup == BACKUP_NONE;
            possible = possible && (subjects[k] != &subject_peer || library != NULL);
            const char *words[] = {
                "bench_gpu", "--one", works[i].name, subjects[k]->name, library ? "--peer" : NULL,
                library,     NULL};
            if (possible)
                in_a_process(words);
        }
    }
    return 0;
}

int main(int argc, char **argv)
{
    static const struct option options[] = {
        {"peer", required_argument, NULL, 'p'}, {"only", required_argument, NULL, 'o'},
        {"one", no_argument, NULL, '1'},        {"limits", no_argument, NULL, 'l'},
        {"help", no_argument, NULL, 'h'},       {NULL, 0, NULL, 0}};
    const char *library = NULL, *only = NULL;
    bool one = false;
    for (int option; (option = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        if (option == 'p')
            library = optarg;
        else if (option == 'o')
            only = optarg;
        else if (option == '1')
            one = true;
        else if (option == 'l')
            return run_limits();
        else {
            puts("usage: bench_gpu [--peer LIBRARY] [--only PART_OF_A_WORK'S_NAME]\n"
                 "       bench_gpu --one WORK SUBJECT [--peer LIBRARY]\n"
                 "       bench_gpu --limits");
            return option == 'h' ? 0 : 2;
        }
    }
    if (!one)
        return run_all(library, only);
    need(argc - optind == 2, "--one: name a work and a subject");
    return run_one(argv[optind], argv[optind + 1], library);
}
