/* SPDX-License-Identifier: MIT */
/*
 * The memory that the driver takes on a device in the course of a process: for streams, for
 * instantiated graphs, and for code. In the trace, it belongs to the process, with the tags
 * "streams", "graphs", "kernels" and "local memory".
 */
#ifndef RVL_SIMCUDA_SHARE_H
#define RVL_SIMCUDA_SHARE_H

#include "simcuda/driver/driver.h"
#include "simcuda/driver/graph_share.h"

/* Releases everything when the device's last context is destroyed. Objects that end later are
 * not counted. */
void rvli_share_give(int device);

/* Account for a stream that is made, or destroyed. CUDA_ERROR_OUT_OF_MEMORY: it cannot be made. */
CUresult rvli_share_stream(int device);
void rvli_share_stream_gone(int device);

/* Loads a kernel with so many bytes of code. */
CUresult rvli_share_code(int device, uint64_t bytes);

/* Loads an image: its variables, and whether its code may fail an assert(). */
CUresult rvli_share_image(int device, uint64_t variable_bytes, bool asserts);

/* Launches a kernel with so many bytes of local memory per thread. */
CUresult rvli_share_local(int device, uint64_t bytes);

/* Account for a graph that is instantiated, or destroyed. CUDA_ERROR_OUT_OF_MEMORY: nothing was
 * taken. */
CUresult rvli_share_graph(int device, const rvli_graph_needs *needs);
void rvli_share_graph_gone(int device, const rvli_graph_needs *needs);

#endif
