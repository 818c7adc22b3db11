/* SPDX-License-Identifier: MIT */
/* What engines report: the KV caches that they have sized, and the lengths of sequences.
 * Replicas with identical caches share one entry. */
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

void rvli_lengths_note(rvli_machine *machine, uint64_t tokens)
{
    rvli_machine_lengths *lengths = &machine->lengths;
    lengths->shortest =
        lengths->count == 0 || tokens < lengths->shortest ? tokens : lengths->shortest;
    lengths->longest = tokens > lengths->longest ? tokens : lengths->longest;
    lengths->tokens += tokens;
    lengths->count++;
}

const rvli_machine_lengths *rvli_machine_lengths_given(const rvli_machine *machine)
{
    return &machine->lengths;
}
