/* SPDX-License-Identifier: MIT */
/* A linear layer of a decoder layer. Families with adapters are derived (graph/product.c). */
#include "predict/llm/step/training.h"

/* The input of a role's layer, and what it gives. */
static void widths(const rvli_training *t, rvli_role role, uint64_t *in_out, uint64_t *out_out)
{
    *in_out = rvli_dim_here(t, RVLI_DIM_HIDDEN);
    *out_out = rvli_dim_here(t, RVLI_DIM_HIDDEN);
    if (role == RVLI_ROLE_Q)
        *out_out = rvli_dim_here(t, RVLI_DIM_Q_OUT);
    else if (role == RVLI_ROLE_K || role == RVLI_ROLE_V)
        *out_out = rvli_dim_here(t, RVLI_DIM_KV);
    else if (role == RVLI_ROLE_O)
        *in_out = rvli_dim_here(t, RVLI_DIM_ATTENDED);
    else if (role == RVLI_ROLE_DOWN)
        *in_out = rvli_dim_here(t, RVLI_DIM_INTERMEDIATE);
    else
        *out_out = rvli_dim_here(t, RVLI_DIM_INTERMEDIATE);
}

rvli_block rvli_linear_forward(rvli_training *t, rvli_role role)
{
    uint64_t in, out;
    widths(t, role, &in, &out);
    rvli_block given = rvli_activation(t, RVLI_HALF * t->tokens * out);
    rvli_workspace(t, RVLI_WORKSPACE_FORWARD); /* the first product, without positions */
    return given;
}

void rvli_add(rvli_training *t, rvli_sum *sum, rvli_block *part, bool is_product)
{
    if (sum->block == NULL) {
        *sum = (rvli_sum){.block = *part, .is_view = is_product};
        *part = NULL;
        return;
    }
    if (sum->is_view && *part != NULL) {
        rvli_block added = rvli_activation(t, rvli_bytes_of(*part));
        rvli_release(t, &sum->block);
        *sum = (rvli_sum){.block = added};
    }
    rvli_release(t, part);
}

rvli_block rvli_linear_backward(rvli_training *t, uint32_t number, rvli_role role, rvli_role bias)
{
    uint64_t in, out;
    rvli_unit *unit = &t->units[number];
    bool has_bias = bias != RVLI_ROLE_OTHER && unit->by_role[bias] != 0;
    widths(t, role, &in, &out);
    if (!has_bias)
        rvli_gradient(t, unit, role);
    rvli_workspace(t, RVLI_WORKSPACE_BACKWARD); /* the first product, behind a fused loss */
    rvli_block product = rvli_activation(t, RVLI_HALF * t->tokens * in);
    if (has_bias) {
        rvli_gradient(t, unit, role);
        rvli_gradient_summed(t, unit, bias, t->tokens, out);
    }
    return product;
}
