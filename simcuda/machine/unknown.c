/* SPDX-License-Identifier: MIT */
/* Counts reads of unknown content, and values made up by rules, by place. A program has few
 * places. Once the list is full, the rest is counted together. */
#include <stdlib.h>
#include <string.h>

#include "simcuda/machine/internal.h"

static rvli_unknown_place *find(rvli_unknown_reads *reads, const char *text)
{
    for (size_t i = 0; i < reads->place_count; i++)
        if (strcmp(reads->places[i].text, text) == 0)
            return &reads->places[i];
    if (reads->place_count == RVLI_UNKNOWN_PLACES)
        return NULL;
    rvli_unknown_place *made = &reads->places[reads->place_count++];
    memcpy(made->text, text, sizeof made->text);
    return made;
}

void rvli_unknown_count(rvli_unknown_reads *reads, uint64_t bytes, const char *text)
{
    rvli_unknown_place *place = find(reads, text);
    reads->count++;
    if (place == NULL)
        return;
    place->count++;
    place->bytes += bytes;
}

static int more_first(const void *a, const void *b)
{
    const rvli_unknown_place *one = a, *other = b;
    return (one->count < other->count) - (one->count > other->count);
}

static const rvli_unknown_reads *sorted(rvli_unknown_reads *reads)
{
    qsort(reads->places, reads->place_count, sizeof reads->places[0], more_first);
    return reads;
}

const rvli_unknown_reads *rvli_machine_unknown_reads(rvli_machine *machine)
{
    return sorted(&machine->unknown);
}

const rvli_unknown_reads *rvli_machine_assumed(rvli_machine *machine)
{
    return sorted(&machine->assumed);
}
