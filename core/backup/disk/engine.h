/* SPDX-License-Identifier: MIT */
/*
 * What a queue asks of what works it: io_uring or threads.
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
    /* Returns when no more than so many are in flight. */
    void (*settle)(rvli_disk_queue *queue, unsigned most);
    /* Nothing is in flight. */
    void (*close)(rvli_disk_queue *queue);
} rvli_disk_engine_ops;

/* First in what an engine keeps. */
struct rvli_disk_queue {
    const rvli_disk_engine_ops *ops;
    unsigned depth;
};

rvl_status rvli_disk_uring_open(unsigned depth, rvli_disk_queue **queue_out);
rvl_status rvli_disk_threads_open(unsigned depth, rvli_disk_queue **queue_out);

#endif
