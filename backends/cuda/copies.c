/* SPDX-License-Identifier: MIT */
/*
 * Copies, and waiting for them and for the device.
 *
 * Each direction has its own stream, so both run at the speed of the link. Host memory of the pool
 * may still be in preparation, so a copy is split at chunks, and each piece is queued as soon as
 * its chunk is ready. Memory that is not registered is copied by threads through pinned buffers
 * (staging.h), or through the driver's own buffers if pinned ones are refused, too.
 */
#include "backends/cuda/cuda.h"

#include <stdlib.h>

#include "backends/cuda/pinned.h"
#include "base/error.h"

/* ---- Streams ---- */

rvl_status rvli_cuda_copies_open(rvli_cuda_device *device)
{
    CUresult result = rvli_cuda.cuStreamCreate(&device->out, CU_STREAM_NON_BLOCKING);
    if (result == CUDA_SUCCESS)
        result = rvli_cuda.cuStreamCreate(&device->in, CU_STREAM_NON_BLOCKING);
    return rvli_cuda_device_check(device, result, "creating the streams for copies");
}

static void destroy_stream(CUstream stream)
{
    if (stream == NULL)
        return;
    rvli_cuda.cuStreamSynchronize(stream);
    rvli_cuda.cuStreamDestroy(stream);
}

static void destroy_event(rvli_cuda_event *event)
{
    CUevent parts[] = {event->out, event->in, event->computed};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        if (parts[i] != NULL)
            rvli_cuda.cuEventDestroy(parts[i]);
    free(event);
}

void rvli_cuda_copies_close(rvli_cuda_device *device)
{
    destroy_stream(device->out);
    destroy_stream(device->in);
    while (device->idle != NULL) {
        rvli_cuda_event *event = device->idle;
        device->idle = event->next;
        destroy_event(event);
    }
}

/* ---- Host buffers ---- */

rvl_status rvli_cuda_op_host_alloc(void *self, int number, uint64_t size, void **host_out)
{
    rvli_cuda_device *device = NULL;
    rvl_status status = rvli_cuda_device_of(self, number, &device);
    return status == RVL_OK ? rvli_pinned_alloc(size, device->numa_node, host_out) : status;
}

/* Frees host memory even if the device is lost. */
rvl_status rvli_cuda_op_host_free(void *self, int number, void *host, uint64_t size)
{
    rvli_cuda_instance *instance = self;
    if (number < 0 || number >= instance->device_count)
        return rvli_error(RVL_ERR_NO_DEVICE, "no such CUDA device in this context");
    return rvli_pinned_free(host, size, instance->keep_bytes);
}

rvl_status rvli_cuda_op_host_memory(void *self, rvli_host_facts *facts_out)
{
    (void)self;
    rvli_pinned_facts facts = rvli_pinned_get_facts();
    *facts_out = (rvli_host_facts){
        .used_bytes = facts.used_bytes,
        .pinned_bytes = facts.pinned_bytes,
        .pageable_bytes = facts.pageable_bytes,
        .staged_copy_bytes = facts.staged_bytes,
        .registering_refused = facts.refusals,
        .registers = facts.registers,
    };
    return RVL_OK;
}

rvl_status rvli_cuda_op_host_trim(void *self, uint64_t keep)
{
    (void)self;
    rvli_pinned_trim(keep);
    return RVL_OK;
}

rvl_status rvli_cuda_op_host_ahead(void *self, int number, uint64_t bytes, uint64_t *coming_out)
{
    rvli_cuda_device *device = NULL;
    rvl_status status = rvli_cuda_device_of(self, number, &device);
    if (status != RVL_OK)
        return status;
    rvli_pinned_want(&device->host_wanted_bytes, bytes);
    *coming_out =
        rvli_pinned_ahead(bytes, device->numa_node, ((rvli_cuda_instance *)self)->keep_bytes);
    return RVL_OK;
}

/* ---- Copies ---- */

/* Waits for queued fills: a later copy must not overtake them on staging's own streams. */
static CUresult await_fills(rvli_cuda_device *device)
{
    return atomic_exchange(&device->fills, false) ? rvli_cuda.cuStreamSynchronize(device->in)
                                                  : CUDA_SUCCESS;
}

/*
 * A simulated GPU tracks content by both addresses of a copy. Through a buffer, it would lose
 * track.
 */
static bool is_staged(rvli_pinned_span span)
{
    return span.pageable && !rvli_cuda.simulated;
}

/* Queues one span of a copy. Its host memory is ready. */
static CUresult span_out(rvli_cuda_device *device, char *host, CUdeviceptr addr,
                         rvli_pinned_span span)
{
    CUresult result = is_staged(span) ? await_fills(device) : CUDA_SUCCESS;
    if (result != CUDA_SUCCESS ||
        (is_staged(span) &&
         rvli_staging_to_host(&device->staging, device->context, host, addr, span.bytes, &result)))
        return result;
    return rvli_cuda.cuMemcpyDtoHAsync(host, addr, span.bytes, device->out);
}

