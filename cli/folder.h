/* SPDX-License-Identifier: MIT */
/* A folder of this process's own, for files that go with it. */
#ifndef RVL_CLI_FOLDER_H
#define RVL_CLI_FOLDER_H

#include <limits.h>
#include <stdbool.h>

/*
 * Makes "TMPDIR/reveille-NAME-XXXXXX", in /tmp where TMPDIR is no absolute path: processes in other
 * folders use it, too. false: errno says why, and path_out what could not be made.
 */
bool folder_make(const char *name, char path_out[PATH_MAX]);

/* Removes it and the files in it. */
void folder_remove(const char *path);

#endif
