/* SPDX-License-Identifier: MIT */
/* Writes cubins for tests: ELF files with the sections that ptxas makes, with kernels that do
 * nothing. */
#ifndef RVL_TESTS_SIMCUDA_CUBIN_WRITER_H
#define RVL_TESTS_SIMCUDA_CUBIN_WRITER_H

#include <stdbool.h>
#include <stddef.h>

#define CUBIN_BYTES_MOST 8192

typedef struct cubin_kernel {
    const char *name;
    unsigned registers, shared_bytes, stack_bytes;
    unsigned threads[3]; /* as in .maxntid; 0: none */
} cubin_kernel;

typedef struct cubin_shape {
    unsigned version; /* 90 */
    bool old;         /* in the format of ptxas before CUDA 13 */
    const cubin_kernel *kernels;
    size_t kernel_count;
    unsigned code_bytes; /* of the first kernel, in a section without content; 0: 32 bytes, as for
                            the others */
    const char *calls;   /* a function outside the file, as the driver's are; NULL: none */
    unsigned argument_bytes; /* for each kernel; 0: not given */
    bool variables; /* "seen" with 7; "zeroes" of 100 bytes; "table", constant, with 1 2 3 4 */
} cubin_shape;

/* Writes a cubin, and returns its size. */
size_t cubin_write(const cubin_shape *shape, unsigned char bytes[CUBIN_BYTES_MOST]);

#endif
