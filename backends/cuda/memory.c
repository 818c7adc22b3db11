/* SPDX-License-Identifier: MIT */
/*
 * Address ranges, blocks and mappings. core/backend.h specifies each op.
 *
 * None of these calls needs a current context, waits for the device, or disturbs a capture on
 * another thread (measured, CUDA 13.0, driver 580).
 */
#include "backends/cuda/cuda.h"

#include <stdint.h>
#include <unistd.h>

#include "base/error.h"

static rvl_status check_size(const rvli_cuda_device *device, uint64_t size)
{
    if (size == 0 || (size & (device->granularity_bytes - 1)) != 0)
        return rvli_error(RVL_ERR_INVALID, "a size must be a multiple of the granularity");
    return RVL_OK;
}

/* ---- Ranges ---- */

rvl_status rvli_cuda_op_reserve(void *self, int number, uint64_t size, uint64_t *addr_out)
{
    rvli_cuda_device *device = NULL;
    CUdeviceptr addr = 0;
    rvl_status status = rvli_cuda_device_of(self, number, &device);
    if (status == RVL_OK)
        status = check_size(device, size);
    if (status == RVL_OK)
        status = rvli_cuda_device_check(device, rvli_cuda.cuMemAddressReserve(&addr, size, 0, 0, 0),
                                        "reserving an address range");
    if (status == RVL_OK)
        *addr_out = addr;
    return status;
}

rvl_status rvli_cuda_op_release_range(void *self, int number, uint64_t addr, uint64_t size)
{
    rvli_cuda_device *device = NULL;
    rvl_status status = rvli_cuda_device_of(self, number, &device);
    if (status != RVL_OK)
        return status;
    return rvli_cuda_device_check(device, rvli_cuda.cuMemAddressFree(addr, size),
                                  "giving an address range back");
}

/* ---- Blocks ---- */

static CUmemAllocationProp properties_of(rvli_cuda_device *device, uint32_t properties)
{
    CUmemAllocationProp wanted = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device->ordinal},
    };
    if (properties & RVLI_BLOCK_EXPORTABLE)
        wanted.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    wanted.allocFlags.gpuDirectRDMACapable =
        (properties & RVLI_BLOCK_RDMA) != 0 ||
        atomic_load_explicit(&device->try_rdma, memory_order_relaxed);
    return wanted;
}

/* Puts the requested and the free bytes into the error record. */
static void note_free_bytes(rvli_cuda_device *device, uint64_t requested)
{
    size_t free_bytes = 0, total_bytes = 0;
    rvl_error cause = *rvli_error_get();
    if (rvli_cuda_enter(device) == RVL_OK) {
        rvli_cuda.cuMemGetInfo(&free_bytes, &total_bytes);
        rvli_cuda_leave();
    }
    rvli_error_set(&cause);
    rvli_error_bytes(RVL_NO_DEVICE, requested, free_bytes);
}

/*
 * Some systems report GPUDirect RDMA but refuse it. *without_out: the block was created without it.
 */
static CUresult create_block(rvli_cuda_device *device, uint64_t size, uint32_t properties,
                             CUmemGenericAllocationHandle *handle_out, bool *without_out)
{
    CUmemAllocationProp wanted = properties_of(device, properties);
    CUresult result = rvli_cuda.cuMemCreate(handle_out, size, &wanted, 0);
    if (result == CUDA_SUCCESS || result == CUDA_ERROR_OUT_OF_MEMORY ||
        !wanted.allocFlags.gpuDirectRDMACapable)
        return result;
    wanted.allocFlags.gpuDirectRDMACapable = 0;
    if (rvli_cuda.cuMemCreate(handle_out, size, &wanted, 0) != CUDA_SUCCESS)
        return result;
    atomic_store_explicit(&device->try_rdma, false, memory_order_relaxed);
    *without_out = true;
    return CUDA_SUCCESS;
}

static rvl_status refuse_rdma(void)
{
    return rvli_error(RVL_ERR_NOT_SUPPORTED,
                      "the driver makes no memory that GPUDirect RDMA reaches on this device: "
                      "allocate without RVL_ALLOC_RDMA");
}

rvl_status rvli_cuda_op_create(void *self, int number, uint64_t size, uint32_t properties,
                               rvli_handle *block_out)
{
    rvli_cuda_device *device = NULL;
    CUmemGenericAllocationHandle handle = 0;
    rvl_status status = rvli_cuda_device_of(self, number, &device);
    if (status == RVL_OK)
        status = check_size(device, size);
    if (status != RVL_OK)
        return status;
    if ((properties & RVLI_BLOCK_RDMA) && !device->rdma)
        return refuse_rdma();
    bool without = false;
    status =
        rvli_cuda_device_check(device, create_block(device, size, properties, &handle, &without),
                               "creating a block of device memory");
    if (status == RVL_OK && without && (properties & RVLI_BLOCK_RDMA)) {
        rvli_cuda.cuMemRelease(handle);
        return refuse_rdma();
    }
    if (status == RVL_OK)
        *block_out = handle;
    else if (status == RVL_ERR_DEVICE_OOM)
        note_free_bytes(device, size);
    return status;
}

