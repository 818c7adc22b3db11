/* SPDX-License-Identifier: MIT */
/*
 * Leads the loader to the simulated libraries, by LD_AUDIT: where somebody looks for a library
 * whose file name lies in this library's own folder, that one is taken. It does not matter how it
 * is looked for: by name, by a path, through RPATH, or in a program whose launcher has replaced
 * LD_PRELOAD.
 */
#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

unsigned la_version(unsigned version);
char *la_objsearch(const char *name, uintptr_t *cookie, unsigned flag);

static char path[PATH_MAX]; /* the loader copies it before it asks again */
static size_t folder_length;

unsigned la_version(unsigned version)
{
    Dl_info here;
    if (dladdr((void *)(uintptr_t)la_version, &here) != 0 && here.dli_fname != NULL) {
        const char *slash = strrchr(here.dli_fname, '/');
        size_t length = slash != NULL ? (size_t)(slash + 1 - here.dli_fname) : 0;
        if (length < sizeof path) {
            memcpy(path, here.dli_fname, length);
            folder_length = length;
        }
    }
    return version < LAV_CURRENT ? version : LAV_CURRENT;
}

char *la_objsearch(const char *name, uintptr_t *cookie, unsigned flag)
{
    (void)cookie;
    const char *slash = strrchr(name, '/');
    const char *file = slash != NULL ? slash + 1 : name;
    /* Once found, the loader comes with our own path; only the libraries are ever asked for. */
    if (flag != LA_SER_ORIG || folder_length == 0 || strncmp(file, "lib", 3) != 0 ||
        folder_length + strlen(file) >= sizeof path)
        return (char *)(uintptr_t)name;
    strcpy(path + folder_length, file);
    return access(path, R_OK) == 0 ? path : (char *)(uintptr_t)name;
}
