/* SPDX-License-Identifier: MIT */
/*
 * Declarations that the simulated cuFFT, cuSOLVER and cuSPARSE share: a handle's memory, and
 * kernels, which take memory for their code the first time.
 */
#ifndef RVL_SIMCUDA_MATH_LIBRARY_H
#define RVL_SIMCUDA_MATH_LIBRARY_H

#include <cuda.h>
#include <stddef.h>
#include <stdint.h>

/* Results common to cuSOLVER and cuSPARSE (NVIDIA's documentation of both). */
#define RVLI_MATH_SUCCESS 0
#define RVLI_MATH_NOT_INITIALIZED 1
#define RVLI_MATH_ALLOC_FAILED 2
#define RVLI_MATH_INVALID_VALUE 3
#define RVLI_MATH_EXECUTION_FAILED 6

#define RVLI_MATH_PIECES 3

/* Memory that a library takes for itself. */
typedef struct rvli_math_memory {
    CUcontext context; /* owns the memory */
    CUdeviceptr pieces[RVLI_MATH_PIECES];
} rvli_math_memory;

/* Makes a context if there is none, as the libraries' own runtime does. Sizes of 0 are skipped. */
CUresult rvli_math_take(rvli_math_memory *memory, const size_t *sizes, size_t count);
void rvli_math_give_back(rvli_math_memory *memory);

/*
 * Launches a kernel by name. The first launch takes memory for so much code.
 * CUDA_ERROR_OUT_OF_MEMORY: there is no room, and nothing was launched.
 */
CUresult rvli_math_launch(const char *name, uint64_t code_bytes, CUstream stream);

/* Takes memory for the code only. */
CUresult rvli_math_load(const char *name, uint64_t code_bytes);

/* A value that a handle keeps: its setter and getter. */
#define RVLI_MATH_KEPT(setter, getter, type, field)                                                \
    int setter(handle *of, type value)                                                             \
    {                                                                                              \
        if (of == NULL)                                                                            \
            return RVLI_MATH_NOT_INITIALIZED;                                                      \
        of->field = value;                                                                         \
        return RVLI_MATH_SUCCESS;                                                                  \
    }                                                                                              \
    int getter(handle *of, type *value)                                                            \
    {                                                                                              \
        if (of == NULL)                                                                            \
            return RVLI_MATH_NOT_INITIALIZED;                                                      \
        *value = of->field;                                                                        \
        return RVLI_MATH_SUCCESS;                                                                  \
    }

/* Objects with content that is not read: settings of functions, and data that an algorithm keeps
 * between calls. */
#define RVLI_MATH_GONE(destroy)                                                                    \
    int destroy(void *of);                                                                         \
    int destroy(void *of)                                                                          \
    {                                                                                              \
        free(of);                                                                                  \
        return RVLI_MATH_SUCCESS;                                                                  \
    }
#define RVLI_MATH_NOTES(create, destroy)                                                           \
    int create(void **made);                                                                       \
    int create(void **made)                                                                        \
    {                                                                                              \
        if (made == NULL)                                                                          \
            return RVLI_MATH_INVALID_VALUE;                                                        \
        *made = malloc(1);                                                                         \
        return *made != NULL ? RVLI_MATH_SUCCESS : RVLI_MATH_ALLOC_FAILED;                         \
    }                                                                                              \
    RVLI_MATH_GONE(destroy)

#endif
