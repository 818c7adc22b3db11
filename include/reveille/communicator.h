/* SPDX-License-Identifier: MIT */
/*
 * Communicators of NCCL: they give their device memory back, and take it again, in two phases.
 *
 * NCCL is the one that the process has loaded. Its functions are looked up and nothing links it;
 * 2.29.7 and later can give memory back. A program names its communicators by
 * rvl_communicator_add(). One move takes all of them. Every rank of them makes the same move, since
 * NCCL waits for all ranks and nothing ends that wait. So a job moves in this order:
 *
 *     rvl_resume_prepare()          what can fail on one rank alone: memory and content,
 *     rvl_communicator_forecast()   versions, and room for the communicators
 *     the ranks vote                one that cannot: all abort, and none has called NCCL
 *     rvl_communicator_prepare()    NCCL is called, on all ranks together
 *     rvl_communicator_wait()       until it has come back
 *     the ranks vote again
 *     rvl_communicator_commit(), rvl_transition_commit()    or _abort(), in this order
 *
 * A pause has the same order. The functions are in libreveille where it was built with the CUDA
 * backend. In a forked child no communicator is known.
 */
#ifndef REVEILLE_COMMUNICATOR_H
#define REVEILLE_COMMUNICATOR_H

#include "reveille/guard.h"
#include "reveille/stats.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What rvl_hooks_pause() and rvl_hooks_resume() call them. */
#define RVL_COMMUNICATOR_TAG "nccl"

/*
 * Names a communicator (ncclComm_t) of this process that moves take. Naming it again does nothing.
 * Returns RVL_OK; RVL_ERR_INVALID; RVL_ERR_STATE (the process has loaded no NCCL, or NCCL does not
 * take it for a communicator); RVL_ERR_HOST_OOM. Thread-safe. Since 0.1.
 */
RVL_API rvl_status rvl_communicator_add(void *comm);

/*
 * Forgets a communicator, before you destroy it. Returns RVL_OK; RVL_ERR_NOT_FOUND (the
 * communicator was not named); RVL_ERR_BUSY (a move is prepared). Thread-safe. Since 0.1.
 */
RVL_API rvl_status rvl_communicator_remove(void *comm);

typedef struct rvl_communicator {
    size_t struct_size;
    void *comm;
    int device;          /* CUDA's number of it */
    int rank;            /* of this process in the communicator */
    int rank_count;      /* of the communicator */
    rvl_state state;     /* PAUSING, RESUMING: a call of NCCL has not come back */
    uint64_t size_bytes; /* what a pause gives back, or has given back */
    uint64_t kept_bytes; /* what stays on the device */
    bool can_pause;      /* false: this NCCL is older than 2.29.7, and says no bytes */
    uint8_t reserved[7];
} rvl_communicator;

/*
 * What NCCL says of the communicator of an index, in the order in which they were named. Returns
 * RVL_OK; RVL_ERR_NOT_FOUND (the index is past the last); RVL_ERR_STATE (NCCL failed);
 * RVL_ERR_INVALID. Thread-safe. Since 0.1.
 */
RVL_API rvl_status rvl_communicator_get(size_t index, rvl_communicator *communicator_out);

/*
 * Statistics of all communicators on a CUDA device, or on all with device = -1, as
 * rvl_tag_get_stats() has them of a tag: each communicator counts as an allocation. Returns RVL_OK;
 * RVL_ERR_INVALID; RVL_ERR_NOT_SUPPORTED (NCCL is older than 2.29.7); RVL_ERR_STATE (NCCL failed).
 * Thread-safe. Since 0.1.
 */
RVL_API rvl_status rvl_communicator_get_stats(int device, rvl_tag_stats *stats_out);

/*
 * What a pause or resume of all communicators would do now: needed_bytes on the device with the
 * least room, which is RVL_NO_DEVICE if none would move. Ask it when memory is prepared: a rank
 * without room would keep the others waiting in NCCL. Changes nothing. Returns RVL_OK (also if it
 * does not fit); RVL_ERR_INVALID; RVL_ERR_NOT_SUPPORTED (NCCL is older than 2.29.7. The message has
 * its version, and what its communicators keep, if the process is recorded); RVL_ERR_STATE (NCCL
 * failed); or the driver's error. Thread-safe. Since 0.1.
 */
