/* SPDX-License-Identifier: MIT */
/* Declarations that the files of `reveille record` share with each other and with `reveille run`,
 * which also runs a command. */
#ifndef RVL_CLI_RECORD_RECORD_H
#define RVL_CLI_RECORD_RECORD_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/stat.h>

/* ---- recorded_command.c: the command to run, and the library to load into it. ---- */

/* Finds the preload library, and stores its path in a form that LD_PRELOAD can hold. false: has
 * complained. */
bool record_find_library(char path[PATH_MAX]);

/* Finds the file of a command as execvp() does, and checks that the library can be loaded into it.
 * false: has complained. */
bool record_find_command(const char *name, char path[PATH_MAX]);

/*
 * Replaces the path of a library if it has characters that a list of libraries cannot hold, such as
 * a space in LD_PRELOAD. barred: these characters. The new path uses a descriptor of the library's
 * folder, and is valid while this process runs. It leaves nothing behind. false: has complained.
 */
bool record_make_listable(char path[PATH_MAX], const char *barred);

/* Adds a path to the list in a variable such as LD_PRELOAD, in front or at the end. false: no
 * memory. */
bool record_add_path(const char *variable, const char *path, bool in_front);

/* Whether --stages is possible: NVTX gives its calls to one tool only. false: has complained. */
bool record_good_injection(void);

/* Whether the output replaces neither the program nor a file in its arguments. false: has
 * complained.
 */
bool record_good_output(const char *output, const char *program, char **command);

/* Returns the exit status that a shell reports for a status from waitpid(). */
int record_exit_status(int status);

/* ---- files.c: the files of a recording. ---- */

typedef struct record_file {
    char *name; /* relative to the directory */
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
    record_file *before; /* files that existed at the start */
    size_t before_count;
    record_file
        output_before; /* an output that existed at the start, without a name; number 0: none */
} record_files;

/* Splits the output's name and checks that it can be written. false: has complained. */
bool record_files_begin(record_files *files, const char *output);

/* Makes the pattern for RVL_RECORD. false: too long. */
bool record_files_pattern(const record_files *files, char pattern[PATH_MAX]);

/*
 * Prints which files were written. Renames a single file to the output's name. Otherwise removes an
 * output of an earlier run, which could be mistaken for one of this run. Names other files of
 * earlier runs.
 */
void record_files_tell(record_files *files);
void record_files_end(record_files *files);

#endif
