/* SPDX-License-Identifier: MIT */
/* simcuda/dnn has cuDNN's constants without its headers: here the two are compared. */
#include <cudnn.h>

#include "simcuda/dnn/constants.h"

#define SAME(name, value) _Static_assert((long)(name) == (value), #name);
RVLI_DNN_CONSTANT_MAP(SAME)
_Static_assert(CUDNN_DIM_MAX == 8 && CUDNN_MAJOR == 9, "what types.h says");
_Static_assert(sizeof(cudnnStatus_t) == sizeof(int) && sizeof(libraryPropertyType) == sizeof(int),
               "an enumeration is an int");
