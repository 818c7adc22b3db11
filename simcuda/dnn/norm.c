/* SPDX-License-Identifier: MIT */
/*
 * Batch normalization by the older functions. The workspace and reserve that they need are not
 * published, and cannot be queried without a device. None is assumed: without a fused
 * activation, they keep no activation, and a workspace for sums is a few kilobytes.
 */
#include "simcuda/dnn/dnn.h"

#pragma GCC diagnostic ignored "-Wunused-parameter" /* nothing is computed */

/* Checks whether the operation is supported. With a fused activation, no size is known. */
static cudnnStatus_t answer(cudnnHandle_t handle, cudnnBatchNormOps_t operations)
{
    if (handle == NULL)
        return rvli_dnn_fail(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "no handle");
    if (operations != CUDNN_BATCHNORM_OPS_BN)
        return rvli_dnn_fail(CUDNN_STATUS_NOT_SUPPORTED,
                             "simulated batch normalization has no fused activation");
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t none(cudnnHandle_t handle, cudnnBatchNormOps_t operations, size_t *size)
{
    cudnnStatus_t status = answer(handle, operations);
    if (status == CUDNN_STATUS_SUCCESS && size == NULL)
        return rvli_dnn_fail(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "no place for the size");
    if (status == CUDNN_STATUS_SUCCESS)
        *size = 0;
    return status;
}

cudnnStatus_t cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize(
    cudnnHandle_t handle, cudnnBatchNormMode_t mode, cudnnBatchNormOps_t bnOps,
    cudnnTensorDescriptor_t xDesc, cudnnTensorDescriptor_t zDesc, cudnnTensorDescriptor_t yDesc,
    cudnnTensorDescriptor_t bnScaleBiasMeanVarDesc, cudnnActivationDescriptor_t activationDesc,
    size_t *sizeInBytes)
{
    return none(handle, bnOps, sizeInBytes);
}

cudnnStatus_t cudnnGetBatchNormalizationBackwardExWorkspaceSize(
    cudnnHandle_t handle, cudnnBatchNormMode_t mode, cudnnBatchNormOps_t bnOps,
    cudnnTensorDescriptor_t xDesc, cudnnTensorDescriptor_t yDesc, cudnnTensorDescriptor_t dyDesc,
    cudnnTensorDescriptor_t dzDesc, cudnnTensorDescriptor_t dxDesc,
    cudnnTensorDescriptor_t dBnScaleBiasDesc, cudnnActivationDescriptor_t activationDesc,
    size_t *sizeInBytes)
{
    return none(handle, bnOps, sizeInBytes);
}

cudnnStatus_t cudnnGetBatchNormalizationTrainingExReserveSpaceSize(
    cudnnHandle_t handle, cudnnBatchNormMode_t mode, cudnnBatchNormOps_t bnOps,
    cudnnActivationDescriptor_t activationDesc, cudnnTensorDescriptor_t xDesc, size_t *sizeInBytes)
{
    return none(handle, bnOps, sizeInBytes);
}

static cudnnStatus_t run(cudnnHandle_t handle, cudnnBatchNormOps_t operations)
{
    cudnnStatus_t status = answer(handle, operations);
    return status == CUDNN_STATUS_SUCCESS ? rvli_dnn_launch(handle) : status;
}

cudnnStatus_t cudnnBatchNormalizationForwardTrainingEx(
    cudnnHandle_t handle, cudnnBatchNormMode_t mode, cudnnBatchNormOps_t bnOps, const void *alpha,
    const void *beta, cudnnTensorDescriptor_t xDesc, const void *xData,
    cudnnTensorDescriptor_t zDesc, const void *zData, cudnnTensorDescriptor_t yDesc, void *yData,
    cudnnTensorDescriptor_t bnScaleBiasMeanVarDesc, const void *bnScale, const void *bnBias,
    double exponentialAverageFactor, void *resultRunningMean, void *resultRunningVariance,
    double epsilon, void *resultSaveMean, void *resultSaveInvVariance,
    cudnnActivationDescriptor_t activationDesc, void *workspace, size_t workSpaceSizeInBytes,
    void *reserveSpace, size_t reserveSpaceSizeInBytes)
{
    return run(handle, bnOps);
}

cudnnStatus_t cudnnBatchNormalizationBackwardEx(
    cudnnHandle_t handle, cudnnBatchNormMode_t mode, cudnnBatchNormOps_t bnOps,
    const void *alphaDataDiff, const void *betaDataDiff, const void *alphaParamDiff,
    const void *betaParamDiff, cudnnTensorDescriptor_t xDesc, const void *xData,
    cudnnTensorDescriptor_t yDesc, const void *yData, cudnnTensorDescriptor_t dyDesc,
    const void *dyData, cudnnTensorDescriptor_t dzDesc, void *dzData,
    cudnnTensorDescriptor_t dxDesc, void *dxData, cudnnTensorDescriptor_t dBnScaleBiasDesc,
    const void *bnScaleData, const void *bnBiasData, void *dBnScaleData, void *dBnBiasData,
    double epsilon, const void *savedMean, const void *savedInvVariance,
    cudnnActivationDescriptor_t activationDesc, void *workSpace, size_t workSpaceSizeInBytes,
    void *reserveSpace, size_t reserveSpaceSizeInBytes)
{
    return run(handle, bnOps);
}

cudnnStatus_t cudnnBatchNormalizationForwardInference(
    cudnnHandle_t handle, cudnnBatchNormMode_t mode, const void *alpha, const void *beta,
    cudnnTensorDescriptor_t xDesc, const void *x, cudnnTensorDescriptor_t yDesc, void *y,
    cudnnTensorDescriptor_t bnScaleBiasMeanVarDesc, const void *bnScale, const void *bnBias,
    const void *estimatedMean, const void *estimatedVariance, double epsilon)
{
    return run(handle, CUDNN_BATCHNORM_OPS_BN);
}
