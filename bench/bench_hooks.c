/* SPDX-License-Identifier: MIT */
/*
 * What the hooks cost a program that is in no region, and one that is.
 *
 *   bench_hooks PRELOAD_LIBRARY [CALLS]
 *
 * The library is opened, and its cudaMalloc() and cudaFree() are called in pairs; below them is a
 * runtime that does nothing, in this program. The same pair without the library is subtracted. Then
 * look-ups by dlsym(), of a name that concerns the hooks and of one that does not. At last, where
 * there is a driver (RVL_CUDA_LIBRARY names a fake one), the pair again while a region has memory.
 * With RVL_RECORD=FILE, too, all of it is recorded: what a call costs more is the price of an
 * event.
 */
#include <dlfcn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

__attribute__((visibility("default"))) int cudaMalloc(void **pointer, size_t size);
__attribute__((visibility("default"))) int cudaFree(void *pointer);

__attribute__((visibility("default"))) int cudaGetDevice(int *device);

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

int cudaGetDevice(int *device)
{
    *device = 0;
    return 0;
}

typedef int (*malloc_fn)(void **pointer, size_t size);
typedef int (*free_fn)(void *pointer);
typedef void *(*dlsym_fn)(void *handle, const char *name);

static double now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

/* Of one call, the best of several rounds. */
static double time_pairs(malloc_fn alloc, free_fn give_back, uint64_t pairs)
{
    double best = 1e30;
    for (int round = 0; round < 5; round++) {
        double begin = now_ns();
        for (uint64_t i = 0; i < pairs; i++) {
            void *pointer;
            alloc(&pointer, 4096);
            give_back(pointer);
        }
        double each = (now_ns() - begin) / (2.0 * (double)pairs);
        best = each < best ? each : best;
    }
    return best;
}

static double time_lookups(dlsym_fn look_up, const char *name, uint64_t count)
{
    double best = 1e30;
    for (int round = 0; round < 5; round++) {
        double begin = now_ns();
        for (uint64_t i = 0; i < count; i++)
            calls_made += look_up(RTLD_DEFAULT, name) != NULL;
        double each = (now_ns() - begin) / (double)count;
        best = each < best ? each : best;
    }
    return best;
}

static void find(void *library, const char *name, void *function_out)
{
    void *symbol = dlsym(library, name);
    if (symbol == NULL) {
        fprintf(stderr, "bench_hooks: %s\n", dlerror());
        exit(1);
    }
    memcpy(function_out, &symbol, sizeof symbol);
}

static bool allocate_in_region(void *library, malloc_fn alloc)
{
    void (*set_region)(bool on);
    void *pointer;
    find(library, "tms_set_interesting_region", &set_region);
    set_region(true);
    bool good = alloc(&pointer, 4096) == 0;
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

int main(int argc, char **argv)
{
    void *library = argc > 1 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
    uint64_t pairs = argc > 2 ? strtoull(argv[2], NULL, 10) : 5000000;
    if (library == NULL) {
        fprintf(stderr, "usage: bench_hooks PRELOAD_LIBRARY [CALLS] (%s)\n",
                argc > 1 ? dlerror() : "no library");
        return 2;
    }
    malloc_fn alloc;
    free_fn give_back;
    dlsym_fn look_up, plain = dlsym;
    find(library, "cudaMalloc", &alloc);
    find(library, "cudaFree", &give_back);
    find(library, "dlsym", &look_up);
    if (getenv("RVL_RECORD") != NULL)
        enter_device();
    double without = time_pairs(cudaMalloc, cudaFree, pairs);
    double with = time_pairs(alloc, give_back, pairs);
    printf("a call outside a region: %.1f ns, %.1f ns more than without the hook\n", with,
           with - without);
    printf("dlsym of \"strlen\": %.0f ns, %.0f ns without the hook\n",
           time_lookups(look_up, "strlen", pairs / 20), time_lookups(plain, "strlen", pairs / 20));
    printf("dlsym of \"cudaMalloc\": %.0f ns, %.0f ns without the hook\n",
           time_lookups(look_up, "cudaMalloc", pairs / 20),
           time_lookups(plain, "cudaMalloc", pairs / 20));
    if (allocate_in_region(library, alloc))
        printf("a call outside, while a region has memory: %.1f ns more than without the hook\n",
               time_pairs(alloc, give_back, pairs) - without);
    return 0;
}
