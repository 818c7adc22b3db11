/* SPDX-License-Identifier: MIT */
/* Tensor descriptors, in a program under `reveille run`: the conditions that CUDA documents. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>
#include <cuda.h>

/* A request of FlashAttention 3: keys of a cache of 519022 blocks. */
typedef struct request {
    CUtensorMapDataType type;
    cuuint32_t rank;
    uint64_t addr;
    cuuint64_t dims[5], strides[4];
    cuuint32_t box[5], steps[5];
    CUtensorMapInterleave interleave;
    CUtensorMapSwizzle swizzle;
    CUtensorMapL2promotion promotion;
    CUtensorMapFloatOOBfill fill;
} request;

static const request keys = {.type = CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
                             .rank = 4,
                             .addr = 0x7f539be10000,
                             .dims = {128, 16, 4, 519022, 1},
                             .strides = {2048, 512, 32768, 16},
                             .box = {64, 128, 1, 1, 1},
                             .steps = {1, 1, 1, 1, 1},
                             .swizzle = CU_TENSOR_MAP_SWIZZLE_128B,
                             .promotion = CU_TENSOR_MAP_L2_PROMOTION_L2_128B};

static CUtensorMap map;

static CUresult encode_at(CUtensorMap *to, const request *of)
{
    return cuTensorMapEncodeTiled(to, of->type, of->rank, (void *)(uintptr_t)of->addr, of->dims,
                                  of->strides, of->box, of->steps, of->interleave, of->swizzle,
                                  of->promotion, of->fill);
}

static CUresult encode(const request *of)
{
    return encode_at(&map, of);
}

static void it_needs_a_context(void **state)
{
    CUcontext context;
    (void)state;
    assert_int_equal(encode(&keys), CUDA_ERROR_NOT_INITIALIZED);
    assert_int_equal(cuInit(0), CUDA_SUCCESS);
    assert_int_equal(encode(&keys), CUDA_ERROR_INVALID_CONTEXT);
    assert_int_equal(cuDevicePrimaryCtxRetain(&context, 0), CUDA_SUCCESS);
    assert_int_equal(cuCtxSetCurrent(context), CUDA_SUCCESS);
}

static void maps_differ_as_tensors_do(void **state)
{
    request other = keys;
    CUtensorMap before;
    (void)state;
    assert_int_equal(encode(&keys), CUDA_SUCCESS);
    before = map;
    other.addr += 256;
    assert_int_equal(encode(&other), CUDA_SUCCESS);
    assert_memory_not_equal(&before, &map, sizeof map);
    assert_int_equal(cuTensorMapReplaceAddress(&map, (void *)(uintptr_t)keys.addr), CUDA_SUCCESS);
    assert_memory_equal(&before, &map, sizeof map);
    assert_int_equal(cuTensorMapReplaceAddress(&map, (void *)(uintptr_t)(keys.addr + 8)),
                     CUDA_ERROR_INVALID_VALUE);
    assert_memory_equal(&before, &map, sizeof map);
}

/* Makes one change that is invalid. The map stays unchanged. */
#define REFUSED(change)                                                                            \
    do {                                                                                           \
        request wrong = keys;                                                                      \
        CUtensorMap kept = map;                                                                    \
        wrong.change;                                                                              \
        assert_int_equal(encode(&wrong), CUDA_ERROR_INVALID_VALUE);                                \
        assert_memory_equal(&kept, &map, sizeof map);                                              \
    } while (0)

#define TAKEN(change)                                                                              \
    do {                                                                                           \
        request right = keys;                                                                      \
        right.change;                                                                              \
        assert_int_equal(encode(&right), CUDA_SUCCESS);                                            \
    } while (0)

