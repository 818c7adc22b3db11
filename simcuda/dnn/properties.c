/* SPDX-License-Identifier: MIT */
/*
 * A simulated device in the form in which cuDNN describes one to itself: the JSON of a
 * CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR. All figures are those of the simulated driver
 * (driver/cards.c).
 */
#include <cuda.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "simcuda/dnn/dnn.h"

#define TEXT_BYTES 2048

static const struct {
    const char *name;
    CUdevice_attribute attribute;
} figures[] = {
    {"isTccDriver", CU_DEVICE_ATTRIBUTE_TCC_DRIVER},
    {"l2CacheSize", CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE},
    {"maxCtasPerSM", CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR},
    {"maxRegistersPerSM", CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR},
    {"maxSharedMemoryPerBlock", CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK},
    {"maxSharedMemoryPerBlockOptin", CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN},
    {"maxThreadsPerBlock", CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK},
    {"maxThreadsPerSM", CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR},
    {"memClockRateKHz", CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE},
    {"multiProcessorCount", CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT},
    {"pciDeviceId", CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID},
    {"regsPerBlock", CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK},
    {"reservedSharedMemoryPerBlock", CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK},
    {"smClockRateKHz", CU_DEVICE_ATTRIBUTE_CLOCK_RATE},
    {"supportCoopLaunch", CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH},
    {"warpSize", CU_DEVICE_ATTRIBUTE_WARP_SIZE},
};

/* Attributes with three consecutive numbers: x, y, z. */
static const struct {
    const char *name;
    CUdevice_attribute first;
} sizes[] = {
    {"maxBlockSize", CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X},
    {"maxGridSize", CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X},
};

typedef struct writer {
    char *text;
    size_t length;
} writer;

static void put(writer *to, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(to->text + to->length, TEXT_BYTES - to->length, format, arguments);
    va_end(arguments);
    to->length += length > 0 ? (size_t)length : 0;
    if (to->length >= TEXT_BYTES)
        abort(); /* cannot happen: the list above is fixed, and so is the longest number */
}

static int ask(int device, int attribute)
{
    int value = 0;
    (void)cuDeviceGetAttribute(&value, (CUdevice_attribute)attribute, device);
    return value;
}

char *rvli_dnn_properties(int device)
{
    char name[256];
    size_t total = 0;
    int version = 0;
    if (cuDeviceGetName(name, sizeof name, device) != CUDA_SUCCESS ||
        cuDeviceTotalMem(&total, device) != CUDA_SUCCESS ||
        cuDriverGetVersion(&version) != CUDA_SUCCESS)
        return NULL;
    writer to = {.text = malloc(TEXT_BYTES)};
    if (to.text == NULL)
        return NULL;
    put(&to, "{\"deviceName\":\"%s\",\"cudaDeviceId\":%d,\"driverVer\":%d,\"totalGlobalMem\":%zu",
        name, device, version, total);
    put(&to, ",\"deviceVer\":%d",
        ask(device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) * 100 +
            ask(device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR) * 10);
    for (size_t i = 0; i < sizeof figures / sizeof *figures; i++)
        put(&to, ",\"%s\":%d", figures[i].name, ask(device, (int)figures[i].attribute));
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        int first = (int)sizes[i].first;
        put(&to, ",\"%s\":[%d,%d,%d]", sizes[i].name, ask(device, first), ask(device, first + 1),
            ask(device, first + 2));
    }
    put(&to, "}");
    return to.text;
}
