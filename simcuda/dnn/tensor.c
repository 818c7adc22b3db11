/* SPDX-License-Identifier: MIT */
/* Descriptors of the older functions: tensors, filters, activations. They keep what is set. */
#include <stdlib.h>
#include <string.h>

#include "simcuda/dnn/describe.h"

RVLI_DESCRIPTOR(TensorDescriptor, cudnnTensorDescriptor_t)
RVLI_DESCRIPTOR(FilterDescriptor, cudnnFilterDescriptor_t)
RVLI_DESCRIPTOR(ActivationDescriptor, cudnnActivationDescriptor_t)

size_t rvli_dnn_type_bytes(cudnnDataType_t type)
{
    switch ((int)type) {
    case CUDNN_DATA_DOUBLE:
    case CUDNN_DATA_INT64:
        return 8;
    case CUDNN_DATA_FLOAT:
    case CUDNN_DATA_INT32:
        return 4;
    case CUDNN_DATA_HALF:
    case CUDNN_DATA_BFLOAT16:
        return 2;
    default:
        return 1;
    }
}

static bool good_sizes(int count, const int *sizes)
{
    bool good = count >= 3 && count <= CUDNN_DIM_MAX && sizes != NULL;
    for (int i = 0; good && i < count; i++)
        good = sizes[i] > 0;
    return good;
}

cudnnStatus_t cudnnSetTensorNdDescriptor(cudnnTensorDescriptor_t tensorDesc,
                                         cudnnDataType_t dataType, int nbDims, const int dimA[],
                                         const int strideA[])
{
    if (tensorDesc == NULL || strideA == NULL || !good_sizes(nbDims, dimA))
        return rvli_dnn_fail(CUDNN_STATUS_BAD_PARAM, "a tensor has 3 to 8 sizes above 0");
    tensorDesc->type = dataType;
    tensorDesc->count = nbDims;
    memcpy(tensorDesc->sizes, dimA, (size_t)nbDims * sizeof *dimA);
    memcpy(tensorDesc->strides, strideA, (size_t)nbDims * sizeof *strideA);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetTensorNdDescriptor(cudnnTensorDescriptor_t tensorDesc, int nbDimsRequested,
                                         cudnnDataType_t *dataType, int *nbDims, int dimA[],
                                         int strideA[])
{
    if (tensorDesc == NULL || nbDimsRequested < 0 || nbDimsRequested > CUDNN_DIM_MAX)
        return rvli_dnn_fail(CUDNN_STATUS_BAD_PARAM, "no tensor, or too many sizes are wanted");
    int count = nbDimsRequested < tensorDesc->count ? nbDimsRequested : tensorDesc->count;
    RVLI_OUT(dataType, tensorDesc->type);
    RVLI_OUT(nbDims, tensorDesc->count);
    if (dimA != NULL)
        memcpy(dimA, tensorDesc->sizes, (size_t)count * sizeof *dimA);
    if (strideA != NULL)
        memcpy(strideA, tensorDesc->strides, (size_t)count * sizeof *strideA);
    return CUDNN_STATUS_SUCCESS;
}

/* The bytes from the first element to the end of the last. */
cudnnStatus_t cudnnGetTensorSizeInBytes(cudnnTensorDescriptor_t tensorDesc, size_t *size)
{
    if (tensorDesc == NULL || size == NULL)
        return rvli_dnn_fail(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "no tensor, or no size");
    size_t elements = tensorDesc->count > 0;
    for (int i = 0; i < tensorDesc->count; i++)
        elements += (size_t)(tensorDesc->sizes[i] - 1) * (size_t)tensorDesc->strides[i];
    *size = elements * rvli_dnn_type_bytes(tensorDesc->type);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetFilterNdDescriptor(cudnnFilterDescriptor_t filterDesc,
                                         cudnnDataType_t dataType, cudnnTensorFormat_t format,
                                         int nbDims, const int filterDimA[])
{
    if (filterDesc == NULL || !good_sizes(nbDims, filterDimA))
        return rvli_dnn_fail(CUDNN_STATUS_BAD_PARAM, "a filter has 3 to 8 sizes above 0");
    filterDesc->type = dataType;
    filterDesc->format = format;
    filterDesc->count = nbDims;
    memcpy(filterDesc->sizes, filterDimA, (size_t)nbDims * sizeof *filterDimA);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetFilterNdDescriptor(cudnnFilterDescriptor_t filterDesc, int nbDimsRequested,
                                         cudnnDataType_t *dataType, cudnnTensorFormat_t *format,
                                         int *nbDims, int filterDimA[])
{
    if (filterDesc == NULL || nbDimsRequested < 0 || nbDimsRequested > CUDNN_DIM_MAX)
        return rvli_dnn_fail(CUDNN_STATUS_BAD_PARAM, "no filter, or too many sizes are wanted");
    int count = nbDimsRequested < filterDesc->count ? nbDimsRequested : filterDesc->count;
    RVLI_OUT(dataType, filterDesc->type);
    RVLI_OUT(format, filterDesc->format);
    RVLI_OUT(nbDims, filterDesc->count);
    if (filterDimA != NULL)
        memcpy(filterDimA, filterDesc->sizes, (size_t)count * sizeof *filterDimA);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetActivationDescriptor(cudnnActivationDescriptor_t activationDesc,
                                           cudnnActivationMode_t mode,
                                           cudnnNanPropagation_t reluNanOpt, double coef)
{
    if (activationDesc == NULL)
        return rvli_dnn_fail(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "no activation");
    activationDesc->mode = mode;
    activationDesc->nan = reluNanOpt;
    activationDesc->coefficient = coef;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetActivationDescriptor(cudnnActivationDescriptor_t activationDesc,
                                           cudnnActivationMode_t *mode,
                                           cudnnNanPropagation_t *reluNanOpt, double *coef)
{
    if (activationDesc == NULL)
        return rvli_dnn_fail(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "no activation");
    RVLI_OUT(mode, activationDesc->mode);
    RVLI_OUT(reluNanOpt, activationDesc->nan);
    RVLI_OUT(coef, activationDesc->coefficient);
    return CUDNN_STATUS_SUCCESS;
}
