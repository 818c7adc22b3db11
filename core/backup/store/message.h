/* SPDX-License-Identifier: MIT */
/*
 * The protocol between users and the owner of a store. A message is one packet of a fixed size:
 *
 *   user                           owner
 *   RESERVE bytes              ->
 *                              <-  DONE, or FULL
 *   RETURN bytes               ->  reserved room that was not used
 *   SECRET                     ->
 *                              <-  DONE with the secret of this owner's digests in `digest`
 *   FIND digest, bytes         ->
 *                              <-  FOUND id and a descriptor, and whether it was CHECKED; or NONE.
 *                                  With `claim`, NONE means that this user has to add it, and BUSY
 *                                  that another user is doing so
 *   UNCLAIM digest, bytes      ->  this user does not add the content that it has claimed
 *   ADD digest, bytes and a
 *       descriptor             ->  a sealed segment, in place of that many reserved bytes
 *                              <-  DONE id; or FOUND as above, if another user was first and
 * `apart` is not set CHECKED id                 ->  a user has computed the digest from the
 * segment's bytes. The process that added the segment does not count DROP id                    ->
 * drops one reference of FOUND or DONE ASK                        ->
 *                              <-  DONE with the totals
 *                              <-  REFUSED, to any of these: the owner has no memory or descriptor
 *                                  left. It then closes a connection that it cannot keep
 *
 * RETURN, UNCLAIM, CHECKED and DROP have no reply. A malformed message ends the connection. The end
 * of a connection drops and returns everything that it had, including claims. ADD ends a claim.
 */
#ifndef RVL_CORE_BACKUP_STORE_MESSAGE_H
#define RVL_CORE_BACKUP_STORE_MESSAGE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/un.h>

#include "base/digest.h"
#include "reveille/store.h"

#define RVLI_STORE_MAGIC UINT64_C(0x0365726f74534c52) /* "RLStore", version 3 */

/* An owner replies within microseconds. After this many seconds it is taken for stopped. */
#define RVLI_STORE_PATIENCE_S 10

/* Messages without a reply wait this long for a full connection, and then close it. */
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
    uint32_t apart;   /* ADD: its content differs from the segment with the same digest */
    uint32_t claim;   /* in FIND */
    uint32_t checked; /* in FOUND */
    uint64_t id;
    uint64_t bytes;
    rvli_digest digest;
    uint64_t budget_bytes; /* the totals: in DONE to ASK, and in FULL */
    uint64_t kept_bytes;
    uint64_t promised_bytes;
    uint64_t referenced_bytes;
    uint64_t segment_count;
    uint64_t user_count;
    uint64_t shared_bytes;
    uint64_t refused_bytes;
    uint64_t refused_count;
} rvli_store_message;

/* Makes the address of a path. RVL_ERR_INVALID: the path is empty or too long. */
rvl_status rvli_store_address(const char *path, struct sockaddr_un *address_out);

/* Connects to the owner at an address. The owner must be of this user. -1: see errno. */
int rvli_store_connect(const struct sockaddr_un *address);

/* Returns whether a descriptor is of a sealed file of this size, which nobody can change. */
bool rvli_store_is_sealed(int fd, uint64_t bytes);

/* Seals a file. Returns false on failure. Nobody may have it mapped for writing. */
bool rvli_store_seal(int fd);

#endif
