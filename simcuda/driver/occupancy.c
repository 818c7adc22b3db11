/* SPDX-License-Identifier: MIT */
/*
 * How many blocks of a kernel fit on a multiprocessor at once, by threads, registers, shared
 * memory and the limit of blocks. The allocation units of registers and shared memory are those
 * of compute capability 8.0 and 9.0 (CUDA's occupancy calculator).
 */
#include "simcuda/driver/code.h"

#define WARP 32u
#define THREADS_BLOCK 1024u
#define REGISTERS 65536u       /* per multiprocessor */
#define REGISTERS_STEP 256u    /* per warp */
#define PARTS 4u               /* of a multiprocessor, each with separate registers */
#define SHARED_STEP 128u       /* per block */
#define SHARED_OF_DRIVER 1024u /* per block */
#define CLUSTER_PORTABLE 8
#define CLUSTER_MOST 16

static size_t round_up(size_t number, size_t unit)
{
    return (number + unit - 1) / unit * unit;
}

static unsigned least(unsigned a, unsigned b)
{
    return a < b ? a : b;
}

unsigned rvli_occupancy_warps(unsigned registers)
{
    size_t warp = round_up((size_t)(registers > 0 ? registers : 1) * WARP, REGISTERS_STEP);
    return (unsigned)(REGISTERS / PARTS / warp) * PARTS;
}

/* Shared memory of a block, with the driver's share. */
static size_t shared_of(CUfunction function, size_t dynamic_bytes)
{
    return round_up(function->entry.shared_bytes + dynamic_bytes, SHARED_STEP) + SHARED_OF_DRIVER;
}

unsigned rvli_occupancy_blocks(CUfunction function, int device, unsigned threads,
                               size_t dynamic_bytes)
{
    const rvli_card *card = rvli_device_card(device);
    unsigned warps = (threads + WARP - 1) / WARP;
    /* As on an H200, the limit that the code declares is ignored. */
    if (warps == 0 || threads > THREADS_BLOCK ||
        dynamic_bytes > rvli_function_dynamic(function, device))
        return 0;
    unsigned blocks = (unsigned)card->threads_multiprocessor / WARP / warps;
    blocks = least(blocks, (unsigned)card->blocks_multiprocessor);
    blocks = least(blocks, rvli_occupancy_warps(function->entry.registers) / warps);
    return least(blocks, (unsigned)((size_t)card->shared_multiprocessor_bytes /
                                    shared_of(function, dynamic_bytes)));
}

/* ---- Entry points ---- */

static CUresult find(CUfunction handle, CUfunction *function_out, int *device_out)
{
    CUresult result = rvli_current_device(device_out);
    return result == CUDA_SUCCESS ? rvli_function_find(handle, function_out) : result;
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, CUfunction handle,
                                                              int threads, size_t dynamic_bytes,
                                                              unsigned int flags)
{
    int device;
    CUfunction function = NULL;
    CUresult result = find(handle, &function, &device);
    if (result == CUDA_SUCCESS &&
        (blocks == NULL || threads <= 0 || flags > CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE))
        return CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        *blocks = (int)rvli_occupancy_blocks(function, device, (unsigned)threads, dynamic_bytes);
    return result;
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, CUfunction handle, int threads,
                                                     size_t dynamic_bytes)
{
    return cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, handle, threads,
                                                                dynamic_bytes, 0);
}

/* The block size that puts the most threads on a multiprocessor. With equal threads, the
 * largest. */
