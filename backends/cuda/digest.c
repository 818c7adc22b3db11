/* SPDX-License-Identifier: MIT */
#include "backends/cuda/digest.h"

#include <stdlib.h>
#include <string.h>

#include "backends/cuda/cuda.h"
#include "base/error.h"

#define KERNEL_NAME "rvl_digest"
#define SECRET_KERNEL_NAME "rvl_secret_digest"
#define THREADS 512 /* as in digest.cu */
#define PROBE_WORDS 8

#ifdef RVL_HAVE_DIGEST_KERNEL
static const _Alignas(16) unsigned char kernel_bytes[] = {
#include "digest.fatbin.inc"
};
static const void *const kernel_image = kernel_bytes;
#else
static const void *const kernel_image = NULL; /* built without nvcc */
#endif

static CUresult launch(const rvli_cuda_digests *digests, uint64_t *granules, uint64_t granule_bytes,
                       uint64_t count, rvli_digest *slots)
{
    rvli_secret secret = digests->secret;
    /* The kernel without a secret uses only the first four. */
    void *params[] = {&granules, &granule_bytes, &count, &slots, &secret.low, &secret.high};
    CUfunction kernel = digests->by_secret ? digests->secret_kernel : digests->kernel;
    return rvli_cuda.cuLaunchKernel(kernel, (unsigned)count, 1, 1, THREADS, 1, 1, 0,
                                    digests->stream, params, NULL);
}

/* ---- Opening and closing ---- */

static CUresult load(rvli_cuda_digests *digests, uint64_t slot_count)
{
    void *pinned = NULL;
    CUresult result = rvli_cuda.cuModuleLoadData(&digests->module, kernel_image);
    if (result == CUDA_SUCCESS)
        result = rvli_cuda.cuModuleGetFunction(&digests->kernel, digests->module, KERNEL_NAME);
    if (result == CUDA_SUCCESS)
        result = rvli_cuda.cuModuleGetFunction(&digests->secret_kernel, digests->module,
                                               SECRET_KERNEL_NAME);
    if (result == CUDA_SUCCESS)
        result = rvli_cuda.cuStreamCreate(&digests->stream, CU_STREAM_NON_BLOCKING);
    if (result == CUDA_SUCCESS)
        result = rvli_cuda.cuEventCreate(&digests->arrived, CU_EVENT_DISABLE_TIMING);
    if (result == CUDA_SUCCESS)
        result = rvli_cuda.cuMemHostAlloc(
            &pinned, slot_count * (sizeof *digests->slots + sizeof *digests->granules),
            CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP);
    if (result == CUDA_SUCCESS) {
        digests->slots = pinned;
        digests->granules = (uint64_t *)(digests->slots + slot_count);
        digests->slot_count = slot_count;
    }
    return result;
}

/*
 * Tests whether the kernel runs. A launch on a simulated GPU does nothing: every content would have
 * the digest that happens to be in memory, and all would compare equal. The kernel stays loaded
 * there, too, because it uses as much memory as on a card. The test's content and result are in the
 * pinned memory.
 */
static CUresult try_kernel(rvli_cuda_digests *digests)
{
    uint64_t *content = (uint64_t *)(digests->slots + 1);
    if (digests->slot_count <= PROBE_WORDS)
        return CUDA_SUCCESS; /* a device of 16 MiB at most */
    for (uint64_t i = 0; i < PROBE_WORDS; i++)
        content[i] = i + 1;
    const rvli_digest right = rvli_digest_of(content, PROBE_WORDS * sizeof *content);
    digests->slots[0] = (rvli_digest){0, 0};
    digests->granules[0] = (uintptr_t)content;
    CUresult result =
        launch(digests, digests->granules, PROBE_WORDS * sizeof *content, 1, digests->slots);
    if (result == CUDA_SUCCESS)
        result = rvli_cuda.cuStreamSynchronize(digests->stream);
    digests->computes = result == CUDA_SUCCESS && digests->slots[0].low == right.low &&
                        digests->slots[0].high == right.high;
    return result;
}

rvl_status rvli_cuda_digests_open(rvli_cuda_device *device)
{
    rvli_cuda_digests *digests = &device->digests;
    if (kernel_image == NULL)
        return RVL_OK;
    digests->refusal = load(digests, device->capacity_bytes / device->granularity_bytes);
    if (digests->refusal == CUDA_SUCCESS)
        digests->refusal = try_kernel(digests);
    if (digests->refusal == CUDA_SUCCESS)
        return RVL_OK;
    rvli_cuda_digests_close(device);
    if (rvli_cuda_status(digests->refusal) == RVL_ERR_DEVICE_LOST)
        return rvli_cuda_device_check(device, digests->refusal, "loading the kernel for digests");
    return RVL_OK;
}

