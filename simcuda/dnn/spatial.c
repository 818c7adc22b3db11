/* SPDX-License-Identifier: MIT */
/*
 * The spatial transformer, with which PyTorch samples images at the points of a grid
 * (`grid_sample`, bilinear). The documented calls take no workspace.
 */
#include <string.h>

#include "simcuda/dnn/describe.h"

#pragma GCC diagnostic ignored "-Wunused-parameter" /* nothing is computed */

#define IMAGE_DIMENSIONS 4

struct cudnnSpatialTransformerStruct {
    int count;
    int sizes[CUDNN_DIM_MAX];
};

RVLI_DESCRIPTOR(SpatialTransformerDescriptor, cudnnSpatialTransformerDescriptor_t)

/* PyTorch's own kernels sample volumes: cuDNN is documented to sample images alone. */
cudnnStatus_t cudnnSetSpatialTransformerNdDescriptor(cudnnSpatialTransformerDescriptor_t stDesc,
                                                     cudnnSamplerType_t samplerType,
                                                     cudnnDataType_t dataType, int nbDims,
                                                     const int dimA[])
{
    if (stDesc == NULL || dimA == NULL)
        return rvli_dnn_fail(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "no transformer, or no sizes");
    if (nbDims != IMAGE_DIMENSIONS)
        return rvli_dnn_fail(CUDNN_STATUS_NOT_SUPPORTED, "a transformer has 4 sizes");
    stDesc->count = nbDims;
    memcpy(stDesc->sizes, dimA, (size_t)nbDims * sizeof *dimA);
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t run(cudnnHandle_t handle, cudnnSpatialTransformerDescriptor_t transformer)
{
    if (handle == NULL || transformer == NULL)
        return rvli_dnn_fail(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "no handle, or no transformer");
    if (transformer->count == 0)
        return rvli_dnn_fail(CUDNN_STATUS_BAD_PARAM, "the transformer has no sizes");
    return rvli_dnn_launch(handle);
}

cudnnStatus_t cudnnSpatialTfGridGeneratorForward(cudnnHandle_t handle,
                                                 cudnnSpatialTransformerDescriptor_t stDesc,
                                                 const void *theta, void *grid)
{
    return run(handle, stDesc);
}

cudnnStatus_t cudnnSpatialTfGridGeneratorBackward(cudnnHandle_t handle,
                                                  cudnnSpatialTransformerDescriptor_t stDesc,
                                                  const void *dgrid, void *dtheta)
{
    return run(handle, stDesc);
}

cudnnStatus_t cudnnSpatialTfSamplerForward(cudnnHandle_t handle,
                                           cudnnSpatialTransformerDescriptor_t stDesc,
                                           const void *alpha, cudnnTensorDescriptor_t xDesc,
                                           const void *x, const void *grid, const void *beta,
                                           cudnnTensorDescriptor_t yDesc, void *y)
{
    return run(handle, stDesc);
}

cudnnStatus_t
cudnnSpatialTfSamplerBackward(cudnnHandle_t handle, cudnnSpatialTransformerDescriptor_t stDesc,
                              const void *alpha, cudnnTensorDescriptor_t xDesc, const void *x,
                              const void *beta, cudnnTensorDescriptor_t dxDesc, void *dx,
                              const void *alphaDgrid, cudnnTensorDescriptor_t dyDesc,
                              const void *dy, const void *grid, const void *betaDgrid, void *dgrid)
{
    return run(handle, stDesc);
}
