/* SPDX-License-Identifier: MIT */
/*
 * The segments of a backup in the node's store, and the drafts that become segments.
 *
 * A backup is a range of addresses. Each segment of it is a sealed file of the store, mapped there
 * for reading. A draft is a file of this process: it is written, sealed, and handed over to the
 * store.
 */
#ifndef RVL_CORE_BACKUP_SEGMENTS_H
#define RVL_CORE_BACKUP_SEGMENTS_H

#include "core/backup/backup.h"
#include "core/backup/store/client.h"

/* Why a transfer has to return to a segment. */
typedef enum rvli_segment_delay {
    RVLI_SEGMENT_GOES_ON = 0,
    RVLI_SEGMENT_IS_BUSY, /* another user, or another segment of this transfer, is adding its
                             content */
    RVLI_SEGMENT_IS_WRONG /* the content that the store found does not have the digest */
} rvli_segment_delay;

typedef struct rvli_segment {
    rvli_store_place place;   /* id 0: nothing is mapped */
    bool found;               /* it was already in the store */
    uint64_t saved_by;        /* number of the last transfer that fills it, chosen by the caller */
    rvli_segment_delay delay; /* in that transfer */
} rvli_segment;

struct rvli_shared_segments {
    uint64_t segment_bytes; /* of each segment except the last */
    rvli_segment at[];
};

/* Fills the error record for a failed system call, by errno: RVL_ERR_HOST_OOM or RVL_ERR_IO. */
rvl_status rvli_segment_error(const char *what);

/* ---- Segments of a backup, by number ---- */

uint64_t rvli_segment_count(const rvli_backup *backup);
uint64_t rvli_segment_offset(const rvli_backup *backup, uint64_t number);
uint64_t rvli_segment_bytes(const rvli_backup *backup, uint64_t number);

/*
 * Maps a file at the address of a segment, replacing the old mapping. The caller keeps the
 * descriptor. On failure the place is dropped, and nothing is mapped. Several threads may map
 * segments of different numbers at once.
 */
rvl_status rvli_segment_map(rvli_store_client *client, rvli_backup *backup, uint64_t number, int fd,
                            rvli_store_place place, bool found);

/* Drops the reference to the segment in the store. The mapping stays. */
void rvli_segment_forget(rvli_store_client *client, const rvli_backup *backup, uint64_t number);

/* ---- Drafts ---- */

/* A file of this process that will become a segment: room, content, seals. */
typedef struct rvli_draft {
    int fd;              /* -1: none yet */
    uint64_t bytes;      /* room that the store has reserved for it; 0: none */
    uint64_t connection; /* the connection that reserved it */
} rvli_draft;

/* RVL_ERR_HOST_OOM: the store's budget has no room; RVL_ERR_IO. */
rvl_status rvli_draft_reserve(rvli_store_client *client, rvli_draft *draft, uint64_t bytes);

/*
 * Makes the file with this content. Nobody can write to it any more. RVL_ERR_HOST_OOM, RVL_ERR_IO.
 */
rvl_status rvli_draft_write(rvli_draft *draft, const void *content);

/* The store has taken the draft: its room need not be returned. */
void rvli_draft_taken(rvli_draft *draft);

/* Frees its memory and returns its room. */
void rvli_draft_discard(rvli_store_client *client, rvli_draft *draft);

/* Computes whether a file has this digest, from all its bytes. RVL_ERR_IO. */
rvl_status rvli_segment_has_digest(const rvli_secret *secret, rvli_digest digest, uint64_t bytes,
                                   int fd, bool *has_out);

/* Compares a file with this content. */
rvl_status rvli_segment_compare(const void *content, uint64_t bytes, int fd, bool *equal_out);

#endif
