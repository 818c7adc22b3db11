/* SPDX-License-Identifier: MIT */
#include "core/backup/disk/queue.h"

#include "base/error.h"
#include "core/backup/disk/engine.h"
#include "core/backup/disk/problem.h"

rvl_status rvli_disk_queue_open(rvli_disk_engine engine, unsigned depth,
                                rvli_disk_queue **queue_out)
{
    if (depth == 0 || depth > RVLI_DISK_MAX_DEPTH)
        return rvli_error(RVL_ERR_INVALID, "no such depth of a disk queue: pass 1 to 64");
#ifdef RVL_HAVE_URING
    if (engine != RVLI_DISK_THREADS) {
        const rvl_error before = *rvli_error_get();
        rvl_status status = rvli_disk_uring_open(depth, queue_out);
        if (status == RVL_OK || engine == RVLI_DISK_URING)
            return status;
        rvli_error_set(&before); /* a missing io_uring is not a failure of this call */
    }
#else
    if (engine == RVLI_DISK_URING)
        return rvli_error(RVL_ERR_NOT_SUPPORTED,
                          "built without io_uring: install liburing-dev and build again, or let "
                          "threads do it");
#endif
    return rvli_disk_threads_open(depth, queue_out);
}

void rvli_disk_queue_close(rvli_disk_queue *queue)
{
    queue->ops->settle(queue, 0);
    queue->ops->close(queue);
}

const char *rvli_disk_queue_name(const rvli_disk_queue *queue)
{
    return queue->ops->name;
}

static bool is_aligned(uint64_t number)
{
    return number % RVLI_DISK_ALIGNMENT == 0;
}

rvl_status rvli_disk_queue_submit(rvli_disk_queue *queue, rvli_disk_request *request)
{
    if (request->bytes == 0 || !is_aligned(request->bytes) || !is_aligned(request->offset) ||
        !is_aligned((uintptr_t)request->buffer))
        return rvli_error(RVL_ERR_INVALID, "a disk request is empty or not aligned: pass a buffer, "
                                           "an offset and bytes that are multiples of 4096");
    queue->ops->settle(queue, queue->depth - 1);
    request->done = false;
    request->status = RVL_OK;
    request->error = 0;
    request->moved_bytes = 0;
    request->queue = queue;
    request->next = NULL;
    queue->ops->begin(queue, request);
    return RVL_OK;
}

static const char *message_of(const rvli_disk_request *request)
{
    if (request->status == RVL_ERR_DISK_FULL)
        return "the disk of the backup directory is full: free space there, or name a directory on "
               "another disk";
    if (request->write)
        return "writing a backup failed: check the disk (dmesg), or name a directory on another";
    if (request->error == 0)
        return "a backup file ended too early: something has cut it short; check the disk";
    return "reading a backup failed: its content is lost; check the disk (dmesg)";
}

rvl_status rvli_disk_queue_wait(rvli_disk_queue *queue, rvli_disk_request *request)
{
    queue->ops->wait(queue, request);
    if (request->status == RVL_OK)
        return RVL_OK;
    rvli_disk_error(request->status, request->write ? "disk_write" : "disk_read", request->error,
                    message_of(request));
    rvli_error_bytes(RVL_NO_DEVICE, request->bytes, 0);
    return request->status;
}

void rvli_disk_queue_drain(rvli_disk_queue *queue)
{
    queue->ops->settle(queue, 0);
}
