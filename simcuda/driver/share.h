/* SPDX-License-Identifier: MIT */
/*
 * What the driver takes on a device for itself as a process goes on: for streams, and for graphs as
 * they are instantiated. In the trace it is the process's memory with the tags "streams" and
 * "graphs".
 */
#ifndef RVL_SIMCUDA_SHARE_H
#define RVL_SIMCUDA_SHARE_H

#include "simcuda/driver/driver.h"

/* A stream is made, and is no more. CUDA_ERROR_OUT_OF_MEMORY: it cannot be. */
CUresult rvli_share_stream(int device);
void rvli_share_stream_gone(int device);

/* A graph with so many kernels is instantiated, and is no more. */
CUresult rvli_share_graph(int device, size_t kernels);
void rvli_share_graph_gone(int device, size_t kernels);

#endif