rvl_status rvli_cuda_op_release(void *self, int number, rvli_handle block, uint64_t size)
{
    rvli_cuda_device *device = NULL;
    (void)size;
    rvl_status status = rvli_cuda_device_of(self, number, &device);
    if (status != RVL_OK)
        return status;
    return rvli_cuda_device_check(device, rvli_cuda.cuMemRelease(block),
                                  "releasing a block of device memory");
}

/* ---- Mappings ---- */

rvl_status rvli_cuda_op_map(void *self, int number, uint64_t addr, uint64_t size, rvli_handle block)
{
    rvli_cuda_device *device = NULL;
    rvl_status status = rvli_cuda_device_of(self, number, &device);
    if (status != RVL_OK)
        return status;
    return rvli_cuda_device_check(device, rvli_cuda.cuMemMap(addr, size, 0, block, 0),
                                  "mapping a block");
}

rvl_status rvli_cuda_op_unmap(void *self, int number, uint64_t addr, uint64_t size)
{
    rvli_cuda_device *device = NULL;
    rvl_status status = rvli_cuda_device_of(self, number, &device);
    if (status != RVL_OK)
        return status;
    return rvli_cuda_device_check(device, rvli_cuda.cuMemUnmap(addr, size), "unmapping a block");
}

rvl_status rvli_cuda_op_set_access(void *self, int number, uint64_t addr, uint64_t size,
                                   uint64_t device_mask)
{
    rvli_cuda_instance *instance = self;
    CUmemAccessDesc access[RVL_MAX_DEVICES];
    size_t count = 0;
    rvli_cuda_device *device = NULL;
    rvl_status status = rvli_cuda_device_of(self, number, &device);
    if (status != RVL_OK)
        return status;
    for (; device_mask != 0; device_mask &= device_mask - 1) {
        int peer = __builtin_ctzll(device_mask);
        if (peer >= instance->device_count)
            return rvli_error(RVL_ERR_INVALID, "access for a device that does not exist");
        access[count++] = (CUmemAccessDesc){
            .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE,
                         .id = instance->devices[peer].ordinal},
            .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
        };
    }
    return rvli_cuda_device_check(device, rvli_cuda.cuMemSetAccess(addr, size, access, count),
                                  "giving devices access to memory");
}

/* ---- Facts ---- */

rvl_status rvli_cuda_op_memory_info(void *self, int number, uint64_t *free_out, uint64_t *total_out)
{
    rvli_cuda_device *device = NULL;
    size_t free_bytes = 0, total_bytes = 0;
    rvl_status status = rvli_cuda_device_of(self, number, &device);
    if (status == RVL_OK)
        status = rvli_cuda_enter(device);
    if (status != RVL_OK)
        return status;
    status = rvli_cuda_device_check(device, rvli_cuda.cuMemGetInfo(&free_bytes, &total_bytes),
                                    "asking for free device memory");
    rvli_cuda_leave();
    if (status != RVL_OK)
        return status;
    *free_out = free_bytes;
    *total_out = total_bytes;
    return RVL_OK;
}

/* ---- Between processes ---- */

rvl_status rvli_cuda_op_export_block(void *self, int number, rvli_handle block, int *fd_out)
{
    rvli_cuda_device *device = NULL;
    int fd = -1;
    rvl_status status = rvli_cuda_device_of(self, number, &device);
    if (status != RVL_OK)
        return status;
    status = rvli_cuda_device_check(device,
                                    rvli_cuda.cuMemExportToShareableHandle(
                                        &fd, block, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
                                    "exporting a block");
    if (status == RVL_OK)
        *fd_out = fd;
    return status;
}

rvl_status rvli_cuda_op_import_block(void *self, int number, int fd, uint64_t size,
                                     rvli_handle *block_out)
{
    rvli_cuda_device *device = NULL;
    CUmemGenericAllocationHandle handle = 0;
    (void)size;
    rvl_status status = rvli_cuda_device_of(self, number, &device);
    if (status != RVL_OK)
        return status;
    status = rvli_cuda_device_check(
        device,
        rvli_cuda.cuMemImportFromShareableHandle(&handle, (void *)(intptr_t)fd,
                                                 CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
        "importing a block");
    if (status == RVL_OK)
        *block_out = handle;
    return status;
}
