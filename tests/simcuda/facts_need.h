/* SPDX-License-Identifier: MIT */
/* Helpers of the programs that print facts: a call that must succeed, and a line of output. */
#ifndef RVL_TESTS_SIMCUDA_FACTS_NEED_H
#define RVL_TESTS_SIMCUDA_FACTS_NEED_H

#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>

/* On failure, prints the call and ends the program. */
#define NEED(call)                                                                                 \
    do {                                                                                           \
        cudaError_t needed = (cudaError_t)(call);                                                  \
        if (needed != cudaSuccess) {                                                               \
            printf("%s:%d: %s: %s\n", __FILE__, __LINE__, #call, cudaGetErrorName(needed));        \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

/* Prints a line: the question and the result. */
void say(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
