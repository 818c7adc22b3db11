/* SPDX-License-Identifier: MIT */
/*
 * The segments of a backup in the store of the node, and the scratch segment that the next one is
 * made in.
 *
 * A backup is a row of addresses. Each segment of it is a sealed file of the store, mapped there to
 * be read. A scratch segment is a file of this process: it is written, sealed, and handed over.
 */
#ifndef RVL_CORE_BACKUP_SEGMENTS_H
#define RVL_CORE_BACKUP_SEGMENTS_H

#include "core/backup/backup.h"
#include "core/backup/store/client.h"

typedef struct rvli_segment {
    rvli_store_place place; /* id 0: nothing is mapped */
    uint64_t saved_by;      /* number of the transfer that filled it last */
    bool found;             /* the store had it already */
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
 * Maps a file where a segment lies, in place of what lay there; `now` is its record. The descriptor
 * stays the caller's. On failure the place is dropped, and nothing is mapped.
 */
rvl_status rvli_segment_map(rvli_store_client *client, rvli_backup *backup, uint64_t number, int fd,
                            rvli_segment now);

/* Drops what the store counts for it. What is mapped stays mapped. */
void rvli_segment_forget(rvli_store_client *client, const rvli_backup *backup, uint64_t number);

/* ---- Scratch ---- */

typedef struct rvli_scratch {
    int fd;   /* -1: none */
    char *at; /* NULL: sealed, or none */
    uint64_t bytes;
    uint64_t connection; /* that has given the room */
} rvli_scratch;

/* One of exactly this size, to be written. RVL_ERR_HOST_OOM (also the store's budget), RVL_ERR_IO.
 */
rvl_status rvli_scratch_take(rvli_store_client *client, rvli_scratch *s, uint64_t bytes);

/* Gives back its memory and its room. */
void rvli_scratch_discard(rvli_store_client *client, rvli_scratch *s);

/* From here on nobody can write to it. */
rvl_status rvli_scratch_seal(rvli_scratch *s);

/* Whether it, mapped or sealed, has the content of another file of its size. */
rvl_status rvli_scratch_compare(const rvli_scratch *s, int other, bool *equal_out);

#endif
