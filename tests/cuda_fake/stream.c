/* SPDX-License-Identifier: MIT */
/*
 * Streams: queues of what is carried out when something waits for it.
 *
 * Operations are numbered in the order of queueing over all streams. Carrying a stream out up to a
 * number first carries out what that depends on, and everything that an operation depends on has a
 * lower number: no circle is possible. The legacy stream (NULL) and blocking streams depend on all
 * of each other that was queued before. A destroyed stream lives on until its queue is empty.
 */
#include <stdlib.h>

#include "internal.h"

static CUstream streams;
static uint64_t last_stream;
static uint64_t last_sequence;
static bool capture_invalidated;

/* ---- Carrying out ---- */

static void run_until(CUstream stream, uint64_t until);

static CUstream stream_numbered(uint64_t number)
{
    CUstream each = streams;
    while (each != NULL && each->number != number)
        each = each->next;
    return each;
}

/* Carries out what an operation depends on. */
static void run_before(CUstream stream, const fake_op *op)
{
    CUcontext context = stream->context;
    if (op->kind == FAKE_OP_WAIT)
        fake_place_reach(op->place);
    if (stream == context->legacy) {
        for (CUstream each = streams; each != NULL; each = each->next)
            if (each->context == context && each->blocking)
                run_until(each, op->sequence - 1);
    } else if (stream->blocking && context->legacy != NULL) {
        run_until(context->legacy, op->sequence - 1);
    }
}

/* After an error the device does nothing more. */
static void run_first(CUstream stream)
{
    fake_op *op = stream->ops;
    run_before(stream, op);
    stream->ops = op->next;
    if (stream->context->error == CUDA_SUCCESS)
        stream->context->error = fake_op_run(op, stream->context->device);
    free(op);
}

static void run_until(CUstream stream, uint64_t until)
{
    while (stream->ops != NULL && stream->ops->sequence <= until)
        run_first(stream);
}

void fake_place_reach(fake_place place)
{
    CUstream stream = stream_numbered(place.stream);
    if (stream != NULL)
        run_until(stream, place.sequence);
}

static bool invalidate(CUstream stream)
{
    if (stream->capture == CU_STREAM_CAPTURE_STATUS_NONE)
        return false;
    stream->capture = CU_STREAM_CAPTURE_STATUS_INVALIDATED;
    capture_invalidated = true;
    return true;
}

/* Invalidates the captures of a context; whether there are any. */
static bool invalidate_all(CUcontext context, bool blocking_only)
{
    bool any = false;
    for (CUstream each = streams; each != NULL; each = each->next)
        if (each->context == context && !each->destroyed && (each->blocking || !blocking_only))
            any |= invalidate(each);
    return any;
}

bool fake_streams_drain(CUcontext context)
{
    if (invalidate_all(context, false))
        return false;
    for (CUstream each = streams; each != NULL; each = each->next)
        if (each->context == context)
            run_until(each, last_sequence);
    return true;
}

/* ---- Streams ---- */

static CUstream new_stream(CUcontext context, bool blocking)
{
    CUstream stream = calloc(1, sizeof *stream);
    if (stream == NULL)
        return NULL;
    stream->number = ++last_stream;
    stream->context = context;
    stream->blocking = blocking;
    stream->next = streams;
    streams = stream;
    return stream;
}

static void drop_ops(CUstream stream)
{
    while (stream->ops != NULL) {
        fake_op *op = stream->ops;
        stream->ops = op->next;
        free(op);
    }
}

/* Frees destroyed streams that have nothing left to do. */
static void sweep(void)
{
    for (CUstream *link = &streams; *link != NULL;) {
        CUstream stream = *link;
        if (!stream->destroyed || stream->ops != NULL) {
            link = &stream->next;
            continue;
        }
        *link = stream->next;
        free(stream);
    }
}

void fake_streams_drop(CUcontext context)
{
    for (CUstream each = streams; each != NULL; each = each->next) {
        if (each->context != context)
            continue;
        drop_ops(each);
        each->destroyed |= each == context->legacy;
    }
    context->legacy = NULL;
    sweep();
}

static bool is_legacy(CUstream handle)
{
    return handle == NULL || handle == CU_STREAM_LEGACY;
}

