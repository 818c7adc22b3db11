/* SPDX-License-Identifier: MIT */
/*
 * Memory that graphs allocate themselves. Its address belongs to the graph and its copies. The
 * address has memory from the launch that allocates it until it is freed: by the graph, by
 * another graph, by the program, or by the next launch if the graph was instantiated with that
 * flag.
 *
 * Graphs of a device share the memory. It grows to what a launch needs in addition to what is in
 * use, in pieces of 32 MiB, as for pools, and stays until it is trimmed. This was not measured
 * on a card.
 */
#ifndef RVL_SIMCUDA_GRAPH_MEMORY_H
#define RVL_SIMCUDA_GRAPH_MEMORY_H

#include "simcuda/driver/graph.h"

typedef struct rvli_graph_memory rvli_graph_memory;

/* Capture an allocation or a free on a stream. */
CUresult rvli_graph_memory_capture(CUstream stream, int device, size_t bytes, CUdeviceptr *addr);
CUresult rvli_graph_memory_capture_free(CUstream stream, CUdeviceptr addr);

/* Frees memory that a launch has allocated. CUDA_ERROR_INVALID_VALUE: no launch has. */
CUresult rvli_graph_memory_free(const rvli_range *range);

/* Releases a device's physical memory that no graph uses. */
void rvli_graph_memory_trim(int device);

/* Count the owners: nodes that allocate share the memory with their copies. */
void rvli_graph_memory_retain(rvli_graph_memory *of);
void rvli_graph_memory_release(rvli_graph_memory *of);

/*
 * Prepares a launch of nodes in order: takes all memory first, before rvli_graph_memory_do() for
 * each node. auto_free: frees what an earlier launch left in use. CUDA_ERROR_OUT_OF_MEMORY, or
 * CUDA_ERROR_INVALID_VALUE if memory is still in use: nothing was changed.
 */
CUresult rvli_graph_memory_prepare(CUgraphNode *order, size_t count, int device, bool auto_free);
void rvli_graph_memory_do(CUgraphNode node);

#endif
