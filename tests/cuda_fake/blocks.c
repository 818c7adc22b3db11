/* SPDX-License-Identifier: MIT */
/*
 * Physical memory: blocks, and the handles that name them.
 *
 * A block lives while a handle, a mapping or an exported file descriptor holds it. A handle is a
 * number that is never used again, so that a stale one is noticed; importing gives another handle
 * of the same block.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backends/sim/sim.h"
#include "base/intmap.h"
#include "internal.h"

static rvli_intmap blocks; /* handle to block */
static uint64_t last_handle;
static uint64_t used_bytes[FAKE_MAX_DEVICES];
static uint64_t rdma_bytes;
static uint64_t taken_bytes[FAKE_MAX_DEVICES];

static uint64_t free_bytes(int device)
{
    uint64_t capacity = fake_settings_get()->capacity_bytes;
    uint64_t taken = used_bytes[device] + taken_bytes[device];
    return taken < capacity ? capacity - taken : 0;
}

uint64_t fake_room(int device, bool with_own)
{
    return free_bytes(device) + (with_own ? 0 : used_bytes[device]);
}

uint64_t fake_used_bytes(int device)
{
    return used_bytes[device];
}

uint64_t fake_rdma_bytes(void)
{
    return rdma_bytes;
}

/* ---- Blocks ---- */

fake_block *fake_block_of(CUmemGenericAllocationHandle handle)
{
    uint64_t block;
    if (handle == 0 || !rvli_intmap_get(&blocks, handle, &block))
        return NULL;
    return (fake_block *)(uintptr_t)block;
}

CUresult fake_block_name(fake_block *block, CUmemGenericAllocationHandle *handle_out)
{
    if (rvli_intmap_insert(&blocks, last_handle + 1, (uintptr_t)block) != RVL_OK)
        return CUDA_ERROR_OUT_OF_MEMORY;
    block->handles++;
    *handle_out = ++last_handle;
    return CUDA_SUCCESS;
}

void fake_block_settle(fake_block *block)
{
    if (block->handles + block->mappings + block->exports > 0)
        return;
    rvli_sim_ops.release(fake_sim(), 0, block->sim, block->size);
    used_bytes[block->device] -= block->charged ? block->size : 0;
    rdma_bytes -= block->rdma ? block->size : 0;
    if (block->memory >= 0)
        close(block->memory);
    free(block);
}

void fake_blocks_stats(fake_live *live)
{
    live->handles = blocks.count;
}

/* With mappings and exports gone, handles are all that holds blocks. */
void fake_blocks_reset(void)
{
    for (uint64_t handle = 1; handle <= last_handle; handle++) {
        uint64_t block;
        if (!rvli_intmap_remove(&blocks, handle, &block))
            continue;
        ((fake_block *)(uintptr_t)block)->handles--;
        fake_block_settle((fake_block *)(uintptr_t)block);
    }
    rvli_intmap_destroy(&blocks);
    memset(&blocks, 0, sizeof blocks);
    memset(taken_bytes, 0, sizeof taken_bytes);
    last_handle = 0;
}

/* ---- Bytes that processes share ---- */

#define POISON 0xa5

/* A file of its own for a block, filled so that nobody takes it for what was there before. */
static int make_memory(uint64_t size)
{
    int memory = memfd_create("cuda-fake", MFD_CLOEXEC);
    if (memory < 0 || ftruncate(memory, (off_t)size) != 0)
        return memory;
    void *at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
    if (at != MAP_FAILED) {
        memset(at, POISON, size);
        munmap(at, size);
    }
    return memory;
}

fake_block *fake_block_of_memory(int memory)
{
    struct stat theirs, ours;
    if (fstat(memory, &theirs) != 0)
        return NULL;
    for (uint64_t handle = 1; handle <= last_handle; handle++) {
        fake_block *block = fake_block_of(handle);
        if (block != NULL && block->memory >= 0 && fstat(block->memory, &ours) == 0 &&
            ours.st_ino == theirs.st_ino && ours.st_dev == theirs.st_dev)
            return block;
    }
    return NULL;
}

CUresult fake_block_adopt(int memory, uint64_t size, CUmemGenericAllocationHandle *handle_out)
{
    fake_block *block = calloc(1, sizeof *block);
    CUresult result =
        block != NULL ? fake_sim_result(rvli_sim_ops.create(fake_sim(), 0, size, 0, &block->sim))
                      : CUDA_ERROR_OUT_OF_MEMORY;
    if (result != CUDA_SUCCESS) {
        free(block);
        close(memory);
        return result;
    }
    block->size = size;
    block->exportable = true;
    block->memory = memory;
    result = fake_block_name(block, handle_out);
    if (result != CUDA_SUCCESS)
        fake_block_settle(block);
    return result;
}

