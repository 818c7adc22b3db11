/* SPDX-License-Identifier: MIT */
/* Code that belongs to no context: the driver's libraries and kernels, with the driver's
 * handles. */
#include "simcuda/runtime/runtime.h"

#if CUDART_VERSION >= 12080 /* the version that introduced them */

RVLI_PASSED(cudaLibraryLoadData, cuLibraryLoadData,
            (cudaLibrary_t * library, const void *code, enum cudaJitOption *options, void **values,
             unsigned int count, enum cudaLibraryOption *library_options, void **library_values,
             unsigned int library_count),
            (library, code, (CUjit_option *)options, values, count,
             (CUlibraryOption *)library_options, library_values, library_count))
RVLI_PASSED(cudaLibraryLoadFromFile, cuLibraryLoadFromFile,
            (cudaLibrary_t * library, const char *path, enum cudaJitOption *options, void **values,
             unsigned int count, enum cudaLibraryOption *library_options, void **library_values,
             unsigned int library_count),
            (library, path, (CUjit_option *)options, values, count,
             (CUlibraryOption *)library_options, library_values, library_count))
RVLI_PASSED(cudaLibraryUnload, cuLibraryUnload, (cudaLibrary_t library), (library))
RVLI_PASSED(cudaLibraryGetKernel, cuLibraryGetKernel,
            (cudaKernel_t * kernel, cudaLibrary_t library, const char *name),
            (kernel, library, name))
RVLI_PASSED(cudaLibraryGetKernelCount, cuLibraryGetKernelCount,
            (unsigned int *count, cudaLibrary_t library), (count, library))
RVLI_PASSED(cudaLibraryEnumerateKernels, cuLibraryEnumerateKernels,
            (cudaKernel_t * kernels, unsigned int count, cudaLibrary_t library),
            (kernels, count, library))

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

/* Attributes have the driver's numbers. */
_Static_assert((int)cudaFuncAttributeMaxDynamicSharedMemorySize ==
                       (int)CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES &&
                   (int)cudaFuncAttributeNonPortableClusterSizeAllowed ==
                       (int)CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED,
               "the first and last that can be set");

RVLI_PASSED(cudaKernelSetAttributeForDevice, cuKernelSetAttribute,
            (cudaKernel_t kernel, enum cudaFuncAttribute attribute, int value, int device),
            ((CUfunction_attribute)attribute, value, kernel, device))

#endif
