/* SPDX-License-Identifier: MIT */
/* cuFFT's functions that are not simulated (simcuda/wire/stub.h). */
#include "simcuda/wire/stub.h"

#define NOT_SUPPORTED 16 /* CUFFT_NOT_SUPPORTED */
#define RVLI_ENTRY(name) RVLI_STUB(name, NOT_SUPPORTED)
#include "cufft_entries.inc"
