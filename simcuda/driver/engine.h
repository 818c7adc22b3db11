/* SPDX-License-Identifier: MIT */
/* KV caches of engines, which simcuda/python/_reveille_engines.py tells of by this name. */
#ifndef RVL_SIMCUDA_ENGINE_H
#define RVL_SIMCUDA_ENGINE_H

#include <stdint.h>

/* An engine has sized its KV cache. bytes: on the GPU that has most of it; 0: not known. */
void rvli_simulated_engine(const char *name, uint64_t blocks, uint32_t block_tokens,
                           uint64_t tokens, uint64_t bytes);

#endif
