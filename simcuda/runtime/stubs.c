/* SPDX-License-Identifier: MIT */
/* The runtime's functions that are not simulated (simcuda/wire/stub.h). */
#include "simcuda/wire/stub.h"

#define NOT_SUPPORTED 801 /* cudaErrorNotSupported; the header is not included */
#define RVLI_ENTRY(name) RVLI_STUB_AS(name, #name, NOT_SUPPORTED)
#include "cudart_entries.inc"
#include "cudart_start_entries.inc"
