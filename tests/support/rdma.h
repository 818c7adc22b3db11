/* SPDX-License-Identifier: MIT */
/* Memory for GPUDirect RDMA, on any backend: what asked for it has it whenever it has memory. */
#ifndef RVL_TESTS_SUPPORT_RDMA_H
#define RVL_TESTS_SUPPORT_RDMA_H

#include "support.h"

/* Bytes of the blocks that exist on the device and that RDMA was asked for. */
typedef uint64_t (*rdma_bytes_fn)(void);

/* Tries to allocate for RDMA under the tag. */
rvl_status rdma_alloc(rvl_context *context, const char *tag, uint64_t size, uint32_t more_flags,
                      rvl_addr *addr_out);

/* That it is refused, born paused or not, says why, and leaves nothing behind. */
void rdma_is_refused(rvl_context *context);

/*
 * That it is kept by pause and resume, in shared blocks, and when released blocks are kept. The
 * context keeps at least 16 MiB of them, and plain blocks are without RDMA.
 */
void rdma_is_kept(rvl_context *context, rdma_bytes_fn rdma_bytes);

#endif
