/* SPDX-License-Identifier: MIT */
/* Instances of the backend: opening, closing, devices, and the ops table. */
#include "backends/cuda/cuda.h"

#include <stdlib.h>

#include "backends/cuda/numa.h"
#include "backends/cuda/pinned.h"
#include "base/error.h"
#include "base/options.h"
#include "base/text.h"
#include "reveille/context.h"

/* ---- Opening ---- */

static CUmemAllocationProp block_properties(const rvli_cuda_device *device)
{
    return (CUmemAllocationProp){
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device->ordinal},
    };
}

static rvl_status read_granularity(rvli_cuda_device *device)
{
    size_t granularity = 0;
    CUmemAllocationProp properties = block_properties(device);
    rvl_status status =
        rvli_cuda_check(rvli_cuda.cuMemGetAllocationGranularity(&granularity, &properties,
                                                                CU_MEM_ALLOC_GRANULARITY_MINIMUM),
                        "asking for the granularity of device memory");
    if (status == RVL_OK && (granularity == 0 || (granularity & (granularity - 1)) != 0))
        return rvli_error(RVL_ERR_NOT_SUPPORTED, "the granularity is not a power of two");
    device->granularity_bytes = granularity;
    return status;
}

static bool has_attribute(const rvli_cuda_device *device, CUdevice_attribute attribute)
{
    int value = 0;
    return rvli_cuda.cuDeviceGetAttribute(&value, attribute, device->ordinal) == CUDA_SUCCESS &&
           value != 0;
}

static rvl_status read_facts(rvli_cuda_device *device)
{
    size_t free_bytes = 0, total_bytes = 0;
    if (!has_attribute(device, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED))
        return rvli_error(RVL_ERR_NOT_SUPPORTED,
                          "the device has no virtual memory management (Pascal or newer has)");
    device->rdma =
        has_attribute(device, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED);
    atomic_init(&device->try_rdma, device->rdma);
    rvl_status status = rvli_cuda_check(
        rvli_cuda.cuDeviceGetName(device->name, (int)sizeof device->name, device->ordinal),
        "asking for the name of a device");
    if (status == RVL_OK)
        status = read_granularity(device);
    if (status == RVL_OK)
        status = rvli_cuda_enter(device);
    if (status != RVL_OK)
        return status;
    status = rvli_cuda_device_check(device, rvli_cuda.cuMemGetInfo(&free_bytes, &total_bytes),
                                    "asking for the size of device memory");
    device->capacity_bytes = total_bytes;
    if (status == RVL_OK)
        status = rvli_cuda_copies_open(device);
    if (status == RVL_OK)
        status = rvli_cuda_digests_open(device);
    rvli_cuda_leave();
    return status;
}

/* RVLI_NUMA_ANY if it is unknown: nothing depends on it. */
static int numa_node_of(rvli_cuda_device *device)
{
    if (rvli_cuda.cuDeviceGetPCIBusId(device->bus_id, (int)sizeof device->bus_id,
                                      device->ordinal) != CUDA_SUCCESS) {
        device->bus_id[0] = '\0';
        return RVLI_NUMA_ANY;
    }
    return rvli_numa_node_of(device->bus_id);
}

static rvl_status open_device(rvli_cuda_device *device, int ordinal)
{
    pthread_mutex_init(&device->lock, NULL);
    rvli_staging_open(&device->staging);
    pthread_mutex_init(&device->digests.lock, NULL);
    rvl_status status =
        rvli_cuda_check(rvli_cuda.cuDeviceGet(&device->ordinal, ordinal), "finding a CUDA device");
    if (status == RVL_OK)
        status =
            rvli_cuda_check(rvli_cuda.cuDevicePrimaryCtxRetain(&device->context, device->ordinal),
                            "retaining the primary context");
    device->retained = status == RVL_OK;
    if (status != RVL_OK)
        return status;
    device->numa_node = numa_node_of(device);
    return read_facts(device);
}

static void close_device(rvli_cuda_device *device)
{
    rvli_pinned_want(&device->host_wanted_bytes, 0);
    CUcontext popped;
    bool current = device->retained && rvli_cuda.cuCtxPushCurrent(device->context) == CUDA_SUCCESS;
    if (current) {
        rvli_cuda_copies_close(device);
        rvli_cuda_digests_close(device);
    }
    rvli_staging_close(&device->staging);
    if (current)
        rvli_cuda.cuCtxPopCurrent(&popped);
    if (device->retained)
        rvli_cuda.cuDevicePrimaryCtxRelease(device->ordinal);
    pthread_mutex_destroy(&device->digests.lock);
    pthread_mutex_destroy(&device->lock);
}

static void cuda_close(void *self)
{
    rvli_cuda_instance *instance = self;
    for (int i = 0; i < instance->device_count; i++)
        close_device(&instance->devices[i]);
    if (instance->pool_held)
        rvli_pinned_let_go(instance->registers);
    free(instance);
}

static rvl_status check_options(const rvl_cuda_options *options)
{
    rvl_status status = rvli_flags_check(
        options->flags, RVL_CUDA_HOST_AHEAD | RVL_CUDA_HOST_PAGEABLE, options->reserved);
    if (status != RVL_OK)
        return status;
    if (options->devices != NULL &&
        (options->device_count == 0 || options->device_count > RVL_MAX_DEVICES))
        return rvli_error(RVL_ERR_INVALID, "a context has 1 to 64 devices");
    if ((unsigned)options->host_keep > RVL_HOST_KEEP_NONE)
        return rvli_error(RVL_ERR_INVALID, "a host_keep that this version does not know");
    for (size_t i = 0; options->devices != NULL && i < options->device_count; i++)
        for (size_t k = 0; k < i; k++)
            if (options->devices[i] == options->devices[k])
                return rvli_error(RVL_ERR_INVALID, "a CUDA device is listed twice");
    return RVL_OK;
}

