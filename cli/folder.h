/* SPDX-License-Identifier: MIT */
/* A temporary folder. */
#ifndef RVL_CLI_FOLDER_H
#define RVL_CLI_FOLDER_H

#include <limits.h>
#include <stdbool.h>

/*
 * Makes "TMPDIR/reveille-NAME-XXXXXX". Uses /tmp if TMPDIR is not an absolute path, because
 * processes with other working directories use the folder, too. false: sets errno, and path_out is
 * the path that could not be made.
 */
bool folder_make(const char *name, char path_out[PATH_MAX]);

/* Removes the folder and the files in it. */
void folder_remove(const char *path);

#endif
