/* SPDX-License-Identifier: MIT */
/*
 * Segments on their way into the node's store, and the jobs that finish each on a thread: content
 * that was copied is compared or written; content that the store had before a copy is checked.
 */
#ifndef RVL_CORE_BACKUP_SHARED_LANE_H
#define RVL_CORE_BACKUP_SHARED_LANE_H

#include <pthread.h>

#include "base/error.h"
#include "base/workers.h"
#include "core/backup/segments.h"
#include "core/moving.h"

/* State that the lanes of a transfer share. */
typedef struct rvli_lanes {
    rvli_store_client *store;
    rvli_secret secret;
    rvli_workers *workers; /* NULL: jobs run on the calling thread */
    pthread_mutex_t lock;  /* guards at_work */
    pthread_cond_t done;
} rvli_lanes;

/*
 * One segment on its way into a backup: from the device to the buffer, and from there to the store.
 * Or one that the store already had before it was copied, on its way to be checked.
 */
typedef struct rvli_lane {
    rvli_job job;
    rvli_lanes *all;
    rvli_move_item *item;
    uint64_t number; /* of the segment */
    uint64_t bytes;
    void *buffer;
    uint64_t buffer_bytes;
    int device;     /* of the buffer */
    uint64_t event; /* passes when the copy has ended */
    bool copied;    /* it was copied */
    bool named;     /* the digest was known before the copy ended */
    bool apart;     /* the store has other content under this digest */
    bool checked;   /* a user has verified the digest of the content found */
    bool claimed;   /* by this user, on the connection of `place` */
    rvli_digest digest;
    rvli_store_place place; /* of the content that the store found, in found_fd */
    int found_fd;           /* -1: none */
    rvli_draft draft;
    bool at_work;           /* a job has it; guarded by the lock of `all` */
    bool another_was_first; /* the reserved room was returned */
    bool wrong;             /* the content that the store found does not have the digest */
    rvl_status status;      /* of the job */
    bool full;
    rvl_error error;
} rvli_lane;

/* Returns a free lane. */
rvli_lane rvli_lane_of(rvli_lanes *all);

/* Hands the segment to a thread; waits until that thread has finished. `status` has the result. */
void rvli_lane_begin(rvli_lane *lane);
void rvli_lane_await(rvli_lane *lane);

/*
 * Lets others add the content that this lane has claimed and will not add. The error record is
 * unchanged.
 */
void rvli_lane_give_up_claim(rvli_lane *lane);

#endif
