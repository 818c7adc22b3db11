/* SPDX-License-Identifier: MIT */
#ifndef RVL_BACKENDS_CUDA_HOSTMEM_H
#define RVL_BACKENDS_CUDA_HOSTMEM_H

#include <stdint.h>

/*
 * Bytes of host memory that this process can still take without anything being killed: what the
 * kernel calls available, or what the process's cgroup leaves, if that is less. UINT64_MAX:
 * unknown.
 */
uint64_t rvli_hostmem_available(void);

/* What there is in all: the machine's, or as much as the cgroup may have. */
uint64_t rvli_hostmem_total(void);

#endif
