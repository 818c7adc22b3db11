/* SPDX-License-Identifier: MIT */
/*
 * Settings that the process changes for all its regions. Those of the environment are the defaults.
 */
#include "hooks/region/saver_internal.h"

#include <limits.h>
#include <string.h>
#include <sys/stat.h>

#include "base/error.h"

static _Atomic uint64_t margin_bytes;
static _Atomic int retain_choice = -1; /* -1: the environment's setting */
static _Atomic(const char *) directory_choice;

void rvli_saver_set_margin(uint64_t bytes)
{
    atomic_store(&margin_bytes, bytes);
}

uint64_t rvli_saver_margin(void)
{
    return atomic_load(&margin_bytes);
}

void rvli_saver_set_retain(bool on)
{
    atomic_store(&retain_choice, on);
}

bool rvli_saver_get_retain(void)
{
    int choice = atomic_load(&retain_choice);
    return choice >= 0 ? choice != 0 : rvli_settings()->retain;
}

const char *rvli_saver_directory(void)
{
    const char *choice = atomic_load(&directory_choice);
    return choice != NULL ? choice : rvli_settings()->disk_directory;
}

void rvli_saver_make_directories(const char *path)
{
    char part[PATH_MAX];
    size_t length = strlen(path);
    if (length >= sizeof part)
        return;
    for (size_t i = 1; i <= length; i++)
        if (path[i] == '/' || path[i] == '\0') {
            memcpy(part, path, i);
            part[i] = '\0';
            (void)mkdir(part, 0777);
        }
}

rvl_status rvli_saver_set_directory(const char *path)
{
    if (path == NULL || path[0] == '\0')
        return rvli_error(RVL_ERR_INVALID, "the directory of disk backups has no name: give one");
    const char *kept = rvli_intern(path);
    if (kept == NULL)
        return rvli_error(RVL_ERR_HOST_OOM, "no host memory for the path of a directory");
    rvli_saver_make_directories(kept);
    atomic_store(&directory_choice, kept);
    return RVL_OK;
}
