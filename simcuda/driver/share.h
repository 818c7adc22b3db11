/* SPDX-License-Identifier: MIT */
/*
 * What the driver takes on a device for itself as a process goes on: for streams, for graphs as
 * they are instantiated, and for code. In the trace it is the process's memory with the tags
 * "streams", "graphs", "kernels" and "local memory".
 */
#ifndef RVL_SIMCUDA_SHARE_H
#define RVL_SIMCUDA_SHARE_H

#include "simcuda/driver/driver.h"
#include "simcuda/driver/graph_share.h"

/* The device's last context is gone: all goes back. What is made of it later counts for nothing. */
void rvli_share_give(int device);

/* A stream is made, and is no more. CUDA_ERROR_OUT_OF_MEMORY: it cannot be. */
CUresult rvli_share_stream(int device);
void rvli_share_stream_gone(int device);

/* A kernel with so many bytes of code is loaded. */
CUresult rvli_share_code(int device, uint64_t bytes);

/* An image is loaded: its variables, and whether its code may fail an assert(). */
CUresult rvli_share_image(int device, uint64_t variable_bytes, bool asserts);

/* A kernel with so many bytes of local memory a thread is launched. */
CUresult rvli_share_local(int device, uint64_t bytes);

/* A graph is instantiated, and is no more. CUDA_ERROR_OUT_OF_MEMORY: nothing was taken. */
CUresult rvli_share_graph(int device, const rvli_graph_needs *needs);
void rvli_share_graph_gone(int device, const rvli_graph_needs *needs);

#endif
