/* SPDX-License-Identifier: MIT */
/*
 * NCCL, as the process has loaded it.
 *
 * Nothing links it. Functions that stand in front of its own (a profiler's) are taken first, as a
 * program would find them; then those of libnccl.so.2, wherever it was loaded from. What an older
 * version lacks is NULL.
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

/* What ncclCommMemStats answers; the numbers are NCCL's. */
typedef enum rvli_nccl_stat_kind {
    RVLI_NCCL_STAT_SUSPENDABLE = 0, /* bytes that a suspension gives back */
    RVLI_NCCL_STAT_SUSPENDED = 1,   /* whether it is */
    RVLI_NCCL_STAT_PERSISTENT = 2,  /* bytes that stay */
} rvli_nccl_stat_kind;

/* RVL_ERR_STATE: the process has loaded none. */
rvl_status rvli_nccl_find(rvli_nccl *nccl_out);

/* Whether it can give memory back. */
bool rvli_nccl_can_suspend(const rvli_nccl *nccl);

/* Asks ncclCommMemStats, which must be there. */
rvl_status rvli_nccl_stat(const rvli_nccl *nccl, void *comm, rvli_nccl_stat_kind kind,
                          uint64_t *value_out);

/* The name of the function that makes a move. */
const char *rvli_nccl_move_name(rvl_transition_kind kind);

/* Makes the move, on the calling thread, which has the communicator's device. */
rvl_status rvli_nccl_move(const rvli_nccl *nccl, rvl_transition_kind kind, void *comm);

/* RVL_OK, or a record of what a function of NCCL answered. */
rvl_status rvli_nccl_check(const rvli_nccl *nccl, const char *function, int result);

#endif
