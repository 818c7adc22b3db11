/* SPDX-License-Identifier: MIT */
/* Shared by the files that make the terms of a step. */
#ifndef RVL_PREDICT_LLM_TERMS_H
#define RVL_PREDICT_LLM_TERMS_H

#include "predict/llm/llm_internal.h"
#include "predict/llm/step/training.h"

/* Pages of managed memory. Tensors do not share pages. */
#define RVLI_PAGE_BYTES (2 * RVLI_MIB)

/* The input of the functions that make terms, and their output. */
typedef struct rvli_maker {
    const rvl_model *model;
    const rvli_plan *plan;
    rvli_terms *terms;
} rvli_maker;

static inline rvli_sizes *rvli_maker_sizes(const rvli_maker *m, rvl_model_term term)
{
    return &m->terms->term[term].sizes;
}

static inline bool rvli_maker_is_given(const rvli_maker *m, rvl_model_term term)
{
    return m->terms->term[term].given;
}

static inline uint64_t rvli_maker_total(const rvli_maker *m, rvl_model_term term)
{
    return rvli_maker_sizes(m, term)->total;
}

/* Adds one allocation of this size, unless the term's size is given. */
static inline void rvli_maker_add(const rvli_maker *m, rvl_model_term term, uint64_t bytes)
{
    if (!rvli_maker_is_given(m, term) && bytes > 0)
        rvli_sizes_add(rvli_maker_sizes(m, term), bytes);
}

/* ---- program_terms.c ---- */

/* The training step that the options describe. */
rvli_training_shape rvli_program_shape(const rvl_model_options *options);

/* Packs the states of a rank of Megatron: the layers of its stage, its part of each matrix, and its
 * share of the optimizer. */
void rvli_program_pack_rank(const rvli_maker *m, const rvli_training_shape *shape);

/* Runs the program of the step, unless the size of one of its terms is given. */
rvl_status rvli_program_train(const rvli_maker *m);

#endif
