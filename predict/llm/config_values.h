/* SPDX-License-Identifier: MIT */
/*
 * Values of a config.json, checked as they are read.
 *
 * The first failure stays in the reader; what is read after it means nothing.
 */
#ifndef RVL_PREDICT_LLM_CONFIG_VALUES_H
#define RVL_PREDICT_LLM_CONFIG_VALUES_H

#include <jansson.h>

#include "predict/llm/families.h"

typedef struct rvli_reader {
    const json_t *root;
    const json_t *config; /* the root, or its text_config, or its vision_config */
    const rvli_family *family;
    rvl_model *model;
    rvl_status status;
} rvli_reader;

/* NULL where the key is missing, or null. */
const json_t *rvli_read_value(const rvli_reader *r, const char *key);

void rvli_read_refuse(rvli_reader *r, const char *key, const char *why);

/* A whole number from 1; or a list of equal ones, one for each layer. fallback 0: the key must be
 * there.
 */
uint64_t rvli_read_number(rvli_reader *r, const char *key, uint64_t fallback, uint64_t max);
uint64_t rvli_read_dimension(rvli_reader *r, const char *key, uint64_t fallback);

/* As a number that is needed, but 0 and null are fine, and 0. */
uint64_t rvli_read_number_or_zero(rvli_reader *r, const char *key, uint64_t max);

bool rvli_read_flag(rvli_reader *r, const char *key, bool fallback);

/* count * size, refused in the name of the key where it is too large. */
uint64_t rvli_read_product(rvli_reader *r, const char *key, uint64_t count, uint64_t size);

/* ---- layers.c: what each layer is made of ---- */

/* The number of layers. */
void rvli_layers_count(rvli_reader *r);

/* Which have attention, which a window or a state, and the window. */
void rvli_layers_read(rvli_reader *r);

/* Which have experts, and which an MLP. The experts are there. */
void rvli_layers_read_mlp(rvli_reader *r);

/* ---- layer_sizes.c ---- */

/* What differs from layer to layer. All else is there. */
void rvli_layer_sizes_read(rvli_reader *r);

/* ---- config.c ---- */

/* Embeddings of each token for each layer. */
void rvli_read_per_layer(rvli_reader *r);

/* ---- towers.c ---- */

/* The tower of vision_config, if the config has one and the family's is known. */
void rvli_tower_read(rvli_reader *r);

#endif
