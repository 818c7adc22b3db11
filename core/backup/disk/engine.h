/* SPDX-License-Identifier: MIT */
/*
 * The interface between a queue and its engine: io_uring or threads.
 */
#ifndef RVL_CORE_BACKUP_DISK_ENGINE_H
#define RVL_CORE_BACKUP_DISK_ENGINE_H

#include "core/backup/disk/request.h"

typedef struct rvli_disk_engine_ops {
    const char *name;
    /* Begins a request. There is room for it. */
    void (*begin)(rvli_disk_queue *queue, rvli_disk_request *request);
    /* Returns when the request is done. */
    void (*wait)(rvli_disk_queue *queue, rvli_disk_request *request);
    /* Returns when at most this many requests are in flight. */
    void (*settle)(rvli_disk_queue *queue, unsigned most);
    /* Closes the queue. Nothing is in flight. */
    void (*close)(rvli_disk_queue *queue);
} rvli_disk_engine_ops;

/* The first member of an engine's queue. */
struct rvli_disk_queue {
    const rvli_disk_engine_ops *ops;
    unsigned depth;
};

rvl_status rvli_disk_uring_open(unsigned depth, rvli_disk_queue **queue_out);
rvl_status rvli_disk_threads_open(unsigned depth, rvli_disk_queue **queue_out);

#endif
