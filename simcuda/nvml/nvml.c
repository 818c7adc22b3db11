/* SPDX-License-Identifier: MIT */
/*
 * NVML, libnvidia-ml.so.1: the memory in use on a device, and the device's properties. It has
 * its own connection to the machine, since a program may use it without CUDA. It takes no device
 * memory.
 *
 * Its binary interface is declared here as far as it is used, since no package has its header.
 */
#include <limits.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "simcuda/driver/cards.h"
#include "simcuda/driver/client.h"
#include "simcuda/driver/visible.h"
#include "simcuda/nvml/untold.h"
#include "simcuda/wire/stub.h"

#define DEVICES_MAX 64
#define DRIVER_VERSION "580.00"
#define NVML_VERSION "13." DRIVER_VERSION
#define CUDA_DRIVER_VERSION 13000

typedef enum nvml_result {
    NVML_SUCCESS = 0,
    NVML_UNINITIALIZED = 1,
    NVML_INVALID_ARGUMENT = 2,
    NVML_NOT_SUPPORTED = 3,
    NVML_NOT_FOUND = 6,
    NVML_INSUFFICIENT_SIZE = 7,
    NVML_DRIVER_NOT_LOADED = 9,
    NVML_ARGUMENT_VERSION_MISMATCH = 25,
    NVML_UNKNOWN = 999,
} nvml_result;

typedef struct nvml_device {
    int index;
    const rvli_card *card;
} nvml_device;

typedef struct nvml_memory {
    unsigned long long total, free, used;
} nvml_memory;

typedef struct nvml_memory_v2 {
    unsigned version;
    unsigned long long total, reserved, free, used;
} nvml_memory_v2;

#define MEMORY_V2 ((unsigned)(sizeof(nvml_memory_v2) | 2u << 24))

/* Confidential computing. All fields are 0: it is not available, and off. */
typedef struct nvml_confidential {
    unsigned environment, feature, developer_tools;
} nvml_confidential;

typedef struct nvml_confidential_settings {
    unsigned version;
    nvml_confidential state;
    unsigned several_gpus;
} nvml_confidential_settings;

#define SETTINGS_V1 ((unsigned)(sizeof(nvml_confidential_settings) | 1u << 24))

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static unsigned users; /* nvmlInit calls minus nvmlShutdown calls */
static int count;
static nvml_device devices[DEVICES_MAX];

nvml_result nvmlInit_v2(void);
nvml_result nvmlInit(void);
nvml_result nvmlInitWithFlags(unsigned flags);
nvml_result nvmlShutdown(void);
const char *nvmlErrorString(nvml_result result);
nvml_result nvmlSystemGetDriverVersion(char *text, unsigned length);
nvml_result nvmlSystemGetNVMLVersion(char *text, unsigned length);
nvml_result nvmlSystemGetCudaDriverVersion(int *version);
nvml_result nvmlSystemGetCudaDriverVersion_v2(int *version);
nvml_result nvmlSystemGetConfComputeState(nvml_confidential *state);
nvml_result nvmlSystemGetConfComputeSettings(nvml_confidential_settings *settings);
nvml_result nvmlDeviceGetCount(unsigned *number);
nvml_result nvmlDeviceIsMigDeviceHandle(nvml_device *device, unsigned *is_part);
nvml_result nvmlDeviceGetCount_v2(unsigned *number);
nvml_result nvmlDeviceGetHandleByIndex(unsigned index, nvml_device **device);
nvml_result nvmlDeviceGetHandleByIndex_v2(unsigned index, nvml_device **device);
nvml_result nvmlDeviceGetHandleByUUID(const char *uuid, nvml_device **device);
nvml_result nvmlDeviceGetHandleByPciBusId_v2(const char *id, nvml_device **device);
nvml_result nvmlDeviceGetIndex(nvml_device *device, unsigned *index);
nvml_result nvmlDeviceGetMinorNumber(nvml_device *device, unsigned *number);
nvml_result nvmlDeviceGetName(nvml_device *device, char *text, unsigned length);
nvml_result nvmlDeviceGetUUID(nvml_device *device, char *text, unsigned length);
nvml_result nvmlDeviceGetCudaComputeCapability(nvml_device *device, int *major, int *minor);
nvml_result nvmlDeviceGetMemoryInfo(nvml_device *device, nvml_memory *memory);
nvml_result nvmlDeviceGetMemoryInfo_v2(nvml_device *device, nvml_memory_v2 *memory);
nvml_result nvmlDeviceGetP2PStatus(nvml_device *device, nvml_device *peer, int kind, int *status);

