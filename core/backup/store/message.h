/* SPDX-License-Identifier: MIT */
/*
 * What a user and the owner of a store say to each other. A message is one packet of a fixed size:
 *
 *   user                           owner
 *   RESERVE bytes              ->
 *                              <-  DONE, or FULL
 *   RETURN bytes               ->  room that was reserved and not used
 *   SECRET                     ->
 *                              <-  DONE with the secret of this owner's digests in `digest`
 *   FIND digest, bytes         ->
 *                              <-  FOUND id and a descriptor, and whether it was CHECKED; or NONE.
 *                                  With `claim` NONE says that this user is to add it, and BUSY
 *                                  that one is doing so
 *   UNCLAIM digest, bytes      ->  it does not add what it has claimed
 *   ADD digest, bytes and a
 *       descriptor             ->  a sealed segment, in place of as many reserved bytes
 *                              <-  DONE id; or FOUND as above, if another was first and `apart` is
 *                                  not set
 *   CHECKED id                 ->  a user has computed the digest from the segment's bytes. The
 *                                  word of the process that has added it does not count
 *   DROP id                    ->  one reference of FOUND or DONE
 *   ASK                        ->
 *                              <-  DONE with the totals
 *                            <-  REFUSED, to any of these: the owner has no memory or descriptor
 *                                left. A connection that it cannot keep ends with it
 *
 * RETURN, UNCLAIM, CHECKED and DROP are not answered. What is not a message ends the connection,
 * and the end of a connection drops and returns all that it had, claims too. ADD ends a claim.
 */
#ifndef RVL_CORE_BACKUP_STORE_MESSAGE_H
#define RVL_CORE_BACKUP_STORE_MESSAGE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/un.h>

#include "base/digest.h"
#include "reveille/store.h"

#define RVLI_STORE_MAGIC UINT64_C(0x0365726f74534c52) /* "RLStore", version 3 */

/* An owner answers within microseconds: one that takes so many seconds has been stopped. */
#define RVLI_STORE_PATIENCE_S 10

/* What is not answered waits so long for a full connection, and then ends it. */
#define RVLI_STORE_TELL_MS 100

typedef enum rvli_store_kind {
    RVLI_STORE_RESERVE = 1,
    RVLI_STORE_RETURN,
    RVLI_STORE_FIND,
    RVLI_STORE_ADD,
    RVLI_STORE_DROP,
    RVLI_STORE_ASK,
    RVLI_STORE_DONE,
    RVLI_STORE_FULL,
    RVLI_STORE_FOUND,
    RVLI_STORE_NONE,
    RVLI_STORE_REFUSED,
    RVLI_STORE_SECRET,
    RVLI_STORE_UNCLAIM,
    RVLI_STORE_CHECKED,
    RVLI_STORE_BUSY
} rvli_store_kind;

typedef struct rvli_store_message {
    uint64_t magic;   /* also the version */
    uint32_t kind;    /* rvli_store_kind */
    uint32_t apart;   /* ADD: its content differs from what has the same digest */
    uint32_t claim;   /* FIND */
    uint32_t checked; /* FOUND */
    uint64_t id;
    uint64_t bytes;
    rvli_digest digest;
    uint64_t budget_bytes; /* the totals: DONE of ASK, and FULL */
    uint64_t kept_bytes;
    uint64_t promised_bytes;
    uint64_t referenced_bytes;
    uint64_t segment_count;
    uint64_t user_count;
    uint64_t shared_bytes;
    uint64_t refused_bytes;
    uint64_t refused_count;
} rvli_store_message;

/* The address of a path. RVL_ERR_INVALID: none, or too long a one. */
rvl_status rvli_store_address(const char *path, struct sockaddr_un *address_out);

/* A socket that is connected to the owner at an address, who is of this user. -1: errno says. */
int rvli_store_connect(const struct sockaddr_un *address);

/* Whether a descriptor is of a file of this size that nobody can change any more. */
bool rvli_store_is_sealed(int fd, uint64_t bytes);

/* Whether it could be made one. Nobody may have it mapped to write. */
bool rvli_store_seal(int fd);

#endif
