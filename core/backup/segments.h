/* SPDX-License-Identifier: MIT */
/*
 * The segments of a backup in the store of the node, and the drafts that become segments.
 *
 * A backup is a row of addresses. Each segment of it is a sealed file of the store, mapped there to
 * be read. A draft is a file of this process: it is written, sealed, and handed over.
 */
#ifndef RVL_CORE_BACKUP_SEGMENTS_H
#define RVL_CORE_BACKUP_SEGMENTS_H

#include "core/backup/backup.h"
#include "core/backup/store/client.h"

/* Why a transfer comes back to a segment. */
typedef enum rvli_segment_delay {
    RVLI_SEGMENT_GOES_ON = 0,
    RVLI_SEGMENT_IS_BUSY, /* another user, or another segment of this one, is adding its content */
    RVLI_SEGMENT_IS_WRONG /* what the store has found does not have its digest */
} rvli_segment_delay;

typedef struct rvli_segment {
    rvli_store_place place;   /* id 0: nothing is mapped */
    bool found;               /* the store had it already */
    uint64_t saved_by;        /* number of the last transfer that is to fill it: the caller's own */
    rvli_segment_delay delay; /* of that transfer */
} rvli_segment;

struct rvli_shared_segments {
    uint64_t segment_bytes; /* of each but the last */
    rvli_segment at[];
};

/* A failed call of the system, by errno: RVL_ERR_HOST_OOM or RVL_ERR_IO. */
rvl_status rvli_segment_error(const char *what);

/* ---- Of a backup, by number ---- */

uint64_t rvli_segment_count(const rvli_backup *backup);
uint64_t rvli_segment_offset(const rvli_backup *backup, uint64_t number);
uint64_t rvli_segment_bytes(const rvli_backup *backup, uint64_t number);

/*
 * Maps a file where a segment lies, in place of what lay there. The descriptor stays the caller's.
 * On failure the place is dropped, and nothing is mapped. Threads may do so side by side for
 * segments of different numbers.
 */
rvl_status rvli_segment_map(rvli_store_client *client, rvli_backup *backup, uint64_t number, int fd,
                            rvli_store_place place, bool found);

/* Drops what the store counts for it. What is mapped stays mapped. */
void rvli_segment_forget(rvli_store_client *client, const rvli_backup *backup, uint64_t number);

/* ---- Drafts ---- */

/* A file of this process that is to become a segment: room, content, seals. */
typedef struct rvli_draft {
    int fd;              /* -1: none yet */
    uint64_t bytes;      /* of room that the store has promised; 0: none */
    uint64_t connection; /* that has promised it */
} rvli_draft;

/* RVL_ERR_HOST_OOM: the store's budget has no room; RVL_ERR_IO. */
rvl_status rvli_draft_reserve(rvli_store_client *client, rvli_draft *draft, uint64_t bytes);

/* Its file, with this content; from here on nobody can write to it. RVL_ERR_HOST_OOM, RVL_ERR_IO.
 */
rvl_status rvli_draft_write(rvli_draft *draft, const void *content);

/* The store has it: there is no room to give back. */
void rvli_draft_taken(rvli_draft *draft);

/* Gives back its memory and its room. */
void rvli_draft_discard(rvli_store_client *client, rvli_draft *draft);

/* Whether the digest of a file is this one, as computed from all its bytes. RVL_ERR_IO. */
rvl_status rvli_segment_has_digest(const rvli_secret *secret, rvli_digest digest, uint64_t bytes,
                                   int fd, bool *has_out);

/* Whether a file has this content. */
rvl_status rvli_segment_compare(const void *content, uint64_t bytes, int fd, bool *equal_out);

#endif
