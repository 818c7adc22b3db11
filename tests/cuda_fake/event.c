/* SPDX-License-Identifier: MIT */
/*
 * Events: places in streams.
 *
 * An event has passed when the operation that its latest record left in the queue has been carried
 * out. One never recorded has passed.
 */
#include <stdlib.h>

#include "internal.h"

#define EVENT_FLAGS (CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING)

struct CUevent_st {
    CUevent next;
    CUcontext context;
    bool captured; /* last recorded in a capturing stream */
    fake_place place;
};

static CUevent events;

/* An event that exists, of a context that does. */
static CUresult event_of(CUevent handle, CUevent *event_out)
{
    CUevent each = events;
    while (each != NULL && each != handle)
        each = each->next;
    if (each == NULL)
        return CUDA_ERROR_INVALID_HANDLE;
    if (each->context->references == 0)
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    *event_out = each;
    return CUDA_SUCCESS;
}

CUresult cuEventCreate(CUevent *phEvent, unsigned int Flags)
{
    FAKE_ENTER(cuEventCreate, FAKE_NEEDS_CONTEXT);
    CUcontext context;
    if (phEvent == NULL || (Flags & ~(unsigned)EVENT_FLAGS) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = fake_context_current(&context);
    if (result != CUDA_SUCCESS)
        return result;
    CUevent event = calloc(1, sizeof *event);
    if (event == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    event->context = context;
    event->next = events;
    events = event;
    *phEvent = event;
    return CUDA_SUCCESS;
}

CUresult cuEventDestroy(CUevent hEvent)
{
    FAKE_ENTER(cuEventDestroy, FAKE_NEEDS_CONTEXT);
    CUevent event;
    CUresult result = event_of(hEvent, &event);
    if (result != CUDA_SUCCESS)
        return result;
    CUevent *link = &events;
    while (*link != event)
        link = &(*link)->next;
    *link = event->next;
    free(event);
    return CUDA_SUCCESS;
}

CUresult cuEventRecord(CUevent hEvent, CUstream hStream)
{
    FAKE_ENTER(cuEventRecord, FAKE_NEEDS_CONTEXT);
    CUevent event;
    CUstream stream;
    CUresult result = event_of(hEvent, &event);
    if (result == CUDA_SUCCESS)
        result = fake_stream_of(hStream, &stream);
    if (result != CUDA_SUCCESS)
        return result;
    if (stream->context != event->context)
        return CUDA_ERROR_INVALID_HANDLE;
    bool captured = false;
    const fake_op mark = {.kind = FAKE_OP_MARK};
    fake_place place = {0};
    result = fake_stream_queue(hStream, &mark, &place, &captured);
    if (result != CUDA_SUCCESS)
        return result;
    event->captured = captured;
    event->place = place;
    return CUDA_SUCCESS;
}

CUresult cuEventSynchronize(CUevent hEvent)
{
    FAKE_ENTER(cuEventSynchronize, FAKE_NEEDS_CONTEXT);
    CUevent event;
    CUresult result = event_of(hEvent, &event);
    if (result != CUDA_SUCCESS)
        return result;
    if (event->captured)
        return CUDA_ERROR_CAPTURED_EVENT;
    if (fake_stream_wait_disturbs(event->context))
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    fake_place_reach(event->place);
    return event->context->error;
}

CUresult cuStreamWaitEvent(CUstream hStream, CUevent hEvent, unsigned int Flags)
{
    FAKE_ENTER(cuStreamWaitEvent, FAKE_NEEDS_CONTEXT);
    CUevent event;
    if (Flags != CU_EVENT_WAIT_DEFAULT)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = event_of(hEvent, &event);
    if (result != CUDA_SUCCESS)
        return result;
    if (event->captured)
        return CUDA_ERROR_NOT_SUPPORTED; /* would join the capture: not modelled */
    const fake_op wait = {.kind = FAKE_OP_WAIT, .place = event->place};
    return fake_stream_queue(hStream, &wait, NULL, NULL);
}

void fake_events_stats(fake_live *live)
{
    for (CUevent each = events; each != NULL; each = each->next)
        live->events++;
}

void fake_events_reset(void)
{
    while (events != NULL) {
        CUevent event = events;
        events = event->next;
        free(event);
    }
}