CUresult cuOccupancyMaxPotentialBlockSizeWithFlags(int *grid, int *threads, CUfunction handle,
                                                   CUoccupancyB2DSize dynamic_of,
                                                   size_t dynamic_bytes, int threads_most,
                                                   unsigned int flags)
{
    int device;
    unsigned best = 0, best_blocks = 0;
    CUfunction function = NULL;
    CUresult result = find(handle, &function, &device);
    if (result == CUDA_SUCCESS && (grid == NULL || threads == NULL || threads_most < 0 ||
                                   flags > CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE))
        return CUDA_ERROR_INVALID_VALUE;
    if (result != CUDA_SUCCESS)
        return result;
    unsigned most = rvli_function_threads(function, device);
    most = threads_most > 0 ? least(most, (unsigned)threads_most) : most;
    for (unsigned size = (unsigned)round_up(most, WARP); size > 0; size -= WARP) {
        unsigned tried = least(size, most);
        size_t dynamic = dynamic_of != NULL ? dynamic_of((int)tried) : dynamic_bytes;
        unsigned blocks = rvli_occupancy_blocks(function, device, tried, dynamic);
        if (blocks * tried > best_blocks * best) {
            best = tried;
            best_blocks = blocks;
        }
    }
    *threads = (int)best;
    *grid = (int)best_blocks * rvli_device_card(device)->multiprocessors;
    return CUDA_SUCCESS;
}

CUresult cuOccupancyMaxPotentialBlockSize(int *grid, int *threads, CUfunction handle,
                                          CUoccupancyB2DSize dynamic_of, size_t dynamic_bytes,
                                          int threads_most)
{
    return cuOccupancyMaxPotentialBlockSizeWithFlags(grid, threads, handle, dynamic_of,
                                                     dynamic_bytes, threads_most, 0);
}

/* The dynamic shared memory available to each block, with so many blocks on a multiprocessor. */
CUresult cuOccupancyAvailableDynamicSMemPerBlock(size_t *bytes, CUfunction handle, int blocks,
                                                 int threads)
{
    int device;
    CUfunction function = NULL;
    CUresult result = find(handle, &function, &device);
    if (result == CUDA_SUCCESS && (bytes == NULL || blocks <= 0 || threads <= 0))
        return CUDA_ERROR_INVALID_VALUE;
    if (result != CUDA_SUCCESS)
        return result;
    const rvli_card *card = rvli_device_card(device);
    size_t part =
        (size_t)card->shared_multiprocessor_bytes / (unsigned)blocks / SHARED_STEP * SHARED_STEP;
    size_t taken = shared_of(function, 0);
    size_t block = rvli_function_dynamic(function, device);
    if (rvli_occupancy_blocks(function, device, (unsigned)threads, 0) < (unsigned)blocks ||
        part < taken)
        return CUDA_ERROR_INVALID_VALUE;
    *bytes = part - taken < block ? part - taken : block;
    return CUDA_SUCCESS;
}

/* Clusters fit everywhere here: how a card groups its multiprocessors is not considered. */
CUresult cuOccupancyMaxPotentialClusterSize(int *blocks, CUfunction handle,
                                            const CUlaunchConfig *config)
{
    int device;
    CUfunction function = NULL;
    CUresult result = find(handle, &function, &device);
    if (result == CUDA_SUCCESS && (blocks == NULL || config == NULL))
        return CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        *blocks = rvli_device_card(device)->major < 9 ? 1
                  : function->large_clusters          ? CLUSTER_MOST
                                                      : CLUSTER_PORTABLE;
    return result;
}

CUresult cuOccupancyMaxActiveClusters(int *clusters, CUfunction handle,
                                      const CUlaunchConfig *config)
{
    int device;
    unsigned blocks = 1;
    CUfunction function = NULL;
    CUresult result = find(handle, &function, &device);
    if (result == CUDA_SUCCESS && (clusters == NULL || config == NULL))
        return CUDA_ERROR_INVALID_VALUE;
    if (result != CUDA_SUCCESS)
        return result;
    for (unsigned i = 0; i < config->numAttrs; i++)
        if (config->attrs[i].id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION)
            blocks = config->attrs[i].value.clusterDim.x * config->attrs[i].value.clusterDim.y *
                     config->attrs[i].value.clusterDim.z;
    unsigned threads = config->blockDimX * config->blockDimY * config->blockDimZ;
    if (blocks == 0 || threads == 0)
        return CUDA_ERROR_INVALID_VALUE;
    *clusters = (int)(rvli_occupancy_blocks(function, device, threads, config->sharedMemBytes) *
                      (unsigned)rvli_device_card(device)->multiprocessors / blocks);
    return CUDA_SUCCESS;
}
