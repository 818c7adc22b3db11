/* SPDX-License-Identifier: MIT */
/* Managed memory, memory with a pitch, and arrays. */
#include <string.h>

#include "simcuda/runtime/runtime.h"

/* ---- Managed memory ---- */

/* A size of 0 succeeds, and stores NULL. */
cudaError_t cudaMallocManaged(void **addr, size_t bytes, unsigned int flags)
{
    CUdeviceptr got = 0;
    if (addr == NULL)
        return rvli_done(cudaErrorInvalidValue);
    CUresult result = rvli_runtime_ready();
    if (result == CUDA_SUCCESS && bytes > 0)
        result = cuMemAllocManaged(&got, bytes, flags);
    if (result == CUDA_SUCCESS)
        *addr = (void *)got;
    return rvli_driven(result);
}

static CUmemLocation driver_place(struct cudaMemLocation place)
{
    return (CUmemLocation){.type = (CUmemLocationType)place.type, .id = place.id};
}

RVLI_PASSED(cudaMemPrefetchAsync, cuMemPrefetchAsync,
            (const void *addr, size_t bytes, struct cudaMemLocation place, unsigned int flags,
             cudaStream_t stream),
            ((CUdeviceptr)addr, bytes, driver_place(place), flags, stream))
RVLI_PASSED(cudaMemAdvise, cuMemAdvise,
            (const void *addr, size_t bytes, enum cudaMemoryAdvise advice,
             struct cudaMemLocation place),
            ((CUdeviceptr)addr, bytes, (CUmem_advise)advice, driver_place(place)))
RVLI_PASSED(cudaStreamAttachMemAsync, cuStreamAttachMemAsync,
            (cudaStream_t stream, void *addr, size_t bytes, unsigned int flags),
            (stream, (CUdeviceptr)addr, bytes, flags))

/* ---- Rows with a pitch ---- */

cudaError_t cudaMallocPitch(void **addr, size_t *pitch, size_t width, size_t height)
{
    CUdeviceptr got = 0;
    if (addr == NULL || pitch == NULL)
        return rvli_done(cudaErrorInvalidValue);
    CUresult result = rvli_runtime_ready();
    if (result == CUDA_SUCCESS && width > 0 && height > 0)
        result = cuMemAllocPitch(&got, pitch, width, height, 4);
    if (result == CUDA_SUCCESS)
        *addr = (void *)got;
    return rvli_driven(result);
}

cudaError_t cudaMalloc3D(struct cudaPitchedPtr *memory, struct cudaExtent size)
{
    void *addr = NULL;
    size_t pitch = 0;
    if (memory == NULL || (size.depth > 0 && size.height > SIZE_MAX / size.depth))
        return rvli_done(cudaErrorInvalidValue);
    cudaError_t error = cudaMallocPitch(&addr, &pitch, size.width, size.height * size.depth);
    if (error == cudaSuccess)
        *memory = (struct cudaPitchedPtr){addr, pitch, size.width, size.height};
    return error;
}

/* ---- Arrays. The handles are the driver's ---- */

static CUarray driver_array(const struct cudaArray *array)
{
    return (CUarray)(uintptr_t)array;
}

/* 0: there is no such format. */
static CUarray_format format_of(const struct cudaChannelFormatDesc *kind)
{
    switch (kind->f == cudaChannelFormatKindFloat      ? 100 + kind->x
            : kind->f == cudaChannelFormatKindSigned   ? 200 + kind->x
            : kind->f == cudaChannelFormatKindUnsigned ? 300 + kind->x
                                                       : 0) {
    case 116:
        return CU_AD_FORMAT_HALF;
    case 132:
        return CU_AD_FORMAT_FLOAT;
    case 208:
        return CU_AD_FORMAT_SIGNED_INT8;
    case 216:
        return CU_AD_FORMAT_SIGNED_INT16;
    case 232:
        return CU_AD_FORMAT_SIGNED_INT32;
    case 308:
        return CU_AD_FORMAT_UNSIGNED_INT8;
    case 316:
        return CU_AD_FORMAT_UNSIGNED_INT16;
    case 332:
        return CU_AD_FORMAT_UNSIGNED_INT32;
    default:
        return (CUarray_format)0;
    }
}

static cudaError_t describe(const struct cudaChannelFormatDesc *kind, struct cudaExtent size,
                            unsigned flags, CUDA_ARRAY3D_DESCRIPTOR *shape)
{
    if (kind == NULL || (int)format_of(kind) == 0)
        return cudaErrorInvalidValue;
    *shape =
        (CUDA_ARRAY3D_DESCRIPTOR){.Width = size.width,
                                  .Height = size.height,
                                  .Depth = size.depth,
                                  .Format = format_of(kind),
                                  .NumChannels = 1u + (kind->y > 0) + (kind->z > 0) + (kind->w > 0),
                                  .Flags = flags};
    return cudaSuccess;
}

