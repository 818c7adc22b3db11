/* SPDX-License-Identifier: MIT */
#include "simcuda/driver/engine.h"

#include <stdio.h>

#include "simcuda/driver/client.h"

/* Waits until the machine has handled it, since an engine may be killed at any time. */
void rvli_simulated_engine(const char *name, uint64_t blocks, uint32_t block_tokens,
                           uint64_t tokens, uint64_t bytes)
{
    rvli_wire_answer answer;
    rvli_wire_request request = {.kind = RVLI_WIRE_ENGINE,
                                 .bytes = bytes,
                                 .id = blocks,
                                 .ranks = block_tokens,
                                 .sequence = tokens};
    snprintf(request.text, sizeof request.text, "%s", name);
    (void)rvli_client_send(&request, &answer);
}

void rvli_simulated_length(uint64_t tokens)
{
    rvli_wire_answer answer;
    (void)rvli_client_ask(RVLI_WIRE_LENGTH, 0, tokens, NULL, &answer);
}
