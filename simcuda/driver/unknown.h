/* SPDX-License-Identifier: MIT */
/* What a program reads and nobody knows: the machine counts it, by the place that read it. */
#ifndef RVL_SIMCUDA_UNKNOWN_H
#define RVL_SIMCUDA_UNKNOWN_H

#include <stddef.h>

/* place: NULL: the function of CUDA that was called, and who called it. */
void rvli_unknown_read(size_t bytes, const char *place);

#endif
