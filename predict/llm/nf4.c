/* SPDX-License-Identifier: MIT */
/*
 * Weights in four bits, as bitsandbytes stores them (functional.py, quantize_4bit).
 *
 * 64 elements share a scale in fp32. With double quantisation each of these scales takes a byte,
 * and 256 of them share a scale in fp32. Each weight then also has the table that decodes the
 * bytes.
 */
#include "predict/llm/llm_internal.h"

#define BLOCK 64
#define BLOCK_OF_SCALES 256
#define FP32_BYTES UINT64_C(4)
#define STORED_BYTES UINT64_C(2) /* of a storage element, which holds four packed ones */
#define TABLE_BYTES (16 * FP32_BYTES)
#define TABLE_OF_SCALES_BYTES (256 * FP32_BYTES)

static uint64_t divide_up(uint64_t value, uint64_t by)
{
    return (value + by - 1) / by;
}

bool rvli_is_quantised(const rvl_model *model, rvl_model_base_dtype base, const rvli_tensor *tensor)
{
    return base != RVL_MODEL_BASE_BF16 && rvli_is_linear(model, tensor);
}

uint64_t rvli_base_share(const rvl_model *model, rvl_model_base_dtype base,
                         const rvli_tensor *tensor, uint64_t ranks)
{
    if (!rvli_is_quantised(model, base, tensor))
        return rvli_tensor_share(tensor, ranks);
    uint64_t packed = divide_up(divide_up(tensor->rows * tensor->columns, 2), STORED_BYTES);
    return divide_up(packed, ranks);
}

uint64_t rvli_nf4_scales_bytes(uint64_t elements)
{
    return FP32_BYTES * divide_up(elements, BLOCK);
}

void rvli_nf4_parts(rvl_model_base_dtype base, uint64_t elements,
                    uint64_t bytes_out[RVLI_NF4_PARTS])
{
    uint64_t scales = divide_up(elements, BLOCK);
    bool single = base == RVL_MODEL_BASE_NF4_SINGLE;
    bytes_out[0] = single ? FP32_BYTES * scales : scales;
    bytes_out[RVLI_NF4_PACKED] = divide_up(elements, 2);
    bytes_out[2] = TABLE_BYTES;
    bytes_out[3] = single ? 0 : FP32_BYTES; /* the mean of the scales */
    bytes_out[4] = single ? 0 : FP32_BYTES * divide_up(scales, BLOCK_OF_SCALES);
    bytes_out[5] = single ? 0 : TABLE_OF_SCALES_BYTES;
}
