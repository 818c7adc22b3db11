/* SPDX-License-Identifier: MIT */
/* What the files of the program of facts share (facts.c). */
#ifndef RVL_TESTS_SIMCUDA_FACTS_H
#define RVL_TESTS_SIMCUDA_FACTS_H

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>

#include "facts_need.h"

/* The name of an error; it is forgotten. */
const char *name_of(cudaError_t error);

/* Bytes in use on the device. */
long long used(void);

/* ---- facts_modules.c ---- */

void modules(void);

/* What a file of device code has, by kernel. */
void tell_file(const char *path);

#endif
