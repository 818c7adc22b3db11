/* SPDX-License-Identifier: MIT */
/* Declarations that the files of the program of facts share (facts.c). */
#ifndef RVL_TESTS_SIMCUDA_FACTS_H
#define RVL_TESTS_SIMCUDA_FACTS_H

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>

#include "facts_need.h"

/* The name of an error. Also clears the last error. */
const char *name_of(cudaError_t error);

/* Bytes in use on the device. */
long long used(void);

/* ---- facts_modules.c ---- */

void modules(void);

/* The facts of a file of device code, by kernel. */
void tell_file(const char *path);

#endif