/* ---- Beginning and end. NVML ignores CUDA_VISIBLE_DEVICES. ---- */

static nvml_result find_devices(void)
{
    rvli_wire_answer answer;
    if (rvli_client_open() != RVL_OK)
        return NVML_DRIVER_NOT_LOADED;
    for (; count < rvli_client_devices(); count++) {
        if (rvli_client_ask(RVLI_WIRE_DEVICE, count, 0, NULL, &answer) != RVL_OK)
            return NVML_UNKNOWN;
        devices[count] = (nvml_device){count, rvli_card_find(answer.text)};
    }
    return NVML_SUCCESS;
}

nvml_result nvmlInitWithFlags(unsigned flags)
{
    (void)flags;
    pthread_mutex_lock(&mutex);
    nvml_result result = find_devices();
    users += result == NVML_SUCCESS;
    pthread_mutex_unlock(&mutex);
    return result;
}

nvml_result nvmlInit_v2(void)
{
    return nvmlInitWithFlags(0);
}

nvml_result nvmlInit(void)
{
    return nvmlInitWithFlags(0);
}

nvml_result nvmlShutdown(void)
{
    pthread_mutex_lock(&mutex);
    nvml_result result = users > 0 ? NVML_SUCCESS : NVML_UNINITIALIZED;
    users -= users > 0;
    pthread_mutex_unlock(&mutex);
    return result;
}

const char *nvmlErrorString(nvml_result result)
{
    switch (result) {
    case NVML_SUCCESS:
        return "Success";
    case NVML_UNINITIALIZED:
        return "Uninitialized";
    case NVML_INVALID_ARGUMENT:
        return "Invalid Argument";
    case NVML_NOT_SUPPORTED:
        return "Not Supported";
    case NVML_NOT_FOUND:
        return "Not Found";
    case NVML_INSUFFICIENT_SIZE:
        return "Insufficient Size";
    case NVML_DRIVER_NOT_LOADED:
        return "Driver Not Loaded";
    case NVML_ARGUMENT_VERSION_MISMATCH:
        return "Argument Version Mismatch";
    case NVML_UNKNOWN:
        break;
    }
    return "Unknown Error";
}

/* ---- The system ---- */

static nvml_result begun(const void *out)
{
    return users == 0 ? NVML_UNINITIALIZED : out == NULL ? NVML_INVALID_ARGUMENT : NVML_SUCCESS;
}

static nvml_result copy_text(const char *from, char *text, unsigned length)
{
    nvml_result result = begun(text);
    if (result == NVML_SUCCESS && strlen(from) >= length)
        return NVML_INSUFFICIENT_SIZE;
    if (result == NVML_SUCCESS)
        strcpy(text, from);
    return result;
}

nvml_result nvmlSystemGetDriverVersion(char *text, unsigned length)
{
    return copy_text(DRIVER_VERSION, text, length);
}

nvml_result nvmlSystemGetCudaDriverVersion_v2(int *version)
{
    if (version == NULL)
        return NVML_INVALID_ARGUMENT;
    *version = CUDA_DRIVER_VERSION;
    return NVML_SUCCESS;
}

nvml_result nvmlSystemGetNVMLVersion(char *text, unsigned length)
{
    return copy_text(NVML_VERSION, text, length);
}

nvml_result nvmlSystemGetCudaDriverVersion(int *version)
{
    return nvmlSystemGetCudaDriverVersion_v2(version);
}

nvml_result nvmlSystemGetConfComputeState(nvml_confidential *state)
{
    nvml_result result = begun(state);
    if (result == NVML_SUCCESS)
        *state = (nvml_confidential){0};
    return result;
}

