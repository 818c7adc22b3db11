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
    *s = (rvli_segment){0};
}

rvl_status rvli_segment_map(rvli_store_client *client, rvli_backup *backup, uint64_t number, int fd,
                            rvli_segment now)
{
    uint64_t bytes = rvli_segment_bytes(backup, number);
    char *at = (char *)backup->host + rvli_segment_offset(backup, number);
    void *mapped = mmap(at, bytes, PROT_READ, MAP_SHARED | MAP_FIXED, fd, 0);
    rvl_status status = RVL_OK;
    if (mapped == MAP_FAILED)
        status = rvli_segment_error(
            "a segment of the store cannot be mapped (see sysctl vm.max_map_count)");
    else
        (void)madvise(at, bytes, MADV_DONTFORK); /* a child would keep it in memory */
    rvli_segment_forget(client, backup, number);
    if (status != RVL_OK) {
        rvli_store_drop(client, now.place);
        return status;
    }
    backup->segments->at[number] = now;
    rvli_store_count(client, counted(backup, number, true), counted(backup, number, now.found));
    return RVL_OK;
}

/* ---- Scratch ---- */

void rvli_scratch_discard(rvli_store_client *client, rvli_scratch *s)
{
    if (s->at != NULL)
        munmap(s->at, s->bytes);
    if (s->fd >= 0)
        close(s->fd);
    if (s->bytes > 0)
        rvli_store_return(client, s->bytes, s->connection);
    *s = (rvli_scratch){.fd = -1};
}

/* All its pages at once: running out of memory later would be a signal. */
static rvl_status fill_scratch(rvli_scratch *s)
{
    if (!rvli_file_may_have(s->bytes)) {
        errno = EFBIG;
        return rvli_segment_error(
            "a segment of the store is larger than files may be: lift ulimit -f");
    }
    s->fd = memfd_create("reveille-store", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (s->fd < 0)
        return rvli_segment_error(
            "no file for a segment of the store: raise ulimit -n if it is too low");
    int result;
    do
        result = fallocate(s->fd, 0, 0, (off_t)s->bytes);
    while (result != 0 && errno == EINTR);
    if (result != 0)
        return rvli_segment_error("no host memory for a segment of the store");
    void *mapped = mmap(NULL, s->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, s->fd, 0);
    if (mapped == MAP_FAILED)
        return rvli_segment_error(
            "a segment of the store cannot be mapped (see sysctl vm.max_map_count)");
    s->at = mapped;
    (void)madvise(mapped, s->bytes, MADV_DONTFORK); /* a child's mapping would keep it unsealed */
    return RVL_OK;
}

rvl_status rvli_scratch_take(rvli_store_client *client, rvli_scratch *s, uint64_t bytes)
{
    if (s->at != NULL && s->bytes == bytes)
        return RVL_OK;
    rvli_scratch_discard(client, s);
    uint64_t connection = 0;
    rvl_status status = rvli_store_reserve(client, bytes, &connection);
    if (status == RVL_OK) {
        s->bytes = bytes;
        s->connection = connection;
        status = fill_scratch(s);
    }
    if (status != RVL_OK) {
        rvl_error cause = *rvli_error_get();
        rvli_scratch_discard(client, s);
        rvli_error_set(&cause);
    }
    return status;
}

rvl_status rvli_scratch_seal(rvli_scratch *s)
{
    munmap(s->at, s->bytes);
    s->at = NULL;
    return rvli_store_seal(s->fd) ? RVL_OK
                                  : rvli_segment_error("a segment of the store cannot be sealed");
}

/* ---- Comparing ---- */

static bool maps_equal(const void *at, int other, uint64_t bytes, bool *equal_out)
{
    void *mapped = mmap(NULL, bytes, PROT_READ, MAP_SHARED, other, 0);
    if (mapped == MAP_FAILED)
        return false;
    *equal_out = memcmp(at, mapped, bytes) == 0;
    munmap(mapped, bytes);
    return true;
}

rvl_status rvli_scratch_compare(const rvli_scratch *s, int other, bool *equal_out)
{
    bool compared = false;
    if (s->at != NULL) {
        compared = maps_equal(s->at, other, s->bytes, equal_out);
    } else {
        void *mapped = mmap(NULL, s->bytes, PROT_READ, MAP_SHARED, s->fd, 0);
        if (mapped != MAP_FAILED) {
            compared = maps_equal(mapped, other, s->bytes, equal_out);
            munmap(mapped, s->bytes);
        }
    }
    return compared ? RVL_OK
                    : rvli_segment_error("a segment of the store cannot be mapped (see sysctl "
                                         "vm.max_map_count)");
}