static void what_is_documented_is_demanded(void **state)
{
    (void)state;
    assert_int_equal(encode_at(NULL, &keys), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(encode_at((CUtensorMap *)(void *)((char *)&map + 8), &keys),
                     CUDA_ERROR_INVALID_VALUE);
    REFUSED(type = (CUtensorMapDataType)16);
    REFUSED(rank = 0);
    REFUSED(rank = 6);
    TAKEN(rank = 5);
    REFUSED(addr += 8);
    REFUSED(dims[1] = 0);
    TAKEN(dims[3] = UINT64_C(1) << 32);
    REFUSED(dims[3] = (UINT64_C(1) << 32) + 1);
    REFUSED(strides[2] = 32760);
    REFUSED(strides[2] = UINT64_C(1) << 40);
    TAKEN(strides[3] = 1); /* behind the last stride */
    REFUSED(box[1] = 0);
    TAKEN(box[1] = 256);
    REFUSED(box[1] = 257);
    REFUSED(box[0] = 68);  /* not a multiple of 16 bytes */
    REFUSED(box[0] = 128); /* more than the 128 bytes of the swizzle */
    REFUSED(swizzle = CU_TENSOR_MAP_SWIZZLE_64B);
    TAKEN(swizzle = CU_TENSOR_MAP_SWIZZLE_NONE);
    REFUSED(swizzle = (CUtensorMapSwizzle)7);
    REFUSED(steps[0] = 0);
    REFUSED(steps[0] = 9);
    REFUSED(interleave = CU_TENSOR_MAP_INTERLEAVE_32B); /* it requires a swizzle of 32 bytes */
    REFUSED(interleave = (CUtensorMapInterleave)3);
    REFUSED(promotion = (CUtensorMapL2promotion)4);
    TAKEN(fill = CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA);
    REFUSED(fill = (CUtensorMapFloatOOBfill)2);
}

static void an_interleaved_tensor_has_three_dimensions(void **state)
{
    request wide = keys;
    (void)state;
    wide.interleave = CU_TENSOR_MAP_INTERLEAVE_32B;
    wide.swizzle = CU_TENSOR_MAP_SWIZZLE_32B;
    assert_int_equal(encode(&wide), CUDA_SUCCESS);
    wide.addr += 16;
    assert_int_equal(encode(&wide), CUDA_ERROR_INVALID_VALUE);
    wide.addr -= 16;
    wide.rank = 2;
    assert_int_equal(encode(&wide), CUDA_ERROR_INVALID_VALUE);
}

/* Integers cannot be filled with NaN. */
static void a_fill_is_for_floating_point(void **state)
{
    request numbers = keys;
    (void)state;
    numbers.type = CU_TENSOR_MAP_DATA_TYPE_UINT16;
    assert_int_equal(encode(&numbers), CUDA_SUCCESS);
    numbers.fill = CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA;
    assert_int_equal(encode(&numbers), CUDA_ERROR_INVALID_VALUE);
}

/* 16 elements of 4 or 6 bits, by number, since older headers lack the names. */
static void packed_elements_come_in_rows_of_128(void **state)
{
    request packed = keys;
    (void)state;
    packed.type = (CUtensorMapDataType)14;
    packed.box[0] = 128;
    packed.strides[0] = 2048;
    assert_int_equal(encode(&packed), CUDA_SUCCESS);
    packed.type = (CUtensorMapDataType)15;
    assert_int_equal(encode(&packed), CUDA_SUCCESS);
    packed.box[0] = 64;
    assert_int_equal(encode(&packed), CUDA_ERROR_INVALID_VALUE);
    packed.type = (CUtensorMapDataType)13;
    assert_int_equal(encode(&packed), CUDA_SUCCESS);
    packed.dims[0] = 127;
    assert_int_equal(encode(&packed), CUDA_ERROR_INVALID_VALUE);
}

static void a_card_before_hopper_has_none(void **state)
{
    (void)state;
    assert_int_equal(cuInit(0), CUDA_SUCCESS);
    CUcontext context;
    assert_int_equal(cuDevicePrimaryCtxRetain(&context, 0), CUDA_SUCCESS);
    assert_int_equal(cuCtxSetCurrent(context), CUDA_SUCCESS);
    assert_int_equal(encode(&keys), CUDA_ERROR_NOT_SUPPORTED);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest hopper[] = {
        cmocka_unit_test(it_needs_a_context),
        cmocka_unit_test(maps_differ_as_tensors_do),
        cmocka_unit_test(what_is_documented_is_demanded),
        cmocka_unit_test(an_interleaved_tensor_has_three_dimensions),
        cmocka_unit_test(a_fill_is_for_floating_point),
        cmocka_unit_test(packed_elements_come_in_rows_of_128),
    };
    const struct CMUnitTest ampere[] = {cmocka_unit_test(a_card_before_hopper_has_none)};
    (void)argv;
    return argc == 1 ? cmocka_run_group_tests(hopper, NULL, NULL)
                     : cmocka_run_group_tests(ampere, NULL, NULL);
}