nvml_result nvmlSystemGetConfComputeSettings(nvml_confidential_settings *settings)
{
    nvml_result result = begun(settings);
    if (result == NVML_SUCCESS && settings->version != SETTINGS_V1)
        return NVML_ARGUMENT_VERSION_MISMATCH;
    if (result == NVML_SUCCESS)
        *settings = (nvml_confidential_settings){.version = SETTINGS_V1};
    return result;
}

/* ---- Devices ---- */

nvml_result nvmlDeviceGetCount_v2(unsigned *number)
{
    nvml_result result = begun(number);
    if (result == NVML_SUCCESS)
        *number = (unsigned)count;
    return result;
}

nvml_result nvmlDeviceGetCount(unsigned *number)
{
    return nvmlDeviceGetCount_v2(number);
}

nvml_result nvmlDeviceGetHandleByIndex_v2(unsigned index, nvml_device **device)
{
    nvml_result result = begun(device);
    if (result == NVML_SUCCESS && index >= (unsigned)count)
        return NVML_INVALID_ARGUMENT;
    if (result == NVML_SUCCESS)
        *device = &devices[index];
    return result;
}

nvml_result nvmlDeviceGetHandleByIndex(unsigned index, nvml_device **device)
{
    return nvmlDeviceGetHandleByIndex_v2(index, device);
}

/* As cuDeviceGetUuid() of the driver: "reveille-sim" and the device's number. */
static void write_uuid(const nvml_device *device, char text[64])
{
    snprintf(text, 64, RVLI_UUID_TEXT "%02x", (unsigned)device->index);
}

nvml_result nvmlDeviceGetHandleByUUID(const char *uuid, nvml_device **device)
{
    char text[64];
    nvml_result result = uuid == NULL ? NVML_INVALID_ARGUMENT : begun(device);
    for (int i = 0; result == NVML_SUCCESS && i < count; i++) {
        write_uuid(&devices[i], text);
        if (strcmp(text, uuid) == 0) {
            *device = &devices[i];
            return NVML_SUCCESS;
        }
    }
    return result == NVML_SUCCESS ? NVML_NOT_FOUND : result;
}

/* "0000:01:00.0" is device 0 (cuDeviceGetPCIBusId). NVML also writes the domain with eight
 * digits. */
nvml_result nvmlDeviceGetHandleByPciBusId_v2(const char *id, nvml_device **device)
{
    const char *colon = id != NULL ? strchr(id, ':') : NULL;
    nvml_result result = colon == NULL ? NVML_INVALID_ARGUMENT : begun(device);
    long bus = result == NVML_SUCCESS ? strtol(colon + 1, NULL, 16) : 0;
    if (result == NVML_SUCCESS && (bus < 1 || bus > count))
        return NVML_NOT_FOUND;
    if (result == NVML_SUCCESS)
        *device = &devices[bus - 1];
    return result;
}

static nvml_result known(const nvml_device *device, const void *out)
{
    return device == NULL ? NVML_INVALID_ARGUMENT : begun(out);
}

nvml_result nvmlDeviceGetIndex(nvml_device *device, unsigned *index)
{
    nvml_result result = known(device, index);
    if (result == NVML_SUCCESS)
        *index = (unsigned)device->index;
    return result;
}

nvml_result nvmlDeviceGetMinorNumber(nvml_device *device, unsigned *number)
{
    return nvmlDeviceGetIndex(device, number);
}

nvml_result nvmlDeviceGetName(nvml_device *device, char *text, unsigned length)
{
    nvml_result result = known(device, text);
    return result == NVML_SUCCESS ? copy_text(device->card->name, text, length) : result;
}

nvml_result nvmlDeviceGetUUID(nvml_device *device, char *text, unsigned length)
{
    char uuid[64];
    nvml_result result = known(device, text);
    if (result != NVML_SUCCESS)
        return result;
    write_uuid(device, uuid);
    return copy_text(uuid, text, length);
}

