/* SPDX-License-Identifier: MIT */
/*
 * Which host memory is near a device. All of it is a wish: where nothing is known, or the kernel
 * refuses, memory lies where it falls.
 */
#ifndef RVL_BACKENDS_CUDA_NUMA_H
#define RVL_BACKENDS_CUDA_NUMA_H

#include <stdint.h>

#define RVLI_NUMA_ANY (-1)

/*
 * The NUMA node of a PCI device, "0000:19:00.0" in letters of either case. RVLI_NUMA_ANY: not
 * known, or the machine has only one node.
 */
int rvli_numa_node_of(const char *bus_id);

/* Pages of [at, at + size), page aligned, that are brought in from now on come from the node. */
void rvli_numa_prefer(void *at, uint64_t size, int node);

#endif
