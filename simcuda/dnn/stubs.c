/* SPDX-License-Identifier: MIT */
/* cuDNN's functions that are not simulated (simcuda/wire/stub.h). */
#include "simcuda/wire/stub.h"

#define NOT_SUPPORTED                                                                              \
    3000 /* CUDNN_STATUS_NOT_SUPPORTED; the header and its prototypes are not included */
#define RVLI_ENTRY(name) RVLI_STUB(name, NOT_SUPPORTED)
#include "cudnn_entries.inc"
