/* SPDX-License-Identifier: MIT */
/* What the files of `reveille record` share, and `reveille run` with them: both run a command. */
#ifndef RVL_CLI_RECORD_RECORD_H
#define RVL_CLI_RECORD_RECORD_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/stat.h>

/* ---- record_command.c: what is to be run, and what goes under it. ---- */

/* Where the preload library is, as LD_PRELOAD can hold it. false, and it has been said why, if it
 * is nowhere. */
bool record_find_library(char path[PATH_MAX]);

/* The file of a command, as execvp() finds it, if the library can go under it. Says why not. */
bool record_find_command(const char *name, char path[PATH_MAX]);

/*
 * Replaces the path of a library that a list of libraries cannot hold: LD_PRELOAD takes no space.
 * The new path leads through a descriptor of its folder: it is good as long as this process runs,
 * and nothing is left behind. false: says why not.
 */
bool record_make_listable(char path[PATH_MAX], const char *barred);

/* Adds a library behind those of a variable such as LD_PRELOAD. false: there is no memory. */
bool record_add_path(const char *variable, const char *path, bool in_front);

/* Whether --stages can be had. Of several tools that want NVTX's calls, one gets them. */
bool record_good_injection(void);

/* Whether the output replaces neither the program nor what it is given. Says why not. */
bool record_good_output(const char *output, const char *program, char **command);

/* The exit status of a command of which waitpid() says this, as shells have it. */
int record_exit_status(int status);

/* ---- record_files.c: what has been written. ---- */

typedef struct record_file {
    char *name; /* in the directory */
    struct timespec changed;
    off_t size;
    ino_t number;
    uid_t owner;
} record_file;

typedef struct record_files {
    char directory[PATH_MAX];
    char stem[PATH_MAX];      /* of the output's name */
    char extension[PATH_MAX]; /* ".rvt", or "" */
    char output[PATH_MAX];
    record_file *before; /* those that were there */
    size_t before_count;
    record_file output_before; /* without a name; number 0: there was none */
} record_files;

/* Takes the output's name apart and tries to write there. Says why not. */
bool record_files_begin(record_files *files, const char *output);

/* The pattern for RVL_RECORD. false: too long. */
bool record_files_pattern(const record_files *files, char pattern[PATH_MAX]);

/*
 * Gives the only file the output's name, and says what there is. An output of an earlier run does
 * not stay where it would be taken for this one's; other files of earlier runs are named.
 */
void record_files_tell(record_files *files);
void record_files_end(record_files *files);

#endif
