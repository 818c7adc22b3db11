/* SPDX-License-Identifier: MIT */
/*
 * Captures of streams, as the runtime begins and ends them. A pause or resume meanwhile would end
 * the capture, or be recorded by it.
 */
#include "hooks/captures.h"
#include "hooks/preload/runtime_calls.h"

#define ABSENT RVLI_CUDA_INSUFFICIENT_DRIVER

static int begun(int error, const void *stream)
{
    if (error == RVLI_CUDA_SUCCESS)
        rvli_capture_begin(stream);
    return error;
}

/* Whatever the call answers, the capture has ended. */
static int ended(int error, const void *stream)
{
    rvli_capture_end(stream);
    return error;
}

#define FRONT_STREAM(name, parameters, arguments, done)                                            \
    int name parameters                                                                            \
    {                                                                                              \
        rvli_runtime_##name next = RVLI_RUNTIME(name);                                             \
        return next != NULL ? done(next arguments, stream) : ABSENT;                               \
    }
#define TO_GRAPH                                                                                   \
    (void *stream, void *graph, const void *dependencies, const void *data, size_t count, int mode)

FRONT_STREAM(cudaStreamBeginCapture, (void *stream, int mode), (stream, mode), begun)
FRONT_STREAM(cudaStreamBeginCapture_ptsz, (void *stream, int mode), (stream, mode), begun)
FRONT_STREAM(cudaStreamBeginCaptureToGraph, TO_GRAPH,
             (stream, graph, dependencies, data, count, mode), begun)
FRONT_STREAM(cudaStreamBeginCaptureToGraph_ptsz, TO_GRAPH,
             (stream, graph, dependencies, data, count, mode), begun)
FRONT_STREAM(cudaStreamEndCapture, (void *stream, void *graph), (stream, graph), ended)
FRONT_STREAM(cudaStreamEndCapture_ptsz, (void *stream, void *graph), (stream, graph), ended)
FRONT_STREAM(cudaStreamDestroy, (void *stream), (stream), ended)
