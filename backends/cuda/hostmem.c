/* SPDX-License-Identifier: MIT */
/* The host memory that is left, from files of the kernel: proc(5), cgroups(7). */
#include "backends/cuda/hostmem.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* The files of the process's own cgroup, version 2. */
#define CGROUP_MAX "/sys/fs/cgroup/memory.max"
#define CGROUP_CURRENT "/sys/fs/cgroup/memory.current"
#define CGROUP_STAT "/sys/fs/cgroup/memory.stat"

/* Reads the number after `key` in a file of "key number" lines; with key "", the first number. */
static bool read_number(const char *path, const char *key, uint64_t *value_out)
{
    char line[256];
    bool found = false;
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return false;
    size_t length = strlen(key);
    while (!found && fgets(line, sizeof line, file) != NULL)
        found =
            strncmp(line, key, length) == 0 && sscanf(line + length, "%" SCNu64, value_out) == 1;
    fclose(file);
    return found;
}

/* UINT64_MAX without a limit: "max" is not a number. */
static uint64_t left_in_cgroup(void)
{
    uint64_t limit, current, cache = 0;
    if (!read_number(CGROUP_MAX, "", &limit) || !read_number(CGROUP_CURRENT, "", &current))
        return UINT64_MAX;
    /* The kernel frees the inactive page cache before it kills a process. */
    read_number(CGROUP_STAT, "inactive_file ", &cache);
    uint64_t held = current > cache ? current - cache : 0;
    return limit > held ? limit - held : 0;
}

uint64_t rvli_hostmem_available(void)
{
    uint64_t kib = 0;
    uint64_t left = left_in_cgroup();
    if (!read_number("/proc/meminfo", "MemAvailable:", &kib))
        return left;
    return kib * 1024 < left ? kib * 1024 : left;
}

uint64_t rvli_hostmem_total(void)
{
    uint64_t limit = 0;
    uint64_t total = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    return read_number(CGROUP_MAX, "", &limit) && limit < total ? limit : total;
}
