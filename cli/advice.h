/* SPDX-License-Identifier: MIT */
/*
 * What would change, by a run's own history of PyTorch: it is replayed with other settings of the
 * allocator, and with calls of the program done again in the pass of backward. Every figure is the
 * peak of such a replay; nothing is estimated.
 */
#ifndef RVL_CLI_ADVICE_H
#define RVL_CLI_ADVICE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* One change, replayed. */
typedef struct advice_change {
    char *text; /* "gradient checkpointing of forward (gpt.py:23)" */
    uint64_t reserved_bytes;
    bool fits; /* the request that was refused has room */
} advice_change;

/* Of the process that had most reserved. */
typedef struct advice {
    char *process;
    uint32_t device;
    uint64_t reserved_bytes; /* as it was, and with the refused request if there was one */
    uint64_t room_bytes;     /* what the device had for the process; 0: nothing was refused */
    bool ends_early;         /* the recording ends with the refusal: what follows is not known */
    advice_change *saving;   /* the largest saving first */
    advice_change *useless;  /* settings that were tried: the peak is no lower */
    size_t saving_count, useless_count;
} advice;

/*
 * Looks through the folder of a run's history. refused: the run ended with a request that was
 * refused, and the peak is to hold it. What nothing is known of has no process. false: no memory.
 */
bool advice_find(const char *folder, bool refused, advice *advice_out);
void advice_clear(advice *of);

/* For people; nothing where nothing is known. false: no memory. */
bool advice_print(const advice *of);

/* As the value of a key "advice" behind a comma. false: no memory. */
bool advice_write_json(FILE *out, const advice *of);

#endif
