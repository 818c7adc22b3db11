/* SPDX-License-Identifier: MIT */
/*
 * Reads and writes in flight.
 *
 * A disk is fast only when it has several requests at a time. A queue keeps up to its depth in
 * flight, by io_uring or, where that is blocked (as in most containers) or not built in, by a few
 * threads. A request is the caller's memory, and its result lies in it.
 *
 * A queue is used by one thread at a time. Two requests in flight must not overlap.
 */
#ifndef RVL_CORE_BACKUP_DISK_QUEUE_H
#define RVL_CORE_BACKUP_DISK_QUEUE_H

#include "core/backup/disk/request.h"

#define RVLI_DISK_MAX_DEPTH 64u

typedef enum rvli_disk_engine {
    RVLI_DISK_AUTO, /* io_uring if it can be had, threads otherwise */
    RVLI_DISK_URING,
    RVLI_DISK_THREADS
} rvli_disk_engine;

/*
 * Opens a queue of 1 to RVLI_DISK_MAX_DEPTH requests. RVL_ERR_INVALID; RVL_ERR_NOT_SUPPORTED if
 * io_uring was asked for and cannot be had; RVL_ERR_HOST_OOM.
 */
rvl_status rvli_disk_queue_open(rvli_disk_engine engine, unsigned depth,
                                rvli_disk_queue **queue_out);

/* Waits for everything in flight, then closes. */
void rvli_disk_queue_close(rvli_disk_queue *queue);

/* What works it: "io_uring" or "threads". */
const char *rvli_disk_queue_name(const rvli_disk_queue *queue);

/*
 * Begins a request; waits first if as many as the depth are in flight. RVL_ERR_INVALID if it is
 * empty or not aligned: it has not begun then. What goes wrong later is the request's.
 */
rvl_status rvli_disk_queue_submit(rvli_disk_queue *queue, rvli_disk_request *request);

/*
 * Waits for one request that was submitted, and returns its status: RVL_ERR_DISK_FULL, RVL_ERR_IO
 * (also where the file ends too early). Only then does the error record tell of it.
 */
rvl_status rvli_disk_queue_wait(rvli_disk_queue *queue, rvli_disk_request *request);

/* Waits for all; each request then holds its own status. */
void rvli_disk_queue_drain(rvli_disk_queue *queue);

#endif
