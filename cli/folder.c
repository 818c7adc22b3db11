/* SPDX-License-Identifier: MIT */
#include "folder.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool folder_make(const char *name, char path_out[PATH_MAX])
{
    const char *temporary = getenv("TMPDIR");
    if (temporary == NULL || temporary[0] != '/')
        temporary = "/tmp";
    snprintf(path_out, PATH_MAX, "%s/reveille-%s-XXXXXX", temporary, name);
    return mkdtemp(path_out) != NULL;
}

void folder_remove(const char *path)
{
    DIR *folder = opendir(path);
    const struct dirent *entry;
    while (folder != NULL && (entry = readdir(folder)) != NULL) {
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            (void)unlinkat(dirfd(folder), entry->d_name, 0);
    }
    if (folder != NULL)
        closedir(folder);
    (void)rmdir(path);
}
