/* SPDX-License-Identifier: MIT */
/*
 * The user's side of a store: one connection, used by one thread at a time.
 *
 * A broken connection is made again when the next pause begins. The connection's number identifies
 * the owner of a segment: segments of an earlier owner stay mapped, but nobody counts them any
 * more. Segments are found by digests, under a secret that each owner draws when it starts.
 */
#ifndef RVL_CORE_BACKUP_STORE_CLIENT_H
#define RVL_CORE_BACKUP_STORE_CLIENT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/secret_digest.h"
#include "reveille/status.h"

typedef struct rvli_store_client rvli_store_client;

/* A segment, as identified by the owner of a connection. */
typedef struct rvli_store_place {
    uint64_t id; /* 0: none */
    uint64_t connection;
} rvli_store_place;

/* Host memory of this user's backups in the store. */
typedef struct rvli_store_bytes {
    uint64_t kept;  /* in total */
    uint64_t found; /* part of kept that was already in the store */
} rvli_store_bytes;

/*
 * Connects to a store. RVL_ERR_INVALID (the path), RVL_ERR_IO (no owner answers there),
 * RVL_ERR_HOST_OOM.
 */
rvl_status rvli_store_client_new(const char *path, rvli_store_client **client_out);
void rvli_store_client_delete(rvli_store_client *client);

/* Reconnects if the connection has broken. RVL_ERR_IO. */
rvl_status rvli_store_client_renew(rvli_store_client *client);

/*
 * Reserves room for a segment, before its memory is made. RVL_ERR_HOST_OOM: the budget has none;
 * RVL_ERR_IO. Unused room is returned on the connection that reserved it.
 */
rvl_status rvli_store_reserve(rvli_store_client *client, uint64_t bytes, uint64_t *connection_out);
void rvli_store_return(rvli_store_client *client, uint64_t bytes, uint64_t connection);

/* Gets the secret of the owner's digests. RVL_ERR_IO. */
rvl_status rvli_store_secret(rvli_store_client *client, rvli_secret *secret_out);

/* The result of a search. */
typedef struct rvli_store_found {
    rvli_store_place place; /* id 0: there is none */
    int fd;                 /* belongs to the caller; -1: there is none */
    bool checked;           /* a user has computed this digest from its bytes */
    bool busy;              /* a user has claimed it: it may be added soon */
} rvli_store_found;

/*
 * Finds a segment that may have the content of this digest. `claim`: if there is none and it is not
 * busy, the caller has to add it, on the connection of found_out->place. Adding it, or
 * rvli_store_unclaim(), ends the claim. RVL_ERR_IO.
 */
rvl_status rvli_store_find(rvli_store_client *client, rvli_digest digest, uint64_t bytes,
                           bool claim, rvli_store_found *found_out);
void rvli_store_unclaim(rvli_store_client *client, rvli_digest digest, uint64_t bytes,
                        uint64_t connection);

/* Tells all users that a segment's bytes were verified to have its digest. */
void rvli_store_checked(rvli_store_client *client, rvli_store_place place);

/*
 * Hands a sealed segment to the store, in place of the reserved room. If another user was first and
 * `apart` is not set, *fd_out is that user's segment, to be compared, and the room stays reserved;
 * otherwise -1. RVL_ERR_IO.
 */
rvl_status rvli_store_add(rvli_store_client *client, rvli_digest digest, uint64_t bytes, int fd,
                          bool apart, rvli_store_place *place_out, int *fd_out);

/* Drops a place from find or add. */
void rvli_store_drop(rvli_store_client *client, rvli_store_place place);

/* Adds to the counts of a backup's bytes. They may be negative. */
void rvli_store_count(rvli_store_client *client, int64_t kept_bytes, int64_t found_bytes);
rvli_store_bytes rvli_store_counted(rvli_store_client *client);

#endif
