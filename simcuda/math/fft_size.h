/* SPDX-License-Identifier: MIT */
/*
 * What a plan of cuFFT takes, by rules: a workspace, and tables.
 *
 * A length has one kernel, several, or Bluestein's algorithm, which pads. The rules follow 4,152
 * plans of cuFFT 12.0 on an H100 (bench/gpu/driver/workspaces.py,
 * bench/results/2026-11-27-h100/fft.csv, of which tests/data/fft.csv is a part).
 * docs/fidelity/libraries.md says for which of them a rule is off.
 */
#ifndef RVL_SIMCUDA_MATH_FFT_SIZE_H
#define RVL_SIMCUDA_MATH_FFT_SIZE_H

#include <stdbool.h>
#include <stdint.h>

#define RVLI_FFT_DIMENSIONS 3

typedef struct rvli_fft_plan {
    uint64_t lengths[RVLI_FFT_DIMENSIONS]; /* the last one is that of neighbours */
    uint64_t batch;
    uint64_t number_bytes; /* of a complex number: 4, 8 or 16 */
    int dimensions;
    bool real;  /* one side has real numbers */
    bool apart; /* numbers of the last length are no neighbours */
} rvli_fft_plan;

uint64_t rvli_fft_workspace_bytes(const rvli_fft_plan *plan);

/* Of Bluestein's algorithm; 0 where the plan has none. */
uint64_t rvli_fft_table_bytes(const rvli_fft_plan *plan);

#endif