/* ---- Entry points ---- */

static CUresult check_properties(const CUmemAllocationProp *prop)
{
    if (prop == NULL || prop->type != CU_MEM_ALLOCATION_TYPE_PINNED ||
        prop->win32HandleMetaData != NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
        return CUDA_ERROR_NOT_SUPPORTED; /* host memory: not modelled */
    if (!fake_device_exists(prop->location.id))
        return CUDA_ERROR_INVALID_DEVICE;
    if (prop->requestedHandleTypes != CU_MEM_HANDLE_TYPE_NONE &&
        prop->requestedHandleTypes != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR &&
        !fake_fabric_creates(prop))
        return CUDA_ERROR_NOT_SUPPORTED;
    return CUDA_SUCCESS;
}

CUresult cuMemGetAllocationGranularity(size_t *granularity, const CUmemAllocationProp *prop,
                                       CUmemAllocationGranularity_flags option)
{
    FAKE_ENTER(cuMemGetAllocationGranularity, FAKE_NEEDS_INIT);
    if (granularity == NULL || (option != CU_MEM_ALLOC_GRANULARITY_MINIMUM &&
                                option != CU_MEM_ALLOC_GRANULARITY_RECOMMENDED))
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = check_properties(prop);
    if (result == CUDA_SUCCESS)
        *granularity = FAKE_GRANULARITY;
    return result;
}

static CUresult create(uint64_t size, const CUmemAllocationProp *prop,
                       CUmemGenericAllocationHandle *handle_out)
{
    int device = prop->location.id;
    fake_share_sweep();
    if (size > free_bytes(device))
        return CUDA_ERROR_OUT_OF_MEMORY;
    fake_block *block = calloc(1, sizeof *block);
    if (block == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    block->device = device;
    block->size = size;
    block->exportable = prop->requestedHandleTypes == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    block->fabric = fake_fabric_creates(prop);
    CUresult result = fake_sim_result(
        rvli_sim_ops.create(fake_sim(), 0, size, RVLI_BLOCK_EXPORTABLE, &block->sim));
    if (result != CUDA_SUCCESS) {
        free(block);
        return result;
    }
    block->memory = block->exportable ? make_memory(size) : -1;
    block->charged = true;
    used_bytes[device] += size;
    block->rdma = prop->allocFlags.gpuDirectRDMACapable != 0;
    rdma_bytes += block->rdma ? size : 0;
    result = fake_block_name(block, handle_out);
    if (result != CUDA_SUCCESS)
        fake_block_settle(block);
    return result;
}

CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size,
                     const CUmemAllocationProp *prop, unsigned long long flags)
{
    FAKE_ENTER(cuMemCreate, FAKE_NEEDS_MEMORY);
    if (handle == NULL || size == 0 || size % FAKE_GRANULARITY != 0 || flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = check_properties(prop);
    if (result != CUDA_SUCCESS)
        return result;
    if (prop->allocFlags.gpuDirectRDMACapable != 0 && fake_settings_get()->rdma_refused)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (prop->requestedHandleTypes != CU_MEM_HANDLE_TYPE_NONE &&
        fake_settings_get()->export_refused)
        return CUDA_ERROR_NOT_SUPPORTED;
    fake_charge(FAKE_CALL_cuMemCreate, size);
    return create(size, prop, handle);
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle)
{
    FAKE_ENTER(cuMemRelease, FAKE_NEEDS_MEMORY);
    fake_block *block = fake_block_of(handle);
    if (block == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    fake_charge(FAKE_CALL_cuMemRelease, block->size);
    rvli_intmap_remove(&blocks, handle, NULL);
    block->handles--;
    fake_block_settle(block);
    return CUDA_SUCCESS;
}

CUresult cuMemGetInfo(size_t *free, size_t *total)
{
    FAKE_ENTER(cuMemGetInfo, FAKE_NEEDS_CONTEXT);
    CUcontext context;
    if (free == NULL || total == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = fake_context_current(&context);
    if (result != CUDA_SUCCESS)
        return result;
    fake_share_sweep();
    *free = free_bytes(context->device);
    *total = fake_settings_get()->capacity_bytes;
    return CUDA_SUCCESS;
}

bool fake_take(int device, uint64_t bytes)
{
    FAKE_LOCKED;
    if (!fake_device_exists(device))
        return false;
    fake_share_sweep();
    if (bytes > fake_room(device, !fake_process_is_away()) + taken_bytes[device])
        return false;
    taken_bytes[device] = bytes;
    return true;
}
