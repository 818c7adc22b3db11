/* SPDX-License-Identifier: MIT */
#include "simcuda/driver/unknown.h"

#include <dlfcn.h>
#include <execinfo.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "simcuda/driver/client.h"

#define FRAMES_MAX 16

/* The length of a path's folder, with its slash. */
static size_t folder_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash != NULL ? (size_t)(slash + 1 - path) : 0;
}

static bool in_folder_of(const char *path, const char *other)
{
    size_t length = folder_of(other);
    return length > 0 && folder_of(path) == length && strncmp(path, other, length) == 0;
}

/*
 * Finds, for example, "cudaMemcpy, called by libtorch_cuda.so": the outermost function of the
 * simulated libraries, which are in one folder, and the file of its caller.
 */
static void find_place(char place[RVLI_WIRE_TEXT_BYTES])
{
    void *stack[FRAMES_MAX];
    const char *function = "a copy to the host", *caller = "unknown code";
    Dl_info own, each;
    int depth = backtrace(stack, FRAMES_MAX);
    bool inside = dladdr((void *)(uintptr_t)find_place, &own) != 0;
    for (int i = 0; inside && i < depth; i++) {
        if (dladdr(stack[i], &each) == 0 || each.dli_fname == NULL)
            continue;
        inside = in_folder_of(each.dli_fname, own.dli_fname);
        if (!inside)
            caller = each.dli_fname + folder_of(each.dli_fname);
        else if (each.dli_sname != NULL && strncmp(each.dli_sname, "cu", 2) == 0)
            function = each.dli_sname;
    }
    snprintf(place, RVLI_WIRE_TEXT_BYTES, "%.100s, called by %.100s", function, caller);
}

/* Our own library copies content out only to put it back. No decision depends on it. */
static bool is_backup(const char *place)
{
    return strstr(place, ", called by libreveille") != NULL;
}

void rvli_unknown_read(size_t bytes, const char *place)
{
    char found[RVLI_WIRE_TEXT_BYTES];
    if (place == NULL)
        find_place(found);
    if (place == NULL && is_backup(found))
        return;
    rvli_client_note(RVLI_WIRE_UNKNOWN, bytes, place != NULL ? place : found);
}
