/* SPDX-License-Identifier: MIT */
/*
 * Finds changes that would lower a run's peak. Replays the run's own PyTorch history with other
 * settings of the allocator, and with calls of the program recomputed in the backward pass. Every
 * figure is the peak of such a replay. Nothing is estimated.
 */
#ifndef RVL_CLI_ADVICE_H
#define RVL_CLI_ADVICE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* One change and the peak of its replay. */
typedef struct advice_change {
    char *text; /* "gradient checkpointing of forward (gpt.py:23)" */
    uint64_t reserved_bytes;
    bool fits; /* the refused request would have room */
} advice_change;

/* The advice for the process that reserved the most. */
typedef struct advice {
    char *process;
    uint32_t device;
    uint64_t reserved_bytes; /* peak without changes, with the refused request if any */
    uint64_t room_bytes;     /* the device's room for the process; 0: nothing was refused */
    bool ends_early;         /* the recording ends at the refusal */
    advice_change *saving;   /* largest saving first */
    advice_change *useless;  /* settings that do not lower the peak */
    size_t saving_count, useless_count;
} advice;

/*
 * Searches the history folder of a run. refused: the run ended with a refused request, and the peak
 * shall include it. Without usable history, advice_out->process is NULL. false: no memory.
 */
bool advice_find(const char *folder, bool refused, advice *advice_out);
void advice_clear(advice *of);

/* Prints the advice as text. Prints nothing if process is NULL. false: no memory. */
bool advice_print(const advice *of);

/* Writes a comma and the key "advice" with its value; nothing if process is NULL. false: no memory.
 */
bool advice_write_json(FILE *out, const advice *of);

#endif
