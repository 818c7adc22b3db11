/* SPDX-License-Identifier: MIT */
#include "fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

void fuzz_broken(const char *file, int line, const char *what)
{
    fprintf(stderr, "%s:%d: does not hold: %s\n", file, line, what);
    abort();
}

uint32_t fuzz_pick(uint32_t *random, uint32_t below)
{
    *random = *random * 1664525u + 1013904223u;
    return below > 0 ? (*random >> 8) % below : 0;
}

uint32_t fuzz_hash(const uint8_t *data, size_t size)
{
    uint32_t hash = 2166136261u;
    for (size_t i = 0; i < size; i++)
        hash = (hash ^ data[i]) * 16777619u;
    return hash ^ hash >> 15;
}

uint64_t fuzz_size(uint32_t *random)
{
    uint64_t power = UINT64_C(1) << fuzz_pick(random, 63);
    switch (fuzz_pick(random, 6)) {
    case 0:
        return fuzz_pick(random, 4);
    case 1:
        return power - 1;
    case 2:
        return power + 1;
    case 3:
        return (uint64_t)(1 + fuzz_pick(random, 64)) << 21;
    case 4:
        return fuzz_pick(random, 8) == 0 ? UINT64_MAX : INT64_MAX;
    default:
        return power;
    }
}

/* One file for all executions: making one takes as long as reading it. */
const char *fuzz_file(const uint8_t *data, size_t size)
{
    static int file = -1;
    static char path[64];
    if (file < 0) {
        file = memfd_create("fuzz", MFD_CLOEXEC);
        snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    }
    require(file >= 0 && ftruncate(file, 0) == 0);
    require(pwrite(file, data, size, 0) == (ssize_t)size);
    return path;
}

static char folder[256];

static void remove_folder(void)
{
    rmdir(folder);
}

/* A name without that of the library: the stress test looks for what that leaves in /dev/shm. */
const char *fuzz_folder(void)
{
    if (folder[0] != '\0')
        return folder;
    const char *chosen = getenv("TMPDIR");
    if (chosen == NULL || strlen(chosen) > 64) /* a socket's path has 107 bytes */
        chosen = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
    require(snprintf(folder, sizeof folder, "%s/fuzz-XXXXXX", chosen) < (int)sizeof folder);
    require(mkdtemp(folder) != NULL);
    atexit(remove_folder);
    return folder;
}
