/* SPDX-License-Identifier: MIT */
/*
 * cuDNN's types and constants, as NVIDIA documents them ("cuDNN backend API", 9.8 to 9.19), as
 * far as they are used here. cuDNN's package has 700 MB, mostly kernels, so the build does not
 * need it. If its headers are available, tests/simcuda/dnn_layout.c compares the two. An
 * enumeration is an int in C.
 */
#ifndef RVL_SIMCUDA_DNN_TYPES_H
#define RVL_SIMCUDA_DNN_TYPES_H

#include <stddef.h>
#include <stdint.h>

#include "simcuda/dnn/constants.h"

#define CUDNN_MAJOR 9
#define CUDNN_DIM_MAX 8
#define CUDNN_RNN_PADDED_IO_DISABLED 0u

enum {
#define RVLI_DNN_CONSTANT(name, value) name = value,
    RVLI_DNN_CONSTANT_MAP(RVLI_DNN_CONSTANT)
#undef RVLI_DNN_CONSTANT
};

typedef int cudnnActivationMode_t;
typedef int cudnnBackendAttributeName_t;
typedef int cudnnBackendAttributeType_t;
typedef int cudnnBackendDescriptorType_t;
typedef int cudnnBackendHeurMode_t;
typedef int cudnnBatchNormMode_t;
typedef int cudnnBatchNormOps_t;
typedef int cudnnConvolutionMode_t;
typedef int cudnnDataType_t;
typedef int cudnnDirectionMode_t;
typedef int cudnnForwardMode_t;
typedef int cudnnMathType_t;
typedef int cudnnNanPropagation_t;
typedef int cudnnRNNAlgo_t;
typedef int cudnnRNNBiasMode_t;
typedef int cudnnRNNDataLayout_t;
typedef int cudnnRNNInputMode_t;
typedef int cudnnRNNMode_t;
typedef int cudnnSamplerType_t;
typedef int cudnnStatus_t;
typedef int cudnnTensorFormat_t;
typedef int cudnnWgradMode_t;

typedef struct cudnnContext *cudnnHandle_t;
typedef struct cudnnTensorStruct *cudnnTensorDescriptor_t;
typedef struct cudnnFilterStruct *cudnnFilterDescriptor_t;
typedef struct cudnnActivationStruct *cudnnActivationDescriptor_t;
typedef struct cudnnDropoutStruct *cudnnDropoutDescriptor_t;
typedef struct cudnnRNNStruct *cudnnRNNDescriptor_t;
typedef struct cudnnRNNDataStruct *cudnnRNNDataDescriptor_t;
typedef struct cudnnSpatialTransformerStruct *cudnnSpatialTransformerDescriptor_t;
typedef void *cudnnBackendDescriptor_t;

typedef struct CUstream_st *cudaStream_t;
typedef int libraryPropertyType; /* from the CUDA runtime */

#endif
