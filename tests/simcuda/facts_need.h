/* SPDX-License-Identifier: MIT */
/* What the programs that ask for facts share: a call without which no answer means anything, and a
 * line. */
#ifndef RVL_TESTS_SIMCUDA_FACTS_NEED_H
#define RVL_TESTS_SIMCUDA_FACTS_NEED_H

#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>

/* Prints what failed, and ends the program. */
#define NEED(call)                                                                                 \
    do {                                                                                           \
        cudaError_t needed = (cudaError_t)(call);                                                  \
        if (needed != cudaSuccess) {                                                               \
            printf("%s:%d: %s: %s\n", __FILE__, __LINE__, #call, cudaGetErrorName(needed));        \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

/* A line: what was asked, and what was answered. */
void say(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
