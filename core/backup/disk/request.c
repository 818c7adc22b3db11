/* SPDX-License-Identifier: MIT */
#include "core/backup/disk/request.h"

#include <errno.h>
#include <unistd.h>

#include "core/backup/disk/problem.h"

/* The kernel moves less than 2 GiB in one call. */
#define MOST_BYTES (UINT64_C(1) << 30)

rvli_disk_rest rvli_disk_request_rest(const rvli_disk_request *request)
{
    uint64_t left_bytes = request->bytes - request->moved_bytes;
    return (rvli_disk_rest){
        .buffer = (unsigned char *)request->buffer + request->moved_bytes,
        .offset = request->offset + request->moved_bytes,
        .bytes = (unsigned)(left_bytes < MOST_BYTES ? left_bytes : MOST_BYTES),
    };
}

static bool end_request(rvli_disk_request *request, rvl_status status, int error)
{
    request->status = status;
    request->error = error;
    return true;
}

bool rvli_disk_request_answer(rvli_disk_request *request, ssize_t answer)
{
    if (answer == -EINTR)
        return false;
    if (answer < 0)
        return end_request(request, rvli_disk_status((int)-answer), (int)-answer);
    if (answer == 0) /* a write that moves nothing has no space left; a read is past the end of the
                        file */
        return request->write ? end_request(request, RVL_ERR_DISK_FULL, ENOSPC)
                              : end_request(request, RVL_ERR_IO, 0);
    uint64_t moved_bytes = request->moved_bytes + (uint64_t)answer;
    if (moved_bytes >= request->bytes) {
        request->moved_bytes = request->bytes;
        return end_request(request, RVL_OK, 0);
    }
    /* The next call must begin aligned, so a few bytes may be moved twice. */
    uint64_t aligned_bytes = moved_bytes & ~(RVLI_DISK_ALIGNMENT - 1);
    request->moved_bytes = aligned_bytes > request->moved_bytes ? aligned_bytes : moved_bytes;
    return false;
}

void rvli_disk_request_run(rvli_disk_request *request)
{
    ssize_t answer;
    do {
        rvli_disk_rest rest = rvli_disk_request_rest(request);
        answer = request->write ? pwrite(request->fd, rest.buffer, rest.bytes, (off_t)rest.offset)
                                : pread(request->fd, rest.buffer, rest.bytes, (off_t)rest.offset);
    } while (!rvli_disk_request_answer(request, answer < 0 ? -errno : answer));
}
