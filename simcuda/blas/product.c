/* SPDX-License-Identifier: MIT */
#include "simcuda/blas/product.h"

#include "simcuda/driver/registered.h"
#include "simcuda/wire/kernel.h"

/* The driver takes another 2 KiB for each kernel (simcuda/driver/share.c). */
static const uint32_t code_bytes[] = {
    [RVLI_PRECISION_16] = 17152,
    [RVLI_PRECISION_32] = 58880,
    [RVLI_PRECISION_64] = 39424,
};

/* Any number from 1265 to 2288 has the same effect (simcuda/driver/graph_share.c). */
#define ARGUMENT_BYTES_16 1776

/* The exponent of the next power of two. */
static uint64_t magnitude(uint64_t size)
{
    uint64_t bits = 0;
    while (bits < 63 && UINT64_C(1) << bits < size)
        bits++;
    return bits;
}

/* Returns a different number for each kernel. */
static uint64_t number_of(const rvli_product *of)
{
    uint64_t number = of->precision;
    number = number << 3 | (uint64_t)of->a_transposed << 2 | (uint64_t)of->b_transposed << 1 |
             (uint64_t)of->batched;
    return number << 18 | magnitude(of->m) << 12 | magnitude(of->n) << 6 | magnitude(of->k);
}

CUresult rvli_product_launch(const rvli_product *product, CUstream stream)
{
    static const char kernels[RVLI_PRECISION_64 + 1]; /* their addresses identify them */
    const char *kernel = &kernels[product->precision];
    int device;
    CUresult result = rvli_current_or_first(&device);
    if (product->precision == RVLI_PRECISION_16)
        rvli_registered_describe(kernel, ARGUMENT_BYTES_16);
    if (result == CUDA_SUCCESS)
        result =
            rvli_registered_library(device, number_of(product), code_bytes[product->precision]);
    return result == CUDA_SUCCESS ? rvli_library_kernel_at(kernel, stream) : result;
}
