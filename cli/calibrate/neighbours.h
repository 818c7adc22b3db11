/* SPDX-License-Identifier: MIT */
/*
 * Detects other programs that use the card. NVML lists the processes with a context on it. Those
 * listed before this process makes its context, and those that appear later, are others. If NVML is
 * missing, or hides processes, as in containers, then memory in use that is not ours reveals them.
 */
#ifndef RVL_CLI_CALIBRATE_NEIGHBOURS_H
#define RVL_CLI_CALIBRATE_NEIGHBOURS_H

#include <stdbool.h>
#include <stddef.h>

#include "calibrate/card.h"

#define NEIGHBOURS_MAX 64
#define NEIGHBOURS_TEXT_BYTES 512

typedef struct neighbours {
    void *nvml;                    /* the library; NULL: not available */
    void *device;                  /* NVML's handle */
    unsigned ours[NEIGHBOURS_MAX]; /* processes listed when neighbours_settle() was called */
    size_t ours_count;
    uint64_t free_bytes; /* between measurements */
} neighbours;

/* Opens NVML. Call it before this process makes a context. */
void neighbours_open(neighbours *it, const card *of);

/* Lists the processes on the card, as "python (process 12, 3.1 GiB)". false: there are none. */
bool neighbours_before(const neighbours *it, char text[NEIGHBOURS_TEXT_BYTES]);

/*
 * Describes memory in use beyond our contexts, each of which takes context_bytes. For containers,
 * which hide other processes from NVML. false: at most a little is in use, or context_bytes is 0,
 * unknown.
 */
bool neighbours_hidden(card *of, uint64_t contexts, uint64_t context_bytes,
                       char text[NEIGHBOURS_TEXT_BYTES]);

/* Takes the processes that are now listed as ours. Call it after making the context. */
void neighbours_settle(neighbours *it, card *of);

/* Describes processes that appeared since, or a change of memory that reveals one. false: nothing
 * else uses the card. */
bool neighbours_since(const neighbours *it, card *of, char text[NEIGHBOURS_TEXT_BYTES]);

void neighbours_close(neighbours *it);

#endif
