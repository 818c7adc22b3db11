/* SPDX-License-Identifier: MIT */
/*
 * One read or write of a backup file, and its progress.
 *
 * The kernel may move less than requested, or be interrupted. The rest is then requested again
 * until the request has ended.
 */
#ifndef RVL_CORE_BACKUP_DISK_REQUEST_H
#define RVL_CORE_BACKUP_DISK_REQUEST_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/workers.h"
#include "core/backup/disk/file.h"

typedef struct rvli_disk_queue rvli_disk_queue;
typedef struct rvli_disk_request rvli_disk_request;

struct rvli_disk_request {
    /* Set by the caller, who leaves the request and the buffer alone until it is done. Buffer,
       offset and bytes are multiples of RVLI_DISK_ALIGNMENT. */
    int fd;
    bool write;
    void *buffer;
    uint64_t offset;
    uint64_t bytes;
    /* The result, valid after a wait for this request, or for all. */
    bool done;
    rvl_status status;
    int error; /* errno, 0 if none */
    /* Owned by the queue: */
    uint64_t moved_bytes;
    rvli_disk_queue *queue;
    rvli_disk_request *next;
    rvli_job job;
};

/* The rest of a request. */
typedef struct rvli_disk_rest {
    unsigned char *buffer;
    uint64_t offset;
    unsigned bytes; /* for one call: a larger rest takes several calls */
} rvli_disk_rest;

rvli_disk_rest rvli_disk_request_rest(const rvli_disk_request *request);

/*
 * Processes the result of one read or write: bytes, or a negative errno. Returns true if the
 * request has ended, with status and error set. If not, the rest has to be requested.
 */
bool rvli_disk_request_answer(rvli_disk_request *request, ssize_t answer);

/* Does the rest of a request with blocking calls. */
void rvli_disk_request_run(rvli_disk_request *request);

#endif
