/* SPDX-License-Identifier: MIT */
/* What every file of the benchmark needs: the end where something fails, and the time. */
#ifndef RVL_BENCH_GPU_NEED_H
#define RVL_BENCH_GPU_NEED_H

#include <stdbool.h>

/* Ends the program unless good. */
void need(bool good, const char *what);
double now_s(void);

#endif
