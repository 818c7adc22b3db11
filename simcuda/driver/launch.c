/* SPDX-License-Identifier: MIT */
/* Launches are checked against the limits of the kernel and of the device, and accepted. Nothing
 * runs. */
#include "simcuda/driver/capture.h"
#include "simcuda/driver/code.h"

#define THREADS_BLOCK 1024u
#define GRID_X_MOST 2147483647u
#define GRID_YZ_MOST 65535u
#define BLOCK_Z_MOST 64u
#define CLUSTER_PORTABLE 8u
#define CLUSTER_MOST 16u

static bool has_shape(const CUlaunchConfig *of)
{
    return of->gridDimX > 0 && of->gridDimY > 0 && of->gridDimZ > 0 &&
           of->gridDimX <= GRID_X_MOST && of->gridDimY <= GRID_YZ_MOST &&
           of->gridDimZ <= GRID_YZ_MOST && of->blockDimX > 0 && of->blockDimY > 0 &&
           of->blockDimZ > 0 && of->blockDimX <= THREADS_BLOCK && of->blockDimY <= THREADS_BLOCK &&
           of->blockDimZ <= BLOCK_Z_MOST &&
           (uint64_t)of->blockDimX * of->blockDimY * of->blockDimZ <= THREADS_BLOCK;
}

static unsigned threads_of(const CUlaunchConfig *of)
{
    return of->blockDimX * of->blockDimY * of->blockDimZ;
}

/* Blocks of a cluster share their shared memory. A grid consists of whole clusters. */
static CUresult check_cluster(const CUlaunchConfig *of, const CUlaunchAttribute *attribute,
                              CUfunction function, const rvli_card *card)
{
    unsigned x = attribute->value.clusterDim.x, y = attribute->value.clusterDim.y,
             z = attribute->value.clusterDim.z;
    if (x == 0 || y == 0 || z == 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (of->gridDimX % x != 0 || of->gridDimY % y != 0 || of->gridDimZ % z != 0)
        return CUDA_ERROR_INVALID_CLUSTER_SIZE;
    if (card->major < 9)
        return x == 1 && y == 1 && z == 1 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CLUSTER_SIZE;
    uint64_t blocks = (uint64_t)x * y * z;
    return blocks > (function->large_clusters ? CLUSTER_MOST : CLUSTER_PORTABLE)
               ? CUDA_ERROR_INVALID_CLUSTER_SIZE
               : CUDA_SUCCESS;
}

/* All blocks of a cooperative launch must fit on the device at once. */
static CUresult check_together(const CUlaunchConfig *of, CUfunction function, int device)
{
    uint64_t room =
        (uint64_t)rvli_occupancy_blocks(function, device, threads_of(of), of->sharedMemBytes) *
        (uint64_t)rvli_device_card(device)->multiprocessors;
    uint64_t plane = (uint64_t)of->gridDimX * of->gridDimY; /* below 2^47 */
    return plane > room || plane * of->gridDimZ > room ? CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE
                                                       : CUDA_SUCCESS;
}

static CUresult check_attributes(const CUlaunchConfig *of, CUfunction function, int device)
{
    CUresult result =
        of->numAttrs > 0 && of->attrs == NULL ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
    for (unsigned i = 0; result == CUDA_SUCCESS && i < of->numAttrs; i++)
        if (of->attrs[i].id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION)
            result = check_cluster(of, &of->attrs[i], function, rvli_device_card(device));
        else if (of->attrs[i].id == CU_LAUNCH_ATTRIBUTE_COOPERATIVE &&
                 of->attrs[i].value.cooperative)
            result = check_together(of, function, device);
    return result;
}

/* Checks the block against what the code declares. Limits from registers are checked elsewhere. */
static bool is_as_written(const CUlaunchConfig *of, const rvli_kernel_entry *entry)
{
    const unsigned *shape = entry->required;
    if (entry->threads_most > 0 && threads_of(of) > entry->threads_most)
        return false;
    return shape[0] == 0 ||
           (of->blockDimX == shape[0] && of->blockDimY == shape[1] && of->blockDimZ == shape[2]);
}

static CUresult check(const CUlaunchConfig *of, CUfunction function, int device)
{
    if (!has_shape(of))
        return CUDA_ERROR_INVALID_VALUE;
    if (function->module != NULL && function->module->device != device)
        return CUDA_ERROR_INVALID_HANDLE;
    if (of->sharedMemBytes > rvli_function_dynamic(function, device) ||
        !is_as_written(of, &function->entry))
        return CUDA_ERROR_INVALID_VALUE;
    if (threads_of(of) > rvli_function_threads(function, device))
        return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
    return check_attributes(of, function, device);
}

CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction handle, void **parameters,
                          void **extra)
{
    int device;
    bool captured;
    CUfunction function = NULL;
    (void)parameters;
    (void)extra;
    if (config == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = rvli_current_device(&device);
    if (result == CUDA_SUCCESS)
        result = rvli_function_find(handle, &function);
    if (result == CUDA_SUCCESS)
        result = check(config, function, device);
    if (result == CUDA_SUCCESS)
        result = rvli_code_load_function(device, handle, function);
    if (result != CUDA_SUCCESS)
        return result;
    const rvli_node_params node = {.kernel = {.func = handle,
                                              .gridDimX = config->gridDimX,
                                              .gridDimY = config->gridDimY,
                                              .gridDimZ = config->gridDimZ,
                                              .blockDimX = config->blockDimX,
                                              .blockDimY = config->blockDimY,
                                              .blockDimZ = config->blockDimZ,
                                              .sharedMemBytes = config->sharedMemBytes}};
    result = rvli_capture_work(config->hStream, CU_GRAPH_NODE_TYPE_KERNEL, &node, &captured);
    if (result == CUDA_SUCCESS && !captured)
        rvli_time_pass(1);
    return result;
}

static CUresult launch(CUfunction function, const CUlaunchConfig *shape, bool together)
{
    CUlaunchAttribute attribute = {.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE,
                                   .value = {.cooperative = 1}};
    CUlaunchConfig config = *shape;
    if (together) {
        config.attrs = &attribute;
        config.numAttrs = 1;
    }
    return cuLaunchKernelEx(&config, function, NULL, NULL);
}

CUresult cuLaunchKernel(CUfunction function, unsigned int grid_x, unsigned int grid_y,
                        unsigned int grid_z, unsigned int block_x, unsigned int block_y,
                        unsigned int block_z, unsigned int shared_bytes, CUstream stream,
                        void **parameters, void **extra)
{
    (void)parameters;
    (void)extra;
    return launch(function,
                  &(CUlaunchConfig){grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes,
                                    stream, NULL, 0},
                  false);
}

CUresult cuLaunchCooperativeKernel(CUfunction function, unsigned int grid_x, unsigned int grid_y,
                                   unsigned int grid_z, unsigned int block_x, unsigned int block_y,
                                   unsigned int block_z, unsigned int shared_bytes, CUstream stream,
                                   void **parameters)
{
    (void)parameters;
    return launch(function,
                  &(CUlaunchConfig){grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes,
                                    stream, NULL, 0},
                  true);
}
