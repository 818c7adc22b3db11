/* SPDX-License-Identifier: MIT */
/* Devices: their number and their attributes. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "simcuda/driver/cards.h"
#include "simcuda/driver/client.h"
#include "simcuda/driver/driver.h"
#include "simcuda/driver/visible.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static bool initialized;
static bool forked;                   /* the parent had called cuInit() */
static int visible = -1;              /* devices that this process sees; -1: unknown yet */
static int numbers[RVLI_DEVICES_MAX]; /* the machine's numbers of these devices */
static int described;                 /* the number of devices with facts here */
static uint64_t bytes[RVLI_DEVICES_MAX];
static const rvli_card *card_of[RVLI_DEVICES_MAX];
static rvli_driver_figures figures[RVLI_DEVICES_MAX];

/* The environment at CUDA's first use holds for the rest of the process. */
static void look_which(void)
{
    if (visible < 0)
        visible =
            rvli_visible_devices(getenv("CUDA_VISIBLE_DEVICES"), rvli_client_devices(), numbers);
}

static rvl_status describe(void)
{
    rvli_wire_answer answer;
    rvl_status status = rvli_client_open();
    if (status == RVL_OK)
        look_which();
    for (; status == RVL_OK && described < visible; described++) {
        status = rvli_client_ask(RVLI_WIRE_DEVICE, numbers[described], 0, NULL, &answer);
        if (status != RVL_OK)
            break;
        bytes[described] = answer.total_bytes;
        card_of[described] = rvli_card_find(answer.text);
        figures[described] = (rvli_driver_figures){.streams_bytes = answer.streams_bytes,
                                                   .graph_bytes = answer.graph_bytes,
                                                   .kernel_bytes = answer.kernel_bytes};
    }
    return status;
}

CUresult rvli_driver_ready(void)
{
    pthread_mutex_lock(&mutex);
    CUresult result = CUDA_ERROR_NOT_INITIALIZED;
    if (initialized)
        result = rvli_result(describe());
    pthread_mutex_unlock(&mutex);
    return result;
}

void rvli_device_forget(void)
{
    pthread_mutex_init(&mutex, NULL);
    forked = forked || initialized;
    initialized = false;
}

bool rvli_device_exists(int device)
{
    return device >= 0 && device < visible;
}

int rvli_device_number(int device)
{
    return numbers[device];
}

int rvli_device_of_number(int number)
{
    int device = visible - 1;
    while (device >= 0 && numbers[device] != number)
        device--;
    return device;
}

const rvli_card *rvli_device_card(int device)
{
    return card_of[device];
}

uint64_t rvli_device_bytes(int device)
{
    return bytes[device];
}

const rvli_driver_figures *rvli_device_figures(int device)
{
    return &figures[device];
}

/* ---- Entry points ---- */

