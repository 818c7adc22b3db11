/* SPDX-License-Identifier: MIT */
/*
 * NCCL communicators: they release their device memory, and reclaim it, in two phases.
 *
 * The functions use the NCCL that the process has loaded. They look it up at run time and do not
 * link it; NCCL 2.29.7 and later can release memory. A program names its communicators with
 * rvl_communicator_add(). One move covers all of them. All their ranks have to make the same move,
 * because NCCL waits for every rank and nothing ends that wait. So a job moves in this order:
 *
 *     rvl_resume_prepare()          what can fail on one rank alone: memory and content,
 *     rvl_communicator_forecast()   versions, and room for the communicators
 *     the ranks vote                if one cannot, all abort, and none has called NCCL
 *     rvl_communicator_prepare()    calls NCCL, on all ranks together
 *     rvl_communicator_wait()       until NCCL has returned
 *     the ranks vote again
 *     rvl_communicator_commit(), rvl_transition_commit()    or _abort(), in this order
 *
 * A pause has the same order. The functions are in libreveille if it was built with the CUDA
 * backend. A forked child starts without communicators.
 */
#ifndef REVEILLE_COMMUNICATOR_H
#define REVEILLE_COMMUNICATOR_H

#include "reveille/guard.h"
#include "reveille/stats.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Their tag in rvl_hooks_pause() and rvl_hooks_resume(). */
#define RVL_COMMUNICATOR_TAG "nccl"

/*
 * Adds a communicator (ncclComm_t) of this process to those that moves cover. Adding it again does
 * nothing. Returns RVL_OK; RVL_ERR_INVALID; RVL_ERR_STATE (the process has not loaded NCCL, or NCCL
 * does not accept the communicator); RVL_ERR_HOST_OOM. Thread-safe. Since 0.1.
 */
RVL_API rvl_status rvl_communicator_add(void *comm);

/*
 * Removes a communicator. Call this before you destroy it. Returns RVL_OK; RVL_ERR_NOT_FOUND (the
 * communicator was not added); RVL_ERR_BUSY (a move is prepared). Thread-safe. Since 0.1.
 */
RVL_API rvl_status rvl_communicator_remove(void *comm);

typedef struct rvl_communicator {
    size_t struct_size;
    void *comm;
    int device;          /* CUDA's number of the device */
    int rank;            /* of this process in the communicator */
    int rank_count;      /* of the communicator */
    rvl_state state;     /* PAUSING, RESUMING: a call of NCCL has not returned */
    uint64_t size_bytes; /* what a pause releases, or has released */
    uint64_t kept_bytes; /* what stays on the device */
    bool can_pause;      /* false: this NCCL is older than 2.29.7, and reports no bytes */
    uint8_t reserved[7];
} rvl_communicator;

/*
 * Describes a communicator by index, in the order in which they were added, as NCCL reports it.
 * Returns RVL_OK; RVL_ERR_NOT_FOUND (the index is past the last); RVL_ERR_STATE (NCCL failed);
 * RVL_ERR_INVALID. Thread-safe. Since 0.1.
 */
RVL_API rvl_status rvl_communicator_get(size_t index, rvl_communicator *communicator_out);

/*
 * Statistics of all communicators on a CUDA device, or on all devices with device = -1. The fields
 * are as in rvl_tag_get_stats(), and each communicator counts as one allocation. Returns RVL_OK;
 * RVL_ERR_INVALID; RVL_ERR_NOT_SUPPORTED (NCCL is older than 2.29.7); RVL_ERR_STATE (NCCL failed).
 * Thread-safe. Since 0.1.
 */
RVL_API rvl_status rvl_communicator_get_stats(int device, rvl_tag_stats *stats_out);

/*
 * Forecasts a pause or resume of all communicators: needed_bytes on the device with the least room,
 * which is RVL_NO_DEVICE if none would move. Call it when memory is prepared: a rank without room
 * would keep the others waiting in NCCL. Changes nothing. Returns RVL_OK (also if it does not fit);
 * RVL_ERR_INVALID; RVL_ERR_NOT_SUPPORTED (NCCL is older than 2.29.7. The message has its version
 * and, if the process is recorded, the bytes that its communicators keep); RVL_ERR_STATE (NCCL
 * failed); or the driver's error. Thread-safe. Since 0.1.
 */
