/* SPDX-License-Identifier: MIT */
/*
 * Captures: a stream collects its work into a graph instead of doing it. An event that was recorded
 * in a capture draws the stream that waits for it into the same capture, and all of them must have
 * come together again when it ends.
 *
 * What is refused meanwhile, with which error, and whether the capture is lost by it, is as an H200
 * answered (tests/simcuda/facts.c).
 */
#ifndef RVL_SIMCUDA_CAPTURE_H
#define RVL_SIMCUDA_CAPTURE_H

#include "simcuda/driver/graph.h"
#include "simcuda/driver/stream.h"

/*
 * Before a call that may not be made while somebody captures, and that this thread's mode forbids.
 * CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED: those captures are lost.
 */
CUresult rvli_capture_unsafe(void);

/* Before waiting for a whole context. The same error, in every mode. */
CUresult rvli_capture_wait_context(void);

/* Before waiting for a stream, or asking how far it is. */
CUresult rvli_capture_wait_stream(CUstream stream);

/* Before waiting for an event, or asking whether it has passed. */
CUresult rvli_capture_wait_event(CUevent event);

/* Before a call that a captured stream cannot take: the capture is lost. */
CUresult rvli_capture_refuse(CUstream stream);

/*
 * Work for a stream. Where the stream is captured, *captured_out is true and the graph has a node
 * more, with these parameters; otherwise the caller does the work.
 */
CUresult rvli_capture_work(CUstream stream, CUgraphNodeType type, const rvli_node_params *params,
                           bool *captured_out);
CUresult rvli_capture_copy(CUstream stream, uint64_t to, uint64_t from, size_t bytes,
                           bool *captured_out);
CUresult rvli_capture_fill(CUstream stream, uint64_t addr, unsigned value, size_t count,
                           size_t unit_bytes, bool *captured_out);

/* An event is recorded on a stream, or a stream waits for it. *captured_out as above. */
CUresult rvli_capture_record(CUevent event, CUstream stream, bool *captured_out);
CUresult rvli_capture_depend(CUstream stream, CUevent event, bool *captured_out);

/* The graph that a stream is captured into; NULL: it is not captured. */
CUgraph rvli_capture_graph(CUstream stream);

/* The stream or event is about to be freed. */
void rvli_capture_drop_stream(CUstream stream);
void rvli_capture_drop_event(CUevent event);

#endif
