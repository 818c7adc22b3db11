/* SPDX-License-Identifier: MIT */
/*
 * Host memory near a device. All of this is only a preference: if nothing is known, or the kernel
 * refuses, the kernel chooses the node.
 */
#ifndef RVL_BACKENDS_CUDA_NUMA_H
#define RVL_BACKENDS_CUDA_NUMA_H

#include <stdint.h>

#define RVLI_NUMA_ANY (-1)

/*
 * The NUMA node of a PCI device, "0000:19:00.0" in upper or lower case. RVLI_NUMA_ANY: unknown, or
 * the machine has only one node.
 */
int rvli_numa_node_of(const char *bus_id);

/* Makes pages of [at, at + size), page aligned, that are allocated from now on prefer the node. */
void rvli_numa_prefer(void *at, uint64_t size, int node);

#endif
