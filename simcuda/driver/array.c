/* SPDX-License-Identifier: MIT */
/*
 * Arrays: memory with a layout that only the device knows. Their sizes follow measurements on an
 * H200 (tests/simcuda/facts.c, arrays): rows of a multiple of 64 bytes, in groups of eight rows.
 * They have no content. Textures are not simulated.
 */
#include <stdlib.h>
#include <string.h>

#include "simcuda/driver/driver.h"

#define ROW_BYTES 64
#define ROWS 8
#define LEVELS_MAX 17

struct CUarray_st {
    CUdeviceptr addr; /* 0: a level of a mipmapped array, which owns the memory */
    CUDA_ARRAY3D_DESCRIPTOR shape;
};

struct CUmipmappedArray_st {
    CUdeviceptr addr;
    unsigned count;
    struct CUarray_st levels[LEVELS_MAX];
};

/* ---- Sizes ---- */

static size_t element_bytes(const CUDA_ARRAY3D_DESCRIPTOR *shape)
{
    switch ((int)shape->Format) {
    case CU_AD_FORMAT_UNSIGNED_INT8:
    case CU_AD_FORMAT_SIGNED_INT8:
        return shape->NumChannels;
    case CU_AD_FORMAT_UNSIGNED_INT16:
    case CU_AD_FORMAT_SIGNED_INT16:
    case CU_AD_FORMAT_HALF:
        return (size_t)2 * shape->NumChannels;
    case CU_AD_FORMAT_UNSIGNED_INT32:
    case CU_AD_FORMAT_SIGNED_INT32:
    case CU_AD_FORMAT_FLOAT:
        return (size_t)4 * shape->NumChannels;
    default:
        return 0;
    }
}

static size_t whole(size_t size, size_t unit)
{
    return (size + unit - 1) / unit * unit;
}

static size_t or_one(size_t size)
{
    return size > 0 ? size : 1;
}

static size_t bytes_of(const CUDA_ARRAY3D_DESCRIPTOR *shape)
{
    size_t rows = shape->Height > 1 ? whole(shape->Height, ROWS) : 1;
    return whole(shape->Width * element_bytes(shape), ROW_BYTES) * rows * or_one(shape->Depth);
}

/* The limits of textures on an H200: CUDA C++ Programming Guide, compute capability 9.0. */
static CUresult check(const CUDA_ARRAY3D_DESCRIPTOR *shape)
{
    if (shape == NULL || shape->Width == 0 ||
        (shape->Depth > 0 && shape->Height == 0 && !(shape->Flags & CUDA_ARRAY3D_LAYERED)))
        return CUDA_ERROR_INVALID_VALUE;
    if (shape->NumChannels != 1 && shape->NumChannels != 2 && shape->NumChannels != 4)
        return CUDA_ERROR_INVALID_VALUE;
    if (element_bytes(shape) == 0)
        return CUDA_ERROR_NOT_SUPPORTED;
    bool deep = shape->Depth > 0 && !(shape->Flags & CUDA_ARRAY3D_LAYERED);
    bool fits = deep ? shape->Width <= 16384 && shape->Height <= 16384 && shape->Depth <= 16384
                     : shape->Width <= 131072 && shape->Height <= 65536 && shape->Depth <= 2048;
    return fits ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* ---- Arrays ---- */

CUresult cuArray3DCreate(CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR *shape)
{
    CUresult result = array == NULL ? CUDA_ERROR_INVALID_VALUE : check(shape);
    CUarray made = result == CUDA_SUCCESS ? calloc(1, sizeof *made) : NULL;
    if (made == NULL)
        return result == CUDA_SUCCESS ? CUDA_ERROR_OUT_OF_MEMORY : result;
    made->shape = *shape;
    result = cuMemAlloc(&made->addr, bytes_of(shape));
    if (result == CUDA_SUCCESS)
        *array = made;
    else
        free(made);
    return result;
}

CUresult cuArrayCreate(CUarray *array, const CUDA_ARRAY_DESCRIPTOR *flat)
{
    if (flat == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    const CUDA_ARRAY3D_DESCRIPTOR shape = {.Width = flat->Width,
                                           .Height = flat->Height,
                                           .Format = flat->Format,
                                           .NumChannels = flat->NumChannels};
    return cuArray3DCreate(array, &shape);
}

CUresult cuArrayDestroy(CUarray array)
{
    if (array == NULL || array->addr == 0)
        return CUDA_ERROR_INVALID_HANDLE;
    CUresult result = cuMemFree(array->addr);
    if (result == CUDA_SUCCESS)
        free(array);
    return result;
}

CUresult cuArray3DGetDescriptor(CUDA_ARRAY3D_DESCRIPTOR *shape, CUarray array)
{
    if (shape == NULL || array == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *shape = array->shape;
    return CUDA_SUCCESS;
}

CUresult cuArrayGetDescriptor(CUDA_ARRAY_DESCRIPTOR *flat, CUarray array)
{
    if (flat == NULL || array == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *flat = (CUDA_ARRAY_DESCRIPTOR){.Width = array->shape.Width,
                                    .Height = array->shape.Height,
                                    .Format = array->shape.Format,
                                    .NumChannels = array->shape.NumChannels};
    return CUDA_SUCCESS;
}

/* ---- Levels, each half as large as the one before ---- */

static size_t half(size_t size)
{
    return size > 1 ? size / 2 : size;
}

CUresult cuMipmappedArrayCreate(CUmipmappedArray *array, const CUDA_ARRAY3D_DESCRIPTOR *shape,
                                unsigned int count)
{
    size_t bytes = 0;
    CUresult result = array == NULL || count == 0 ? CUDA_ERROR_INVALID_VALUE : check(shape);
    CUmipmappedArray made = result == CUDA_SUCCESS ? calloc(1, sizeof *made) : NULL;
    if (made == NULL)
        return result == CUDA_SUCCESS ? CUDA_ERROR_OUT_OF_MEMORY : result;
    CUDA_ARRAY3D_DESCRIPTOR level = *shape;
    for (; made->count < count && made->count < LEVELS_MAX; made->count++) {
        made->levels[made->count].shape = level;
        bytes += bytes_of(&level);
        bool last = level.Width <= 1 && level.Height <= 1 && level.Depth <= 1;
        level.Width = half(level.Width);
        level.Height = half(level.Height);
        level.Depth = level.Flags & CUDA_ARRAY3D_LAYERED ? level.Depth : half(level.Depth);
        if (last)
            count = made->count + 1; /* it can have no more levels */
    }
    result = cuMemAlloc(&made->addr, bytes);
    if (result == CUDA_SUCCESS)
        *array = made;
    else
        free(made);
    return result;
}

CUresult cuMipmappedArrayGetLevel(CUarray *level, CUmipmappedArray array, unsigned int number)
{
    if (level == NULL || array == NULL || number >= array->count)
        return CUDA_ERROR_INVALID_VALUE;
    *level = &array->levels[number];
    return CUDA_SUCCESS;
}

CUresult cuMipmappedArrayDestroy(CUmipmappedArray array)
{
    if (array == NULL)
        return CUDA_ERROR_INVALID_HANDLE;
    CUresult result = cuMemFree(array->addr);
    if (result == CUDA_SUCCESS)
        free(array);
    return result;
}