cudaError_t cudaMalloc3DArray(cudaArray_t *array, const struct cudaChannelFormatDesc *kind,
                              struct cudaExtent size, unsigned int flags)
{
    CUarray made = NULL;
    CUDA_ARRAY3D_DESCRIPTOR shape;
    cudaError_t error = array == NULL ? cudaErrorInvalidValue : describe(kind, size, flags, &shape);
    if (error != cudaSuccess)
        return rvli_done(error);
    CUresult result = rvli_runtime_ready();
    if (result == CUDA_SUCCESS)
        result = cuArray3DCreate(&made, &shape);
    if (result == CUDA_SUCCESS)
        *array = (cudaArray_t)made;
    return rvli_driven(result);
}

cudaError_t cudaMallocArray(cudaArray_t *array, const struct cudaChannelFormatDesc *kind,
                            size_t width, size_t height, unsigned int flags)
{
    return cudaMalloc3DArray(array, kind, (struct cudaExtent){width, height, 0}, flags);
}

cudaError_t cudaFreeArray(cudaArray_t array)
{
    if (array == NULL)
        return cudaSuccess;
    CUresult result = rvli_runtime_ready();
    return rvli_driven(result == CUDA_SUCCESS ? cuArrayDestroy(driver_array(array)) : result);
}

static struct cudaChannelFormatDesc kind_of(const CUDA_ARRAY3D_DESCRIPTOR *shape)
{
    static const struct {
        CUarray_format format;
        int bits;
        enum cudaChannelFormatKind kind;
    } formats[] = {
        {CU_AD_FORMAT_HALF, 16, cudaChannelFormatKindFloat},
        {CU_AD_FORMAT_FLOAT, 32, cudaChannelFormatKindFloat},
        {CU_AD_FORMAT_SIGNED_INT8, 8, cudaChannelFormatKindSigned},
        {CU_AD_FORMAT_SIGNED_INT16, 16, cudaChannelFormatKindSigned},
        {CU_AD_FORMAT_SIGNED_INT32, 32, cudaChannelFormatKindSigned},
        {CU_AD_FORMAT_UNSIGNED_INT8, 8, cudaChannelFormatKindUnsigned},
        {CU_AD_FORMAT_UNSIGNED_INT16, 16, cudaChannelFormatKindUnsigned},
        {CU_AD_FORMAT_UNSIGNED_INT32, 32, cudaChannelFormatKindUnsigned},
    };
    struct cudaChannelFormatDesc kind = {0};
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        if (formats[i].format == shape->Format) {
            kind.f = formats[i].kind;
            kind.x = formats[i].bits;
            kind.y = shape->NumChannels > 1 ? kind.x : 0;
            kind.z = kind.w = shape->NumChannels > 2 ? kind.x : 0;
        }
    return kind;
}

cudaError_t cudaArrayGetInfo(struct cudaChannelFormatDesc *kind, struct cudaExtent *size,
                             unsigned int *flags, cudaArray_t array)
{
    CUDA_ARRAY3D_DESCRIPTOR shape;
    CUresult result = cuArray3DGetDescriptor(&shape, driver_array(array));
    if (result != CUDA_SUCCESS)
        return rvli_driven(result);
    if (kind != NULL)
        *kind = kind_of(&shape);
    if (size != NULL)
        *size = (struct cudaExtent){shape.Width, shape.Height, shape.Depth};
    if (flags != NULL)
        *flags = shape.Flags;
    return cudaSuccess;
}

cudaError_t cudaMallocMipmappedArray(cudaMipmappedArray_t *array,
                                     const struct cudaChannelFormatDesc *kind,
                                     struct cudaExtent size, unsigned int count, unsigned int flags)
{
    CUmipmappedArray made = NULL;
    CUDA_ARRAY3D_DESCRIPTOR shape;
    cudaError_t error = array == NULL ? cudaErrorInvalidValue : describe(kind, size, flags, &shape);
    if (error != cudaSuccess)
        return rvli_done(error);
    CUresult result = rvli_runtime_ready();
    if (result == CUDA_SUCCESS)
        result = cuMipmappedArrayCreate(&made, &shape, count);
    if (result == CUDA_SUCCESS)
        *array = (cudaMipmappedArray_t)made;
    return rvli_driven(result);
}

cudaError_t cudaGetMipmappedArrayLevel(cudaArray_t *level, cudaMipmappedArray_const_t array,
                                       unsigned int number)
{
    return rvli_driven(
        cuMipmappedArrayGetLevel((CUarray *)level, (CUmipmappedArray)(uintptr_t)array, number));
}

cudaError_t cudaFreeMipmappedArray(cudaMipmappedArray_t array)
{
    if (array == NULL)
        return cudaSuccess;
    CUresult result = rvli_runtime_ready();
    return rvli_driven(result == CUDA_SUCCESS ? cuMipmappedArrayDestroy((CUmipmappedArray)array)
                                              : result);
}
