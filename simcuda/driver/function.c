/* SPDX-License-Identifier: MIT */
/* Functions: which handles are valid, and the needs and limits of kernels. */
#include "base/addrmap.h"
#include "simcuda/driver/code.h"

#define THREADS_BLOCK 1024u
#define SHARED_BLOCK 49152 /* without opting in to more */

/* The runtime's functions. Their limits are unknown, so they may use all that the device has. */
static struct CUfunc_st of_runtime = {
    .entry = {.name = "", .registers = RVLI_REGISTERS_ASSUMED},
    .dynamic_most = -1,
    .carveout = -1,
    .loaded = true,
};

/* Marks the place of a removed handle, until its address is used again. */
static struct CUfunc_st gone;

static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;
static rvli_addrmap known; /* maps a handle to itself, or to gone */
static bool known_begun;

void rvli_function_forget(void)
{
    pthread_rwlock_init(&lock, NULL);
}

CUresult rvli_function_add(CUfunction function)
{
    pthread_rwlock_wrlock(&lock);
    if (!known_begun)
        rvli_addrmap_init(&known);
    known_begun = true;
    rvli_addrmap_remove(&known, (uintptr_t)function);
    rvl_status status = rvli_addrmap_insert(&known, (uintptr_t)function, function);
    pthread_rwlock_unlock(&lock);
    return rvli_result(status);
}

void rvli_function_remove(CUfunction function)
{
    pthread_rwlock_wrlock(&lock);
    rvli_addrmap_remove(&known, (uintptr_t)function);
    (void)rvli_addrmap_insert(&known, (uintptr_t)function, &gone);
    pthread_rwlock_unlock(&lock);
}

CUresult rvli_function_find(CUfunction handle, CUfunction *function_out)
{
    if (handle == NULL)
        return CUDA_ERROR_INVALID_HANDLE;
    pthread_rwlock_rdlock(&lock);
    CUfunction found = known_begun ? rvli_addrmap_get(&known, (uintptr_t)handle) : NULL;
    pthread_rwlock_unlock(&lock);
    if (found == &gone)
        return CUDA_ERROR_INVALID_HANDLE;
    *function_out = found != NULL ? found : &of_runtime;
    return CUDA_SUCCESS;
}

/* ---- Needs and limits ---- */

unsigned rvli_function_threads(CUfunction function, int device)
{
    unsigned threads = rvli_occupancy_warps(function->entry.registers) * 32;
    (void)device;
    if (function->entry.threads_most > 0 && function->entry.threads_most < threads)
        threads = function->entry.threads_most;
    return threads < THREADS_BLOCK ? threads : THREADS_BLOCK;
}

/* The device's limit for a block, minus the kernel's static shared memory. */
static unsigned left_of(unsigned limit, CUfunction function)
{
    unsigned own = function->entry.shared_bytes;
    return own < limit ? limit - own : 0;
}

unsigned rvli_function_dynamic(CUfunction function, int device)
{
    if (function == &of_runtime)
        return (unsigned)rvli_device_card(device)->shared_block_bytes;
    return function->dynamic_most >= 0 ? (unsigned)function->dynamic_most
                                       : left_of(SHARED_BLOCK, function);
}

static CUresult read_attribute(int *value, CUfunction_attribute attribute, CUfunction function,
                               int device)
{
    const rvli_card *card = rvli_device_card(device);
    const rvli_kernel_entry *entry = &function->entry;
    switch ((int)attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
        *value = (int)rvli_function_threads(function, device);
        break;
    case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES:
        *value = (int)entry->shared_bytes;
        break;
    case CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES:
        *value = (int)entry->constant_bytes;
        break;
    case CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES:
        *value = (int)entry->local_bytes;
        break;
    case CU_FUNC_ATTRIBUTE_NUM_REGS:
        *value = (int)entry->registers;
        break;
    case CU_FUNC_ATTRIBUTE_PTX_VERSION:
        *value = entry->ptx_version > 0 ? (int)entry->ptx_version : card->major * 10 + card->minor;
        break;
    case CU_FUNC_ATTRIBUTE_BINARY_VERSION:
        *value = card->major * 10 + card->minor;
        break;
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
        *value = (int)rvli_function_dynamic(function, device);
        break;
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
        *value = function->carveout;
        break;
    case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
        *value = function->large_clusters;
        break;
    default:
        if ((int)attribute < 0 || attribute >= CU_FUNC_ATTRIBUTE_MAX)
            return CUDA_ERROR_INVALID_VALUE;
        *value = 0;
    }
    return CUDA_SUCCESS;
}