/* Removes the first delivery. With the lock held. */
static void drop_first(rvli_cuda_digests *digests)
{
    rvli_cuda_delivery *first = digests->first;
    digests->first = first->next;
    if (digests->first == NULL) {
        digests->last = NULL;
        digests->slots_used = digests->slots_launched = 0;
        digests->await_arrival = false;
    }
    free(first);
}

void rvli_cuda_digests_close(rvli_cuda_device *device)
{
    rvli_cuda_digests *digests = &device->digests;
    while (digests->first != NULL)
        drop_first(digests);
    if (digests->stream != NULL) {
        rvli_cuda.cuStreamSynchronize(digests->stream);
        rvli_cuda.cuStreamDestroy(digests->stream);
    }
    digests->stream = NULL;
    if (digests->arrived != NULL)
        rvli_cuda.cuEventDestroy(digests->arrived);
    digests->arrived = NULL;
    if (digests->slots != NULL)
        rvli_cuda.cuMemFreeHost(digests->slots);
    digests->slots = NULL;
    if (digests->module != NULL)
        rvli_cuda.cuModuleUnload(digests->module);
    digests->module = NULL;
}

bool rvli_cuda_digests_available(const rvli_cuda_device *device)
{
    return device->digests.slots != NULL && device->digests.computes;
}

/* ---- Delivering ---- */

/* With the lock held. */
static void deliver(rvli_cuda_digests *digests, uint64_t up_to, bool good)
{
    while (digests->first != NULL && digests->first->number <= up_to) {
        const rvli_cuda_delivery *first = digests->first;
        if (good)
            memcpy(first->to, first->from, first->count * sizeof *first->to);
        drop_first(digests);
    }
}

/* Drops the results of a lost device: callers may have freed their buffers. */
void rvli_cuda_digests_deliver(rvli_cuda_device *device, uint64_t up_to, bool good)
{
    bool lost = atomic_load_explicit(&device->lost, memory_order_relaxed) != 0;
    pthread_mutex_lock(&device->digests.lock);
    deliver(&device->digests, up_to, good && !lost);
    pthread_mutex_unlock(&device->digests.lock);
}

/* ---- Computing ---- */

/* The GPU uses the host addresses of pinned memory. */
static CUresult launch_gathered(rvli_cuda_device *device)
{
    const rvli_cuda_digests *digests = &device->digests;
    CUresult result = CUDA_SUCCESS;
    if (digests->await_arrival)
        result = rvli_staging_drain(&device->staging);
    if (digests->await_arrival && result == CUDA_SUCCESS)
        result = rvli_cuda.cuEventRecord(digests->arrived, device->in);
    if (digests->await_arrival && result == CUDA_SUCCESS)
        result = rvli_cuda.cuStreamWaitEvent(digests->stream, digests->arrived, 0);
    if (result == CUDA_SUCCESS)
        result = launch(digests, digests->granules + digests->slots_launched,
                        device->granularity_bytes, digests->slots_used - digests->slots_launched,
                        digests->slots + digests->slots_launched);
    return result;
}

/* Launches all gathered digests. With the lock held. */
static rvl_status compute(rvli_cuda_device *device)
{
    rvli_cuda_digests *digests = &device->digests;
    if (digests->slots_launched == digests->slots_used)
        return RVL_OK;
    rvl_status status =
        rvli_cuda_device_check(device, launch_gathered(device), "computing digests");
    if (status != RVL_OK)
        return status;
    digests->slots_launched = digests->slots_used;
    digests->await_arrival = false;
    return RVL_OK;
}

rvl_status rvli_cuda_digests_compute(rvli_cuda_device *device, uint64_t *number_out)
{
    rvli_cuda_digests *digests = &device->digests;
    pthread_mutex_lock(&digests->lock);
    rvl_status status = compute(device);
    *number_out = digests->first != NULL ? digests->last_number : 0;
    pthread_mutex_unlock(&digests->lock);
    return status;
}

/* ---- Gathering ---- */

