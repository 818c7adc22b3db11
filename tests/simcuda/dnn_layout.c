/* SPDX-License-Identifier: MIT */
/* Compares simcuda/dnn's constants of cuDNN with NVIDIA's headers. */
#include <cudnn.h>

#include "simcuda/dnn/constants.h"

#define SAME(name, value) _Static_assert((long)(name) == (value), #name);
RVLI_DNN_CONSTANT_MAP(SAME)
_Static_assert(CUDNN_DIM_MAX == 8 && CUDNN_MAJOR == 9, "what types.h says");
_Static_assert(sizeof(cudnnStatus_t) == sizeof(int) && sizeof(libraryPropertyType) == sizeof(int),
               "an enumeration is an int");