nvml_result nvmlDeviceGetCudaComputeCapability(nvml_device *device, int *major, int *minor)
{
    nvml_result result = minor == NULL ? NVML_INVALID_ARGUMENT : known(device, major);
    if (result == NVML_SUCCESS) {
        *major = device->card->major;
        *minor = device->card->minor;
    }
    return result;
}

static nvml_result ask(const nvml_device *device, nvml_memory *memory)
{
    rvli_wire_answer answer;
    if (rvli_client_ask(RVLI_WIRE_MEMORY, device->index, 0, NULL, &answer) != RVL_OK)
        return NVML_UNKNOWN;
    *memory = (nvml_memory){answer.total_bytes, answer.free_bytes,
                            answer.total_bytes - answer.free_bytes};
    return NVML_SUCCESS;
}

nvml_result nvmlDeviceGetMemoryInfo(nvml_device *device, nvml_memory *memory)
{
    nvml_result result = known(device, memory);
    return result == NVML_SUCCESS ? ask(device, memory) : result;
}

/* The driver's reserve is not part of the device's total, since programs do not get it. */
nvml_result nvmlDeviceGetMemoryInfo_v2(nvml_device *device, nvml_memory_v2 *memory)
{
    nvml_memory plain;
    nvml_result result = known(device, memory);
    if (result == NVML_SUCCESS && memory->version != MEMORY_V2)
        return NVML_INVALID_ARGUMENT;
    if (result == NVML_SUCCESS)
        result = ask(device, &plain);
    if (result == NVML_SUCCESS)
        *memory = (nvml_memory_v2){MEMORY_V2, plain.total, 0, plain.free, plain.used};
    return result;
}

/* 0: the two devices can access each other. */
nvml_result nvmlDeviceGetP2PStatus(nvml_device *device, nvml_device *peer, int kind, int *status)
{
    (void)kind;
    nvml_result result = peer == NULL ? NVML_INVALID_ARGUMENT : known(device, status);
    if (result == NVML_SUCCESS)
        *status = 0;
    return result;
}

/* Lists no process, as in a container with its own process ids. */
#define NO_PROCESSES(name)                                                                         \
    nvml_result name(nvml_device *device, unsigned *number, void *list);                           \
    nvml_result name(nvml_device *device, unsigned *number, void *list)                            \
    {                                                                                              \
        (void)list;                                                                                \
        nvml_result result = known(device, number);                                                \
        if (result == NVML_SUCCESS)                                                                \
            *number = 0;                                                                           \
        return result;                                                                             \
    }
NO_PROCESSES(nvmlDeviceGetComputeRunningProcesses)
NO_PROCESSES(nvmlDeviceGetComputeRunningProcesses_v2)
NO_PROCESSES(nvmlDeviceGetComputeRunningProcesses_v3)
NO_PROCESSES(nvmlDeviceGetGraphicsRunningProcesses)
NO_PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v2)
NO_PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v3)
NO_PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses)
NO_PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses_v2)
NO_PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses_v3)

nvml_result nvmlDeviceIsMigDeviceHandle(nvml_device *device, unsigned *is_part)
{
    nvml_result result = known(device, is_part);
    if (result == NVML_SUCCESS)
        *is_part = 0;
    return result;
}

/* ---- Not simulated ---- */

/* The device is the first argument of each such function. Nothing is written to stderr. */
#define NOT_SIMULATED(name)                                                                        \
    nvml_result nvmlDevice##name(nvml_device *device);                                             \
    nvml_result nvmlDevice##name(nvml_device *device)                                              \
    {                                                                                              \
        nvml_result result = known(device, device);                                                \
        return result == NVML_SUCCESS ? NVML_NOT_SUPPORTED : result;                               \
    }
RVLI_NVML_UNTOLD(NOT_SIMULATED)

/* ---- Functions that PyTorch looks up, and does not need ---- */

RVLI_STUB(nvmlDeviceGetNvLinkRemoteDeviceType, NVML_NOT_SUPPORTED)
RVLI_STUB(nvmlDeviceGetNvLinkRemotePciInfo_v2, NVML_NOT_SUPPORTED)
