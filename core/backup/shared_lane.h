/* SPDX-License-Identifier: MIT */
/*
 * Segments on their way into the store of the node, and the jobs of threads that bring each to its
 * end: what was copied is compared or written, what was found before a copy is checked.
 */
#ifndef RVL_CORE_BACKUP_SHARED_LANE_H
#define RVL_CORE_BACKUP_SHARED_LANE_H

#include <pthread.h>

#include "base/error.h"
#include "base/workers.h"
#include "core/backup/segments.h"
#include "core/moving.h"

/* What the lanes of a transfer have in common. */
typedef struct rvli_lanes {
    rvli_store_client *store;
    rvli_secret secret;
    rvli_workers *workers; /* NULL: the calling thread does it */
    pthread_mutex_t lock;  /* guards at_work */
    pthread_cond_t done;
} rvli_lanes;

/*
 * One segment on its way into a backup: from the device to the buffer, from there to the store. Or
 * one that the store has found before it was copied, on its way to be checked.
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
    uint64_t event; /* the copy has ended */
    bool copied;    /* there is one */
    bool named;     /* the digest is known before the copy has ended */
    bool apart;     /* the store has wrong content under it */
    bool checked;   /* what was found has it: a user has computed it */
    bool claimed;   /* on the connection of `place` */
    rvli_digest digest;
    rvli_store_place place; /* of what the store has found, behind found_fd */
    int found_fd;           /* -1: nothing */
    rvli_draft draft;
    bool at_work;           /* with the lock of all: a job has it */
    bool another_was_first; /* room was given back */
    bool wrong;             /* what the store has found does not have the digest */
    rvl_status status;      /* of the job */
    bool full;
    rvl_error error;
} rvli_lane;

/* A lane that is free. */
rvli_lane rvli_lane_of(rvli_lanes *all);

/* Gives the segment to a thread; waits until that has done with it: `status` says how. */
void rvli_lane_begin(rvli_lane *lane);
void rvli_lane_await(rvli_lane *lane);

/* Lets others copy what this one has claimed and will not add. The last error stays. */
void rvli_lane_give_up_claim(rvli_lane *lane);

#endif