static CUresult span_in(rvli_cuda_device *device, CUdeviceptr addr, const char *host,
                        rvli_pinned_span span)
{
    CUresult result = is_staged(span) ? await_fills(device) : CUDA_SUCCESS;
    if (result != CUDA_SUCCESS ||
        (is_staged(span) && rvli_staging_to_device(&device->staging, device->context, addr, host,
                                                   span.bytes, &result)))
        return result;
    return rvli_cuda.cuMemcpyHtoDAsync(addr, host, span.bytes, device->in);
}

static rvl_status copy_out(rvli_cuda_device *device, char *host, CUdeviceptr addr, uint64_t size)
{
    rvli_pinned_span span = {0};
    for (uint64_t done = 0; done < size; done += span.bytes) {
        rvl_status status = rvli_pinned_wait(host + done, size - done, &span);
        if (status == RVL_OK)
            status = rvli_cuda_device_check(
                device, span_out(device, host + done, addr + done, span), "copying to the host");
        if (status != RVL_OK)
            return status;
    }
    return RVL_OK;
}

static rvl_status copy_in(rvli_cuda_device *device, CUdeviceptr addr, const char *host,
                          uint64_t size)
{
    rvli_pinned_span span = {0};
    for (uint64_t done = 0; done < size; done += span.bytes) {
        rvl_status status = rvli_pinned_wait(host + done, size - done, &span);
        if (status == RVL_OK)
            status = rvli_cuda_device_check(device, span_in(device, addr + done, host + done, span),
                                            "copying to the device");
        if (status != RVL_OK)
            return status;
    }
    return RVL_OK;
}

rvl_status rvli_cuda_op_copy_to_host(void *self, int number, void *host, uint64_t addr,
                                     uint64_t size)
{
    rvli_cuda_device *device = NULL;
    rvl_status status = rvli_cuda_device_of(self, number, &device);
    if (status == RVL_OK)
        status = rvli_cuda_enter(device);
    if (status != RVL_OK)
        return status;
    status = copy_out(device, host, addr, size);
    rvli_cuda_leave();
    return status;
}

rvl_status rvli_cuda_op_copy_to_device(void *self, int number, uint64_t addr, const void *host,
                                       uint64_t size)
{
    rvli_cuda_device *device = NULL;
    rvl_status status = rvli_cuda_device_of(self, number, &device);
    if (status == RVL_OK)
        status = rvli_cuda_enter(device);
    if (status != RVL_OK)
        return status;
    status = copy_in(device, addr, host, size);
    rvli_cuda_leave();
    return status;
}

rvl_status rvli_cuda_op_fill(void *self, int number, uint64_t addr, uint64_t size, uint8_t byte)
{
    rvli_cuda_device *device = NULL;
    rvl_status status = rvli_cuda_device_of(self, number, &device);
    if (status == RVL_OK)
        status = rvli_cuda_enter(device);
    if (status != RVL_OK)
        return status;
    CUresult result = rvli_staging_drain(&device->staging); /* copies queued before the fill */
    if (result == CUDA_SUCCESS)
        result = rvli_cuda.cuMemsetD8Async(addr, byte, size, device->in);
    atomic_store(&device->fills, true);
    status = rvli_cuda_device_check(device, result, "filling device memory");
    rvli_cuda_leave();
    return status;
}

/* ---- Events ---- */

static rvli_cuda_event *take_idle(rvli_cuda_device *device)
{
    pthread_mutex_lock(&device->lock);
    rvli_cuda_event *event = device->idle;
    if (event != NULL)
        device->idle = event->next;
    pthread_mutex_unlock(&device->lock);
    return event;
}

static void put_idle(rvli_cuda_device *device, rvli_cuda_event *event)
{
    pthread_mutex_lock(&device->lock);
    event->next = device->idle;
    device->idle = event;
    pthread_mutex_unlock(&device->lock);
}

/* With the context current. */
static rvl_status new_event(rvli_cuda_device *device, rvli_cuda_event **event_out)
{
    rvli_cuda_event *event = calloc(1, sizeof *event);
    if (event == NULL)
        return rvli_error(RVL_ERR_HOST_OOM, "no host memory for an event");
    CUevent *parts[] = {&event->out, &event->in, &event->computed};
    CUresult result = CUDA_SUCCESS;
    for (size_t i = 0; i < sizeof parts / sizeof parts[0] && result == CUDA_SUCCESS; i++)
        result = rvli_cuda.cuEventCreate(parts[i], CU_EVENT_DISABLE_TIMING);
    if (result != CUDA_SUCCESS) {
        destroy_event(event);
        return rvli_cuda_device_check(device, result, "creating an event");
    }
    *event_out = event;
    return RVL_OK;
}

static rvl_status record_parts(rvli_cuda_device *device, rvli_cuda_event *event)
{
    rvl_status status = rvli_cuda_digests_compute(device, &event->digests);
    if (status != RVL_OK)
        return status;
    CUresult result = rvli_cuda.cuEventRecord(event->out, device->out);
    if (result == CUDA_SUCCESS)
        result = rvli_cuda.cuEventRecord(event->in, device->in);
    if (result == CUDA_SUCCESS && event->digests != 0)
        result = rvli_cuda.cuEventRecord(event->computed, device->digests.stream);
    if (result == CUDA_SUCCESS)
        event->staged = rvli_staging_mark(&device->staging);
    return rvli_cuda_device_check(device, result, "recording an event");
}

