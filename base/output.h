/* SPDX-License-Identifier: MIT */
/*
 * Files that are written whole or not at all.
 *
 * Content goes into a draft in the folder of the target file. Publishing gives the draft the file's
 * name in one step, so a reader sees the old content or the new, and a failure leaves the old.
 *
 * Where the file system allows it (O_TMPFILE), the draft has no name, and the kernel removes it
 * however the process ends. A nameless draft that replaces a file has a name for an instant. If the
 * process is killed in that instant, the draft stays until the file is next written. Elsewhere the
 * draft has a name that cannot be guessed and is created exclusively (O_EXCL), so that nobody can
 * put a link in its place.
 *
 * Files that are not regular (a terminal, a pipe, /dev/null) are written directly. So is an open
 * descriptor that a path names (/dev/stdout, /proc/self/fd/3).
 *
 * A function that fails describes the failure in the error record: the path, the cause and the
 * remedy.
 */
#ifndef RVL_BASE_OUTPUT_H
#define RVL_BASE_OUTPUT_H

#include <limits.h>
#include <stdbool.h>
#include <sys/stat.h>

#include "reveille/status.h"

typedef enum rvli_output_name {
    /* A user named the path. Links of this user and of root are followed, and stay. */
    RVLI_OUTPUT_CHOSEN,
    /* The name is made of numbers that others can guess. No link is followed, and an existing file
       must be a regular file of this user. */
    RVLI_OUTPUT_GUESSABLE,
} rvli_output_name;

typedef struct rvli_output {
    int fd;     /* to write to; -1: closed, or taken over by the caller */
    int folder; /* O_PATH descriptor of the folder; -1: written directly */
    bool replaces;
    char name[NAME_MAX + 1];  /* of the file, in the folder */
    char draft[NAME_MAX + 1]; /* the draft's name in the folder, or "" */
    char path[256];           /* the requested path, truncated: for messages */
} rvli_output;

/*
 * Begins a file. An existing file keeps its mode, and its owner where this process may set it. A
 * new file gets mode 0666 less the umask. RVL_ERR_IO if it cannot be written.
 */
rvl_status rvli_output_open(const char *path, rvli_output_name name, rvli_output *output_out);

/* "/proc/self/fd/N", by which other code can open the draft while it is open here. */
#define RVLI_OUTPUT_PATH_BYTES 32
void rvli_output_path(const rvli_output *output, char path[RVLI_OUTPUT_PATH_BYTES]);

/*
 * Gives the draft its final name. With sync, content and name are on the disk on return. The
 * descriptor stays open, and later writes go to the same file. RVL_ERR_IO: the old file is
 * unchanged.
 */
rvl_status rvli_output_publish(rvli_output *output, bool sync);

/* Closes all descriptors. Removes a draft that was not published. */
void rvli_output_close(rvli_output *output);

/* Removes the draft's name, if it has one. Signal handlers may call it. */
void rvli_output_remove_draft(const rvli_output *output);

/* Describes a failed write. Returns RVL_ERR_IO. */
rvl_status rvli_output_fail(const rvli_output *output, int number);

/*
 * Returns whether two paths name one file, or would once it is created, through any names and
 * links. Devices such as /dev/null never count as the same file: data written to one is not read
 * back from the other.
 */
bool rvli_output_is_same(const char *left, const char *right);

#endif
