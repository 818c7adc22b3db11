/* SPDX-License-Identifier: MIT */
/* Streams and events. Nothing runs, so all work is complete at once, except operations in which
 * other ranks take part (owed.h). */
#include "simcuda/driver/stream.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "simcuda/driver/capture.h"
#include "simcuda/driver/ipc.h"
#include "simcuda/driver/polled.h"
#include "simcuda/driver/pool.h"
#include "simcuda/driver/share.h"

static struct CUstream_st legacy = {.number = 1};
static __thread struct CUstream_st per_thread;
static atomic_uint_fast64_t numbers = 1;

bool rvli_stream_is_legacy(CUstream handle)
{
    return handle == NULL || handle == CU_STREAM_LEGACY;
}

CUstream rvli_stream_of(CUstream handle)
{
    if (rvli_stream_is_legacy(handle))
        return &legacy;
    if (handle != CU_STREAM_PER_THREAD)
        return handle;
    if (per_thread.number == 0)
        per_thread.number = atomic_fetch_add(&numbers, 1) + 1;
    (void)rvli_current_device(&per_thread.device);
    per_thread.context = rvli_current_context();
    return &per_thread;
}

CUresult cuStreamCreateWithPriority(CUstream *stream, unsigned int flags, int priority)
{
    int device;
    CUresult result = rvli_current_device(&device);
    if (result == CUDA_SUCCESS && (stream == NULL || flags > CU_STREAM_NON_BLOCKING))
        return CUDA_ERROR_INVALID_VALUE;
    CUstream made = result == CUDA_SUCCESS ? calloc(1, sizeof *made) : NULL;
    if (made == NULL)
        return result == CUDA_SUCCESS ? CUDA_ERROR_OUT_OF_MEMORY : result;
    result = rvli_share_stream(device);
    if (result != CUDA_SUCCESS) {
        free(made);
        return result;
    }
    made->flags = flags;
    made->priority = priority > 0 ? 0 : priority < -5 ? -5 : priority;
    made->device = device;
    made->context = rvli_current_context();
    made->number = atomic_fetch_add(&numbers, 1) + 1;
    *stream = made;
    return CUDA_SUCCESS;
}

CUresult cuStreamCreate(CUstream *stream, unsigned int flags)
{
    return cuStreamCreateWithPriority(stream, flags, 0);
}

CUresult cuStreamDestroy(CUstream stream)
{
    if (rvli_stream_is_legacy(stream) || stream == CU_STREAM_PER_THREAD)
        return CUDA_ERROR_INVALID_HANDLE;
    rvli_capture_drop_stream(stream);
    rvli_share_stream_gone(stream->device);
    rvli_owed_drop(&stream->owed);
    free(stream);
    return CUDA_SUCCESS;
}

/* Required by every call on a stream. */
static CUresult check(void)
{
    int device;
    return rvli_current_device(&device);
}

static CUresult check_wait(CUstream stream)
{
    CUresult result = check();
    return result == CUDA_SUCCESS ? rvli_capture_wait_stream(stream) : result;
}

CUresult cuStreamQuery(CUstream stream)
{
    CUresult result = check_wait(stream);
    return result == CUDA_SUCCESS && !rvli_owed_stream_is_done(stream) ? CUDA_ERROR_NOT_READY
                                                                       : result;
}

CUresult cuStreamSynchronize(CUstream stream)
{
    CUresult result = check_wait(stream);
    if (result == CUDA_SUCCESS)
        result = rvli_owed_settle_stream(stream);
    if (result == CUDA_SUCCESS)
        rvli_pools_settle();
    return result;
}

CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned int flags)
{
    bool captured;
    const rvli_node_params params = {.event = event};
    CUresult result = event == NULL ? CUDA_ERROR_INVALID_HANDLE : check();
    if (result != CUDA_SUCCESS)
        return result;
    if (flags & CU_EVENT_WAIT_EXTERNAL)
        return rvli_capture_work(stream, CU_GRAPH_NODE_TYPE_WAIT_EVENT, &params, &captured);
    result = rvli_capture_depend(stream, event, &captured);
    if (result == CUDA_SUCCESS && !captured) {
        rvli_owed_depend(stream, event);
        rvli_polled_drop(event);
    }
    return result;
}

CUresult cuStreamGetPriority(CUstream stream, int *priority)
{
    CUresult result = priority == NULL ? CUDA_ERROR_INVALID_VALUE : check();
    if (result == CUDA_SUCCESS)
        *priority = rvli_stream_of(stream)->priority;
    return result;
}

CUresult cuStreamGetFlags(CUstream stream, unsigned int *flags)
{
    CUresult result = flags == NULL ? CUDA_ERROR_INVALID_VALUE : check();
    if (result == CUDA_SUCCESS)
        *flags = rvli_stream_of(stream)->flags;
    return result;
}

CUresult cuStreamGetId(CUstream stream, unsigned long long *id)
{
    CUresult result = id == NULL ? CUDA_ERROR_INVALID_VALUE : check();
    if (result == CUDA_SUCCESS)
        *id = rvli_stream_of(stream)->number;
    return result;
}

CUresult cuStreamGetDevice(CUstream stream, CUdevice *device)
{
    int current;
    CUresult result = device == NULL ? CUDA_ERROR_INVALID_VALUE : rvli_current_device(&current);
    if (result == CUDA_SUCCESS)
        *device = rvli_stream_is_legacy(stream) ? current : rvli_stream_of(stream)->device;
    return result;
}

CUresult cuLaunchHostFunc(CUstream stream, CUhostFn function, void *user)
{
    bool captured = false;
    const rvli_node_params params = {.host = {.fn = function, .userData = user}};
    CUresult result = function == NULL ? CUDA_ERROR_INVALID_VALUE : check();
    if (result == CUDA_SUCCESS)
        result = rvli_capture_work(stream, CU_GRAPH_NODE_TYPE_HOST, &params, &captured);
    if (result == CUDA_SUCCESS && !captured)
        function(user);
    return result;
}

CUresult cuStreamAddCallback(CUstream stream, CUstreamCallback callback, void *user,
                             unsigned int flags)
{
    CUresult result = callback == NULL || flags != 0 ? CUDA_ERROR_INVALID_VALUE : check();
    if (result == CUDA_SUCCESS)
        result = rvli_capture_refuse(stream);
    if (result == CUDA_SUCCESS)
        callback(stream, CUDA_SUCCESS, user);
    return result;
}

/*
 * ---- Time ----
 *
 * How long a kernel takes on a device is unknown. Every kernel takes the same time, so that a
 * program that times several alternatives always chooses the first with the fewest kernels. The
 * time is long, so that loops that measure for a fixed time end soon. Recording an event takes a
 * moment, so no two events have the same time.
 */
#define KERNEL_NS UINT64_C(1000000)
#define RECORD_NS UINT64_C(1000)

static atomic_uint_fast64_t time_ns;

void rvli_time_pass(size_t kernels)
{
    atomic_fetch_add(&time_ns, kernels * KERNEL_NS);
}

/* ---- Events ---- */

CUresult cuEventCreate(CUevent *event, unsigned int flags)
{
    int device;
    CUresult result = rvli_current_device(&device);
    if (result == CUDA_SUCCESS &&
        (event == NULL ||
         (flags & (CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING)) == CU_EVENT_INTERPROCESS))
        return CUDA_ERROR_INVALID_VALUE;
    CUevent made = result == CUDA_SUCCESS ? calloc(1, sizeof *made) : NULL;
    if (made == NULL)
        return result == CUDA_SUCCESS ? CUDA_ERROR_OUT_OF_MEMORY : result;
    made->flags = flags;
    made->device = device;
    made->context = rvli_current_context();
    *event = made;
    return CUDA_SUCCESS;
}

