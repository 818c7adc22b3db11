/* SPDX-License-Identifier: MIT */
/* Streams and events. */
#include "simcuda/runtime/runtime.h"

RVLI_PASSED(cudaStreamCreateWithPriority, cuStreamCreateWithPriority,
            (cudaStream_t * stream, unsigned int flags, int priority), (stream, flags, priority))
RVLI_PASSED(cudaStreamCreateWithFlags, cuStreamCreate, (cudaStream_t * stream, unsigned int flags),
            (stream, flags))

cudaError_t cudaStreamCreate(cudaStream_t *stream)
{
    return cudaStreamCreateWithFlags(stream, 0);
}

RVLI_PASSED(cudaStreamDestroy, cuStreamDestroy, (cudaStream_t stream), (stream))
RVLI_PASSED(cudaStreamQuery, cuStreamQuery, (cudaStream_t stream), (stream))
RVLI_PASSED(cudaStreamSynchronize, cuStreamSynchronize, (cudaStream_t stream), (stream))
RVLI_PASSED(cudaStreamWaitEvent, cuStreamWaitEvent,
            (cudaStream_t stream, cudaEvent_t event, unsigned int flags), (stream, event, flags))
RVLI_PASSED(cudaStreamGetPriority, cuStreamGetPriority, (cudaStream_t stream, int *priority),
            (stream, priority))
RVLI_PASSED(cudaStreamGetFlags, cuStreamGetFlags, (cudaStream_t stream, unsigned int *flags),
            (stream, flags))
RVLI_PASSED(cudaLaunchHostFunc, cuLaunchHostFunc,
            (cudaStream_t stream, cudaHostFn_t function, void *user), (stream, function, user))
RVLI_PASSED(cudaStreamAddCallback, cuStreamAddCallback,
            (cudaStream_t stream, cudaStreamCallback_t callback, void *user, unsigned int flags),
            (stream, (CUstreamCallback)callback, user, flags))
RVLI_PASSED(cudaStreamGetId, cuStreamGetId, (cudaStream_t stream, unsigned long long *id),
            (stream, id))
RVLI_PASSED(cudaStreamGetDevice, cuStreamGetDevice, (cudaStream_t stream, int *device),
            (stream, device))

/* ---- Events ---- */

RVLI_PASSED(cudaEventCreateWithFlags, cuEventCreate, (cudaEvent_t * event, unsigned int flags),
            (event, flags))

cudaError_t cudaEventCreate(cudaEvent_t *event)
{
    return cudaEventCreateWithFlags(event, 0);
}

RVLI_PASSED(cudaEventDestroy, cuEventDestroy, (cudaEvent_t event), (event))
RVLI_PASSED(cudaEventRecord, cuEventRecord, (cudaEvent_t event, cudaStream_t stream),
            (event, stream))
RVLI_PASSED(cudaEventRecordWithFlags, cuEventRecordWithFlags,
            (cudaEvent_t event, cudaStream_t stream, unsigned int flags), (event, stream, flags))
RVLI_PASSED(cudaEventQuery, cuEventQuery, (cudaEvent_t event), (event))
RVLI_PASSED(cudaEventSynchronize, cuEventSynchronize, (cudaEvent_t event), (event))
RVLI_PASSED(cudaEventElapsedTime, cuEventElapsedTime,
            (float *milliseconds, cudaEvent_t start, cudaEvent_t end), (milliseconds, start, end))
