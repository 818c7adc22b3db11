/* SPDX-License-Identifier: MIT */
/* A pool of many small items of one size. They are allocated in chunks and freed all at once. */
#ifndef RVL_PREDICT_LLM_GRAPH_ITEMS_H
#define RVL_PREDICT_LLM_GRAPH_ITEMS_H

#include "predict/llm/graph/graph.h"

/* NULL, and *failed set: out of host memory. */
void *rvli_items_take(rvli_items *pool, bool *failed);
void rvli_items_give(rvli_items *pool, void *item);
void rvli_items_free(rvli_items *pool);

#endif
