/* SPDX-License-Identifier: MIT */
/*
 * Copies and fills. contents.h has the known content of device memory. Between host addresses,
 * the bytes are copied.
 */
#include <string.h>

#include "simcuda/driver/capture.h"
#include "simcuda/driver/contents.h"
#include "simcuda/driver/managed.h"

static bool on_device(uint64_t addr)
{
    rvli_range range;
    return rvli_range_find(addr, &range) && rvli_range_on_device(&range);
}

/* Whether all the bytes lie in addr's range, and have memory. */
static bool within(uint64_t addr, size_t bytes)
{
    rvli_range range;
    return rvli_range_find(addr, &range) && range.size_bytes - (addr - range.base) >= bytes &&
           (range.kind != RVLI_RANGE_RESERVED || rvli_vmm_has_memory(addr, bytes));
}

static CUresult copy(uint64_t to, uint64_t from, size_t bytes)
{
    int device;
    CUresult result = rvli_current_device(&device);
    if (result != CUDA_SUCCESS || bytes == 0)
        return result;
    bool to_device = on_device(to), from_device = on_device(from);
    if (to == 0 || from == 0 || (to_device && !within(to, bytes)) ||
        (from_device && !within(from, bytes)))
        return CUDA_ERROR_INVALID_VALUE;
    if (to_device && from_device)
        rvli_contents_move(to, from, bytes);
    else if (to_device)
        rvli_contents_write(to, (const void *)from, bytes);
    else if (from_device)
        rvli_contents_copy_out((void *)to, from, bytes);
    else
        memmove((void *)to, (const void *)from, bytes);
    return CUDA_SUCCESS;
}

/* Copies at once, or at the launch of the graph into which the stream is captured. */
static CUresult copy_on(CUstream stream, uint64_t to, uint64_t from, size_t bytes)
{
    bool captured = false;
    CUresult result =
        bytes > 0 ? rvli_capture_copy(stream, to, from, bytes, &captured) : CUDA_SUCCESS;
    return result != CUDA_SUCCESS || captured ? result : copy(to, from, bytes);
}

/* A copy with host memory on either side returns when it is complete, with all earlier work of
 * the stream. */
static CUresult copy_now(uint64_t to, uint64_t from, size_t bytes)
{
    CUresult result = copy_on(NULL, to, from, bytes);
    if (result == CUDA_SUCCESS && bytes > 0 && !(on_device(to) && on_device(from)))
        result = rvli_owed_settle_stream(NULL);
    return result;
}

CUresult cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t bytes)
{
    return copy_now(to, from, bytes);
}

CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    return copy_on(stream, to, from, bytes);
}

/* A side that the caller calls a device address must be one. */
static CUresult check_named(uint64_t to, bool to_device, uint64_t from, bool from_device,
                            size_t bytes)
{
    int device;
    CUresult result = rvli_current_device(&device);
    if (result == CUDA_SUCCESS && bytes > 0 &&
        ((to_device && !within(to, bytes)) || (from_device && !within(from, bytes))))
        result = CUDA_ERROR_INVALID_VALUE;
    return result;
}

static CUresult copy_named(CUstream stream, uint64_t to, bool to_device, uint64_t from,
                           bool from_device, size_t bytes)
{
    CUresult result = check_named(to, to_device, from, from_device, bytes);
    return result == CUDA_SUCCESS ? copy_on(stream, to, from, bytes) : result;
}

static CUresult copy_named_now(uint64_t to, bool to_device, uint64_t from, bool from_device,
                               size_t bytes)
{
    CUresult result = check_named(to, to_device, from, from_device, bytes);
    return result == CUDA_SUCCESS ? copy_now(to, from, bytes) : result;
}

CUresult cuMemcpyHtoD(CUdeviceptr to, const void *from, size_t bytes)
{
    return copy_named_now(to, true, (uintptr_t)from, false, bytes);
}

CUresult cuMemcpyHtoDAsync(CUdeviceptr to, const void *from, size_t bytes, CUstream stream)
{
    return copy_named(stream, to, true, (uintptr_t)from, false, bytes);
}

CUresult cuMemcpyDtoH(void *to, CUdeviceptr from, size_t bytes)
{
    return copy_named_now((uintptr_t)to, false, from, true, bytes);
}

CUresult cuMemcpyDtoHAsync(void *to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    return copy_named(stream, (uintptr_t)to, false, from, true, bytes);
}

CUresult cuMemcpyDtoD(CUdeviceptr to, CUdeviceptr from, size_t bytes)
{
    return copy_named_now(to, true, from, true, bytes);
}

CUresult cuMemcpyDtoDAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    return copy_named(stream, to, true, from, true, bytes);
}

/* ---- Fills ---- */

static CUresult fill(CUstream stream, uint64_t addr, unsigned value, size_t count, size_t unit)
{
    int device;
    CUresult result = rvli_current_device(&device);
    if (result != CUDA_SUCCESS || count == 0)
        return result;
    if (count > SIZE_MAX / unit || addr % unit != 0 || !within(addr, count * unit))
        return CUDA_ERROR_INVALID_VALUE;
    bool captured;
    result = rvli_capture_fill(stream, addr, value, count, unit, &captured);
    if (result != CUDA_SUCCESS || captured)
        return result;
    rvli_range range;
    if (rvli_range_find(addr, &range) && range.kind == RVLI_RANGE_MANAGED)
        rvli_managed_touch(&range, addr, count * unit, device);
    bool there = on_device(addr);
    if (there)
        rvli_contents_fill(addr, value, count, unit);
    for (size_t i = 0; !there && i < count; i++)
        memcpy((char *)addr + i * unit, &value, unit); /* pinned host memory, little-endian */
    return CUDA_SUCCESS;
}

CUresult cuMemsetD8(CUdeviceptr addr, unsigned char value, size_t count)
{
    return fill(NULL, addr, value, count, 1);
}

CUresult cuMemsetD8Async(CUdeviceptr addr, unsigned char value, size_t count, CUstream stream)
{
    return fill(stream, addr, value, count, 1);
}

CUresult cuMemsetD16(CUdeviceptr addr, unsigned short value, size_t count)
{
    return fill(NULL, addr, value, count, 2);
}

CUresult cuMemsetD16Async(CUdeviceptr addr, unsigned short value, size_t count, CUstream stream)
{
    return fill(stream, addr, value, count, 2);
}

CUresult cuMemsetD32(CUdeviceptr addr, unsigned int value, size_t count)
{
    return fill(NULL, addr, value, count, 4);
}

CUresult cuMemsetD32Async(CUdeviceptr addr, unsigned int value, size_t count, CUstream stream)
{
    return fill(stream, addr, value, count, 4);
}
