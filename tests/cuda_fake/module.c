/* SPDX-License-Identifier: MIT */
/*
 * Modules and kernels. A kernel is a C function that a test has set under a name; every module has
 * them all. A launch copies the values of the parameters, as the driver does.
 */
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "internal.h"

#define MAX_KERNELS 32

struct CUfunc_st {
    char name[64];
    fake_kernel kernel;
    size_t param_count;
    size_t param_sizes[FAKE_MAX_PARAMS];
};

struct CUmod_st {
    CUmodule next;
    CUcontext context;
};

static struct CUfunc_st kernels[MAX_KERNELS];
static int kernel_count;
static CUmodule modules;

/* ---- Kernels ---- */

static CUfunction kernel_named(const char *name)
{
    for (int i = 0; i < kernel_count; i++)
        if (strcmp(kernels[i].name, name) == 0)
            return &kernels[i];
    return NULL;
}

bool fake_kernel_set(const char *name, fake_kernel kernel, size_t param_count,
                     const size_t *param_sizes)
{
    FAKE_LOCKED;
    size_t bytes = 0;
    CUfunction function = kernel_named(name);
    if (param_count > FAKE_MAX_PARAMS || (function == NULL && kernel_count == MAX_KERNELS))
        return false;
    for (size_t i = 0; i < param_count; i++)
        bytes += (param_sizes[i] + 7) / 8 * 8;
    if (bytes > FAKE_PARAM_BYTES)
        return false;
    if (function == NULL)
        function = &kernels[kernel_count++];
    rvli_text_copy(function->name, sizeof function->name, name);
    function->kernel = kernel;
    function->param_count = param_count;
    for (size_t i = 0; i < param_count; i++)
        function->param_sizes[i] = param_sizes[i];
    return true;
}

void fake_kernel_run(const fake_op *op)
{
    _Alignas(8) unsigned char values[FAKE_PARAM_BYTES];
    void *params[FAKE_MAX_PARAMS];
    size_t at = 0;
    memcpy(values, op->params, sizeof values);
    for (size_t i = 0; i < op->kernel->param_count; i++) {
        params[i] = values + at;
        at += (op->kernel->param_sizes[i] + 7) / 8 * 8;
    }
    op->kernel->kernel(params);
}

/* Copies the values in; false if one is missing. */
static bool pack(fake_op *op, void *const *params)
{
    size_t at = 0;
    if (params == NULL)
        return op->kernel->param_count == 0;
    for (size_t i = 0; i < op->kernel->param_count; i++) {
        if (params[i] == NULL)
            return false;
        memcpy(op->params + at, params[i], op->kernel->param_sizes[i]);
        at += (op->kernel->param_sizes[i] + 7) / 8 * 8;
    }
    return true;
}

static bool is_kernel(CUfunction handle)
{
    for (int i = 0; i < kernel_count; i++)
        if (handle == &kernels[i])
            return true;
    return false;
}

CUresult cuLaunchKernel(CUfunction f, unsigned int gridDimX, unsigned int gridDimY,
                        unsigned int gridDimZ, unsigned int blockDimX, unsigned int blockDimY,
                        unsigned int blockDimZ, unsigned int sharedMemBytes, CUstream hStream,
                        void **kernelParams, void **extra)
{
    FAKE_ENTER(cuLaunchKernel, FAKE_NEEDS_CONTEXT);
    (void)sharedMemBytes;
    fake_op op = {.kind = FAKE_OP_KERNEL, .kernel = f};
    if (!is_kernel(f))
        return CUDA_ERROR_INVALID_HANDLE;
    if (gridDimX == 0 || gridDimY == 0 || gridDimZ == 0 || blockDimX == 0 || blockDimY == 0 ||
        blockDimZ == 0 || (uint64_t)blockDimX * blockDimY * blockDimZ > 1024)
        return CUDA_ERROR_INVALID_VALUE;
    if (extra != NULL)
        return CUDA_ERROR_NOT_SUPPORTED; /* packed parameters: not modelled */
    if (!pack(&op, kernelParams))
        return CUDA_ERROR_INVALID_VALUE;
    return fake_stream_queue(hStream, &op, NULL, NULL);
}

/* ---- Modules ---- */

static CUmodule *link_of(CUmodule handle)
{
    CUmodule *link = &modules;
    while (*link != NULL && *link != handle)
        link = &(*link)->next;
    return link;
}

CUresult cuModuleLoadData(CUmodule *module, const void *image)
{
    FAKE_ENTER(cuModuleLoadData, FAKE_NEEDS_CONTEXT);
    CUcontext context;
    if (module == NULL || image == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = fake_context_current(&context);
    if (result != CUDA_SUCCESS)
        return result;
    CUmodule loaded = calloc(1, sizeof *loaded);
    if (loaded == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    loaded->context = context;
    loaded->next = modules;
    modules = loaded;
    *module = loaded;
    return CUDA_SUCCESS;
}

CUresult cuModuleUnload(CUmodule hmod)
{
    FAKE_ENTER(cuModuleUnload, FAKE_NEEDS_CONTEXT);
    CUmodule *link = link_of(hmod);
    CUmodule module = *link;
    if (module == NULL)
        return CUDA_ERROR_INVALID_HANDLE;
    if (module->context->references == 0)
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    *link = module->next;
    free(module);
    return CUDA_SUCCESS;
}

CUresult cuModuleGetFunction(CUfunction *hfunc, CUmodule hmod, const char *name)
{
    FAKE_ENTER(cuModuleGetFunction, FAKE_NEEDS_CONTEXT);
    if (hfunc == NULL || name == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (*link_of(hmod) == NULL)
        return CUDA_ERROR_INVALID_HANDLE;
    CUfunction function = kernel_named(name);
    if (function == NULL)
        return CUDA_ERROR_NOT_FOUND;
    *hfunc = function;
    return CUDA_SUCCESS;
}

void fake_modules_stats(fake_live *live)
{
    for (CUmodule each = modules; each != NULL; each = each->next)
        live->modules++;
}

void fake_modules_reset(void)
{
    while (modules != NULL) {
        CUmodule module = modules;
        modules = module->next;
        free(module);
    }
    kernel_count = 0;
}
