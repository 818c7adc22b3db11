/* SPDX-License-Identifier: MIT */
#include "unknown.h"

#include <inttypes.h>
#include <stdio.h>

#include "command.h"

#define SHOWN 10

static void tell_places(const rvli_unknown_reads *reads)
{
    uint64_t rest = reads->count;
    for (size_t i = 0; i < reads->place_count && i < SHOWN; i++) {
        const rvli_unknown_place *place = &reads->places[i];
        rest -= place->count;
        fprintf(stderr, "  %8" PRIu64 "  %s\n", place->count, place->text);
    }
    if (rest > 0)
        fprintf(stderr, "  %8" PRIu64 "  elsewhere\n", rest);
}

void unknown_tell(const rvli_unknown_reads *reads, const char *who)
{
    char times[TIMES_TEXT_BYTES];
    if (reads->count == 0)
        return;
    complain(0,
             "%sthe program read %s what only a kernel would have written: it read zeros, and may "
             "behave differently on a card",
             who, format_times(reads->count, times));
    tell_places(reads);
}

void assumed_tell(const rvli_unknown_reads *assumed, const char *who)
{
    char times[TIMES_TEXT_BYTES];
    if (assumed->count == 0)
        return;
    complain(0,
             "%sa kernel would have chosen %s by numbers that are not known (a token, an order, "
             "whether they are finite): it got plausible results, the same in every run",
             who, format_times(assumed->count, times));
    tell_places(assumed);
}
