/* SPDX-License-Identifier: MIT */
#include "simcuda/math/library.h"

#include "simcuda/driver/registered.h"
#include "simcuda/wire/current.h"
#include "simcuda/wire/kernel.h"

CUresult rvli_math_take(rvli_math_memory *memory, const size_t *sizes, size_t count)
{
    int device;
    CUresult result = rvli_current_or_first(&device);
    if (result == CUDA_SUCCESS)
        result = cuCtxGetCurrent(&memory->context);
    for (size_t i = 0; i < count && result == CUDA_SUCCESS; i++)
        if (sizes[i] > 0)
            result = cuMemAlloc(&memory->pieces[i], sizes[i]);
    if (result != CUDA_SUCCESS && memory->context != NULL)
        rvli_math_give_back(memory);
    return result;
}

void rvli_math_give_back(rvli_math_memory *memory)
{
    (void)cuCtxPushCurrent(memory->context);
    for (size_t i = 0; i < RVLI_MATH_PIECES; i++) {
        if (memory->pieces[i] != 0)
            (void)cuMemFree(memory->pieces[i]);
        memory->pieces[i] = 0;
    }
    (void)cuCtxPopCurrent(NULL);
}

/* FNV-1a. The highest bit distinguishes the number from those of products (simcuda/blas). */
static uint64_t number_of(const char *name)
{
    uint64_t number = UINT64_C(0xcbf29ce484222325);
    for (; *name != '\0'; name++)
        number = (number ^ (unsigned char)*name) * UINT64_C(0x100000001b3);
    return number | UINT64_C(1) << 63;
}

CUresult rvli_math_load(const char *name, uint64_t code_bytes)
{
    int device;
    CUresult result = rvli_current_or_first(&device);
    return result == CUDA_SUCCESS ? rvli_registered_library(device, number_of(name), code_bytes)
                                  : result;
}

CUresult rvli_math_launch(const char *name, uint64_t code_bytes, CUstream stream)
{
    CUresult result = rvli_math_load(name, code_bytes);
    return result == CUDA_SUCCESS ? rvli_library_kernel(stream) : result;
}
