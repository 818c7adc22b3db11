/* SPDX-License-Identifier: MIT */
/* Code on the device: it is taken and does not run. */
#include <stdlib.h>

#include "simcuda/driver/capture.h"

struct CUmod_st {
    char unused;
};

struct CUfunc_st {
    CUmodule module;
};

CUresult cuModuleLoadData(CUmodule *module, const void *image)
{
    int device;
    CUresult result = rvli_current_device(&device);
    if (result == CUDA_SUCCESS && (module == NULL || image == NULL))
        return CUDA_ERROR_INVALID_VALUE;
    CUmodule made = result == CUDA_SUCCESS ? calloc(1, sizeof *made) : NULL;
    if (made == NULL)
        return result == CUDA_SUCCESS ? CUDA_ERROR_OUT_OF_MEMORY : result;
    *module = made;
    return CUDA_SUCCESS;
}

CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned int count,
                            CUjit_option *options, void **values)
{
    (void)count;
    (void)options;
    (void)values;
    return cuModuleLoadData(module, image);
}

CUresult cuModuleUnload(CUmodule module)
{
    free(module);
    return module == NULL ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

/* One handle a function, which lives as long as the process. */
CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name)
{
    if (function == NULL || module == NULL || name == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    CUfunction made = malloc(sizeof *made);
    if (made == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    made->module = module;
    *function = made;
    return CUDA_SUCCESS;
}

/* What fits any launch: who asks wants to know what is too much. */
CUresult cuFuncGetAttribute(int *value, CUfunction_attribute attribute, CUfunction function)
{
    if (value == NULL || function == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *value = attribute == CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK ? 1024
             : attribute == CU_FUNC_ATTRIBUTE_NUM_REGS            ? 32
                                                                  : 0;
    return CUDA_SUCCESS;
}

CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value)
{
    (void)attribute;
    (void)value;
    return function == NULL ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

CUresult cuFuncSetCacheConfig(CUfunction function, CUfunc_cache config)
{
    (void)config;
    return function == NULL ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

CUresult cuLaunchKernel(CUfunction function, unsigned int grid_x, unsigned int grid_y,
                        unsigned int grid_z, unsigned int block_x, unsigned int block_y,
                        unsigned int block_z, unsigned int shared_bytes, CUstream stream,
                        void **parameters, void **extra)
{
    int device;
    bool captured;
    const rvli_node_params node = {.kernel = {.func = function,
                                              .gridDimX = grid_x,
                                              .gridDimY = grid_y,
                                              .gridDimZ = grid_z,
                                              .blockDimX = block_x,
                                              .blockDimY = block_y,
                                              .blockDimZ = block_z,
                                              .sharedMemBytes = shared_bytes}};
    (void)parameters;
    (void)extra;
    CUresult result = rvli_current_device(&device);
    if (result != CUDA_SUCCESS || function == NULL)
        return result != CUDA_SUCCESS ? result : CUDA_ERROR_INVALID_HANDLE;
    bool good = grid_x > 0 && grid_y > 0 && grid_z > 0 && block_x > 0 && block_y > 0 &&
                block_z > 0 && (uint64_t)block_x * block_y * block_z <= 1024 &&
                shared_bytes <= (unsigned)rvli_device_card(device)->shared_block_bytes;
    if (!good)
        return CUDA_ERROR_INVALID_VALUE;
    return rvli_capture_work(stream, CU_GRAPH_NODE_TYPE_KERNEL, &node, &captured);
}

CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function, void **parameters,
                          void **extra)
{
    if (config == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    return cuLaunchKernel(function, config->gridDimX, config->gridDimY, config->gridDimZ,
                          config->blockDimX, config->blockDimY, config->blockDimZ,
                          config->sharedMemBytes, config->hStream, parameters, extra);
}
