/* SPDX-License-Identifier: MIT */
/*
 * Dropout: its states, which recurrent networks need. Their size is not published. On an H100
 * with cuDNN 9.19, PyTorch has 6,488,064 bytes for them (tests/simcuda/programs/recurrent.py,
 * bench/results/2026-11-27-h100/layers.card.1.json: the difference in use after a step without
 * them). That is 49,152 bytes for each of its 132 multiprocessors, or 1024 states of cuRAND's
 * default generator (48 bytes in its public header). A multiprocessor holds twice as many
 * threads, and a block holds 1024. For other devices, the number of threads of a block is
 * assumed.
 */
#include <cuda.h>

#include "simcuda/dnn/describe.h"

#define STATE_BYTES 48
#define STATES_EACH 1024 /* per multiprocessor */

RVLI_DESCRIPTOR(DropoutDescriptor, cudnnDropoutDescriptor_t)

cudnnStatus_t cudnnDropoutGetStatesSize(cudnnHandle_t handle, size_t *sizeInBytes)
{
    int multiprocessors = 0;
    if (handle == NULL || sizeInBytes == NULL)
        return rvli_dnn_fail(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "no handle, or no size");
    (void)cuDeviceGetAttribute(&multiprocessors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT,
                               handle->device);
    *sizeInBytes = (size_t)multiprocessors * STATES_EACH * STATE_BYTES;
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t set(cudnnDropoutDescriptor_t dropout, cudnnHandle_t handle, float probability,
                         void *states, size_t state_bytes, unsigned long long seed)
{
    size_t needed;
    if (dropout == NULL || handle == NULL)
        return rvli_dnn_fail(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "no dropout, or no handle");
    cudnnStatus_t status = cudnnDropoutGetStatesSize(handle, &needed);
    if (status == CUDNN_STATUS_SUCCESS && states != NULL && state_bytes < needed)
        return rvli_dnn_fail(CUDNN_STATUS_INVALID_VALUE, "too little memory for the states");
    dropout->probability = probability;
    dropout->states = states;
    dropout->seed = seed;
    return status;
}

cudnnStatus_t cudnnSetDropoutDescriptor(cudnnDropoutDescriptor_t dropoutDesc, cudnnHandle_t handle,
                                        float dropout, void *states, size_t stateSizeInBytes,
                                        unsigned long long seed)
{
    return set(dropoutDesc, handle, dropout, states, stateSizeInBytes, seed);
}

cudnnStatus_t cudnnRestoreDropoutDescriptor(cudnnDropoutDescriptor_t dropoutDesc,
                                            cudnnHandle_t handle, float dropout, void *states,
                                            size_t stateSizeInBytes, unsigned long long seed)
{
    return set(dropoutDesc, handle, dropout, states, stateSizeInBytes, seed);
}

cudnnStatus_t cudnnGetDropoutDescriptor(cudnnDropoutDescriptor_t dropoutDesc, cudnnHandle_t handle,
                                        float *dropout, void **states, unsigned long long *seed)
{
    if (dropoutDesc == NULL || handle == NULL)
        return rvli_dnn_fail(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "no dropout, or no handle");
    RVLI_OUT(dropout, dropoutDesc->probability);
    RVLI_OUT(states, dropoutDesc->states);
    RVLI_OUT(seed, dropoutDesc->seed);
    return CUDNN_STATUS_SUCCESS;
}