CUresult cuInit(unsigned int flags)
{
    if (flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (forked) /* as on an H100: the child can only exec */
        return CUDA_ERROR_NOT_INITIALIZED;
    pthread_mutex_lock(&mutex);
    rvl_status status = describe();
    bool found = status == RVL_OK && visible > 0;
    initialized = initialized || found;
    pthread_mutex_unlock(&mutex);
    return found ? CUDA_SUCCESS : CUDA_ERROR_NO_DEVICE;
}

CUresult cuDriverGetVersion(int *version)
{
    if (version == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *version = CUDA_VERSION;
    return CUDA_SUCCESS;
}

static CUresult known(CUdevice device, const void *out)
{
    CUresult result = rvli_driver_ready();
    if (result == CUDA_SUCCESS && out == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    return result == CUDA_SUCCESS && !rvli_device_exists(device) ? CUDA_ERROR_INVALID_DEVICE
                                                                 : result;
}

CUresult cuDeviceGetCount(int *count)
{
    CUresult result = rvli_driver_ready();
    if (result == CUDA_SUCCESS && count == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        *count = visible;
    return result;
}

CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
    CUresult result = known(ordinal, device);
    if (result == CUDA_SUCCESS)
        *device = ordinal;
    return result;
}

CUresult cuDeviceGetName(char *name, int length, CUdevice device)
{
    CUresult result = known(device, name);
    if (result == CUDA_SUCCESS && length <= 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        snprintf(name, (size_t)length, "%s", card_of[device]->name);
    return result;
}

/* The UUID spells its meaning: "reveille-sim" and the device's number (RVLI_UUID_TEXT). */
CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice device)
{
    CUresult result = known(device, uuid);
    if (result != CUDA_SUCCESS)
        return result;
    memset(uuid, 0, sizeof *uuid);
    memcpy(uuid->bytes, "reveille-sim", 12);
    uuid->bytes[15] = (char)numbers[device];
    return CUDA_SUCCESS;
}

CUresult cuDeviceTotalMem(size_t *total, CUdevice device)
{
    CUresult result = known(device, total);
    if (result == CUDA_SUCCESS)
        *total = bytes[device];
    return result;
}

CUresult cuDeviceGetPCIBusId(char *text, int length, CUdevice device)
{
    CUresult result = known(device, text);
    if (result == CUDA_SUCCESS && length < 13)
        return CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        snprintf(text, (size_t)length, "0000:%02x:00.0", numbers[device] + 1);
    return result;
}

CUresult cuDeviceCanAccessPeer(int *can, CUdevice device, CUdevice peer)
{
    CUresult result = known(device, can);
    if (result == CUDA_SUCCESS && !rvli_device_exists(peer))
        return CUDA_ERROR_INVALID_DEVICE;
    if (result == CUDA_SUCCESS)
        *can = device != peer;
    return result;
}

static int of_limits(CUdevice_attribute attribute)
{
    switch ((int)attribute) {
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X:
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y:
        return 1024;
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z:
        return 64;
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X:
    case CU_DEVICE_ATTRIBUTE_MAX_PITCH:
        return 2147483647;
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y:
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z:
        return 65535;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK:
        return 49152;
    case CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY:
    case CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK:
    case CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR:
        return 65536;
    case CU_DEVICE_ATTRIBUTE_WARP_SIZE:
    case CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT:
        return 32;
    case CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT:
    case CU_DEVICE_ATTRIBUTE_SURFACE_ALIGNMENT:
        return 512;
    case CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK:
        return 1024;
    case CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT:
        return 3;
    default:
        return -1;
    }
}

/* The abilities of this driver. All others are 0. */
static int of_abilities(CUdevice_attribute attribute)
{
    switch ((int)attribute) {
    case CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING:
    case CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS:
    case CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY:
    case CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_GLOBAL_L1_CACHE_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_LOCAL_L1_CACHE_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_COMPUTE_PREEMPTION_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM:
    case CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH:
    case CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_ECC_ENABLED:
    case CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY:
    case CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS:
    case CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED:
        return 1;
    default:
        return 0;
    }
}

CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device)
{
    CUresult result = known(device, value);
    if (result != CUDA_SUCCESS)
        return result;
    if (attribute <= 0 || attribute >= CU_DEVICE_ATTRIBUTE_MAX)
        return CUDA_ERROR_INVALID_VALUE;
    const rvli_card *card = card_of[device];
    switch ((int)attribute) {
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
        *value = card->major;
        break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
        *value = card->minor;
        break;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
        *value = card->multiprocessors;
        break;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN:
        *value = card->shared_block_bytes;
        break;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR:
        *value = card->shared_multiprocessor_bytes;
        break;
    case CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE:
        *value = card->l2_bytes;
        break;
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR:
        *value = card->threads_multiprocessor;
        break;
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR:
        *value = card->blocks_multiprocessor;
        break;
    case CU_DEVICE_ATTRIBUTE_CLOCK_RATE:
        *value = card->clock_khz;
        break;
    case CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE:
        *value = card->memory_clock_khz;
        break;
    case CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH:
        *value = card->bus_bits;
        break;
    case CU_DEVICE_ATTRIBUTE_PCI_BUS_ID:
        *value = numbers[device] + 1;
        break;
    default:
        *value = of_limits(attribute);
        if (*value < 0)
            *value = of_abilities(attribute);
    }
    return CUDA_SUCCESS;
}
