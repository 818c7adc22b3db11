/* SPDX-License-Identifier: MIT */
/*
 * Finds whether NCCL made a call of CUDA, by the library that called. So a recording names NCCL's
 * memory for every version of NCCL and every way to create a communicator.
 */
#ifndef RVL_HOOKS_PRELOAD_NCCL_H
#define RVL_HOOKS_PRELOAD_NCCL_H

#include <stdbool.h>

/* Whether code is in NCCL's library, libnccl.so of any version. NULL: false. Thread-safe. */
bool rvli_is_nccl(const void *code);

#endif
