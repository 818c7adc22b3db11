/* SPDX-License-Identifier: MIT */
/*
 * cuInit and the devices.
 *
 * All memory is that of one simulated device: an address range of CUDA belongs to no device, and
 * blocks of several may be mapped in it. How much each device has, and who may reach what, is
 * counted here. The simulator's granularity is a page, so that a range can be aligned within it.
 */
#include <stdio.h>
#include <string.h>

#include "backends/sim/sim.h"
#include "internal.h"

#define MAX_OVERRIDES 16

typedef struct override {
    CUdevice_attribute attribute;
    int value;
} override;

static bool initialized;
static void *sim;
static rvli_clock sim_clock;
static override overrides[MAX_OVERRIDES];
static int override_count;

/* ---- The simulator ---- */

static rvl_status open_sim(void)
{
    rvl_profile profile = {.struct_size = sizeof profile,
                           .name = "fake",
                           .capacity_bytes = INT64_MAX,
                           .granularity_bytes = 4096};
    const rvl_profile *profiles[] = {&profile};
    rvl_sim_options options = {.struct_size = sizeof options,
                               .memory = RVL_SIM_BACKED,
                               .devices = profiles,
                               .device_count = 1};
    int count;
    memset(&sim_clock, 0, sizeof sim_clock);
    return rvli_sim_ops.open(&options, &sim_clock, &sim, &count);
}

void *fake_sim(void)
{
    return sim;
}

CUresult fake_sim_result(rvl_status status)
{
    if (status == RVL_OK)
        return CUDA_SUCCESS;
    if (status == RVL_ERR_HOST_OOM || status == RVL_ERR_DEVICE_OOM)
        return CUDA_ERROR_OUT_OF_MEMORY;
    return CUDA_ERROR_INVALID_VALUE;
}

bool fake_initialized(void)
{
    return initialized;
}

void fake_device_reset(void)
{
    if (sim != NULL)
        rvli_sim_ops.close(sim);
    sim = NULL;
    initialized = false;
    override_count = 0;
}

FAKE_API CUresult cuInit(unsigned int Flags)
{
    FAKE_ENTER(cuInit, FAKE_NEEDS_NOTHING);
    if (Flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (fake_settings_get()->devices == 0)
        return CUDA_ERROR_NO_DEVICE;
    if (initialized)
        return CUDA_SUCCESS;
    if (open_sim() != RVL_OK)
        return CUDA_ERROR_OPERATING_SYSTEM;
    initialized = true;
    return CUDA_SUCCESS;
}

CUresult cuDriverGetVersion(int *driverVersion)
{
    FAKE_ENTER(cuDriverGetVersion, FAKE_NEEDS_NOTHING);
    if (driverVersion == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *driverVersion = fake_settings_get()->driver_version;
    return CUDA_SUCCESS;
}

/* ---- Devices ---- */

bool fake_device_exists(int device)
{
    return device >= 0 && device < fake_settings_get()->devices;
}

CUresult cuDeviceGetCount(int *count)
{
    FAKE_ENTER(cuDeviceGetCount, FAKE_NEEDS_INIT);
    if (count == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *count = fake_settings_get()->devices;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
    FAKE_ENTER(cuDeviceGet, FAKE_NEEDS_INIT);
    if (device == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (!fake_device_exists(ordinal))
        return CUDA_ERROR_INVALID_DEVICE;
    *device = ordinal;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char *name, int len, CUdevice dev)
{
    FAKE_ENTER(cuDeviceGetName, FAKE_NEEDS_INIT);
    if (name == NULL || len <= 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (!fake_device_exists(dev))
        return CUDA_ERROR_INVALID_DEVICE;
    snprintf(name, (size_t)len, "Fake GPU");
    return CUDA_SUCCESS;
}

CUresult cuDeviceTotalMem(size_t *bytes, CUdevice dev)
{
    FAKE_ENTER(cuDeviceTotalMem, FAKE_NEEDS_INIT);
    if (bytes == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (!fake_device_exists(dev))
        return CUDA_ERROR_INVALID_DEVICE;
    *bytes = fake_settings_get()->capacity_bytes;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetPCIBusId(char *pciBusId, int len, CUdevice dev)
{
    FAKE_ENTER(cuDeviceGetPCIBusId, FAKE_NEEDS_INIT);
    if (pciBusId == NULL || len < (int)sizeof "0000:00:00.0")
        return CUDA_ERROR_INVALID_VALUE;
    if (!fake_device_exists(dev))
        return CUDA_ERROR_INVALID_DEVICE;
    snprintf(pciBusId, (size_t)len, "0000:%02X:00.0", (unsigned)(FAKE_FIRST_PCI_BUS + dev));
    return CUDA_SUCCESS;
}

/* ---- Attributes ---- */

/* Those of an H200, where somebody might ask; 0 for the others. */
static int attribute_of(CUdevice_attribute attribute, int device)
{
    for (int i = 0; i < override_count; i++)
        if (overrides[i].attribute == attribute)
            return overrides[i].value;
    switch ((int)attribute) {
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
        return 9;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
        return 132;
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR:
        return 2048;
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
        return 1024;
    case CU_DEVICE_ATTRIBUTE_WARP_SIZE:
        return 32;
    case CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT:
        return 3;
    case CU_DEVICE_ATTRIBUTE_PCI_BUS_ID:
        return FAKE_FIRST_PCI_BUS + device;
    case CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING:
    case CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY:
    case CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS:
    case CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED:
        return 1;
    case 128: /* CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED, of CUDA 12.3 */
        return fake_fabric_is_claimed();
    default:
        return 0;
    }
}

CUresult cuDeviceGetAttribute(int *pi, CUdevice_attribute attrib, CUdevice dev)
{
    FAKE_ENTER(cuDeviceGetAttribute, FAKE_NEEDS_INIT);
    if (pi == NULL || (int)attrib < 1 || (int)attrib >= CU_DEVICE_ATTRIBUTE_MAX)
        return CUDA_ERROR_INVALID_VALUE;
    if (!fake_device_exists(dev))
        return CUDA_ERROR_INVALID_DEVICE;
    *pi = attribute_of(attrib, dev);
    return CUDA_SUCCESS;
}

void fake_attribute_set(CUdevice_attribute attribute, int value)
{
    FAKE_LOCKED;
    int i = 0;
    while (i < override_count && overrides[i].attribute != attribute)
        i++;
    if (i == MAX_OVERRIDES)
        return;
    overrides[i] = (override){attribute, value};
    if (i == override_count)
        override_count++;
}
