/* SPDX-License-Identifier: MIT */
/*
 * Who else uses the card. NVML lists the processes that have a context on it; those that are there
 * before this process has one are others, and so are those that come later. Where NVML is not at
 * hand, or hides processes (containers), memory tells: what is in use and not ours.
 */
#ifndef RVL_CLI_CALIBRATE_NEIGHBOURS_H
#define RVL_CLI_CALIBRATE_NEIGHBOURS_H

#include <stdbool.h>
#include <stddef.h>

#include "calibrate/card.h"

#define NEIGHBOURS_MAX 64
#define NEIGHBOURS_TEXT_BYTES 512

typedef struct neighbours {
    void *nvml;                    /* the library; NULL: it is not there */
    void *device;                  /* NVML's */
    unsigned ours[NEIGHBOURS_MAX]; /* processes that were there once our contexts were */
    size_t ours_count;
    uint64_t free_bytes; /* while nothing is measured */
} neighbours;

/* Before this process has a context: NVML is opened. */
void neighbours_open(neighbours *it, const card *of);

/* Names those that are there, "python (process 12, 3.1 GiB)". false: there are none. */
bool neighbours_before(const neighbours *it, char text[NEIGHBOURS_TEXT_BYTES]);

/*
 * With contexts of ours made, each of which takes as much: says how much memory is in use beside
 * them. Containers hide the processes of others from NVML. false: nothing to speak of, or the size
 * of a context is not known (0).
 */
bool neighbours_hidden(card *of, uint64_t contexts, uint64_t context_bytes,
                       char text[NEIGHBOURS_TEXT_BYTES]);

/* With the context made: who is there from now on is ours. */
void neighbours_settle(neighbours *it, card *of);

/* Names those that came since, or says what else shows them. false: the card is ours alone. */
bool neighbours_since(const neighbours *it, card *of, char text[NEIGHBOURS_TEXT_BYTES]);

void neighbours_close(neighbours *it);

#endif
