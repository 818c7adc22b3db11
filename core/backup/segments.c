/* SPDX-License-Identifier: MIT */
#include "core/backup/segments.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file_limit.h"
#include "core/backup/store/message.h"

rvl_status rvli_segment_error(const char *what)
{
    int number = errno;
    rvl_status status =
        number == ENOMEM || number == ENOSPC || number == EAGAIN ? RVL_ERR_HOST_OOM : RVL_ERR_IO;
    rvli_error(status, what);
    rvli_error_errno(number);
    return status;
}

/* ---- Segments ---- */

uint64_t rvli_segment_count(const rvli_backup *backup)
{
    uint64_t each = backup->segments->segment_bytes;
    return (backup->size + each - 1) / each;
}

uint64_t rvli_segment_offset(const rvli_backup *backup, uint64_t number)
{
    return number * backup->segments->segment_bytes;
}

uint64_t rvli_segment_bytes(const rvli_backup *backup, uint64_t number)
{
    uint64_t left = backup->size - rvli_segment_offset(backup, number);
    return left < backup->segments->segment_bytes ? left : backup->segments->segment_bytes;
}

static int64_t counted(const rvli_backup *backup, uint64_t number, bool counts)
{
    return counts ? (int64_t)rvli_segment_bytes(backup, number) : 0;
}

void rvli_segment_forget(rvli_store_client *client, const rvli_backup *backup, uint64_t number)
{
    rvli_segment *s = &backup->segments->at[number];
    if (s->place.id == 0)
        return;
    rvli_store_drop(client, s->place);
    rvli_store_count(client, -counted(backup, number, true), -counted(backup, number, s->found));
    s->place = (rvli_store_place){0};
    s->found = false;
}

rvl_status rvli_segment_map(rvli_store_client *client, rvli_backup *backup, uint64_t number, int fd,
                            rvli_store_place place, bool found)
{
    rvli_segment *now = &backup->segments->at[number];
    uint64_t bytes = rvli_segment_bytes(backup, number);
    char *at = (char *)backup->host + rvli_segment_offset(backup, number);
    void *mapped = mmap(at, bytes, PROT_READ, MAP_SHARED | MAP_FIXED, fd, 0);
    rvl_status status = RVL_OK;
    if (mapped == MAP_FAILED)
        status = rvli_segment_error(
            "a segment of the store cannot be mapped (see sysctl vm.max_map_count)");
    else
        (void)madvise(at, bytes, MADV_DONTFORK); /* a forked child would keep it in memory */
    rvli_segment_forget(client, backup, number);
    if (status != RVL_OK) {
        rvli_store_drop(client, place);
        return status;
    }
    now->place = place;
    now->found = found;
    rvli_store_count(client, counted(backup, number, true), counted(backup, number, found));
    return RVL_OK;
}

/* ---- Drafts ---- */

rvl_status rvli_draft_reserve(rvli_store_client *client, rvli_draft *draft, uint64_t bytes)
{
    rvl_status status = rvli_store_reserve(client, bytes, &draft->connection);
    if (status == RVL_OK)
        draft->bytes = bytes;
    return status;
}

/*
 * Writes by system calls instead of through a mapping. Then pages are neither cleared before they
 * are written nor faulted in one by one, lack of memory is an error instead of a signal, and no
 * forked child has them mapped.
 */
static bool write_all(int fd, const char *content, uint64_t bytes)
{
    for (uint64_t at = 0; at < bytes;) {
        ssize_t written = pwrite(fd, content + at, bytes - at, (off_t)at);
        if (written < 0 && errno != EINTR)
            return false;
        at += written > 0 ? (uint64_t)written : 0;
    }
    return true;
}

rvl_status rvli_draft_write(rvli_draft *draft, const void *content)
{
    if (!rvli_file_may_have(draft->bytes)) {
        errno = EFBIG;
        return rvli_segment_error(
            "a segment of the store is larger than files may be: lift ulimit -f");
    }
    draft->fd = memfd_create("reveille-store", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (draft->fd < 0)
        return rvli_segment_error(
            "no file for a segment of the store: raise ulimit -n if it is too low");
    /* Sets the size first: a kernel that uses large pages for memory files only does so within the
       size. */
    if (ftruncate(draft->fd, (off_t)draft->bytes) != 0 ||
        !write_all(draft->fd, content, draft->bytes))
        return rvli_segment_error("no host memory for a segment of the store");
    return rvli_store_seal(draft->fd)
               ? RVL_OK
               : rvli_segment_error("a segment of the store cannot be sealed");
}

void rvli_draft_taken(rvli_draft *draft)
{
    close(draft->fd);
    *draft = (rvli_draft){.fd = -1};
}

void rvli_draft_discard(rvli_store_client *client, rvli_draft *draft)
{
    if (draft->fd >= 0)
        close(draft->fd);
    if (draft->bytes > 0)
        rvli_store_return(client, draft->bytes, draft->connection);
    *draft = (rvli_draft){.fd = -1};
}

/* ---- Comparing ---- */

#define PART_BYTES ((uint64_t)1 << 16) /* read buffer, small enough for a cache */

static bool read_all(int fd, char *part, uint64_t from, uint64_t bytes)
{
    for (uint64_t at = 0; at < bytes;) {
        ssize_t came = pread(fd, part + at, bytes - at, (off_t)(from + at));
        if (came == 0)
            errno = EIO;
        if (came == 0 || (came < 0 && errno != EINTR))
            return false;
        at += came > 0 ? (uint64_t)came : 0;
    }
    return true;
}

/* Reads by system calls, so that no page is mapped that nobody uses afterwards. */
rvl_status rvli_segment_has_digest(const rvli_secret *secret, rvli_digest digest, uint64_t bytes,
                                   int fd, bool *has_out)
{
    char part[PART_BYTES];
    rvli_digest sum = {0};
    for (uint64_t at = 0; at < bytes; at += PART_BYTES) {
        uint64_t size = bytes - at < PART_BYTES ? bytes - at : PART_BYTES;
        if (!read_all(fd, part, at, size))
            return rvli_segment_error("a segment of the store cannot be read");
        sum = rvli_secret_digest_join(secret, sum, rvli_secret_digest_of(secret, part, size), size);
    }
    *has_out = sum.low == digest.low && sum.high == digest.high;
    return RVL_OK;
}

rvl_status rvli_segment_compare(const void *content, uint64_t bytes, int fd, bool *equal_out)
{
    void *mapped = mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, 0);
    if (mapped == MAP_FAILED)
        return rvli_segment_error(
            "a segment of the store cannot be mapped (see sysctl vm.max_map_count)");
    *equal_out = memcmp(content, mapped, bytes) == 0;
    munmap(mapped, bytes);
    return RVL_OK;
}
