/* SPDX-License-Identifier: MIT */
/*
 * Code that belongs to no context: a library and its kernels. A device gets a module of it when
 * its variables are looked up. The image for the first device is used, since all devices are of
 * one kind.
 */
#include <stdlib.h>

#include "simcuda/driver/code.h"

#define DEVICES_MAX 64

struct CUlib_st {
    rvli_code code;
    CUresult broken;       /* why the code cannot be read, or CUDA_SUCCESS */
    pthread_mutex_t mutex; /* protects the modules */
    CUmodule modules[DEVICES_MAX];
};

/* Loads an image, or the file of that path. */
static CUresult load(CUlibrary *library, const void *image, const char *path)
{
    CUresult result = rvli_driver_ready();
    if (result == CUDA_SUCCESS && (library == NULL || (image == NULL && path == NULL)))
        result = CUDA_ERROR_INVALID_VALUE;
    CUlibrary made = result == CUDA_SUCCESS ? calloc(1, sizeof *made) : NULL;
    if (made == NULL)
        return result == CUDA_SUCCESS ? CUDA_ERROR_OUT_OF_MEMORY : result;
    result = path != NULL ? rvli_code_load_file(path, 0, &made->code)
                          : rvli_code_load(image, SIZE_MAX, 0, &made->code);
    if (path == NULL && result != CUDA_ERROR_OUT_OF_MEMORY) {
        made->broken = result; /* reported at first use, as on an H200 */
        result = CUDA_SUCCESS;
    }
    if (result != CUDA_SUCCESS) {
        free(made);
        return result;
    }
    pthread_mutex_init(&made->mutex, NULL);
    *library = made;
    return CUDA_SUCCESS;
}

CUresult cuLibraryLoadData(CUlibrary *library, const void *code, CUjit_option *options,
                           void **values, unsigned int count, CUlibraryOption *library_options,
                           void **library_values, unsigned int library_count)
{
    (void)library_options, (void)library_values, (void)library_count;
    CUresult result = load(library, code, NULL);
    rvli_code_answer(count, options, values);
    return result;
}

CUresult cuLibraryLoadFromFile(CUlibrary *library, const char *path, CUjit_option *options,
                               void **values, unsigned int count, CUlibraryOption *library_options,
                               void **library_values, unsigned int library_count)
{
    (void)library_options, (void)library_values, (void)library_count;
    CUresult result = load(library, NULL, path);
    rvli_code_answer(count, options, values);
    return result;
}

CUresult cuLibraryUnload(CUlibrary library)
{
    if (library == NULL)
        return CUDA_ERROR_INVALID_HANDLE;
    for (size_t i = 0; i < DEVICES_MAX; i++)
        if (library->modules[i] != NULL)
            rvli_module_free(library->modules[i]);
    rvli_code_free(&library->code);
    pthread_mutex_destroy(&library->mutex);
    free(library);
    return CUDA_SUCCESS;
}

/* ---- Kernels of a library ---- */

CUresult cuLibraryGetKernel(CUkernel *kernel, CUlibrary library, const char *name)
{
    CUfunction found = NULL;
    if (library == NULL)
        return CUDA_ERROR_INVALID_HANDLE;
    if (kernel == NULL || name == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (library->broken != CUDA_SUCCESS)
        return library->broken;
    CUresult result = rvli_code_function(&library->code, name, NULL, library, &found);
    if (result == CUDA_SUCCESS)
        *kernel = (CUkernel)found;
    return result;
}

CUresult cuLibraryGetKernelCount(unsigned int *count, CUlibrary library)
{
    if (library == NULL)
        return CUDA_ERROR_INVALID_HANDLE;
    if (count == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (library->broken != CUDA_SUCCESS)
        return library->broken;
    *count = (unsigned)library->code.image.entry_count;
    return CUDA_SUCCESS;
}

CUresult cuLibraryEnumerateKernels(CUkernel *kernels, unsigned int count, CUlibrary library)
{
    if (library == NULL)
        return CUDA_ERROR_INVALID_HANDLE;
    if (kernels == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (library->broken != CUDA_SUCCESS)
        return library->broken;
    return rvli_code_functions(&library->code, count, NULL, library, (CUfunction *)kernels);
}

/* Finds the kernel of a handle that a library has made. */
static CUresult find(CUkernel kernel, CUfunction *function_out)
{
    CUresult result = rvli_function_find((CUfunction)kernel, function_out);
    return result == CUDA_SUCCESS && (*function_out)->library == NULL ? CUDA_ERROR_INVALID_HANDLE
                                                                      : result;
}

CUresult cuKernelGetLibrary(CUlibrary *library, CUkernel kernel)
{
    CUfunction function = NULL;
    CUresult result = library == NULL ? CUDA_ERROR_INVALID_VALUE : find(kernel, &function);
    if (result == CUDA_SUCCESS)
        *library = function->library;
    return result;
}

CUresult cuKernelGetName(const char **name, CUkernel kernel)
{
    CUfunction function = NULL;
    CUresult result = name == NULL ? CUDA_ERROR_INVALID_VALUE : find(kernel, &function);
    if (result == CUDA_SUCCESS)
        *name = function->entry.name;
    return result;
}

CUresult cuKernelGetFunction(CUfunction *function, CUkernel kernel)
{
    CUfunction found = NULL;
    CUresult result = function == NULL ? CUDA_ERROR_INVALID_VALUE : find(kernel, &found);
    if (result == CUDA_SUCCESS)
        *function = found;
    return result;
}

/* ---- A library in a context ---- */

CUresult cuLibraryGetModule(CUmodule *module, CUlibrary library)
{
    int device;
    CUresult result = rvli_current_device(&device);
    if (result == CUDA_SUCCESS && library == NULL)
        return CUDA_ERROR_INVALID_HANDLE;
    if (result == CUDA_SUCCESS && module == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        result = library->broken;
    if (result != CUDA_SUCCESS)
        return result;
    pthread_mutex_lock(&library->mutex);
    CUmodule *place = &library->modules[device];
    if (*place == NULL)
        result = rvli_module_new(&library->code, device, library, place);
    if (result == CUDA_SUCCESS)
        *module = *place;
    pthread_mutex_unlock(&library->mutex);
    return result;
}

CUresult cuLibraryGetGlobal(CUdeviceptr *addr, size_t *size_bytes, CUlibrary library,
                            const char *name)
{
    CUmodule module = NULL;
    CUresult result = cuLibraryGetModule(&module, library);
    return result == CUDA_SUCCESS ? cuModuleGetGlobal(addr, size_bytes, module, name) : result;
}
