/* SPDX-License-Identifier: MIT */
/* The driver's functions that are not simulated (simcuda/wire/stub.h). */
#include "simcuda/wire/stub.h"

#define NOT_SUPPORTED                                                                              \
    801 /* CUDA_ERROR_NOT_SUPPORTED; the header and its prototypes are not included */
#define RVLI_ENTRY(name) RVLI_STUB(name, NOT_SUPPORTED)
#include "cuda_entries.inc"
