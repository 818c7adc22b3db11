/* SPDX-License-Identifier: MIT */
/* Cubins for tests: ELF with the sections that ptxas makes, of kernels that do nothing. */
#ifndef RVL_TESTS_SIMCUDA_CUBIN_WRITER_H
#define RVL_TESTS_SIMCUDA_CUBIN_WRITER_H

#include <stdbool.h>
#include <stddef.h>

#define CUBIN_BYTES_MOST 8192

typedef struct cubin_kernel {
    const char *name;
    unsigned registers, shared_bytes, stack_bytes;
    unsigned threads[3]; /* of .maxntid; 0: none */
} cubin_kernel;

typedef struct cubin_shape {
    unsigned version; /* 90 */
    bool old;         /* as ptxas before CUDA 13 writes it */
    const cubin_kernel *kernels;
    size_t kernel_count;
    unsigned code_bytes; /* of the first kernel: its section has no bytes then; 0: 32, as others */
    const char *calls;   /* a function that is elsewhere, as the driver's are; NULL: none */
    unsigned argument_bytes; /* of each kernel; 0: it does not say */
    bool variables;          /* "seen", 7; "zeroes" of 100 bytes; "table", constant, 1 2 3 4 */
} cubin_shape;

/* Writes one, and answers its size. */
size_t cubin_write(const cubin_shape *shape, unsigned char bytes[CUBIN_BYTES_MOST]);

#endif
