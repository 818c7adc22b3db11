/* SPDX-License-Identifier: MIT */
/* KV caches that engines have sized. Replicas have the same, and are one entry. */
#include <string.h>

#include "simcuda/machine/internal.h"

static bool is_same(const rvli_machine_engine *one, const rvli_machine_engine *other)
{
    return one->blocks == other->blocks && one->block_tokens == other->block_tokens &&
           one->tokens == other->tokens && one->bytes == other->bytes &&
           strcmp(one->name, other->name) == 0;
}

void rvli_engines_note(rvli_machine *machine, const rvli_wire_request *request)
{
    rvli_machine_engines *engines = &machine->engines;
    rvli_machine_engine made = {.count = 1,
                                .blocks = request->id,
                                .block_tokens = request->ranks,
                                .tokens = request->sequence,
                                .bytes = request->bytes};
    memcpy(made.name, request->text, sizeof made.name);
    for (size_t i = 0; i < engines->count; i++) {
        if (is_same(&engines->list[i], &made)) {
            engines->list[i].count++;
            return;
        }
    }
    if (engines->count < RVLI_MACHINE_ENGINES)
        engines->list[engines->count++] = made;
}

const rvli_machine_engines *rvli_machine_engines_seen(const rvli_machine *machine)
{
    return &machine->engines;
}
