/* SPDX-License-Identifier: MIT */
/*
 * Captures: a stream collects its work into a graph instead of doing it. A stream that waits for
 * an event recorded in a capture joins the capture. All streams must be joined again when it
 * ends.
 *
 * Which calls a capture forbids, with which errors, and whether the capture is then invalidated,
 * follows measurements on an H200 (tests/simcuda/facts.c).
 */
#ifndef RVL_SIMCUDA_CAPTURE_H
#define RVL_SIMCUDA_CAPTURE_H

#include "simcuda/driver/graph.h"
#include "simcuda/driver/stream.h"

/*
 * Call before any operation that this thread's mode forbids while a capture runs.
 * CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED: the captures concerned are invalidated.
 */
CUresult rvli_capture_unsafe(void);

/* Call before waiting for a whole context. Returns the same error, in every mode. */
CUresult rvli_capture_wait_context(void);

/* Call before waiting for a stream, or querying it. */
CUresult rvli_capture_wait_stream(CUstream stream);

/* Call before waiting for an event, or querying it. */
CUresult rvli_capture_wait_event(CUevent event);

/* Call before an operation that a captured stream does not support. Invalidates the capture. */
CUresult rvli_capture_refuse(CUstream stream);

/*
 * Adds work to a stream. If the stream is captured, *captured_out is true and the graph has a
 * new node with these parameters. Otherwise the caller does the work.
 */
CUresult rvli_capture_work(CUstream stream, CUgraphNodeType type, const rvli_node_params *params,
                           bool *captured_out);
CUresult rvli_capture_copy(CUstream stream, uint64_t to, uint64_t from, size_t bytes,
                           bool *captured_out);
CUresult rvli_capture_fill(CUstream stream, uint64_t addr, unsigned value, size_t count,
                           size_t unit_bytes, bool *captured_out);

/* Records an event on a stream, or makes a stream wait for it. *captured_out as above. */
CUresult rvli_capture_record(CUevent event, CUstream stream, bool *captured_out);
CUresult rvli_capture_depend(CUstream stream, CUevent event, bool *captured_out);

/* The graph into which a stream is captured. NULL: it is not captured. */
CUgraph rvli_capture_graph(CUstream stream);

/* Call before a stream or an event is freed. */
void rvli_capture_drop_stream(CUstream stream);
void rvli_capture_drop_event(CUevent event);

#endif
