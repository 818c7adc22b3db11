/* SPDX-License-Identifier: MIT */
/*
 * Large host memory with content that does not matter, such as weights. All of it shares a few
 * pages.
 */
#ifndef RVL_SIMCUDA_HOST_PAGES_H
#define RVL_SIMCUDA_HOST_PAGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Whether host memory of tensors is counted: the user limits it, or wants it in shared pages. */
bool rvli_host_pages_counted(void);

/* Whether memory of this size is put in shared pages. */
bool rvli_host_pages_shared(size_t size_bytes);

/* Maps memory in the shared pages. NULL: failed. */
void *rvli_host_pages_map(size_t size_bytes);

/* Unmaps it. size_bytes: as mapped. */
void rvli_host_pages_unmap(void *memory, size_t size_bytes);

/* Whether an address lies in such memory. */
bool rvli_host_pages_has(const void *memory);

#endif
