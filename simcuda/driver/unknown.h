/* SPDX-License-Identifier: MIT */
/* Reads of unknown content. The machine counts them by place. */
#ifndef RVL_SIMCUDA_UNKNOWN_H
#define RVL_SIMCUDA_UNKNOWN_H

#include <stddef.h>

/* place NULL: use the called CUDA function and its caller. */
void rvli_unknown_read(size_t bytes, const char *place);

#endif