RVL_API rvl_status rvl_communicator_forecast(rvl_transition_kind kind, rvl_forecast *forecast_out);

/*
 * Whether a process with these communicators could sleep, as rvl_communicator_get() describes them.
 * No process comes back to its devices that has memory of other ranks open, so each of more ranks
 * than one must be paused, and may share no host memory of the driver. rvl_sleep() asks this of all
 * that are named; a program that keeps a list of its own may ask it before. All have the
 * struct_size of the first. Returns RVL_OK; RVL_ERR_NOT_SUPPORTED (a communicator is not paused, or
 * shares host memory of the driver. The message says what to do, and the tag is "nccl");
 * RVL_ERR_INVALID; RVL_ERR_VERSION. Thread-safe. Since 0.1.
 */
RVL_API rvl_status rvl_communicator_check_sleep(const rvl_communicator *communicators,
                                                size_t count);

/* Whether to wait no longer: other ranks have given the move up. Polled; may not block. */
typedef bool (*rvl_communicator_stop_fn)(void *user);

typedef struct rvl_communicator_options {
    size_t struct_size;
    uint64_t timeout_ns;           /* how long to wait for the other ranks; 0: 60 s */
    rvl_communicator_stop_fn stop; /* NULL: the timeout alone ends the wait */
    void *user;                    /* passed to it */
} rvl_communicator_options;

/* A pause or resume of communicators that is prepared. */
typedef struct rvl_communicator_move rvl_communicator_move;

/*
 * Calls ncclCommSuspend or ncclCommResume on all communicators that are not there yet, at once and
 * each in a thread of its own. It does not wait for them. options: NULL for the defaults. A process
 * has one move at a time.
 *
 * Returns as rvl_communicator_forecast(); RVL_ERR_BUSY (a move is prepared, or a stream is
 * captured); RVL_ERR_DEVICE_OOM; RVL_ERR_STATE (a call of the other direction has not come back);
 * RVL_ERR_HOST_OOM; RVL_ERR_VERSION. After an error NCCL was not called, and there is no handle.
 * Thread-safe. Since 0.1.
 */
RVL_API rvl_status rvl_communicator_prepare(rvl_transition_kind kind,
                                            const rvl_communicator_options *options,
                                            rvl_communicator_move **move_out);

/*
 * Waits until NCCL has come back on all of them, and you may commit. Vote before you abort after an
 * error: aborting waits for the other ranks. Returns RVL_OK; RVL_ERR_STATE (NCCL failed);
 * RVL_ERR_TIMEOUT (other ranks have not called NCCL. The call goes on until they do, and the same
 * move waits for it again); RVL_ERR_HOST_OOM; RVL_ERR_INVALID; RVL_ERR_FORKED (the move belongs to
 * the parent process). If one has failed or `stop` says so, it waits 5 s more at most. Any thread,
 * one at a time. Since 0.1.
 */
RVL_API rvl_status rvl_communicator_wait(rvl_communicator_move *move);

/*
 * Ends a prepared move, by any thread, and frees the handle. It cannot fail: communicators stay as
 * they are now. Returns RVL_OK, RVL_ERR_INVALID or RVL_ERR_FORKED (the move belongs to the parent
 * process). After an error the handle is as before. Since 0.1.
 */
RVL_API rvl_status rvl_communicator_commit(rvl_communicator_move *move);

/*
 * The same, and moves back what this move has moved. Waits for the other ranks as above, and 5 s
 * longer. Returns as rvl_communicator_wait(). After RVL_ERR_INVALID or RVL_ERR_FORKED the handle is
 * as before. Since 0.1.
 */
RVL_API rvl_status rvl_communicator_abort(rvl_communicator_move *move);

#ifdef __cplusplus
}
#endif
#endif
