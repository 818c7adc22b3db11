/* SPDX-License-Identifier: MIT */
/* What simcuda/python/_reveille_engines.py and _reveille_lengths.py tell of, by these names. */
#ifndef RVL_SIMCUDA_ENGINE_H
#define RVL_SIMCUDA_ENGINE_H

#include <stdint.h>

/* An engine has sized its KV cache. bytes: on the GPU that has most of it; 0: not known. */
void rvli_simulated_engine(const char *name, uint64_t blocks, uint32_t block_tokens,
                           uint64_t tokens, uint64_t bytes);

/* A sequence will have so many tokens, by the rule of the run. */
void rvli_simulated_length(uint64_t tokens);

#endif
