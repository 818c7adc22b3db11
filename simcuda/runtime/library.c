/* SPDX-License-Identifier: MIT */
/* Code that belongs to no context: the driver's libraries and kernels. Their handles are the same.
 */
#include "simcuda/runtime/runtime.h"

#if CUDART_VERSION >= 12080 /* which brought them */

#define AFTER_READY(call)                                                                          \
    do {                                                                                           \
        CUresult ready = rvli_runtime_ready();                                                     \
        return rvli_driven(ready == CUDA_SUCCESS ? (call) : ready);                                \
    } while (0)

cudaError_t cudaLibraryLoadData(cudaLibrary_t *library, const void *code,
                                enum cudaJitOption *options, void **values, unsigned int count,
                                enum cudaLibraryOption *library_options, void **library_values,
                                unsigned int library_count)
{
    AFTER_READY(cuLibraryLoadData(library, code, (CUjit_option *)options, values, count,
                                  (CUlibraryOption *)library_options, library_values,
                                  library_count));
}

cudaError_t cudaLibraryLoadFromFile(cudaLibrary_t *library, const char *path,
                                    enum cudaJitOption *options, void **values, unsigned int count,
                                    enum cudaLibraryOption *library_options, void **library_values,
                                    unsigned int library_count)
{
    AFTER_READY(cuLibraryLoadFromFile(library, path, (CUjit_option *)options, values, count,
                                      (CUlibraryOption *)library_options, library_values,
                                      library_count));
}

cudaError_t cudaLibraryUnload(cudaLibrary_t library)
{
    AFTER_READY(cuLibraryUnload(library));
}

cudaError_t cudaLibraryGetKernel(cudaKernel_t *kernel, cudaLibrary_t library, const char *name)
{
    AFTER_READY(cuLibraryGetKernel(kernel, library, name));
}

cudaError_t cudaLibraryGetKernelCount(unsigned int *count, cudaLibrary_t library)
{
    AFTER_READY(cuLibraryGetKernelCount(count, library));
}

cudaError_t cudaLibraryEnumerateKernels(cudaKernel_t *kernels, unsigned int count,
                                        cudaLibrary_t library)
{
    AFTER_READY(cuLibraryEnumerateKernels(kernels, count, library));
}

cudaError_t cudaLibraryGetGlobal(void **addr, size_t *size_bytes, cudaLibrary_t library,
                                 const char *name)
{
    CUdeviceptr found = 0;
    CUresult result = rvli_runtime_ready();
    if (result == CUDA_SUCCESS)
        result = cuLibraryGetGlobal(&found, size_bytes, library, name);
    if (result == CUDA_SUCCESS && addr != NULL)
        *addr = (void *)found;
    return rvli_driven(result);
}

/* The driver's attributes have the same numbers. */
_Static_assert((int)cudaFuncAttributeMaxDynamicSharedMemorySize ==
                       (int)CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES &&
                   (int)cudaFuncAttributeNonPortableClusterSizeAllowed ==
                       (int)CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED,
               "the first and last that can be set");

cudaError_t cudaKernelSetAttributeForDevice(cudaKernel_t kernel, enum cudaFuncAttribute attribute,
                                            int value, int device)
{
    AFTER_READY(cuKernelSetAttribute((CUfunction_attribute)attribute, value, kernel, device));
}

#endif
