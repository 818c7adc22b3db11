/* SPDX-License-Identifier: MIT */
/* Descriptors of the functions that take a handle and no graph. They keep what is set. */
#ifndef RVL_SIMCUDA_DNN_DESCRIBE_H
#define RVL_SIMCUDA_DNN_DESCRIBE_H

#include <stdlib.h>

#include "simcuda/dnn/dnn.h"

struct cudnnTensorStruct {
    cudnnDataType_t type;
    int count;
    int sizes[CUDNN_DIM_MAX];
    int strides[CUDNN_DIM_MAX];
};

struct cudnnFilterStruct {
    cudnnDataType_t type;
    cudnnTensorFormat_t format;
    int count;
    int sizes[CUDNN_DIM_MAX];
};

struct cudnnActivationStruct {
    cudnnActivationMode_t mode;
    cudnnNanPropagation_t nan;
    double coefficient;
};

struct cudnnDropoutStruct {
    float probability;
    void *states;
    unsigned long long seed;
};

size_t rvli_dnn_type_bytes(cudnnDataType_t type);

/* Defines cudnnCreateNAME() and cudnnDestroyNAME(). */
#define RVLI_DESCRIPTOR(name, type)                                                                \
    cudnnStatus_t cudnnCreate##name(type *made)                                                    \
    {                                                                                              \
        if (made == NULL)                                                                          \
            return rvli_dnn_fail(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "no place for it");          \
        type one = calloc(1, sizeof *one);                                                         \
        if (one == NULL)                                                                           \
            return rvli_dnn_fail(CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED,               \
                                 "no host memory");                                                \
        *made = one;                                                                               \
        return CUDNN_STATUS_SUCCESS;                                                               \
    }                                                                                              \
    cudnnStatus_t cudnnDestroy##name(type made)                                                    \
    {                                                                                              \
        free(made);                                                                                \
        return CUDNN_STATUS_SUCCESS;                                                               \
    }

#define RVLI_OUT(place, value)                                                                     \
    do {                                                                                           \
        if ((place) != NULL)                                                                       \
            *(place) = (value);                                                                    \
    } while (0)

#endif
