/* SPDX-License-Identifier: MIT */
/* Streams and events. Nothing runs, so all work is done when somebody asks. */
#include <stdlib.h>
#include <time.h>

#include "simcuda/driver/driver.h"

struct CUstream_st {
    unsigned flags;
    int priority;
    int device;
};

struct CUevent_st {
    unsigned flags;
    bool recorded;
    struct timespec when;
};

static bool is_default(CUstream stream)
{
    return stream == NULL || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD;
}

CUresult cuStreamCreateWithPriority(CUstream *stream, unsigned int flags, int priority)
{
    int device;
    CUresult result = rvli_current_device(&device);
    if (result == CUDA_SUCCESS && (stream == NULL || flags > CU_STREAM_NON_BLOCKING))
        return CUDA_ERROR_INVALID_VALUE;
    CUstream made = result == CUDA_SUCCESS ? malloc(sizeof *made) : NULL;
    if (made == NULL)
        return result == CUDA_SUCCESS ? CUDA_ERROR_OUT_OF_MEMORY : result;
    *made = (struct CUstream_st){flags, priority > 0 ? 0 : priority < -5 ? -5 : priority, device};
    *stream = made;
    return CUDA_SUCCESS;
}

CUresult cuStreamCreate(CUstream *stream, unsigned int flags)
{
    return cuStreamCreateWithPriority(stream, flags, 0);
}

CUresult cuStreamDestroy(CUstream stream)
{
    if (is_default(stream))
        return CUDA_ERROR_INVALID_HANDLE;
    free(stream);
    return CUDA_SUCCESS;
}

CUresult cuStreamQuery(CUstream stream)
{
    int device;
    (void)stream;
    return rvli_current_device(&device);
}

CUresult cuStreamSynchronize(CUstream stream)
{
    return cuStreamQuery(stream);
}

CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned int flags)
{
    (void)flags;
    return event == NULL ? CUDA_ERROR_INVALID_HANDLE : cuStreamQuery(stream);
}

CUresult cuStreamGetPriority(CUstream stream, int *priority)
{
    CUresult result = cuStreamQuery(stream);
    if (result == CUDA_SUCCESS)
        *priority = is_default(stream) ? 0 : stream->priority;
    return result;
}

CUresult cuStreamGetFlags(CUstream stream, unsigned int *flags)
{
    CUresult result = cuStreamQuery(stream);
    if (result == CUDA_SUCCESS)
        *flags = is_default(stream) ? 0 : stream->flags;
    return result;
}

/* No capture is ever begun: cuStreamBeginCapture() is not supported. */
CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus *status)
{
    CUresult result = cuStreamQuery(stream);
    if (result == CUDA_SUCCESS)
        *status = CU_STREAM_CAPTURE_STATUS_NONE;
    return result;
}

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode)
{
    static __thread CUstreamCaptureMode current;
    if (mode == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    CUstreamCaptureMode before = current;
    current = *mode;
    *mode = before;
    return CUDA_SUCCESS;
}

CUresult cuLaunchHostFunc(CUstream stream, CUhostFn function, void *user)
{
    CUresult result = function == NULL ? CUDA_ERROR_INVALID_VALUE : cuStreamQuery(stream);
    if (result == CUDA_SUCCESS)
        function(user);
    return result;
}

CUresult cuStreamAddCallback(CUstream stream, CUstreamCallback callback, void *user,
                             unsigned int flags)
{
    CUresult result =
        callback == NULL || flags != 0 ? CUDA_ERROR_INVALID_VALUE : cuStreamQuery(stream);
    if (result == CUDA_SUCCESS)
        callback(stream, CUDA_SUCCESS, user);
    return result;
}

/* ---- Events ---- */

CUresult cuEventCreate(CUevent *event, unsigned int flags)
{
    int device;
    CUresult result = rvli_current_device(&device);
    if (result == CUDA_SUCCESS && event == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    CUevent made = result == CUDA_SUCCESS ? calloc(1, sizeof *made) : NULL;
    if (made == NULL)
        return result == CUDA_SUCCESS ? CUDA_ERROR_OUT_OF_MEMORY : result;
    made->flags = flags;
    *event = made;
    return CUDA_SUCCESS;
}

CUresult cuEventDestroy(CUevent event)
{
    free(event);
    return event == NULL ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

CUresult cuEventRecord(CUevent event, CUstream stream)
{
    CUresult result = event == NULL ? CUDA_ERROR_INVALID_HANDLE : cuStreamQuery(stream);
    if (result == CUDA_SUCCESS) {
        event->recorded = true;
        clock_gettime(CLOCK_MONOTONIC, &event->when);
    }
    return result;
}

CUresult cuEventRecordWithFlags(CUevent event, CUstream stream, unsigned int flags)
{
    (void)flags;
    return cuEventRecord(event, stream);
}

CUresult cuEventQuery(CUevent event)
{
    return event == NULL ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

CUresult cuEventSynchronize(CUevent event)
{
    return cuEventQuery(event);
}

/* The time between the two calls: what the device would have taken is not known. */
CUresult cuEventElapsedTime(float *milliseconds, CUevent start, CUevent end)
{
    if (milliseconds == NULL || start == NULL || end == NULL || !start->recorded ||
        !end->recorded || ((start->flags | end->flags) & CU_EVENT_DISABLE_TIMING))
        return CUDA_ERROR_INVALID_HANDLE;
    *milliseconds = (float)((double)(end->when.tv_sec - start->when.tv_sec) * 1e3 +
                            (double)(end->when.tv_nsec - start->when.tv_nsec) / 1e6);
    return CUDA_SUCCESS;
}
