/* SPDX-License-Identifier: MIT */
#include "core/backup/disk/file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <stdlib.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file_limit.h"
#include "base/text.h"
#include "core/backup/disk/problem.h"

#define OP_OPEN "disk_open"
#define OP_RESERVE "disk_reserve"
#define DIRECTORY "the backup directory"

/* Describes why a directory could not be opened, or a file in it could not be made. */
static rvl_status refuse_directory(int number, const char *path)
{
    switch (number) {
    case ENOENT:
        return rvli_disk_error_at(RVL_ERR_INVALID, OP_OPEN, number, DIRECTORY, path,
                                  "does not exist: create it or name another");
    case ENOTDIR:
        return rvli_disk_error_at(RVL_ERR_INVALID, OP_OPEN, number, DIRECTORY, path,
                                  "is not a directory: name one");
    case EACCES:
    case EPERM:
    case EROFS:
        return rvli_disk_error_at(
            RVL_ERR_INVALID, OP_OPEN, number, DIRECTORY, path,
            "cannot be written to: change its owner or mode, or name another");
    case ENAMETOOLONG:
        return rvli_disk_error_at(RVL_ERR_INVALID, OP_OPEN, number, DIRECTORY, path,
                                  "has too long a path: name another");
    case EMFILE:
    case ENFILE:
        return rvli_disk_error_at(RVL_ERR_IO, OP_OPEN, number, DIRECTORY, path,
                                  "cannot be used, too many files are open: raise ulimit -n");
    default:
        return rvli_disk_error_at(rvli_disk_status(number), OP_OPEN, number, DIRECTORY, path,
                                  "cannot take a file: see the error's number, or name another");
    }
}

static rvl_status check_in_memory(int fd, const char *path)
{
    struct statfs facts;
    if (fstatfs(fd, &facts) != 0)
        return refuse_directory(errno, path);
    if (facts.f_type == TMPFS_MAGIC || facts.f_type == RAMFS_MAGIC)
        return rvli_disk_error_at(RVL_ERR_INVALID, OP_OPEN, 0, DIRECTORY, path,
                                  "lies in host memory (tmpfs): name one on a disk");
    return RVL_OK;
}

rvl_status rvli_disk_directory_check(const char *path, bool allow_tmpfs)
{
    int fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return refuse_directory(errno, path);
    rvl_status status = RVL_OK;
    if (faccessat(AT_FDCWD, path, W_OK | X_OK, AT_EACCESS) != 0)
        status = refuse_directory(errno, path);
    else if (!allow_tmpfs)
        status = check_in_memory(fd, path);
    close(fd);
    return status;
}

/*
 * For file systems without nameless files: the file has a name for a moment, while it is still
 * empty.
 */
static int open_unlinked(const char *directory)
{
    char path[PATH_MAX];
    rvli_text text = rvli_text_begin(path, sizeof path);
    rvli_text_add(&text, directory);
    rvli_text_add(&text, "/.reveille-XXXXXX");
    if (text.length + 1 == sizeof path) { /* it may have been truncated */
        errno = ENAMETOOLONG;
        return -1;
    }
    int fd = mkostemp(path, O_CLOEXEC);
    if (fd >= 0 && unlink(path) != 0) {
        int number = errno;
        close(fd);
        errno = number;
        return -1;
    }
    return fd;
}

/* Returns -1 with errno if the file cannot be made. */
static int open_nameless(const char *directory)
{
    int fd = open(directory, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    /* EISDIR: the kernel does not know O_TMPFILE. */
    if (fd < 0 && (errno == EOPNOTSUPP || errno == EISDIR || errno == EINVAL))
        fd = open_unlinked(directory);
    return fd;
}

static rvl_status disk_full(int number, const char *message, uint64_t size_bytes,
                            uint64_t free_bytes)
{
    rvli_disk_error(RVL_ERR_DISK_FULL, OP_RESERVE, number, message);
    rvli_error_bytes(RVL_NO_DEVICE, size_bytes, free_bytes);
    return RVL_ERR_DISK_FULL;
}

/* Returns 0 if unknown. */
static uint64_t free_space(int fd)
{
    struct statvfs facts;
    return fstatvfs(fd, &facts) == 0 ? (uint64_t)facts.f_bavail * facts.f_frsize : 0;
}

static rvl_status refuse_reserve(int fd, int number, uint64_t size_bytes)
{
    switch (number) {
    case ENOSPC:
        return disk_full(number,
                         "no space for the backup in its directory: free some, or name a "
                         "directory on a larger disk",
                         size_bytes, free_space(fd));
    case EDQUOT:
        return disk_full(number,
                         "the disk quota is used up by the backup: raise it, or name a directory "
                         "on another disk",
                         size_bytes, free_space(fd));
    case EFBIG:
        return disk_full(number,
                         "the backup is larger than a file may be: raise ulimit -f, or name a "
                         "directory on another file system",
                         size_bytes, free_space(fd));
    default:
        return rvli_disk_error(RVL_ERR_IO, OP_RESERVE, number,
                               "reserving space for the backup failed: check the disk, or name "
                               "another directory");
    }
}

/* If space cannot be reserved, only checks that there is enough at this moment. */
static rvl_status reserve_by_hope(int fd, uint64_t size_bytes)
{
    if (free_space(fd) < size_bytes)
        return refuse_reserve(fd, ENOSPC, size_bytes);
    if (ftruncate(fd, (off_t)size_bytes) != 0)
        return refuse_reserve(fd, errno, size_bytes);
    return RVL_OK;
}

static rvl_status reserve(rvli_disk_file *file)
{
    if (!rvli_file_may_have(file->size_bytes))
        return refuse_reserve(file->fd, EFBIG, file->size_bytes);
    int result;
    do {
        result = fallocate(file->fd, 0, 0, (off_t)file->size_bytes);
    } while (result != 0 && errno == EINTR);
    file->reserved = result == 0;
    if (file->reserved)
        return RVL_OK;
    if (errno == EOPNOTSUPP || errno == ENOSYS)
        return reserve_by_hope(file->fd, file->size_bytes);
    return refuse_reserve(file->fd, errno, file->size_bytes);
}

rvl_status rvli_disk_file_open(const char *directory, uint64_t size_bytes, rvli_disk_file *file_out)
{
    if (size_bytes == 0 || size_bytes > (uint64_t)INT64_MAX - RVLI_DISK_ALIGNMENT)
        return rvli_disk_error(RVL_ERR_INVALID, OP_OPEN, 0,
                               "no backup file can have this size: pass 1 to 2^63 - 4097 bytes");
    rvli_disk_file file = {
        .fd = open_nameless(directory),
        .size_bytes = (size_bytes + RVLI_DISK_ALIGNMENT - 1) & ~(RVLI_DISK_ALIGNMENT - 1),
    };
    if (file.fd < 0)
        return refuse_directory(errno, directory);
    file.direct = fcntl(file.fd, F_SETFL, O_DIRECT) == 0;
    rvl_status status = reserve(&file);
    if (status != RVL_OK) {
        close(file.fd);
        return status;
    }
    *file_out = file;
    return RVL_OK;
}

void rvli_disk_file_close(rvli_disk_file *file)
{
    close(file->fd);
    file->fd = -1;
}