static rvl_status record(rvli_cuda_device *device, rvli_cuda_event **event_out)
{
    rvl_status status = RVL_OK;
    rvli_cuda_event *event = take_idle(device);
    if (event == NULL)
        status = new_event(device, &event);
    if (status != RVL_OK)
        return status;
    status = record_parts(device, event);
    if (status == RVL_OK)
        *event_out = event;
    else
        put_idle(device, event);
    return status;
}

rvl_status rvli_cuda_op_record_event(void *self, int number, uint64_t *event_out)
{
    rvli_cuda_device *device = NULL;
    rvli_cuda_event *event = NULL;
    rvl_status status = rvli_cuda_device_of(self, number, &device);
    if (status == RVL_OK)
        status = rvli_cuda_enter(device);
    if (status != RVL_OK)
        return status;
    status = record(device, &event);
    rvli_cuda_leave();
    if (status == RVL_OK)
        *event_out = (uintptr_t)event;
    return status;
}

/* Waits for all parts, even after an error. The event can be reused afterwards. */
rvl_status rvli_cuda_op_wait_event(void *self, int number, uint64_t event_number)
{
    rvli_cuda_instance *instance = self;
    rvli_cuda_event *event = (rvli_cuda_event *)(uintptr_t)event_number;
    if (number < 0 || number >= instance->device_count)
        return rvli_error(RVL_ERR_NO_DEVICE, "no such CUDA device in this context");
    rvli_cuda_device *device = &instance->devices[number];
    rvl_status entered = rvli_cuda_enter(device);
    CUresult out = rvli_cuda.cuEventSynchronize(event->out);
    CUresult in = rvli_cuda.cuEventSynchronize(event->in);
    CUresult computed =
        event->digests != 0 ? rvli_cuda.cuEventSynchronize(event->computed) : CUDA_SUCCESS;
    if (entered == RVL_OK)
        rvli_cuda_leave();
    CUresult staged = rvli_staging_wait(&device->staging, event->staged);
    CUresult result = out != CUDA_SUCCESS      ? out
                      : in != CUDA_SUCCESS     ? in
                      : staged != CUDA_SUCCESS ? staged
                                               : computed;
    rvl_status status = rvli_cuda_device_check(device, result, "waiting for copies");
    rvli_cuda_digests_deliver(device, event->digests, status == RVL_OK);
    put_idle(device, event);
    return status;
}

rvl_status rvli_cuda_op_wait_user(void *self, void *event)
{
    rvli_cuda_instance *instance = self;
    CUresult result = rvli_cuda.cuEventSynchronize(event);
    if (result == CUDA_ERROR_INVALID_CONTEXT) { /* no context is current */
        rvl_status status = rvli_cuda_enter(&instance->devices[0]);
        if (status != RVL_OK)
            return status;
        result = rvli_cuda.cuEventSynchronize(event);
        rvli_cuda_leave();
    }
    return rvli_cuda_check(result, "waiting for the caller's event");
}

rvl_status rvli_cuda_op_synchronize(void *self, int number)
{
    rvli_cuda_device *device = NULL;
    rvl_status status = rvli_cuda_device_of(self, number, &device);
    if (status == RVL_OK)
        status = rvli_cuda_enter(device);
    if (status != RVL_OK)
        return status;
    uint64_t digests = 0;
    rvl_status computing = rvli_cuda_digests_compute(device, &digests);
    CUresult staged = rvli_staging_drain(&device->staging);
    CUresult result = rvli_cuda.cuCtxSynchronize();
    status = rvli_cuda_device_check(device, result != CUDA_SUCCESS ? result : staged,
                                    "waiting for the device");
    rvli_cuda_digests_deliver(device, digests, computing == RVL_OK && status == RVL_OK);
    rvli_cuda_leave();
    return computing != RVL_OK ? computing : status;
}

/*
 * For the legacy stream, the driver can return that another stream is being captured. That counts
 * as captured.
 */
rvl_status rvli_cuda_op_is_capturing(void *self, void *stream, bool *capturing_out)
{
    rvli_cuda_instance *instance = self;
    CUstreamCaptureStatus state = CU_STREAM_CAPTURE_STATUS_NONE;
    CUresult result = rvli_cuda.cuStreamIsCapturing(stream, &state);
    if (result == CUDA_ERROR_INVALID_CONTEXT) { /* no context is current */
        rvl_status status = rvli_cuda_enter(&instance->devices[0]);
        if (status != RVL_OK)
            return status;
        result = rvli_cuda.cuStreamIsCapturing(stream, &state);
        rvli_cuda_leave();
    }
    if (result != CUDA_SUCCESS && result != CUDA_ERROR_STREAM_CAPTURE_IMPLICIT)
        return rvli_cuda_check(result, "asking whether a stream is being captured");
    *capturing_out = result != CUDA_SUCCESS || state != CU_STREAM_CAPTURE_STATUS_NONE;
    return RVL_OK;
}
