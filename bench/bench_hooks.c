/* SPDX-License-Identifier: MIT */
/*
 * What the hooks cost a program that is in no region, and one that is.
 *
 *   bench_hooks PRELOAD_LIBRARY [CALLS [FACTOR]]
 *
 * The library is opened, and its functions are called; below them is a runtime that does nothing,
 * in this program. The same calls without the library are subtracted. Allocating and freeing go in
 * pairs. At last, where there is a driver (RVL_CUDA_LIBRARY names a fake one), a pair again while a
 * region has memory. With RVL_RECORD=FILE, too, all of it is recorded: what a call costs more is
 * the price of an event.
 *
 * With a FACTOR the exit status is 1 if a call outside a region costs more than that many times
 * 100 ns, or 1 us where it is recorded.
 */
#include <dlfcn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* What a call may cost more: outside a region, looking a name up, and where it is an event. */
#define CALL_NS 100.0
#define LOOK_UP_NS 100.0
#define EVENT_NS 1000.0

#define API __attribute__((visibility("default")))
API int cudaMalloc(void **pointer, size_t size);
API int cudaFree(void *pointer);
API int cudaMallocManaged(void **pointer, size_t size, unsigned flags);
API int cudaMallocAsync(void **pointer, size_t size, void *stream);
API int cudaFreeAsync(void *pointer, void *stream);
API int cudaGetDevice(int *device);
API int cudaGetDriverEntryPointByVersion(const char *symbol, void **pointer, unsigned version,
                                         unsigned long long flags, void *result);

/* Volatile, so that calls are made. */
static volatile uint64_t calls_made;

int cudaMalloc(void **pointer, size_t size)
{
    *pointer = (void *)(uintptr_t)(size + ++calls_made);
    return 0;
}

int cudaFree(void *pointer)
{
    calls_made += pointer != NULL;
    return 0;
}

int cudaMallocManaged(void **pointer, size_t size, unsigned flags)
{
    (void)flags;
    return cudaMalloc(pointer, size);
}

int cudaMallocAsync(void **pointer, size_t size, void *stream)
{
    (void)stream;
    return cudaMalloc(pointer, size);
}

int cudaFreeAsync(void *pointer, void *stream)
{
    (void)stream;
    return cudaFree(pointer);
}

int cudaGetDevice(int *device)
{
    *device = 0;
    return 0;
}

int cudaGetDriverEntryPointByVersion(const char *symbol, void **pointer, unsigned version,
                                     unsigned long long flags, void *result)
{
    (void)version;
    (void)flags;
    (void)result;
    *pointer = (void *)(uintptr_t)symbol;
    calls_made++;
    return 0;
}

/* What is called: one of the library's, and the same without it. */
typedef struct functions {
    int (*cudaMalloc)(void **pointer, size_t size);
    int (*cudaFree)(void *pointer);
    int (*cudaMallocManaged)(void **pointer, size_t size, unsigned flags);
    int (*cudaMallocAsync)(void **pointer, size_t size, void *stream);
    int (*cudaFreeAsync)(void *pointer, void *stream);
    int (*cudaGetDriverEntryPointByVersion)(const char *symbol, void **pointer, unsigned version,
                                            unsigned long long flags, void *result);
    void *(*dlsym)(void *handle, const char *name);
} functions;

static double now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

/* ---- What is timed: so many rounds of it, and how many calls a round has ---- */

static void pair(const functions *in, uint64_t rounds)
{
    void *pointer;
    for (uint64_t i = 0; i < rounds; i++) {
        in->cudaMalloc(&pointer, 4096);
        in->cudaFree(pointer);
    }
}

static void pair_managed(const functions *in, uint64_t rounds)
{
    void *pointer;
    for (uint64_t i = 0; i < rounds; i++) {
        in->cudaMallocManaged(&pointer, 4096, 1);
        in->cudaFree(pointer);
    }
}

static void pair_async(const functions *in, uint64_t rounds)
{
    void *pointer;
    for (uint64_t i = 0; i < rounds; i++) {
        in->cudaMallocAsync(&pointer, 4096, NULL);
        in->cudaFreeAsync(pointer, NULL);
    }
}

static void entry_point(const functions *in, const char *name, uint64_t rounds)
{
    void *pointer;
    for (uint64_t i = 0; i < rounds; i++)
        in->cudaGetDriverEntryPointByVersion(name, &pointer, 12000, 0, NULL);
}

static void entry_point_of_ours(const functions *in, uint64_t rounds)
{
    entry_point(in, "cuMemAllocAsync", rounds);
}

static void entry_point_of_others(const functions *in, uint64_t rounds)
{
    entry_point(in, "cuMemMap", rounds);
}

static void symbol(const functions *in, const char *name, uint64_t rounds)
{
    for (uint64_t i = 0; i < rounds; i++)
        calls_made += in->dlsym(RTLD_DEFAULT, name) != NULL;
}

static void symbol_of_ours(const functions *in, uint64_t rounds)
{
    symbol(in, "cudaMalloc", rounds);
}

static void symbol_of_others(const functions *in, uint64_t rounds)
{
    symbol(in, "strlen", rounds);
}

