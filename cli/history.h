/* SPDX-License-Identifier: MIT */
/*
 * PyTorch's history of a simulated run: the folder of its files, and what they tell about the peak
 * of each stage.
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
    char folder[PATH_MAX]; /* "": no folder, and no history is recorded */
    bool kept;             /* the user named the folder */
    rvli_times times;      /* of the machine's clock */
} history;

/* named: the folder, which is made if it is missing; NULL: a temporary one, removed by
 * history_end(). Returns 0, or an exit status, having complained. */
int history_begin(const char *named, history *history_out);
/* Removes a temporary folder. */
void history_end(history *of);

/* Whether the files of this file's process reach its end: "python%5B1%5D.end" exists. */
bool history_is_whole(const char *path);

/* Whether the process has written a later file. */
bool history_goes_on(const char *path);

/* Receives a history file and the name of its process. false: stop. */
typedef bool (*history_file_fn)(void *user, const char *path, const char *process);

/* Calls hear for every history file of a folder, by name. Returns false if hear did. */
bool history_each_file(const char *folder, history_file_fn hear, void *user);

/*
 * Prints for each stage name what the memory at its largest peak is for, on the device with that
 * peak. false: no memory.
 */
bool history_print(const void *of, const rvl_replay *replay);

/* Writes this for all devices: a comma and the key "holders" with its value. false: no memory. */
bool history_write_json(FILE *out, const void *of, const rvl_replay *replay);

#endif
