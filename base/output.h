/* SPDX-License-Identifier: MIT */
/*
 * Files that are written whole or not at all.
 *
 * Content goes into a draft in the folder of the file that is meant, and the draft takes the file's
 * name in one step. So a reader sees the old content or the new, and a failure leaves the old. The
 * draft has no name where the file system allows it (O_TMPFILE): then the kernel removes it,
 * however the process ends; where it replaces a file, it has a name for an instant, and what a kill
 * leaves then goes when the file is written again. Elsewhere its name cannot be guessed, and the
 * file is made new (O_EXCL), so that nobody can put a link in its place.
 *
 * What is no regular file (a terminal, a pipe, /dev/null) is written to directly, and so is an open
 * descriptor that a path names (/dev/stdout, /proc/self/fd/3).
 *
 * A function that fails describes it in the error record: the path, the cause and the remedy.
 */
#ifndef RVL_BASE_OUTPUT_H
#define RVL_BASE_OUTPUT_H

#include <limits.h>
#include <stdbool.h>
#include <sys/stat.h>

#include "reveille/status.h"

typedef enum rvli_output_name {
    /* A user has named it. Links of this user and of root are followed, and stay. */
    RVLI_OUTPUT_CHOSEN,
    /* It is made of numbers that others can guess. No link is followed, and what lies there must
       be a regular file of this user. */
    RVLI_OUTPUT_GUESSABLE,
} rvli_output_name;

typedef struct rvli_output {
    int fd;     /* to write to; -1: closed, or handed on by its user */
    int folder; /* -1: it is written to directly */
    bool replaces;
    char name[NAME_MAX + 1];  /* in the folder */
    char draft[NAME_MAX + 1]; /* the draft's name in the folder, or "" */
    char path[256];           /* as it was asked for, cut: for messages */
} rvli_output;

/*
 * Begins a file. An existing one keeps its mode, and its owner where this process may set it; a new
 * one gets what umask leaves of 0666. RVL_ERR_IO if it cannot be written.
 */
rvl_status rvli_output_open(const char *path, rvli_output_name name, rvli_output *output_out);

/* Where others can open the draft while it is open here: "/proc/self/fd/N". */
#define RVLI_OUTPUT_PATH_BYTES 32
void rvli_output_path(const rvli_output *output, char path[RVLI_OUTPUT_PATH_BYTES]);

/*
 * Gives the draft its name. With sync, content and name are on the disk then. The descriptor stays
 * open, and what is written later goes into the same file. RVL_ERR_IO: the name is as it was.
 */
rvl_status rvli_output_publish(rvli_output *output, bool sync);

/* Closes what is open. A draft that was not published is removed. */
void rvli_output_close(rvli_output *output);

/* Removes the draft's name, if it has one. A handler of signals may call it. */
void rvli_output_remove_draft(const rvli_output *output);

/* Describes a write that failed. Returns RVL_ERR_IO. */
rvl_status rvli_output_fail(const rvli_output *output, int number);

/*
 * Whether two paths name one file, by whatever names and links, or would once it is made. Devices
 * such as /dev/null are not one file: what one writes there, another does not read.
 */
bool rvli_output_is_same(const char *left, const char *right);

#endif
