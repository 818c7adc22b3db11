/* SPDX-License-Identifier: MIT */
/*
 * Large host memory with content that nobody needs, as of weights: all of it in the same few pages.
 */
#ifndef RVL_SIMCUDA_HOST_PAGES_H
#define RVL_SIMCUDA_HOST_PAGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Whether host memory of tensors is counted at all: the user bounds it, or wants it in few pages.
 */
bool rvli_host_pages_counted(void);

/* Whether so many bytes lie in the same pages as others. */
bool rvli_host_pages_shared(size_t size_bytes);

/* Maps memory in the same pages as all other of this kind. NULL: it cannot be had. */
void *rvli_host_pages_map(size_t size_bytes);

/* Ends it. size_bytes: as it was mapped. */
void rvli_host_pages_unmap(void *memory, size_t size_bytes);

/* Whether an address lies in such memory. */
bool rvli_host_pages_has(const void *memory);

#endif
