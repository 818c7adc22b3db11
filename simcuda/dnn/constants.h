/* SPDX-License-Identifier: MIT */
/* The cuDNN constants used here: see types.h. */
#ifndef RVL_SIMCUDA_DNN_CONSTANTS_H
#define RVL_SIMCUDA_DNN_CONSTANTS_H

/* X(name, value) for each constant. */
#define RVLI_DNN_CONSTANT_MAP(X)                                                                   \
    /* Status codes */                                                                             \
    X(CUDNN_STATUS_SUCCESS, 0)                                                                     \
    X(CUDNN_STATUS_NOT_INITIALIZED, 1001)                                                          \
    X(CUDNN_STATUS_SUBLIBRARY_LOADING_FAILED, 1008)                                                \
    X(CUDNN_STATUS_BAD_PARAM, 2000)                                                                \
    X(CUDNN_STATUS_INVALID_VALUE, 2001)                                                            \
    X(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, 2002)                                                   \
    X(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED, 2004)                                                  \
    X(CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE, 2010)                                                 \
    X(CUDNN_STATUS_NOT_SUPPORTED, 3000)                                                            \
    X(CUDNN_STATUS_INTERNAL_ERROR, 4000)                                                           \
    X(CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED, 4003)                                    \
    X(CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED, 4004)                                  \
    X(CUDNN_STATUS_EXECUTION_FAILED_CUDA_DRIVER, 5001)                                             \
    /* Descriptors of graphs */                                                                    \
    X(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, 1)                                                     \
    X(CUDNN_BACKEND_ENGINE_DESCRIPTOR, 2)                                                          \
    X(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, 3)                                                       \
    X(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, 4)                                                      \
    X(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, 5)                                                  \
    X(CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR, 10)                                  \
    X(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, 15)                                                 \
    X(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, 16)                                                   \
    X(CUDNN_BACKEND_TENSOR_DESCRIPTOR, 17)                                                         \
    X(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, 38)                                                     \
    /* Attributes of descriptors */                                                                \
    X(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, 100)                                                       \
    X(CUDNN_ATTR_CONVOLUTION_CONV_MODE, 101)                                                       \
    X(CUDNN_ATTR_CONVOLUTION_DILATIONS, 102)                                                       \
    X(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, 103)                                                  \
    X(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, 104)                                                   \
    X(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, 105)                                                    \
    X(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, 106)                                                    \
    X(CUDNN_ATTR_ENGINEHEUR_MODE, 200)                                                             \
    X(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, 201)                                                  \
    X(CUDNN_ATTR_ENGINEHEUR_RESULTS, 202)                                                          \
    X(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, 204)                                                       \
    X(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, 400)                                                       \
    X(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, 401)                                                \
    X(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, 402)                                               \
    X(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, 407)                                                   \
    X(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, 700)                                         \
    X(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, 701)                                          \
    X(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, 702)                                     \
    X(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, 703)                                             \
    X(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, 704)                                             \
    X(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, 705)                                             \
    X(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, 800)                                                       \
    X(CUDNN_ATTR_OPERATIONGRAPH_OPS, 801)                                                          \
    X(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, 900)                                                       \
    X(CUDNN_ATTR_TENSOR_DATA_TYPE, 901)                                                            \
    X(CUDNN_ATTR_TENSOR_DIMENSIONS, 902)                                                           \
    X(CUDNN_ATTR_TENSOR_STRIDES, 903)                                                              \
    X(CUDNN_ATTR_TENSOR_UNIQUE_ID, 906)                                                            \
    X(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, 1003)                                                     \
    X(CUDNN_ATTR_ENGINE_OPERATION_GRAPH, 1300)                                                     \
    X(CUDNN_ATTR_ENGINE_DEVICEPROP, 1307)                                                          \
    X(CUDNN_ATTR_DEVICEPROP_DEVICE_ID, 2700)                                                       \
    X(CUDNN_ATTR_DEVICEPROP_HANDLE, 2701)                                                          \
    X(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, 2702)                                             \
    /* Types of attributes */                                                                      \
    X(CUDNN_TYPE_HANDLE, 0)                                                                        \
    X(CUDNN_TYPE_DATA_TYPE, 1)                                                                     \
    X(CUDNN_TYPE_INT64, 3)                                                                         \
    X(CUDNN_TYPE_DOUBLE, 5)                                                                        \
    X(CUDNN_TYPE_VOID_PTR, 6)                                                                      \
    X(CUDNN_TYPE_CONVOLUTION_MODE, 7)                                                              \
    X(CUDNN_TYPE_HEUR_MODE, 8)                                                                     \
    X(CUDNN_TYPE_BACKEND_DESCRIPTOR, 15)                                                           \
    X(CUDNN_TYPE_INT32, 23)                                                                        \
    X(CUDNN_TYPE_CHAR, 24)                                                                         \
    /* Data, layouts */                                                                            \
    X(CUDNN_DATA_FLOAT, 0)                                                                         \
    X(CUDNN_TENSOR_NCHW, 0)                                                                        \
    X(CUDNN_DATA_DOUBLE, 1)                                                                        \
    X(CUDNN_TENSOR_NHWC, 1)                                                                        \
    X(CUDNN_DATA_HALF, 2)                                                                          \
    X(CUDNN_DATA_INT32, 4)                                                                         \
    X(CUDNN_DATA_BFLOAT16, 9)                                                                      \
    X(CUDNN_DATA_INT64, 10)                                                                        \
    /* The rest */                                                                                 \
    X(CUDNN_BATCHNORM_OPS_BN, 0)                                                                   \
    X(CUDNN_BATCHNORM_OPS_BN_ACTIVATION, 1)                                                        \
    X(CUDNN_BATCHNORM_SPATIAL_PERSISTENT, 2)                                                       \
    X(CUDNN_BIDIRECTIONAL, 1)                                                                      \
    X(CUDNN_CROSS_CORRELATION, 1)                                                                  \
    X(CUDNN_DEFAULT_MATH, 0)                                                                       \
    X(CUDNN_FWD_MODE_INFERENCE, 0)                                                                 \
    X(CUDNN_FWD_MODE_TRAINING, 1)                                                                  \
    X(CUDNN_GRU, 3)                                                                                \
    X(CUDNN_HEUR_MODE_B, 1)                                                                        \
    X(CUDNN_LINEAR_INPUT, 0)                                                                       \
    X(CUDNN_LSTM, 2)                                                                               \
    X(CUDNN_RNN_ALGO_PERSIST_STATIC, 1)                                                            \
    X(CUDNN_RNN_ALGO_STANDARD, 0)                                                                  \
    X(CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_PACKED, 1)                                                   \
    X(CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_UNPACKED, 0)                                                 \
    X(CUDNN_RNN_DOUBLE_BIAS, 2)                                                                    \
    X(CUDNN_RNN_SINGLE_INP_BIAS, 1)                                                                \
    X(CUDNN_RNN_SINGLE_REC_BIAS, 3)                                                                \
    X(CUDNN_RNN_TANH, 1)                                                                           \
    X(CUDNN_SKIP_INPUT, 1)                                                                         \
    X(CUDNN_UNIDIRECTIONAL, 0)

#endif
