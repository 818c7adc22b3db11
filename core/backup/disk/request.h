/* SPDX-License-Identifier: MIT */
/*
 * One read or write of a backup file, and how far it has come.
 *
 * The kernel may move less than it was asked for, or be interrupted: what is left is asked for
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
     * offset and bytes are multiples of RVLI_DISK_ALIGNMENT. */
    int fd;
    bool write;
    void *buffer;
    uint64_t offset;
    uint64_t bytes;
    /* The result; valid after a wait for this request, or for all. */
    bool done;
    rvl_status status;
    int error; /* errno, 0 if none */
    /* The queue's: */
    uint64_t moved_bytes;
    rvli_disk_queue *queue;
    rvli_disk_request *next;
    rvli_job job;
};

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
