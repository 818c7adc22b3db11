/* SPDX-License-Identifier: MIT */
/*
 * PyTorch's history of a simulated run: where its files go, and what they say of each stage's peak.
 */
#ifndef RVL_CLI_HISTORY_H
#define RVL_CLI_HISTORY_H

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>

#include "reveille/replay.h"
#include "simcuda/machine/times.h"

/* A folder for the files of all processes of a run. */
typedef struct history {
    char folder[PATH_MAX]; /* "": there is none, and nothing is followed */
    bool kept;             /* the user has named it */
    rvli_times times;      /* the machine's */
} history;

/* named: the folder that is made where it is missing; NULL: one that goes with this run. Returns
 * 0, or an exit status, having complained. */
int history_begin(const char *named, history *history_out);
/* Removes what is not kept. */
void history_end(history *of);

/* Whether the files of this one's process go to its end: "python%5B1%5D.end" is there. */
bool history_is_whole(const char *path);

/* Whether the process has written another one behind it. */
bool history_goes_on(const char *path);

/* Hears of a file of history and of the process that it is of. false: go no further. */
typedef bool (*history_file_fn)(void *user, const char *path, const char *process);

/* Every file of a folder, in order. Returns whether all were heard of. */
bool history_each_file(const char *folder, history_file_fn hear, void *user);

/*
 * Prints, for each name of a stage, what its largest peak is for, on the device that has it.
 * false: no memory.
 */
bool history_print(const void *of, const rvl_replay *replay);

/* The same for all devices, as the value of a key "holders" behind a comma. false: no memory. */
bool history_write_json(FILE *out, const void *of, const rvl_replay *replay);

#endif
