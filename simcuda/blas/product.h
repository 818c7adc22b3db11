/* SPDX-License-Identifier: MIT */
/*
 * Kernels of products, and the code that they take on a device.
 *
 * Which kernel a card uses for a product is unknown. Known is a measurement on an H200, with
 * cuBLAS 13.1 and nothing else (bench/gpu/driver/probe.py blas,
 * bench/results/2026-11-22-h200/driver.jsonl). Products of seven sizes, each transposed in three
 * ways, filled the context's room for code (384 KiB, simcuda/driver/share.c) with the 21st
 * product of 16-bit numbers, the 7th of 32-bit numbers and the 10th of 64-bit numbers. If each
 * was a separate kernel, their sizes are 18.3 to 19.2 KiB, 54.9 to 64 KiB, and 38.4 to 42.7 KiB.
 * The middle is used here.
 *
 * A kernel is selected by the types, by what is transposed, and by the sizes, each rounded up to
 * a power of two. The rounding is assumed: a library does not have a kernel for every size.
 *
 * In a graph, a kernel takes memory by the bytes of its arguments. A decode step of
 * examples/rl_step has 385 products of 16-bit numbers among 1285 kernels, and its graph took 2
 * MiB on an H200. All other kernels have at most 1248 bytes. So at least 115 of the products
 * have more than 1264 bytes. If all of them are alike, they have 1265 to 2288 bytes: with fewer
 * or more, the graph would take 4 MiB. The middle is used here. No graph with products of 32 or
 * 64-bit numbers was measured. They have 0 bytes here.
 *
 * Three programs that were not used for these figures agree (the same folder, "sft each", "gen
 * each"; contexts.jsonl, "engine"). In the first two, the first product took a page, with 11.25
 * KiB of room left. In the decode step of examples/rl_step, seven products, of 131 KiB here, and
 * an argmax took one page. On the card, 123 KiB of room were left for the products, so they are
 * a little smaller there.
 */
#ifndef RVL_SIMCUDA_BLAS_PRODUCT_H
#define RVL_SIMCUDA_BLAS_PRODUCT_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

typedef enum rvli_precision {
    RVLI_PRECISION_16, /* 16 bits or fewer */
    RVLI_PRECISION_32,
    RVLI_PRECISION_64,
} rvli_precision;

typedef struct rvli_product {
    rvli_precision precision;
    bool a_transposed, b_transposed, batched;
    uint64_t m, n, k;
} rvli_product;

/* Launches the kernel. CUDA_ERROR_OUT_OF_MEMORY: there is no room for its code, and nothing was
 * launched. */
CUresult rvli_product_launch(const rvli_product *product, CUstream stream);

#endif