static const struct {
    const char *what;
    void (*run)(const functions *in, uint64_t rounds);
    unsigned calls;
    unsigned fewer; /* rounds are so many times fewer */
    bool recorded;
} rows[] = {
    {"cudaMalloc, cudaFree", pair, 2, 1, true},
    {"cudaMallocManaged, cudaFree", pair_managed, 2, 1, true},
    {"cudaMallocAsync, cudaFreeAsync", pair_async, 2, 1, true},
    {"entry point of \"cuMemAllocAsync\"", entry_point_of_ours, 1, 20, false},
    {"entry point of \"cuMemMap\"", entry_point_of_others, 1, 20, false},
    {"dlsym of \"cudaMalloc\"", symbol_of_ours, 1, 20, false},
    {"dlsym of \"strlen\"", symbol_of_others, 1, 20, false},
};

#define ROWS (sizeof rows / sizeof *rows)

/* Of one call, the best of several. */
static double time_of(size_t row, const functions *in, uint64_t rounds)
{
    double best = 1e30;
    rounds = rounds / rows[row].fewer + 1;
    for (int i = 0; i < 5; i++) {
        double begin = now_ns();
        rows[row].run(in, rounds);
        double each = (now_ns() - begin) / ((double)rounds * rows[row].calls);
        best = each < best ? each : best;
    }
    return best;
}

/* ---- Around it ---- */

static void find(void *library, const char *name, void *function_out)
{
    void *symbol = dlsym(library, name);
    if (symbol == NULL) {
        fprintf(stderr, "bench_hooks: %s\n", dlerror());
        exit(1);
    }
    memcpy(function_out, &symbol, sizeof symbol);
}

static bool allocate_in_region(void *library, const functions *in)
{
    void (*set_region)(bool on);
    void *pointer;
    find(library, "tms_set_interesting_region", &set_region);
    set_region(true);
    bool good = in->cudaMalloc(&pointer, 4096) == 0;
    set_region(false);
    return good;
}

/* Makes device 0 current, as a program's runtime does: an event is of the thread's device. */
static void enter_device(void)
{
    int (*look_up)(const char *name, void **out, int version, uint64_t flags, int *answer);
    int (*init)(unsigned flags), (*retain)(void **context, int device), (*set)(void *context);
    const char *path = getenv("RVL_CUDA_LIBRARY");
    void *driver = path != NULL ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    void *function, *context = NULL;
    if (driver == NULL)
        return;
    find(driver, "cuGetProcAddress_v2", &look_up);
    if (look_up("cuInit", &function, 2000, 0, NULL) != 0)
        return;
    memcpy(&init, &function, sizeof init);
    look_up("cuDevicePrimaryCtxRetain", &function, 7000, 0, NULL);
    memcpy(&retain, &function, sizeof retain);
    look_up("cuCtxSetCurrent", &function, 4000, 0, NULL);
    memcpy(&set, &function, sizeof set);
    if (init(0) != 0 || retain(&context, 0) != 0 || set(context) != 0)
        fprintf(stderr, "bench_hooks: device 0 has no context\n");
}

static functions find_all(void *library)
{
    functions in;
#define FIND(name) find(library, #name, &in.name)
    FIND(cudaMalloc);
    FIND(cudaFree);
    FIND(cudaMallocManaged);
    FIND(cudaMallocAsync);
    FIND(cudaFreeAsync);
    FIND(cudaGetDriverEntryPointByVersion);
    FIND(dlsym);
#undef FIND
    return in;
}

/* Whether a call costs no more than it may. */
static bool tell(const char *what, double with_ns, double without_ns, double limit_ns)
{
    double more_ns = with_ns - without_ns;
    bool good = limit_ns <= 0 || more_ns <= limit_ns;
    printf("%-36s %7.1f ns, %7.1f ns more than without the hook%s\n", what, with_ns, more_ns,
           good ? "" : ": too much");
    return good;
}

int main(int argc, char **argv)
{
    static const functions plain = {cudaMalloc,
                                    cudaFree,
                                    cudaMallocManaged,
                                    cudaMallocAsync,
                                    cudaFreeAsync,
                                    cudaGetDriverEntryPointByVersion,
                                    dlsym};
    void *library = argc > 1 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
    uint64_t rounds = argc > 2 ? strtoull(argv[2], NULL, 10) : 5000000;
    double factor = argc > 3 ? strtod(argv[3], NULL) : 0;
    bool recorded = getenv("RVL_RECORD") != NULL, good = true;
    double event_ns = factor * (recorded ? EVENT_NS : CALL_NS), pair_ns = 0;
    if (library == NULL) {
        fprintf(stderr, "usage: bench_hooks PRELOAD_LIBRARY [CALLS [FACTOR]] (%s)\n",
                argc > 1 ? dlerror() : "no library");
        return 2;
    }
    const functions hooked = find_all(library);
    if (recorded)
        enter_device();
    for (size_t row = 0; row < ROWS; row++) {
        double without_ns = time_of(row, &plain, rounds);
        double limit_ns = rows[row].recorded ? event_ns : factor * LOOK_UP_NS;
        pair_ns = row == 0 ? without_ns : pair_ns;
        good &= tell(rows[row].what, time_of(row, &hooked, rounds), without_ns, limit_ns);
    }
    if (allocate_in_region(library, &hooked))
        good &= tell("the first, while a region has memory", time_of(0, &hooked, rounds), pair_ns,
                     event_ns);
    return good ? 0 : 1;
}
