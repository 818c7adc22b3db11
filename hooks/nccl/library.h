/* SPDX-License-Identifier: MIT */
/*
 * The NCCL that the process has loaded.
 *
 * It is not linked. Functions that intercept NCCL's (a profiler's) are used first, as in a program;
 * otherwise those of libnccl.so.2, wherever it was loaded from. Functions that an older version
 * lacks are NULL.
 */
#ifndef RVL_HOOKS_NCCL_LIBRARY_H
#define RVL_HOOKS_NCCL_LIBRARY_H

#include <stdbool.h>

#include "reveille/guard.h"

/* X(function, parameters); all return an ncclResult_t. */
#define RVLI_NCCL_MAP(X)                                                                           \
    X(ncclGetVersion, (int *version_out))                                                          \
    X(ncclCommCuDevice, (const void *comm, int *device_out))                                       \
    X(ncclCommUserRank, (const void *comm, int *rank_out))                                         \
    X(ncclCommCount, (const void *comm, int *count_out))                                           \
    X(ncclCommSuspend, (void *comm, int flags))                                                    \
    X(ncclCommResume, (void *comm))                                                                \
    X(ncclCommMemStats, (void *comm, int what, uint64_t *value_out))

typedef struct rvli_nccl {
#define RVLI_NCCL_POINTER(name, parameters) int(*name) parameters;
    RVLI_NCCL_MAP(RVLI_NCCL_POINTER)
#undef RVLI_NCCL_POINTER
    const char *(*ncclGetLastError)(const void *comm);
    int version; /* 22907 for 2.29.7 */
} rvli_nccl;

/* The kinds of ncclCommMemStats, with NCCL's values. */
typedef enum rvli_nccl_stat_kind {
    RVLI_NCCL_STAT_SUSPENDABLE = 0, /* bytes that a suspension releases */
    RVLI_NCCL_STAT_SUSPENDED = 1,   /* whether the communicator is suspended */
    RVLI_NCCL_STAT_PERSISTENT = 2,  /* bytes that a suspension keeps */
} rvli_nccl_stat_kind;

/* RVL_ERR_STATE: the process has not loaded NCCL. */
rvl_status rvli_nccl_find(rvli_nccl *nccl_out);

/* Whether this NCCL can release memory. */
bool rvli_nccl_can_suspend(const rvli_nccl *nccl);

/* Calls ncclCommMemStats, which must not be NULL. */
rvl_status rvli_nccl_stat(const rvli_nccl *nccl, void *comm, rvli_nccl_stat_kind kind,
                          uint64_t *value_out);

/* The name of NCCL's function for a move. */
const char *rvli_nccl_move_name(rvl_transition_kind kind);

/* Makes the move on the calling thread, where the communicator's device must be current. */
rvl_status rvli_nccl_move(const rvli_nccl *nccl, rvl_transition_kind kind, void *comm);

/* Returns RVL_OK for success, or RVL_ERR_STATE with an error record of the result. */
rvl_status rvli_nccl_check(const rvli_nccl *nccl, const char *function, int result);

#endif
