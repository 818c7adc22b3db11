/* SPDX-License-Identifier: MIT */
/*
 * Reads values of a config.json and checks them.
 *
 * The reader keeps the first failure. Values read after it are meaningless.
 */
#ifndef RVL_PREDICT_LLM_CONFIG_VALUES_H
#define RVL_PREDICT_LLM_CONFIG_VALUES_H

#include <jansson.h>

#include "predict/llm/families.h"

typedef struct rvli_reader {
    const json_t *root;
    const json_t *config; /* the root, its text_config or its vision_config */
    const rvli_family *family;
    rvl_model *model;
    rvl_status status;
} rvli_reader;

/* NULL: the key is missing, or its value is null. */
const json_t *rvli_read_value(const rvli_reader *r, const char *key);

void rvli_read_refuse(rvli_reader *r, const char *key, const char *why);

/* A whole number of at least 1, or a list with the same number for each layer. fallback 0: the key
 * is required. */
uint64_t rvli_read_number(rvli_reader *r, const char *key, uint64_t fallback, uint64_t max);
uint64_t rvli_read_dimension(rvli_reader *r, const char *key, uint64_t fallback);

/* Like rvli_read_number() with a required key, but accepts 0 and null. Returns 0 for both. */
uint64_t rvli_read_number_or_zero(rvli_reader *r, const char *key, uint64_t max);

bool rvli_read_flag(rvli_reader *r, const char *key, bool fallback);

/* count * size. Refuses the key if the product is too large. */
uint64_t rvli_read_product(rvli_reader *r, const char *key, uint64_t count, uint64_t size);

/* ---- layers.c: what each layer is made of ---- */

/* Reads the number of layers. */
void rvli_layers_count(rvli_reader *r);

/* Reads which layers have attention, a window or a state, and the size of the window. */
void rvli_layers_read(rvli_reader *r);

/* Reads which layers have experts, and which an MLP. Needs the experts. */
void rvli_layers_read_mlp(rvli_reader *r);

/* ---- layer_sizes.c ---- */

/* Reads sizes that differ from layer to layer. Needs everything else. */
void rvli_layer_sizes_read(rvli_reader *r);

/* ---- config.c ---- */

/* Reads the embeddings of each token for each layer. */
void rvli_read_per_layer(rvli_reader *r);

/* ---- towers.c ---- */

/* Reads the tower in vision_config, if there is one and the family's tower is known. */
void rvli_tower_read(rvli_reader *r);

#endif
