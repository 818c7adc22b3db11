/* SPDX-License-Identifier: MIT */
#include "base/file_limit.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

/* Returns UINT64_MAX if there is no limit. */
static uint64_t limit_bytes(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
        return UINT64_MAX;
    return limit.rlim_cur;
}

bool rvli_file_may_have(uint64_t size_bytes)
{
    return size_bytes <= limit_bytes();
}

/* Returns the position of the next byte written. */
static uint64_t end_of(int fd, const struct stat *facts)
{
    bool appends = (fcntl(fd, F_GETFL) & O_APPEND) != 0;
    off_t at = appends ? facts->st_size : lseek(fd, 0, SEEK_CUR);
    return at > 0 ? (uint64_t)at : 0;
}

bool rvli_file_may_take(int fd, size_t size_bytes)
{
    struct stat facts;
    uint64_t limit = limit_bytes();
    if (limit == UINT64_MAX || fstat(fd, &facts) != 0 || !S_ISREG(facts.st_mode))
        return true;
    uint64_t at = end_of(fd, &facts);
    return at <= limit && size_bytes <= limit - at;
}
