/* SPDX-License-Identifier: MIT */
/*
 * Memory that graphs allocate for themselves. Its address belongs to the graph, and to those made
 * of it. There is memory below it from the launch on that allocates it until it is freed: by the
 * graph, by another, by the program, or by the next launch if the graph was instantiated so.
 *
 * Graphs of a device share the memory: it grows to what a launch needs beside what is in use, in
 * pieces of 32 MiB as those of pools, and stays until it is trimmed. Cards were not asked about it.
 */
#ifndef RVL_SIMCUDA_GRAPH_MEMORY_H
#define RVL_SIMCUDA_GRAPH_MEMORY_H

#include "simcuda/driver/graph.h"

typedef struct rvli_graph_memory rvli_graph_memory;

/* An allocation and a free on a stream that is captured. */
CUresult rvli_graph_memory_capture(CUstream stream, int device, size_t bytes, CUdeviceptr *addr);
CUresult rvli_graph_memory_capture_free(CUstream stream, CUdeviceptr addr);

/* The program frees what a launch has allocated. CUDA_ERROR_INVALID_VALUE: nothing has. */
CUresult rvli_graph_memory_free(const rvli_range *range);

/* Physical memory of a device that no graph uses goes back. */
void rvli_graph_memory_trim(int device);

/* Nodes that allocate share the memory with their copies. */
void rvli_graph_memory_retain(rvli_graph_memory *of);
void rvli_graph_memory_release(rvli_graph_memory *of);

/*
 * A launch of nodes in their order: first all that it needs, then each. auto_free: what an earlier
 * launch left in use is freed. CUDA_ERROR_OUT_OF_MEMORY, or CUDA_ERROR_INVALID_VALUE where
 * something is in use: nothing was changed.
 */
CUresult rvli_graph_memory_prepare(CUgraphNode *order, size_t count, int device, bool auto_free);
void rvli_graph_memory_do(CUgraphNode node);

#endif
