/* SPDX-License-Identifier: MIT */
/*
 * Kernels of products, and the code that they take on a device.
 *
 * Which kernel a card takes for a product is not known. What is: on an H200, with cuBLAS 13.1 and
 * nothing else (bench/gpu/driver/probe.py blas, bench/results/2026-11-22-h200/driver.jsonl),
 * products of seven sizes, each with three ways to transpose, filled the context's room for code
 * (384 KiB, simcuda/driver/share.c) with the 21st of 16 bits a number, the 7th of 32 and the 10th
 * of 64. If each was a kernel, they have 18.3 to 19.2 KiB, 54.9 to 64, and 38.4 to 42.7. Taken here
 * is the middle.
 *
 * A kernel is for the types, for what is transposed, and for the sizes, each rounded up to a power
 * of two. The rounding is assumed: a library has no kernel for every size.
 *
 * In a graph a kernel takes memory by the bytes of its arguments. A decode step of examples/rl_step
 * has 385 products of 16 bits among 1285 kernels, and its graph took 2 MiB on an H200. All others
 * have at most 1248 bytes. So at least 115 of the products have more than 1264. If all of them are
 * alike, they have 1265 to 2288: with fewer or more the graph takes 4 MiB. Taken here is the
 * middle. Of products of 32 and 64 bits no graph was read: they have none here.
 *
 * Three programs that were not used for it agree (the same folder, "sft each", "gen each";
 * contexts.jsonl, "engine"). In the first two the first product took a page, with 11.25 KiB of room
 * left. In the decode step of examples/rl_step seven products, of 131 KiB here, and an argmax took
 * one: 123 KiB of room were left for the products on the card, so they are a little smaller.
 */
#ifndef RVL_SIMCUDA_BLAS_PRODUCT_H
#define RVL_SIMCUDA_BLAS_PRODUCT_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

typedef enum rvli_precision {
    RVLI_PRECISION_16, /* and less */
    RVLI_PRECISION_32,
    RVLI_PRECISION_64,
} rvli_precision;

typedef struct rvli_product {
    rvli_precision precision;
    bool a_transposed, b_transposed, batched;
    uint64_t m, n, k;
} rvli_product;

/* Launches it. CUDA_ERROR_OUT_OF_MEMORY: no room for its code; nothing was launched. */
CUresult rvli_product_launch(const rvli_product *product, CUstream stream);

#endif
