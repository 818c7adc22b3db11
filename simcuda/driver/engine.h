/* SPDX-License-Identifier: MIT */
/* Functions through which simcuda/python/_reveille_engines.py and _reveille_lengths.py report,
 * by these names. */
#ifndef RVL_SIMCUDA_ENGINE_H
#define RVL_SIMCUDA_ENGINE_H

#include <stdint.h>

/* Reports the KV cache that an engine has sized. bytes: on the GPU with the largest part; 0:
 * unknown. */
void rvli_simulated_engine(const char *name, uint64_t blocks, uint32_t block_tokens,
                           uint64_t tokens, uint64_t bytes);

/* Reports the number of tokens that the rule of the run gives to a sequence. */
void rvli_simulated_length(uint64_t tokens);

#endif
