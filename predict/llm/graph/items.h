/* SPDX-License-Identifier: MIT */
/* Memory for many small things of one size: taken in chunks, given back all at once. */
#ifndef RVL_PREDICT_LLM_GRAPH_ITEMS_H
#define RVL_PREDICT_LLM_GRAPH_ITEMS_H

#include "predict/llm/graph/graph.h"

/* NULL, with *failed set: no host memory. */
void *rvli_items_take(rvli_items *pool, bool *failed);
void rvli_items_give(rvli_items *pool, void *item);
void rvli_items_free(rvli_items *pool);

#endif
