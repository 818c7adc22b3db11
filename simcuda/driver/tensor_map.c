/* SPDX-License-Identifier: MIT */
/*
 * Tensor descriptors for Hopper's copy engine (TMA), which FlashAttention 3, CUTLASS and Triton
 * make before a launch. They are opaque. The checks are those that CUDA documents. Only this
 * file reads what it writes, since kernels do not run.
 */
#include "simcuda/driver/driver.h"

#define RANK_MAX 5
#define DIM_MAX (UINT64_C(1) << 32)
#define STRIDE_END (UINT64_C(1) << 40)
#define BOX_MAX 256
#define STEP_MAX 8
#define MAP_ALIGN 64
#define FIRST_MAJOR 9 /* compute capability 9.0 */

/* Newer than CUDA 12.0's header: 16 packed elements of 4 or 6 bits. */
enum { PACKED_4_TIGHT = 13, PACKED_4 = 14, PACKED_6 = 15, TYPE_LAST = PACKED_6, SWIZZLE_LAST = 6 };

typedef struct tensor {
    unsigned type, rank;
    uint64_t addr;
    const cuuint64_t *dims, *strides;
    const cuuint32_t *box, *steps;
    unsigned interleave, swizzle;
} tensor;

static bool is_packed(unsigned type)
{
    return type >= PACKED_4_TIGHT;
}

static bool is_floating(unsigned type)
{
    return type >= CU_TENSOR_MAP_DATA_TYPE_FLOAT16 && !is_packed(type);
}

/* Bytes of a row of the box in device memory. */
static uint64_t row_bytes(const tensor *of)
{
    static const unsigned char element_bytes[] = {1, 2, 4, 4, 8, 8, 2, 4, 8, 2, 4, 4, 4};
    if (is_packed(of->type))
        return of->box[0] * (of->type == PACKED_6 ? UINT64_C(6) : 4) / 8;
    return (uint64_t)of->box[0] * element_bytes[of->type];
}

/* The required alignment of addresses and strides. */
static uint64_t alignment(const tensor *of)
{
    bool wide = of->interleave == CU_TENSOR_MAP_INTERLEAVE_32B || of->type == PACKED_4 ||
                of->type == PACKED_6;
    return wide ? 32 : 16;
}

static bool memory_is_good(const tensor *of)
{
    unsigned first_unit = of->type == PACKED_4 || of->type == PACKED_6 ? 128
                          : of->type == PACKED_4_TIGHT                 ? 2
                                                                       : 1;
    bool good = of->addr % alignment(of) == 0 && of->dims[0] % first_unit == 0;
    for (unsigned i = 0; good && i < of->rank; i++)
        good = of->dims[i] > 0 && of->dims[i] <= DIM_MAX;
    for (unsigned i = 0; good && i + 1 < of->rank; i++)
        good = of->strides[i] % alignment(of) == 0 && of->strides[i] < STRIDE_END;
    return good;
}

static bool box_is_good(const tensor *of)
{
    static const unsigned swizzle_bytes[] = {UINT32_MAX, 32, 64, 128, 128, 128, 128};
    for (unsigned i = 0; i < of->rank; i++)
        if (of->box[i] == 0 || of->box[i] > BOX_MAX || of->steps[i] == 0 || of->steps[i] > STEP_MAX)
            return false;
    if ((of->type == PACKED_4 || of->type == PACKED_6) && of->box[0] != 128)
        return false;
    if (of->interleave == CU_TENSOR_MAP_INTERLEAVE_32B)
        return of->swizzle == CU_TENSOR_MAP_SWIZZLE_32B;
    return of->interleave != CU_TENSOR_MAP_INTERLEAVE_NONE ||
           (row_bytes(of) % 16 == 0 && row_bytes(of) <= swizzle_bytes[of->swizzle]);
}

static bool is_good(const tensor *of)
{
    bool interleaved = of->interleave != CU_TENSOR_MAP_INTERLEAVE_NONE;
    return of->type <= TYPE_LAST && of->interleave <= CU_TENSOR_MAP_INTERLEAVE_32B &&
           of->swizzle <= SWIZZLE_LAST && of->rank >= (interleaved ? 3 : 1) &&
           of->rank <= RANK_MAX && of->dims != NULL && (of->rank == 1 || of->strides != NULL) &&
           of->box != NULL && of->steps != NULL && memory_is_good(of) && box_is_good(of);
}

static CUresult ready(const CUtensorMap *map)
{
    int device;
    CUresult result = rvli_current_device(&device);
    if (result == CUDA_SUCCESS && rvli_device_card(device)->major < FIRST_MAJOR)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (result == CUDA_SUCCESS && (map == NULL || (uintptr_t)map % MAP_ALIGN != 0))
        return CUDA_ERROR_INVALID_VALUE;
    return result;
}

/* opaque[0]: the address; [1]: type and rank; then the sizes. */
CUresult cuTensorMapEncodeTiled(CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank,
                                void *memory, const cuuint64_t *dims, const cuuint64_t *strides,
                                const cuuint32_t *box, const cuuint32_t *steps,
                                CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                                CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill)
{
    const tensor of = {.type = type,
                       .rank = rank,
                       .addr = (uintptr_t)memory,
                       .dims = dims,
                       .strides = strides,
                       .box = box,
                       .steps = steps,
                       .interleave = interleave,
                       .swizzle = swizzle};
    CUresult result = ready(map);
    if (result != CUDA_SUCCESS)
        return result;
    if (!is_good(&of) || (unsigned)promotion > CU_TENSOR_MAP_L2_PROMOTION_L2_256B ||
        (unsigned)fill > CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA ||
        (fill != CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE && !is_floating(of.type)))
        return CUDA_ERROR_INVALID_VALUE;
    *map = (CUtensorMap){.opaque = {of.addr, (uint64_t)of.type << 32 | of.rank}};
    for (unsigned i = 0; i < of.rank; i++)
        map->opaque[2 + i] = dims[i];
    return CUDA_SUCCESS;
}

CUresult cuTensorMapReplaceAddress(CUtensorMap *map, void *memory)
{
    CUresult result = ready(map);
    if (result == CUDA_SUCCESS && (uintptr_t)memory % 16 != 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        map->opaque[0] = (uintptr_t)memory;
    return result;
}
