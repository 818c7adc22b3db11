/* SPDX-License-Identifier: MIT */
/*
 * The store: one backup of content that several processes of a node have in common.
 *
 * An owner process keeps segments of content in sealed shared memory. Contexts with a store_path
 * put their host backups there. Content that is already in the store is kept once, and is not
 * copied again if the device computes digests (docs/store.md). The owner only serves processes of
 * its own user. `reveille store` runs an owner; these calls are for programs that do so themselves.
 */
#ifndef REVEILLE_STORE_H
#define REVEILLE_STORE_H

#include "reveille/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct rvl_store rvl_store;

typedef struct rvl_store_options {
    size_t struct_size;
    const char *path;      /* the path of its socket, at most 107 bytes */
    uint64_t budget_bytes; /* host memory that all users together may take; 0: no limit */
} rvl_store_options;

/*
 * Opens a store: makes its socket. From then on users can connect, and wait to be served. A socket
 * left behind by an earlier owner is replaced. Returns RVL_OK; RVL_ERR_INVALID (the path is empty
 * or too long); RVL_ERR_BUSY (a store already answers at this path, or another process has locked
 * its folder); RVL_ERR_VERSION; RVL_ERR_IO (the socket cannot be made); RVL_ERR_HOST_OOM.
 * *store_out is owned by the caller, who closes it with rvl_store_close(). Since 0.1.
 */
RVL_API rvl_status rvl_store_open(const rvl_store_options *options, rvl_store **store_out);

/*
 * Serves users until stop_fd is readable; -1: forever. Does not read from stop_fd. One thread at a
 * time. Returns RVL_OK, RVL_ERR_INVALID, RVL_ERR_IO (waiting on the socket failed) or
 * RVL_ERR_HOST_OOM. Since 0.1.
 */
RVL_API rvl_status rvl_store_serve(rvl_store *store, int stop_fd);

/*
 * Closes a store and removes its socket. Users keep what they have mapped. NULL is fine. No thread
 * may be serving it. Since 0.1.
 */
RVL_API void rvl_store_close(rvl_store *store);

typedef struct rvl_store_stats {
    size_t struct_size;
    uint64_t budget_bytes;     /* 0: no limit */
    uint64_t kept_bytes;       /* host memory of all segments, each counted once */
    uint64_t promised_bytes;   /* reserved for users that are filling a segment */
    uint64_t referenced_bytes; /* what users would take without a store: shared segments count once
                                  for each user */
    uint64_t segment_count;
    uint64_t user_count;    /* connections: one for each open context with a store_path */
    uint64_t shared_bytes;  /* part of kept: segments with more than one user */
    uint64_t refused_bytes; /* requested since the store was opened, and refused for lack of room */
    uint64_t refused_count; /* number of refusals */
} rvl_store_stats;

/*
 * Reads the statistics of the store at a path. Returns RVL_OK; RVL_ERR_INVALID; RVL_ERR_IO (no
 * store of this user answers within 10 s). Thread-safe. Since 0.1.
 */
RVL_API rvl_status rvl_store_get_stats(const char *path, rvl_store_stats *stats_out);

#ifdef __cplusplus
}
#endif
#endif