static CUresult legacy_stream(CUstream *stream_out)
{
    CUcontext context;
    CUresult result = fake_context_current(&context);
    if (result != CUDA_SUCCESS)
        return result;
    if (context->legacy == NULL)
        context->legacy = new_stream(context, false);
    *stream_out = context->legacy;
    return *stream_out != NULL ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult fake_stream_of(CUstream handle, CUstream *stream_out)
{
    if (is_legacy(handle))
        return legacy_stream(stream_out);
    CUstream each = streams;
    while (each != NULL && each != handle)
        each = each->next;
    if (each == NULL || each->destroyed)
        return CUDA_ERROR_INVALID_HANDLE;
    if (each->context->references == 0)
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    *stream_out = each;
    return CUDA_SUCCESS;
}

CUresult fake_stream_queue(CUstream handle, const fake_op *op, fake_place *place_out,
                           bool *swallowed_out)
{
    CUstream stream;
    CUcontext current;
    CUresult result = fake_stream_of(handle, &stream);
    if (result == CUDA_SUCCESS)
        result = fake_context_current(&current);
    if (result != CUDA_SUCCESS)
        return result;
    if (stream->context != current)
        return CUDA_ERROR_INVALID_HANDLE;
    if (is_legacy(handle) && invalidate_all(current, true))
        return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    bool swallowed = stream->capture != CU_STREAM_CAPTURE_STATUS_NONE;
    if (swallowed_out != NULL)
        *swallowed_out = swallowed;
    if (stream->capture == CU_STREAM_CAPTURE_STATUS_INVALIDATED)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    if (swallowed)
        return CUDA_SUCCESS;
    fake_op *queued = malloc(sizeof *queued);
    if (queued == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *queued = *op;
    queued->next = NULL;
    queued->sequence = ++last_sequence;
    if (stream->ops == NULL)
        stream->ops = queued;
    else
        stream->last_op->next = queued;
    stream->last_op = queued;
    if (place_out != NULL)
        *place_out = (fake_place){stream->number, queued->sequence};
    return CUDA_SUCCESS;
}

/* ---- Entry points ---- */

static CUresult create(CUstream *stream_out, unsigned int flags)
{
    CUcontext context;
    if (stream_out == NULL || (flags & ~(unsigned)CU_STREAM_NON_BLOCKING) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = fake_context_current(&context);
    if (result != CUDA_SUCCESS)
        return result;
    sweep();
    CUstream stream = new_stream(context, flags != CU_STREAM_NON_BLOCKING);
    if (stream == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *stream_out = stream;
    return CUDA_SUCCESS;
}

CUresult cuStreamCreate(CUstream *phStream, unsigned int Flags)
{
    FAKE_ENTER(cuStreamCreate, FAKE_NEEDS_CONTEXT);
    return create(phStream, Flags);
}

CUresult cuStreamCreateWithPriority(CUstream *phStream, unsigned int flags, int priority)
{
    FAKE_ENTER(cuStreamCreateWithPriority, FAKE_NEEDS_CONTEXT);
    (void)priority; /* out of range is clamped; nothing runs at the same time */
    return create(phStream, flags);
}

CUresult cuStreamDestroy(CUstream hStream)
{
    FAKE_ENTER(cuStreamDestroy, FAKE_NEEDS_CONTEXT);
    CUstream stream;
    if (is_legacy(hStream))
        return CUDA_ERROR_INVALID_HANDLE;
    CUresult result = fake_stream_of(hStream, &stream);
    if (result != CUDA_SUCCESS)
        return result;
    invalidate(stream);
    stream->destroyed = true;
    sweep();
    return CUDA_SUCCESS;
}

CUresult cuStreamSynchronize(CUstream hStream)
{
    FAKE_ENTER(cuStreamSynchronize, FAKE_NEEDS_CONTEXT);
    CUstream stream;
    CUresult result = fake_stream_of(hStream, &stream);
    if (result != CUDA_SUCCESS)
        return result;
    if (is_legacy(hStream) && invalidate_all(stream->context, true))
        return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    if (invalidate(stream))
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    run_until(stream, last_sequence);
    if (is_legacy(hStream)) /* waits for the blocking ones too */
        for (CUstream each = streams; each != NULL; each = each->next)
            if (each->context == stream->context && each->blocking)
                run_until(each, last_sequence);
    return stream->context->error;
}

/* What a thread has said about its own calls while others capture. */
static _Thread_local CUstreamCaptureMode thread_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode)
{
    FAKE_ENTER(cuThreadExchangeStreamCaptureMode, FAKE_NEEDS_INIT);
    if (mode == NULL || *mode > CU_STREAM_CAPTURE_MODE_RELAXED)
        return CUDA_ERROR_INVALID_VALUE;
    CUstreamCaptureMode before = thread_mode;
    thread_mode = *mode;
    *mode = before;
    return CUDA_SUCCESS;
}

bool fake_stream_wait_disturbs(CUcontext context)
{
    return thread_mode != CU_STREAM_CAPTURE_MODE_RELAXED && invalidate_all(context, false);
}

CUresult cuStreamIsCapturing(CUstream hStream, CUstreamCaptureStatus *captureStatus)
{
    FAKE_ENTER(cuStreamIsCapturing, FAKE_NEEDS_CONTEXT);
    CUstream stream;
    if (captureStatus == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = fake_stream_of(hStream, &stream);
    if (result != CUDA_SUCCESS)
        return result;
    if (is_legacy(hStream)) /* asks, and disturbs nothing, but gets no answer */
        for (CUstream each = streams; each != NULL; each = each->next)
            if (each->context == stream->context && each->blocking && !each->destroyed &&
                each->capture != CU_STREAM_CAPTURE_STATUS_NONE)
                return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    *captureStatus = stream->capture;
    return CUDA_SUCCESS;
}

/* ---- Controls, statistics and reset ---- */

bool fake_stream_set_capturing(CUstream handle, bool capturing)
{
    FAKE_LOCKED;
    CUstream stream;
    if (is_legacy(handle) || fake_stream_of(handle, &stream) != CUDA_SUCCESS)
        return false;
    stream->capture = capturing ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
    return true;
}

bool fake_capture_invalidated(void)
{
    FAKE_LOCKED;
    return capture_invalidated;
}

void fake_streams_stats(fake_stats *stats)
{
    for (CUstream each = streams; each != NULL; each = each->next) {
        stats->live.streams += !each->destroyed && each->context->legacy != each;
        for (const fake_op *op = each->ops; op != NULL; op = op->next)
            stats->pending++;
    }
}

void fake_streams_reset(void)
{
    for (CUstream each = streams; each != NULL; each = each->next) {
        drop_ops(each);
        each->destroyed = true;
    }
    sweep();
    capture_invalidated = false;
}
