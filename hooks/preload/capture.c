/* SPDX-License-Identifier: MIT */
/*
 * Stream captures that begin and end through the runtime. A pause or resume during a capture would
 * end it, or be recorded by it.
 */
#include "hooks/preload/runtime_calls.h"
#include "hooks/process/captures.h"
#include "hooks/region/saver.h"

#define ABSENT RVLI_CUDA_INSUFFICIENT_DRIVER

#define FRONT_STREAM(name, parameters, arguments, per_thread, done)                                \
    int name parameters                                                                            \
    {                                                                                              \
        rvli_runtime_##name next = RVLI_RUNTIME(name);                                             \
        if (next == NULL)                                                                          \
            return ABSENT;                                                                         \
        int error = next arguments;                                                                \
        const void *captured = rvli_capture_stream(stream, per_thread);                            \
        done;                                                                                      \
        return error;                                                                              \
    }
#define BEGUN                                                                                      \
    if (error == RVLI_CUDA_SUCCESS)                                                                \
    rvli_capture_begin(captured, mode)
#define ENDED                                                                                      \
    rvli_capture_end(error, captured);                                                             \
    rvli_saver_free_deferred()
#define TO_GRAPH                                                                                   \
    (void *stream, void *graph, const void *dependencies, const void *data, size_t count, int mode)

FRONT_STREAM(cudaStreamBeginCapture, (void *stream, int mode), (stream, mode), false, BEGUN)
FRONT_STREAM(cudaStreamBeginCapture_ptsz, (void *stream, int mode), (stream, mode), true, BEGUN)
FRONT_STREAM(cudaStreamBeginCaptureToGraph, TO_GRAPH,
             (stream, graph, dependencies, data, count, mode), false, BEGUN)
FRONT_STREAM(cudaStreamBeginCaptureToGraph_ptsz, TO_GRAPH,
             (stream, graph, dependencies, data, count, mode), true, BEGUN)
FRONT_STREAM(cudaStreamEndCapture, (void *stream, void *graph), (stream, graph), false, ENDED)
FRONT_STREAM(cudaStreamEndCapture_ptsz, (void *stream, void *graph), (stream, graph), true, ENDED)
FRONT_STREAM(cudaStreamDestroy, (void *stream), (stream), false, ENDED)
