/* SPDX-License-Identifier: MIT */
/*
 * An NVML that is none, beside the fake driver of the same process. What is in use is what the
 * driver has given out, FAKE_NVML_OTHERS bytes of other processes, and what the driver takes for
 * itself: FAKE_NVML_CONTEXT bytes while this one has a context, FAKE_NVML_STREAM for each stream,
 * and FAKE_NVML_KERNELS since a kernel has run. Cards have other numbers than the driver's devices.
 *
 * FAKE_NVML_PROCESS is the name of another process, 4711, that is on every card: when it is asked
 * for the FAKE_NVML_FROM-th time (1) and later, until the FAKE_NVML_UNTIL-th (always).
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "fake.h"

#define API __attribute__((visibility("default")))
#define FIRST_BUS 0x19u
#define FIRST_INDEX 2u
#define RESERVED_BYTES (UINT64_C(16) << 20)
#define ERROR 999

typedef struct memory {
    unsigned long long total, free, used;
} memory;

API int nvmlInit_v2(void);
API int nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, void **device);
API int nvmlDeviceGetIndex(void *device, unsigned *index);
API int nvmlDeviceGetMemoryInfo(void *device, memory *memory_out);

typedef struct process {
    unsigned pid;
    unsigned long long used_bytes;
    unsigned gpu_instance, compute_instance;
} process;

API int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *count, process *list);
API int nvmlSystemGetProcessName(unsigned pid, char *name, unsigned size);

static bool gone;

/* The real one is not asked either once its library has been finished. */
__attribute__((destructor)) static void go(void)
{
    gone = true;
}

static uint64_t number_of(const char *variable, uint64_t unset)
{
    const char *value = getenv(variable);
    return value != NULL ? strtoull(value, NULL, 10) : unset;
}

int nvmlInit_v2(void)
{
    return getenv("FAKE_NVML_BROKEN") != NULL ? ERROR : 0;
}

/* A card is its bus number. */
int nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, void **device)
{
    unsigned bus = 0;
    if (sscanf(bus_id, "0000:%2X", &bus) != 1)
        return ERROR;
    *device = (void *)(uintptr_t)bus;
    return 0;
}

int nvmlDeviceGetIndex(void *device, unsigned *index)
{
    *index = (unsigned)(uintptr_t)device - FIRST_BUS + FIRST_INDEX;
    return 0;
}

int nvmlDeviceGetMemoryInfo(void *device, memory *memory_out)
{
    unsigned number = (unsigned)(uintptr_t)device - FIRST_BUS;
    if (gone)
        abort();
    uint64_t capacity = number_of("FAKE_CUDA_CAPACITY_BYTES", UINT64_C(1) << 30);
    fake_stats stats = fake_stats_get();
    bool context = stats.live.context_references > 0;
    uint64_t used = stats.used_bytes[number] + number_of("FAKE_NVML_OTHERS", 0) +
                    (context ? number_of("FAKE_NVML_CONTEXT", 0) : 0) +
                    stats.live.streams * number_of("FAKE_NVML_STREAM", 0) +
                    (stats.launches + stats.pending > 0 ? number_of("FAKE_NVML_KERNELS", 0) : 0);
    memory_out->total = capacity + RESERVED_BYTES;
    memory_out->free = capacity - used;
    memory_out->used = used + RESERVED_BYTES;
    return 0;
}

int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *count, process *list)
{
    static uint64_t asked;
    (void)device;
    asked++;
    bool there = getenv("FAKE_NVML_PROCESS") != NULL && asked >= number_of("FAKE_NVML_FROM", 1) &&
                 asked <= number_of("FAKE_NVML_UNTIL", UINT64_MAX);
    if (there && *count > 0)
        list[0] = (process){.pid = 4711, .used_bytes = 3ull << 30};
    *count = there ? 1 : 0;
    return 0;
}

int nvmlSystemGetProcessName(unsigned pid, char *name, unsigned size)
{
    const char *known = getenv("FAKE_NVML_PROCESS");
    if (pid != 4711 || known == NULL)
        return ERROR;
    snprintf(name, size, "%s", known);
    return 0;
}
