/* SPDX-License-Identifier: MIT */
/*
 * The memory of a cuFFT plan, by rules: a workspace, and tables.
 *
 * A length is transformed by one kernel, by several, or by Bluestein's algorithm, which pads.
 * The rules follow 4,152 plans of cuFFT 12.0 on an H100 (bench/gpu/driver/workspaces.py,
 * bench/results/2026-11-27-h100/fft.csv, of which tests/data/fft.csv is a part).
 * docs/fidelity/libraries.md lists the plans for which a rule is inexact.
 */
#ifndef RVL_SIMCUDA_MATH_FFT_SIZE_H
#define RVL_SIMCUDA_MATH_FFT_SIZE_H

#include <stdbool.h>
#include <stdint.h>

#define RVLI_FFT_DIMENSIONS 3

typedef struct rvli_fft_plan {
    uint64_t lengths[RVLI_FFT_DIMENSIONS]; /* the last length is the one of adjacent numbers */
    uint64_t batch;
    uint64_t number_bytes; /* of a complex number: 4, 8 or 16 */
    int dimensions;
    bool real;  /* one side is real */
    bool apart; /* numbers of the last length are not adjacent */
} rvli_fft_plan;

uint64_t rvli_fft_workspace_bytes(const rvli_fft_plan *plan);

/* Tables of Bluestein's algorithm. 0: the plan does not use it. */
uint64_t rvli_fft_table_bytes(const rvli_fft_plan *plan);

#endif
