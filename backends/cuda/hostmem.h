/* SPDX-License-Identifier: MIT */
#ifndef RVL_BACKENDS_CUDA_HOSTMEM_H
#define RVL_BACKENDS_CUDA_HOSTMEM_H

#include <stdint.h>

/*
 * The bytes of host memory that this process can still allocate before the kernel kills a process:
 * what the kernel reports as available, or what the process's cgroup leaves, if that is less.
 * UINT64_MAX: unknown.
 */
uint64_t rvli_hostmem_available(void);

/* The total: the machine's memory, or the cgroup's limit if that is less. */
uint64_t rvli_hostmem_total(void);

#endif
