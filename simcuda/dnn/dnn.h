/* SPDX-License-Identifier: MIT */
/*
 * Declarations that the files of the simulated cuDNN, libcudnn.so.9, share.
 *
 * It computes nothing, but plans as on a card. cuDNN itself can plan without a device: since
 * version 9.8, a graph of operations accepts the properties of a device in place of a handle
 * ("deviceless ahead-of-time compilation" in NVIDIA's documentation). So the program's own
 * cuDNN, in its library libcudnn_graph.so.9, answers all questions about descriptors,
 * heuristics, support and workspaces, with the properties of the simulated device (planner.c,
 * properties.c, backend.c). Where a plan would run, nothing is computed.
 *
 * The older functions take a handle and no graph, so they cannot be planned this way. Those that
 * PyTorch calls are here (tensor.c, norm.c, rnn.c, ...). The rest are stubs (stubs.c).
 */
#ifndef RVL_SIMCUDA_DNN_H
#define RVL_SIMCUDA_DNN_H

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>

#include "simcuda/dnn/functions.h"

/* ---- planner.c: the program's own cuDNN ---- */

typedef struct rvli_planner {
    cudnnStatus_t (*create)(cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t *made);
    cudnnStatus_t (*destroy)(cudnnBackendDescriptor_t descriptor);
    cudnnStatus_t (*finalize)(cudnnBackendDescriptor_t descriptor);
    cudnnStatus_t (*set)(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                         cudnnBackendAttributeType_t type, int64_t count, const void *elements);
    cudnnStatus_t (*get)(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                         cudnnBackendAttributeType_t type, int64_t wanted, int64_t *count,
                         void *elements);
    size_t (*version)(void);
    size_t (*runtime_version)(void);
    size_t (*newest_device)(void);
    cudnnStatus_t (*property)(libraryPropertyType which, int *value);
    const char *(*status_text)(cudnnStatus_t status);
    void (*last_error)(char *message, size_t message_bytes);
} rvli_planner;

/* Opens the planner at the first call. NULL: there is none, which is reported once. */
const rvli_planner *rvli_dnn_planner(void);

/* ---- handle.c ---- */

#define RVLI_DNN_STREAMS 16

struct cudnnContext {
    int device;
    cudaStream_t stream;
    cudnnBackendDescriptor_t properties; /* of the device, for the planner */
    CUcontext context;                   /* owns these streams and this memory */
    CUstream streams[RVLI_DNN_STREAMS];
    CUdeviceptr own;
};

/* Launches the kernel of a call (simcuda/wire/kernel.h). */
cudnnStatus_t rvli_dnn_launch(cudnnHandle_t handle);

/* ---- properties.c ---- */

/* A device's properties in the form in which cuDNN describes one to itself. The caller frees the
 * text. NULL: no such device, or out of memory. */
char *rvli_dnn_properties(int device);

/* ---- error.c ---- */

/* Keeps the reason of a failure for cudnnGetLastErrorString(), and returns the status. */
cudnnStatus_t rvli_dnn_fail(cudnnStatus_t status, const char *why);

/* Returns the planner's status. On failure, the planner has the reason. */
cudnnStatus_t rvli_dnn_planned(cudnnStatus_t status);

#endif
