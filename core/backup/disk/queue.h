/* SPDX-License-Identifier: MIT */
/*
 * Reads and writes in flight.
 *
 * A disk is fast only with several requests at a time. A queue keeps up to its depth in flight. It
 * uses io_uring, or a few threads where io_uring is blocked (as in most containers) or not built
 * in. A request is the caller's memory, and holds its result.
 *
 * Only one thread at a time may use a queue. Two requests in flight must not overlap.
 */
#ifndef RVL_CORE_BACKUP_DISK_QUEUE_H
#define RVL_CORE_BACKUP_DISK_QUEUE_H

#include "core/backup/disk/request.h"

#define RVLI_DISK_MAX_DEPTH 64u

typedef enum rvli_disk_engine {
    RVLI_DISK_AUTO, /* io_uring if available, threads otherwise */
    RVLI_DISK_URING,
    RVLI_DISK_THREADS
} rvli_disk_engine;

/*
 * Opens a queue of 1 to RVLI_DISK_MAX_DEPTH requests. RVL_ERR_INVALID; RVL_ERR_NOT_SUPPORTED if
 * io_uring was requested and is not available; RVL_ERR_HOST_OOM.
 */
rvl_status rvli_disk_queue_open(rvli_disk_engine engine, unsigned depth,
                                rvli_disk_queue **queue_out);

/* Waits for everything in flight, then closes. */
void rvli_disk_queue_close(rvli_disk_queue *queue);

/* Returns the name of its engine: "io_uring" or "threads". */
const char *rvli_disk_queue_name(const rvli_disk_queue *queue);

/*
 * Begins a request. Waits first if the queue is full. RVL_ERR_INVALID if the request is empty or
 * not aligned; then it has not begun. Later failures are stored in the request.
 */
rvl_status rvli_disk_queue_submit(rvli_disk_queue *queue, rvli_disk_request *request);

/*
 * Waits for one submitted request, and returns its status: RVL_ERR_DISK_FULL, RVL_ERR_IO (also if
 * the file ends too early). Only this fills the error record.
 */
rvl_status rvli_disk_queue_wait(rvli_disk_queue *queue, rvli_disk_request *request);

/* Waits for all requests. Each then holds its status. */
void rvli_disk_queue_drain(rvli_disk_queue *queue);

#endif
