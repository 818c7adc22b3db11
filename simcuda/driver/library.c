/* SPDX-License-Identifier: MIT */
/*
 * Code that belongs to no context: a library and its kernels. As with modules, the code is taken
 * and does not run. A kernel may be launched where a function is wanted, as on a card.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "simcuda/driver/driver.h"

struct CUkern_st {
    CUlibrary library;
    CUkernel next;
    char name[];
};

struct CUlib_st {
    pthread_mutex_t mutex; /* of the list */
    CUkernel kernels;
};

CUresult cuLibraryLoadData(CUlibrary *library, const void *code, CUjit_option *options,
                           void **values, unsigned int count, CUlibraryOption *library_options,
                           void **library_values, unsigned int library_count)
{
    (void)options, (void)values, (void)count;
    (void)library_options, (void)library_values, (void)library_count;
    CUresult result = rvli_driver_ready();
    if (result == CUDA_SUCCESS && (library == NULL || code == NULL))
        result = CUDA_ERROR_INVALID_VALUE;
    if (result != CUDA_SUCCESS)
        return result;
    CUlibrary made = calloc(1, sizeof *made);
    if (made == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    pthread_mutex_init(&made->mutex, NULL);
    *library = made;
    return CUDA_SUCCESS;
}

CUresult cuLibraryUnload(CUlibrary library)
{
    if (library == NULL)
        return CUDA_ERROR_INVALID_HANDLE;
    for (CUkernel each = library->kernels, next; each != NULL; each = next) {
        next = each->next;
        free(each);
    }
    pthread_mutex_destroy(&library->mutex);
    free(library);
    return CUDA_SUCCESS;
}

/* The same handle each time. What names the code has is not looked at: any is there. */
CUresult cuLibraryGetKernel(CUkernel *kernel, CUlibrary library, const char *name)
{
    if (library == NULL)
        return CUDA_ERROR_INVALID_HANDLE;
    if (kernel == NULL || name == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&library->mutex);
    CUkernel found = library->kernels;
    while (found != NULL && strcmp(found->name, name) != 0)
        found = found->next;
    if (found == NULL) {
        size_t name_bytes = strlen(name) + 1;
        found = malloc(sizeof *found + name_bytes);
        if (found != NULL) {
            found->library = library;
            found->next = library->kernels;
            memcpy(found->name, name, name_bytes);
            library->kernels = found;
        }
    }
    pthread_mutex_unlock(&library->mutex);
    if (found == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *kernel = found;
    return CUDA_SUCCESS;
}

CUresult cuKernelGetLibrary(CUlibrary *library, CUkernel kernel)
{
    if (library == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (kernel == NULL)
        return CUDA_ERROR_INVALID_HANDLE;
    *library = kernel->library;
    return CUDA_SUCCESS;
}

CUresult cuKernelGetName(const char **name, CUkernel kernel)
{
    if (name == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (kernel == NULL)
        return CUDA_ERROR_INVALID_HANDLE;
    *name = kernel->name;
    return CUDA_SUCCESS;
}

/* ---- What a kernel is: as a function ---- */

CUresult cuKernelGetFunction(CUfunction *function, CUkernel kernel)
{
    if (function == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (kernel == NULL)
        return CUDA_ERROR_INVALID_HANDLE;
    *function = (CUfunction)kernel;
    return CUDA_SUCCESS;
}

CUresult cuKernelGetAttribute(int *value, CUfunction_attribute attribute, CUkernel kernel,
                              CUdevice device)
{
    (void)device;
    return cuFuncGetAttribute(value, attribute, (CUfunction)kernel);
}

CUresult cuKernelSetAttribute(CUfunction_attribute attribute, int value, CUkernel kernel,
                              CUdevice device)
{
    (void)device;
    return cuFuncSetAttribute((CUfunction)kernel, attribute, value);
}

CUresult cuKernelSetCacheConfig(CUkernel kernel, CUfunc_cache config, CUdevice device)
{
    (void)device;
    return cuFuncSetCacheConfig((CUfunction)kernel, config);
}
