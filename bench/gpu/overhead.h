/* SPDX-License-Identifier: MIT */
/*
 * What the library adds to its driver calls: processor time and host memory for each allocation.
 *
 * A tag is allocated, paused, resumed and freed through the library, and then by the same driver
 * calls in the same order without it, in turns, many rounds; the median difference is printed as a
 * JSON line for each of the four. On a driver with calls that cost next to nothing (the fake one of
 * the tests) that is nearly free of noise.
 */
#ifndef RVL_BENCH_GPU_OVERHEAD_H
#define RVL_BENCH_GPU_OVERHEAD_H

#include "subject.h"

void measure_overhead(const work *w, int rounds);

#endif