RVL_API rvl_status rvl_communicator_forecast(rvl_transition_kind kind, rvl_forecast *forecast_out);

/*
 * Checks whether a process with these communicators, as described by rvl_communicator_get(), could
 * sleep. A process that has memory of other ranks open cannot return to its devices. So each
 * communicator of more than one rank must be paused, and may not share host memory of the driver.
 * rvl_sleep() checks all added communicators; a program that keeps a list of its own may check it
 * earlier. All entries have the struct_size of the first. Returns RVL_OK; RVL_ERR_NOT_SUPPORTED (a
 * communicator is not paused, or shares host memory of the driver. The message says what to do, and
 * the tag is "nccl"); RVL_ERR_INVALID; RVL_ERR_VERSION. Thread-safe. Since 0.1.
 */
RVL_API rvl_status rvl_communicator_check_sleep(const rvl_communicator *communicators,
                                                size_t count);

/*
 * Returns true to stop waiting, for example because another rank has abandoned the move. It is
 * polled and must not block.
 */
typedef bool (*rvl_communicator_stop_fn)(void *user);

typedef struct rvl_communicator_options {
    size_t struct_size;
    uint64_t timeout_ns;           /* how long to wait for the other ranks; 0: 60 s */
    rvl_communicator_stop_fn stop; /* NULL: only the timeout ends the wait */
    void *user;                    /* passed to stop */
} rvl_communicator_options;

/* A prepared pause or resume of communicators. */
typedef struct rvl_communicator_move rvl_communicator_move;

/*
 * Calls ncclCommSuspend or ncclCommResume on all communicators that are not yet in the wanted
 * state, at once, each in a separate thread. Does not wait for them. options: NULL for the
 * defaults. A process has one move at a time.
 *
 * Returns as rvl_communicator_forecast(); RVL_ERR_BUSY (a move is prepared, or a stream is
 * captured); RVL_ERR_DEVICE_OOM; RVL_ERR_STATE (a call in the other direction has not returned);
 * RVL_ERR_HOST_OOM; RVL_ERR_VERSION. After an error NCCL was not called, and there is no handle.
 * Thread-safe. Since 0.1.
 */
RVL_API rvl_status rvl_communicator_prepare(rvl_transition_kind kind,
                                            const rvl_communicator_options *options,
                                            rvl_communicator_move **move_out);

/*
 * Waits until NCCL has returned on all communicators and you may commit. After an error, vote
 * before you abort: aborting waits for the other ranks. Returns RVL_OK; RVL_ERR_STATE (NCCL
 * failed); RVL_ERR_TIMEOUT (other ranks have not called NCCL. The call continues until they do, and
 * you may wait for the same move again); RVL_ERR_HOST_OOM; RVL_ERR_INVALID; RVL_ERR_FORKED (the
 * move belongs to the parent process). If one has failed, or `stop` returns true, it waits at most
 * 5 s more. Any thread, one at a time. Since 0.1.
 */
RVL_API rvl_status rvl_communicator_wait(rvl_communicator_move *move);

/*
 * Commits a prepared move and frees the handle. May be called on any thread. It cannot fail:
 * communicators keep their present state. Returns RVL_OK, RVL_ERR_INVALID or RVL_ERR_FORKED (the
 * move belongs to the parent process). After an error the handle is unchanged. Since 0.1.
 */
RVL_API rvl_status rvl_communicator_commit(rvl_communicator_move *move);

/*
 * Aborts a prepared move: moves back the communicators that it has moved, and frees the handle.
 * Waits for the other ranks as rvl_communicator_wait() does, and 5 s longer. Returns as
 * rvl_communicator_wait(). After RVL_ERR_INVALID or RVL_ERR_FORKED the handle is unchanged. Since
 * 0.1.
 */
RVL_API rvl_status rvl_communicator_abort(rvl_communicator_move *move);

#ifdef __cplusplus
}
#endif
#endif
