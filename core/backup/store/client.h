/* SPDX-License-Identifier: MIT */
/*
 * A user's side of a store: one connection, over which one thread at a time asks.
 *
 * A connection that has broken is made again when the next pause begins. Its number says which
 * owner a segment is of: what an earlier one kept is mapped still, and nobody counts it any more.
 * Segments are found by digests, with a secret that each owner draws when it begins.
 */
#ifndef RVL_CORE_BACKUP_STORE_CLIENT_H
#define RVL_CORE_BACKUP_STORE_CLIENT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/secret_digest.h"
#include "reveille/status.h"

typedef struct rvli_store_client rvli_store_client;

/* A segment as the owner of a connection knows it. */
typedef struct rvli_store_place {
    uint64_t id; /* 0: none */
    uint64_t connection;
} rvli_store_place;

/* Host memory of this user's backups in the store. */
typedef struct rvli_store_bytes {
    uint64_t kept;  /* all of it */
    uint64_t found; /* of that: was there already */
} rvli_store_bytes;

/* RVL_ERR_INVALID (the path), RVL_ERR_IO (no owner answers there), RVL_ERR_HOST_OOM. */
rvl_status rvli_store_client_new(const char *path, rvli_store_client **client_out);
void rvli_store_client_delete(rvli_store_client *client);

/* Makes the connection again if it has broken. RVL_ERR_IO. */
rvl_status rvli_store_client_renew(rvli_store_client *client);

/*
 * Room for a segment, before its memory is made. RVL_ERR_HOST_OOM: the budget has none; RVL_ERR_IO.
 * Room that no segment took is returned to the connection that gave it.
 */
rvl_status rvli_store_reserve(rvli_store_client *client, uint64_t bytes, uint64_t *connection_out);
void rvli_store_return(rvli_store_client *client, uint64_t bytes, uint64_t connection);

/* The secret of the owner's digests. RVL_ERR_IO. */
rvl_status rvli_store_secret(rvli_store_client *client, rvli_secret *secret_out);

/* What is asked for, and what a store has of it. */
typedef struct rvli_store_found {
    rvli_store_place place; /* id 0: there is none */
    int fd;                 /* the caller's; -1: likewise */
    bool checked;           /* a user has computed this digest from its bytes */
    bool busy;              /* a user has claimed it: it may be there soon */
} rvli_store_found;

/*
 * A segment that may have the content of this digest. `claim`: if there is none and it is not busy,
 * it is the caller's to add, on the connection of found_out->place; that, or
 * rvli_store_unclaim(), ends the claim. RVL_ERR_IO.
 */
rvl_status rvli_store_find(rvli_store_client *client, rvli_digest digest, uint64_t bytes,
                           bool claim, rvli_store_found *found_out);
void rvli_store_unclaim(rvli_store_client *client, rvli_digest digest, uint64_t bytes,
                        uint64_t connection);

/* Tells all users that a segment's bytes have the digest by which it was found. */
void rvli_store_checked(rvli_store_client *client, rvli_store_place place);

/*
 * Gives the store a sealed segment, in place of the room that was reserved. If another was first
 * and `apart` is not set, *fd_out is that one's, to be compared, and the room stays reserved; else
 * -1. RVL_ERR_IO.
 */
rvl_status rvli_store_add(rvli_store_client *client, rvli_digest digest, uint64_t bytes, int fd,
                          bool apart, rvli_store_place *place_out, int *fd_out);

/* Drops what find or add has answered with. */
void rvli_store_drop(rvli_store_client *client, rvli_store_place place);

/* Counts what a backup keeps, or keeps no more: bytes may be negative. */
void rvli_store_count(rvli_store_client *client, int64_t kept_bytes, int64_t found_bytes);
rvli_store_bytes rvli_store_counted(rvli_store_client *client);

#endif
