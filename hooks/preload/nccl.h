/* SPDX-License-Identifier: MIT */
/*
 * Whether a call of CUDA is NCCL's own: by the library that it came from. So its memory has a name
 * in a recording, for every version of NCCL and every way to make a communicator.
 */
#ifndef RVL_HOOKS_PRELOAD_NCCL_H
#define RVL_HOOKS_PRELOAD_NCCL_H

#include <stdbool.h>

/* Whether code lies in NCCL's library, libnccl.so of any version. NULL: false. Thread-safe. */
bool rvli_is_nccl(const void *code);

#endif
