/* SPDX-License-Identifier: MIT */
/*
 * Copies and fills: queueing them, and what happens when their turn comes.
 *
 * Memory that cannot be reached when a copy is queued is an invalid argument, as with the driver.
 * If it has gone by the time the copy happens, that is an illegal address; likewise pinned host
 * memory that has been given back under a queued copy.
 */
#include <string.h>

#include "backends/sim/sim.h"
#include "internal.h"

static fake_stats done; /* the byte and launch counts of it */

/* ---- Carrying out ---- */

static CUresult run_copy(const fake_op *op, int device)
{
    bool to_device = op->kind == FAKE_OP_TO_DEVICE;
    if (!fake_mapping_allows(op->addr, op->size, device, to_device))
        return CUDA_ERROR_ILLEGAL_ADDRESS;
    if (op->region != 0 && fake_host_region(op->host, op->size) != op->region)
        return CUDA_ERROR_ILLEGAL_ADDRESS;
    fake_charge(to_device ? FAKE_CALL_cuMemcpyHtoDAsync : FAKE_CALL_cuMemcpyDtoHAsync, op->size);
    rvl_status status =
        to_device ? rvli_sim_ops.copy_to_device(fake_sim(), 0, op->addr, op->host, op->size)
                  : rvli_sim_ops.copy_to_host(fake_sim(), 0, op->host, op->addr, op->size);
    if (status != RVL_OK)
        return CUDA_ERROR_ILLEGAL_ADDRESS;
    uint64_t *counts[2][2] = {{&done.to_host_pageable_bytes, &done.to_host_pinned_bytes},
                              {&done.to_device_pageable_bytes, &done.to_device_pinned_bytes}};
    *counts[to_device][op->region != 0] += op->size;
    return CUDA_SUCCESS;
}

static CUresult run_set(const fake_op *op, int device)
{
    if (!fake_mapping_allows(op->addr, op->size, device, true))
        return CUDA_ERROR_ILLEGAL_ADDRESS;
    if (rvli_sim_ops.fill(fake_sim(), 0, op->addr, op->size, op->byte) != RVL_OK)
        return CUDA_ERROR_ILLEGAL_ADDRESS;
    done.set_bytes += op->size;
    return CUDA_SUCCESS;
}

CUresult fake_op_run(const fake_op *op, int device)
{
    switch (op->kind) {
    case FAKE_OP_TO_HOST:
    case FAKE_OP_TO_DEVICE:
        return run_copy(op, device);
    case FAKE_OP_SET:
        return run_set(op, device);
    case FAKE_OP_KERNEL:
        fake_kernel_run(op);
        done.launches++;
        return CUDA_SUCCESS;
    case FAKE_OP_WAIT:
    case FAKE_OP_MARK:
        break;
    }
    return CUDA_SUCCESS;
}

/* ---- Queueing ---- */

static CUresult queue(CUstream stream, const fake_op *op)
{
    CUcontext context;
    if (op->size == 0)
        return CUDA_SUCCESS;
    CUresult result = fake_context_current(&context);
    if (result != CUDA_SUCCESS)
        return result;
    if (!fake_mapping_allows(op->addr, op->size, context->device, op->kind != FAKE_OP_TO_HOST))
        return CUDA_ERROR_INVALID_VALUE;
    return fake_stream_queue(stream, op, NULL, NULL);
}

static CUresult queue_copy(fake_op_kind kind, uint64_t addr, void *host, uint64_t size,
                           CUstream stream)
{
    if (host == NULL && size > 0)
        return CUDA_ERROR_INVALID_VALUE;
    const fake_op op = {.kind = kind,
                        .addr = addr,
                        .size = size,
                        .host = host,
                        .region = fake_host_region(host, size)};
    return queue(stream, &op);
}

CUresult cuMemcpyDtoHAsync(void *dstHost, CUdeviceptr srcDevice, size_t ByteCount, CUstream hStream)
{
    FAKE_ENTER(cuMemcpyDtoHAsync, FAKE_NEEDS_CONTEXT);
    return queue_copy(FAKE_OP_TO_HOST, srcDevice, dstHost, ByteCount, hStream);
}

CUresult cuMemcpyHtoDAsync(CUdeviceptr dstDevice, const void *srcHost, size_t ByteCount,
                           CUstream hStream)
{
    FAKE_ENTER(cuMemcpyHtoDAsync, FAKE_NEEDS_CONTEXT);
    void *host; /* only read */
    memcpy(&host, &srcHost, sizeof host);
    return queue_copy(FAKE_OP_TO_DEVICE, dstDevice, host, ByteCount, hStream);
}

CUresult cuMemsetD8Async(CUdeviceptr dstDevice, unsigned char uc, size_t N, CUstream hStream)
{
    FAKE_ENTER(cuMemsetD8Async, FAKE_NEEDS_CONTEXT);
    const fake_op op = {.kind = FAKE_OP_SET, .addr = dstDevice, .size = N, .byte = uc};
    return queue(hStream, &op);
}

void fake_copies_stats(fake_stats *stats)
{
    stats->to_host_pinned_bytes = done.to_host_pinned_bytes;
    stats->to_host_pageable_bytes = done.to_host_pageable_bytes;
    stats->to_device_pinned_bytes = done.to_device_pinned_bytes;
    stats->to_device_pageable_bytes = done.to_device_pageable_bytes;
    stats->set_bytes = done.set_bytes;
    stats->launches = done.launches;
}

void fake_copies_reset(void)
{
    memset(&done, 0, sizeof done);
}
