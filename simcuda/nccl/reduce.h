/* SPDX-License-Identifier: MIT */
/*
 * NCCL's reductions, for all its types. Each step is rounded to the type, as in a ring of ranks.
 * The order is that of the ranks. On a card, it depends on the ring, so a sum of floats may
 * differ there in its last bits.
 */
#ifndef RVL_SIMCUDA_NCCL_REDUCE_H
#define RVL_SIMCUDA_NCCL_REDUCE_H

#include <stddef.h>

#include "simcuda/nccl/types.h"

typedef enum rvli_reduction {
    RVLI_REDUCE_SUM,
    RVLI_REDUCE_PRODUCT,
    RVLI_REDUCE_MAX,
    RVLI_REDUCE_MIN,
    RVLI_REDUCE_AVERAGE,
} rvli_reduction;

size_t rvli_type_bytes(rvli_nccl_type type);

/* into[i] = into[i] op with[i]. An average is a sum here. */
void rvli_reduce_into(rvli_nccl_type type, rvli_reduction how, void *into, const void *with,
                      size_t count);

/* values[i] *= *scalar, which has the same type. */
void rvli_reduce_scale(rvli_nccl_type type, void *values, size_t count, const void *scalar);

/*
 * The steps of an average over so many ranks: floats are multiplied before the sum, integers are
 * divided after it.
 */
void rvli_reduce_before_average(rvli_nccl_type type, void *values, size_t count, int ranks);
void rvli_reduce_after_average(rvli_nccl_type type, void *values, size_t count, int ranks);

#endif