/* Makes room for count results. Waits for earlier ones if needed. With the lock held. */
static rvl_status make_room(rvli_cuda_device *device, uint64_t count)
{
    rvli_cuda_digests *digests = &device->digests;
    if (count > digests->slot_count)
        return rvli_error(RVL_ERR_INVALID, "digests of more memory than the device has");
    if (count <= digests->slot_count - digests->slots_used)
        return RVL_OK;
    rvl_status status = compute(device);
    if (status == RVL_OK)
        status = rvli_cuda_device_check(device, rvli_cuda.cuStreamSynchronize(digests->stream),
                                        "waiting for digests");
    if (status == RVL_OK)
        deliver(digests, digests->last_number, true);
    return status;
}

/* Sets the secret (NULL: none) of the digests gathered from now on. With the lock held. */
static rvl_status turn_to(rvli_cuda_device *device, const rvli_secret *secret)
{
    rvli_cuda_digests *digests = &device->digests;
    bool same = secret == NULL ? !digests->by_secret
                               : digests->by_secret && secret->low == digests->secret.low &&
                                     secret->high == digests->secret.high;
    rvl_status status = same ? RVL_OK : compute(device);
    if (status != RVL_OK)
        return status;
    digests->by_secret = secret != NULL;
    digests->secret = secret != NULL ? *secret : (rvli_secret){0};
    return RVL_OK;
}

/* With the lock held, so that numbers increase in the order of the work. */
static rvl_status gather(rvli_cuda_device *device, uint64_t addr, bool arriving,
                         const rvli_secret *secret, rvli_cuda_delivery *delivery)
{
    rvli_cuda_digests *digests = &device->digests;
    rvl_status status = turn_to(device, secret);
    if (status == RVL_OK)
        status = make_room(device, delivery->count);
    if (status != RVL_OK)
        return status;
    delivery->from = digests->slots + digests->slots_used;
    for (uint64_t i = 0; i < delivery->count; i++)
        digests->granules[digests->slots_used + i] = addr + i * device->granularity_bytes;
    delivery->number = ++digests->last_number;
    digests->slots_used += delivery->count;
    digests->await_arrival = digests->await_arrival || arriving;
    if (digests->last != NULL)
        digests->last->next = delivery;
    else
        digests->first = delivery;
    digests->last = delivery;
    return RVL_OK;
}

static rvl_status gather_locked(rvli_cuda_device *device, uint64_t addr, uint64_t count,
                                bool arriving, const rvli_secret *secret, rvli_digest *digests_out)
{
    rvli_cuda_delivery *delivery = calloc(1, sizeof *delivery);
    if (delivery == NULL)
        return rvli_error(RVL_ERR_HOST_OOM, "no host memory for a queue of digests");
    delivery->to = digests_out;
    delivery->count = count;
    pthread_mutex_lock(&device->digests.lock);
    rvl_status status = gather(device, addr, arriving, secret, delivery);
    pthread_mutex_unlock(&device->digests.lock);
    if (status != RVL_OK)
        free(delivery);
    return status;
}

static rvl_status not_available(const rvli_cuda_device *device)
{
    if (kernel_image == NULL)
        return rvli_error(RVL_ERR_NOT_SUPPORTED,
                          "no digests: the library was built without nvcc; build it with");
    if (device->digests.refusal == CUDA_SUCCESS)
        return rvli_error(RVL_ERR_NOT_SUPPORTED,
                          "this device has no digests: their kernel computes "
                          "nothing, as on simulated GPUs");
    rvli_cuda_check(device->digests.refusal, "loading the kernel for digests");
    rvl_error cause = *rvli_error_get();
    rvli_error(RVL_ERR_NOT_SUPPORTED, "this device has no digests: their kernel or pinned memory "
                                      "was refused when it was opened");
    rvli_error_native(cause.native_code, cause.native_name);
    return RVL_ERR_NOT_SUPPORTED;
}

rvl_status rvli_cuda_op_digest(void *self, int number, uint64_t addr, uint64_t size, bool arriving,
                               const rvli_secret *secret, rvli_digest *digests_out)
{
    rvli_cuda_device *device = NULL;
    rvl_status status = rvli_cuda_device_of(self, number, &device);
    if (status != RVL_OK)
        return status;
    if (!rvli_cuda_digests_available(device))
        return not_available(device);
    uint64_t granule = device->granularity_bytes;
    if (size == 0 || size % granule != 0 || addr % granule != 0)
        return rvli_error(RVL_ERR_INVALID, "digests are made of whole granules");
    status = rvli_cuda_enter(device);
    if (status != RVL_OK)
        return status;
    status = gather_locked(device, addr, size / granule, arriving, secret, digests_out);
    rvli_cuda_leave();
    return status;
}
