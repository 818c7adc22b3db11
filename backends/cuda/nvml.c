/* SPDX-License-Identifier: MIT */
#include "backends/cuda/nvml.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

#define LIBRARY "libnvidia-ml.so.1"
#define LIBRARY_VARIABLE "RVL_NVML_LIBRARY"

/* Its own header is not needed for three functions: 0 is success, a device is a pointer. */
typedef struct nvml_memory {
    unsigned long long total, free, used;
} nvml_memory;

static struct {
    int (*init)(void);
    int (*by_bus_id)(const char *bus_id, void **device_out);
    int (*get_memory)(void *device, nvml_memory *memory_out);
} nvml;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static bool good;

static bool find(void *library, const char *name, void *function_out)
{
    void *symbol = dlsym(library, name);
    if (symbol != NULL)
        memcpy(function_out, &symbol, sizeof symbol);
    return symbol != NULL;
}

static void load(void)
{
    const char *path = getenv(LIBRARY_VARIABLE);
    void *library = dlopen(path != NULL && path[0] != '\0' ? path : LIBRARY, RTLD_NOW | RTLD_LOCAL);
    good = library != NULL && find(library, "nvmlInit_v2", &nvml.init) &&
           find(library, "nvmlDeviceGetHandleByPciBusId_v2", &nvml.by_bus_id) &&
           find(library, "nvmlDeviceGetMemoryInfo", &nvml.get_memory) && nvml.init() == 0;
}

rvl_status rvli_nvml_free(const char *bus_id, uint64_t *free_out)
{
    void *device = NULL;
    nvml_memory memory = {0};
    pthread_once(&once, load);
    if (!good)
        return rvli_error(RVL_ERR_NOT_SUPPORTED,
                          "NVML (libnvidia-ml.so.1) is not there, which says whether a sleeping "
                          "process has room to wake: in a container, allow the capability utility");
    if (nvml.by_bus_id(bus_id, &device) != 0 || nvml.get_memory(device, &memory) != 0)
        return rvli_error(RVL_ERR_NOT_SUPPORTED,
                          "NVML does not say how much of the device is free: see nvidia-smi");
    *free_out = memory.free;
    return RVL_OK;
}