static CUresult write_attribute(CUfunction function, CUfunction_attribute attribute, int value,
                                int device)
{
    unsigned most = left_of((unsigned)rvli_device_card(device)->shared_block_bytes, function);
    switch ((int)attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
        if (value < 0 || (unsigned)value > most)
            return CUDA_ERROR_INVALID_VALUE;
        function->dynamic_most = value;
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
        if (value < -1 || value > 100)
            return CUDA_ERROR_INVALID_VALUE;
        function->carveout = value;
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
        if (value != 0 && value != 1)
            return CUDA_ERROR_INVALID_VALUE;
        function->large_clusters = value != 0;
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

/* Attributes that an H200 does not report for a function that was listed but not loaded. */
static bool needs_code(CUfunction_attribute attribute)
{
    return attribute == CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK ||
           attribute == CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES ||
           attribute == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
}

CUresult cuFuncGetAttribute(int *value, CUfunction_attribute attribute, CUfunction handle)
{
    int device;
    CUfunction function = NULL;
    CUresult result = rvli_current_device(&device);
    if (result == CUDA_SUCCESS && value == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        result = rvli_function_find(handle, &function);
    if (result == CUDA_SUCCESS && !function->loaded && needs_code(attribute))
        return CUDA_ERROR_FUNCTION_NOT_LOADED;
    return result == CUDA_SUCCESS ? read_attribute(value, attribute, function, device) : result;
}

/* Sets an attribute. Settings of the runtime's functions are checked but not kept. */
static CUresult set(CUfunction handle, CUfunction_attribute attribute, int value, int device)
{
    CUfunction function = NULL;
    CUresult result = rvli_function_find(handle, &function);
    struct CUfunc_st scratch = of_runtime;
    if (result == CUDA_SUCCESS && function == &of_runtime)
        function = &scratch;
    return result == CUDA_SUCCESS ? write_attribute(function, attribute, value, device) : result;
}

CUresult cuFuncSetAttribute(CUfunction handle, CUfunction_attribute attribute, int value)
{
    int device;
    CUresult result = rvli_current_device(&device);
    return result == CUDA_SUCCESS ? set(handle, attribute, value, device) : result;
}

CUresult cuFuncSetCacheConfig(CUfunction handle, CUfunc_cache config)
{
    CUfunction function;
    CUresult result = rvli_function_find(handle, &function);
    return result == CUDA_SUCCESS && (unsigned)config > CU_FUNC_CACHE_PREFER_EQUAL
               ? CUDA_ERROR_INVALID_VALUE
               : result;
}

CUresult cuFuncGetModule(CUmodule *module, CUfunction handle)
{
    CUfunction function = NULL;
    CUresult result = rvli_function_find(handle, &function);
    if (result == CUDA_SUCCESS && module == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (result != CUDA_SUCCESS)
        return result;
    if (function->library != NULL)
        return cuLibraryGetModule(module, function->library);
    if (function->module == NULL)
        return CUDA_ERROR_INVALID_HANDLE;
    *module = function->module;
    return CUDA_SUCCESS;
}

CUresult cuFuncGetName(const char **name, CUfunction handle)
{
    CUfunction function = NULL;
    CUresult result = rvli_function_find(handle, &function);
    if (result == CUDA_SUCCESS && name == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        *name = function->entry.name;
    return result;
}

/* As on an H200, a function counts as loaded once it was requested by name. */
CUresult cuFuncIsLoaded(CUfunctionLoadingState *state, CUfunction handle)
{
    CUfunction function = NULL;
    CUresult result = rvli_function_find(handle, &function);
    if (result == CUDA_SUCCESS && state == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        *state = function->loaded ? CU_FUNCTION_LOADING_STATE_LOADED
                                  : CU_FUNCTION_LOADING_STATE_UNLOADED;
    return result;
}

CUresult cuFuncLoad(CUfunction handle)
{
    CUfunction function = NULL;
    CUresult result = rvli_function_find(handle, &function);
    if (result == CUDA_SUCCESS)
        function->loaded = true;
    return result;
}

/* ---- Kernels of libraries: as above, on a device that the caller names ---- */

static CUresult check_device(CUdevice device)
{
    CUresult result = rvli_driver_ready();
    return result == CUDA_SUCCESS && !rvli_device_exists(device) ? CUDA_ERROR_INVALID_DEVICE
                                                                 : result;
}

CUresult cuKernelGetAttribute(int *value, CUfunction_attribute attribute, CUkernel kernel,
                              CUdevice device)
{
    CUfunction function = NULL;
    CUresult result = value == NULL ? CUDA_ERROR_INVALID_VALUE : check_device(device);
    if (result == CUDA_SUCCESS)
        result = rvli_function_find((CUfunction)kernel, &function);
    return result == CUDA_SUCCESS ? read_attribute(value, attribute, function, device) : result;
}

CUresult cuKernelSetAttribute(CUfunction_attribute attribute, int value, CUkernel kernel,
                              CUdevice device)
{
    CUresult result = check_device(device);
    return result == CUDA_SUCCESS ? set((CUfunction)kernel, attribute, value, device) : result;
}

CUresult cuKernelSetCacheConfig(CUkernel kernel, CUfunc_cache config, CUdevice device)
{
    CUresult result = check_device(device);
    return result == CUDA_SUCCESS ? cuFuncSetCacheConfig((CUfunction)kernel, config) : result;
}
