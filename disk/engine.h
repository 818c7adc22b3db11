/* SPDX-License-Identifier: MIT */
/*
 * What a queue asks of whatever works it, and what the two that do share.
 */
#ifndef RVL_DISK_ENGINE_H
#define RVL_DISK_ENGINE_H

#include <sys/types.h>

#include "disk/queue.h"

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

/* What a request still has to move. */
typedef struct rvli_disk_rest {
    unsigned char *buffer;
    uint64_t offset;
    unsigned bytes; /* of one call: what is larger takes several */
} rvli_disk_rest;

rvli_disk_rest rvli_disk_request_rest(const rvli_disk_request *request);

/*
 * Takes in what one read or write answered: bytes, or a negative errno. Returns whether the request
 * has ended, with status and error set; if not, the rest is to be asked for.
 */
bool rvli_disk_request_answer(rvli_disk_request *request, ssize_t answer);

/* Does what is left of a request by blocking calls. */
void rvli_disk_request_run(rvli_disk_request *request);

#endif