static uint64_t keep_bytes_of(const rvl_cuda_options *options)
{
    if (options->host_keep == RVL_HOST_KEEP_ALL)
        return RVLI_PINNED_KEEP_ALL;
    return options->host_keep == RVL_HOST_KEEP_BYTES ? options->host_keep_bytes : 0;
}

static rvl_status count_devices(const rvl_cuda_options *options, int *count_out)
{
    if (options->devices == NULL) {
        rvl_status status =
            rvli_cuda_check(rvli_cuda.cuDeviceGetCount(count_out), "counting CUDA devices");
        if (*count_out > RVL_MAX_DEVICES)
            *count_out = RVL_MAX_DEVICES;
        return status;
    }
    *count_out = (int)options->device_count;
    return RVL_OK;
}

static rvl_status open_devices(rvli_cuda_instance *instance, const rvl_cuda_options *options,
                               int count)
{
    for (int i = 0; i < count; i++) {
        instance->device_count = i + 1; /* close_device() accepts a partly opened device */
        int ordinal = options->devices != NULL ? options->devices[i] : i;
        rvl_status status = open_device(&instance->devices[i], ordinal);
        if (status != RVL_OK)
            return status;
    }
    rvl_status status = rvli_pinned_hold(instance->devices[0].ordinal, instance->registers);
    instance->pool_held = status == RVL_OK;
    return status;
}

static rvl_status cuda_open(const void *user_options, rvli_clock *clock, void **self_out,
                            int *device_count_out)
{
    rvl_cuda_options options;
    int count = 0;
    (void)clock; /* real devices keep real time */
    rvl_status status = rvli_options_read(&options, sizeof options, user_options);
    if (status == RVL_OK)
        status = check_options(&options);
    if (status == RVL_OK)
        status = rvli_cuda_driver_load();
    if (status == RVL_OK)
        status = count_devices(&options, &count);
    if (status != RVL_OK)
        return status;
    rvli_cuda_instance *instance =
        calloc(1, sizeof *instance + (size_t)count * sizeof instance->devices[0]);
    if (instance == NULL)
        return rvli_error(RVL_ERR_HOST_OOM, "no host memory for CUDA devices");
    instance->keep_bytes = keep_bytes_of(&options);
    instance->host_ahead = instance->keep_bytes > 0 && (options.flags & RVL_CUDA_HOST_AHEAD) != 0;
    instance->registers = (options.flags & RVL_CUDA_HOST_PAGEABLE) == 0;
    status = open_devices(instance, &options, count);
    if (status != RVL_OK) {
        rvl_error cause = *rvli_error_get();
        cuda_close(instance);
        rvli_error_set(&cause);
        return status;
    }
    *self_out = instance;
    *device_count_out = count;
    return RVL_OK;
}

/*
 * Initial costs: those of the measured profile with this capacity, or else the H200's. The core
 * learns from the times of calls (core/learn_ops.h).
 */
static rvl_status find_costs(uint64_t capacity_bytes, rvl_profile *profile)
{
    for (size_t i = 0; i < rvl_profile_count(); i++) {
        (void)rvl_profile_get(i, profile);
        if ((profile->flags & RVL_PROFILE_MEASURED) && profile->capacity_bytes == capacity_bytes)
            return RVL_OK;
    }
    return rvl_profile_find("h200", profile);
}

static rvl_status cuda_device_facts(void *self, int number, rvli_device_facts *facts_out)
{
    rvli_cuda_device *device = NULL;
    rvl_profile like = {.struct_size = sizeof like};
    rvl_status status = rvli_cuda_device_of(self, number, &device);
    if (status == RVL_OK)
        status = find_costs(device->capacity_bytes, &like);
    if (status != RVL_OK)
        return status;
    rvli_device_facts facts = {
        .ordinal = device->ordinal,
        .capacity_bytes = device->capacity_bytes,
        .granularity_bytes = device->granularity_bytes,
        .digests = rvli_cuda_digests_available(device),
        .rdma = device->rdma,
        .host_ahead = ((rvli_cuda_instance *)self)->host_ahead,
        .cost = like.cost,
        .waits = like.waits,
    };
    rvli_text_copy(facts.name, sizeof facts.name, device->name);
    *facts_out = facts;
    return RVL_OK;
}

const rvli_backend_ops rvli_cuda_ops = {
    .size = sizeof rvli_cuda_ops,
    .version = RVLI_BACKEND_VERSION,
    .name = "cuda",
    .open = cuda_open,
    .close = cuda_close,
    .device_facts = cuda_device_facts,
#define CUDA_OP(op, parameters, arguments) .op = rvli_cuda_op_##op,
    RVLI_BACKEND_OP_MAP(CUDA_OP) RVLI_BACKEND_DIGEST_MAP(CUDA_OP) RVLI_BACKEND_HOST_MAP(CUDA_OP)
        RVLI_BACKEND_SHARE_MAP(CUDA_OP) RVLI_BACKEND_PROCESS_MAP(CUDA_OP)
#undef CUDA_OP
};