CUresult cuEventDestroy(CUevent event)
{
    if (event == NULL)
        return CUDA_ERROR_INVALID_HANDLE;
    rvli_capture_drop_event(event);
    rvli_ipc_event_gone(event);
    rvli_owed_drop(&event->owed);
    rvli_polled_drop(event);
    free(event);
    return CUDA_SUCCESS;
}

CUresult cuEventRecord(CUevent event, CUstream stream)
{
    return cuEventRecordWithFlags(event, stream, CU_EVENT_RECORD_DEFAULT);
}

CUresult rvli_event_record(CUevent event, CUstream stream)
{
    bool captured = false;
    CUresult result = rvli_capture_record(event, stream, &captured);
    if (result != CUDA_SUCCESS || captured)
        return result;
    rvli_owed_record(event, stream);
    rvli_polled_record(event, stream);
    event->recorded = true;
    event->when_ns = atomic_fetch_add(&time_ns, RECORD_NS) + RECORD_NS;
    return CUDA_SUCCESS;
}

/* The legacy stream belongs to the current context. */
static bool is_of_context(CUevent event, CUstream stream, int device)
{
    const struct CUstream_st *of = rvli_stream_of(stream);
    if (rvli_stream_is_legacy(stream))
        return event->device == device && event->context == rvli_current_context();
    return event->device == of->device && event->context == of->context;
}

/* An external record is a node of the graph: the event is recorded when the graph is launched. */
CUresult cuEventRecordWithFlags(CUevent event, CUstream stream, unsigned int flags)
{
    int device;
    bool captured = false;
    const rvli_node_params params = {.event = event};
    CUresult result = event == NULL ? CUDA_ERROR_INVALID_HANDLE : rvli_current_device(&device);
    if (result == CUDA_SUCCESS && !is_of_context(event, stream, device))
        return CUDA_ERROR_INVALID_HANDLE;
    if (result == CUDA_SUCCESS && (flags & CU_EVENT_RECORD_EXTERNAL))
        result = rvli_capture_work(stream, CU_GRAPH_NODE_TYPE_EVENT_RECORD, &params, &captured);
    return result == CUDA_SUCCESS && !captured ? rvli_event_record(event, stream) : result;
}

static CUresult check_event(CUevent event)
{
    return event == NULL ? CUDA_ERROR_INVALID_HANDLE : rvli_capture_wait_event(event);
}

CUresult cuEventQuery(CUevent event)
{
    CUresult result = check_event(event);
    if (result == CUDA_SUCCESS && (!rvli_owed_event_is_done(event) || rvli_polled_hides(event)))
        return CUDA_ERROR_NOT_READY;
    return result;
}

CUresult cuEventSynchronize(CUevent event)
{
    CUresult result = check_event(event);
    if (result == CUDA_SUCCESS)
        result = rvli_owed_settle_event(event);
    if (result == CUDA_SUCCESS)
        rvli_pools_settle();
    return result;
}

CUresult cuEventElapsedTime(float *milliseconds, CUevent start, CUevent end)
{
    if (milliseconds == NULL || start == NULL || end == NULL)
        return CUDA_ERROR_INVALID_HANDLE;
    if (start->at.capture != 0 || end->at.capture != 0)
        return CUDA_ERROR_CAPTURED_EVENT;
    if (!start->recorded || !end->recorded ||
        ((start->flags | end->flags) & CU_EVENT_DISABLE_TIMING))
        return CUDA_ERROR_INVALID_HANDLE;
    if (!rvli_owed_event_is_done(start) || !rvli_owed_event_is_done(end))
        return CUDA_ERROR_NOT_READY;
    *milliseconds = (float)((double)((int64_t)end->when_ns - (int64_t)start->when_ns) / 1e6);
    return CUDA_SUCCESS;
}
