/* SPDX-License-Identifier: MIT */
/*
 * A pause or resume of all communicators.
 *
 * All calls run at the same time, so their order may differ between ranks, and a missing rank costs
 * the others one timeout at most. Calls that have not returned by then keep running. A later move
 * in the same direction joins them. One in the other direction is refused.
 */
#include "hooks/nccl/move.h"

#include <stdlib.h>
#include <time.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/options.h"
#include "base/text.h"
#include "hooks/nccl/facts.h"
#include "hooks/region/guard.h"

#define SECOND_NS UINT64_C(1000000000)
#define TIMEOUT_NS (60 * SECOND_NS)
#define GRACE_NS (5 * SECOND_NS) /* for calls that still run after another has failed */
#define FIRST_PAUSE_NS UINT64_C(500000)
#define LONGEST_PAUSE_NS UINT64_C(20000000)

struct rvl_communicator_move {
    rvl_transition_kind kind;
    rvl_communicator_options options;
    rvli_nccl nccl;
    rvli_known *known; /* with the calls of this move; call NULL: nothing to do */
    size_t count;
    rvl_error failure; /* status RVL_OK: none. Set if a call could not be made after others were */
    unsigned generation; /* of the process: changes in a forked child */
};

/* ---- Calling ---- */

/* What a move must do with a communicator. */
typedef enum need {
    NEED_NOTHING, /* already in that state */
    NEED_CALL,
    NEED_JOIN, /* a call of an earlier move runs, or returned after its move had ended */
} need;

static rvl_status refuse_way_back(rvl_transition_kind kind)
{
    rvli_error(RVL_ERR_STATE, "an earlier call of NCCL has not returned: a rank of the "
                              "communicator has not called it. Call it on that rank, too, or end "
                              "the job");
    rvli_error_op(rvli_nccl_move_name(kind));
    rvli_error_tag(RVL_COMMUNICATOR_TAG);
    return RVL_ERR_STATE;
}

/* RVL_ERR_STATE: a call in the other direction runs. */
static rvl_status find_need(const rvl_communicator_move *move, rvl_transition_kind kind,
                            const rvli_known *known, need *need_out)
{
    uint64_t suspended = 0;
    const bool same = known->call != NULL && rvli_nccl_call_kind(known->call) == kind &&
                      !rvli_nccl_call_has_failed(known->call);
    *need_out = NEED_JOIN;
    if (!rvli_nccl_call_is_done(known->call))
        return same ? RVL_OK : refuse_way_back(kind);
    rvl_status status =
        rvli_nccl_stat(&move->nccl, known->comm, RVLI_NCCL_STAT_SUSPENDED, &suspended);
    if ((suspended != 0) != (kind == RVL_TRANSITION_PAUSE))
        *need_out = NEED_CALL;
    else if (!same)
        *need_out = NEED_NOTHING;
    return status;
}

/* Sets known->call to the call of this move, or to NULL if there is nothing to do. */
static rvl_status begin_call(const rvl_communicator_move *move, rvl_transition_kind kind,
                             rvli_known *known)
{
    need found;
    rvl_status status = find_need(move, kind, known, &found);
    if (status != RVL_OK || found == NEED_JOIN)
        return status;
    rvli_nccl_call_drop(known->call);
    known->call = NULL;
    if (found == NEED_CALL)
        status = rvli_nccl_call_start(&move->nccl, kind, known->comm, known->device, &known->call);
    if (status == RVL_OK)
        rvli_known_set_call(known->comm, known->call);
    return status;
}

/* Refuses, as far as possible, before any call is made. */
static rvl_status check_calls(const rvl_communicator_move *move)
{
    rvl_status status = RVL_OK;
    need found;
    for (size_t i = 0; status == RVL_OK && i < move->count; i++)
        status = find_need(move, move->kind, &move->known[i], &found);
    return status;
}

/* Removes those from an index on from the move: their calls are older ones. */
static void cut(rvl_communicator_move *move, size_t count)
{
    for (size_t i = count; i < move->count; i++)
        rvli_nccl_call_drop(move->known[i].call);
    move->count = count;
}

/*
 * Returns an error only if no call was made. A later failure is stored in the move, because other
 * ranks may wait for the calls already made.
 */
static rvl_status begin_calls(rvl_communicator_move *move)
{
    for (size_t i = 0; i < move->count; i++) {
        rvl_status status = begin_call(move, move->kind, &move->known[i]);
        if (status == RVL_OK)
            continue;
        cut(move, i);
        if (i == 0)
            return status;
        move->failure = *rvli_error_get();
    }
    return RVL_OK;
}

/* ---- Waiting ---- */

static size_t count_waiting(const rvl_communicator_move *move, bool *failed_out)
{
    size_t waiting = 0;
    *failed_out = false;
    for (size_t i = 0; i < move->count; i++) {
        const rvli_nccl_call *call = move->known[i].call;
        waiting += !rvli_nccl_call_is_done(call);
        *failed_out = *failed_out || rvli_nccl_call_has_failed(call);
    }
    return waiting;
}

static bool is_in_vain(const rvl_communicator_move *move, bool failed)
{
    return failed || (move->options.stop != NULL && move->options.stop(move->options.user));
}

static void pause_for(uint64_t pause_ns)
{
    const struct timespec pause = {.tv_nsec = (long)pause_ns};
    nanosleep(&pause, NULL);
}

/*
 * Waits until all calls have returned, or the time is up. After a failure, the others get a grace
 * period. Returns the number that still run.
 */
static size_t wait_for_calls(const rvl_communicator_move *move)
{
    uint64_t timeout_ns = move->options.timeout_ns, begin_ns = rvli_monotonic_ns();
    uint64_t pause_ns = FIRST_PAUSE_NS;
    bool failed, in_vain = false;
    size_t waiting;
    while ((waiting = count_waiting(move, &failed)) > 0) {
        uint64_t passed_ns = rvli_monotonic_ns() - begin_ns;
        if (!in_vain && is_in_vain(move, failed)) {
            in_vain = true;
            if (timeout_ns > passed_ns && timeout_ns - passed_ns > GRACE_NS)
                timeout_ns = passed_ns + GRACE_NS;
        }
        if (passed_ns >= timeout_ns)
            break;
        pause_for(pause_ns);
        pause_ns = 2 * pause_ns < LONGEST_PAUSE_NS ? 2 * pause_ns : LONGEST_PAUSE_NS;
    }
    return waiting;
}

static rvl_status fail_stuck(rvl_transition_kind kind, size_t waiting)
{
    char message[sizeof(((rvl_error *)NULL)->message)];
    rvli_text text = rvli_text_begin(message, sizeof message);
    rvli_text_add(&text, rvli_nccl_move_name(kind));
    rvli_text_add(&text, " has not returned on ");
    rvli_text_add_u64(&text, waiting);
    rvli_text_add(&text, waiting == 1 ? " communicator" : " communicators");
    rvli_text_add(&text,
                  " in time: it returns when all ranks have called it. Make the same move on "
                  "the missing ones, or abort the communicator; the same move waits for the "
                  "same call again");
    rvli_error(RVL_ERR_TIMEOUT, message);
    rvli_error_op(rvli_nccl_move_name(kind));
    rvli_error_tag(RVL_COMMUNICATOR_TAG);
    return RVL_ERR_TIMEOUT;
}

/* Returns the first failure of a call, or RVL_ERR_TIMEOUT if some have not returned. */
static rvl_status finish_calls(const rvl_communicator_move *move, rvl_transition_kind kind)
{
    size_t waiting = wait_for_calls(move);
    for (size_t i = 0; i < move->count; i++) {
        rvl_status status = rvli_nccl_call_check(move->known[i].call);
        if (status != RVL_OK)
            return status;
    }
    return waiting > 0 ? fail_stuck(kind, waiting) : RVL_OK;
}

/* ---- Undoing ---- */

/*
 * Moves back the communicators that have moved. Calls that have not returned cannot be undone: they
 * are reported.
 */
static rvl_status undo(rvl_communicator_move *move)
{
    const rvl_transition_kind back =
        move->kind == RVL_TRANSITION_PAUSE ? RVL_TRANSITION_RESUME : RVL_TRANSITION_PAUSE;
    rvl_status first = RVL_OK;
    rvl_error cause = {0};
    size_t stuck = 0;
    for (size_t i = 0; i < move->count; i++) {
        rvli_known *known = &move->known[i];
        if (known->call == NULL)
            continue;
        bool runs = !rvli_nccl_call_is_done(known->call);
        rvl_status status = runs ? RVL_OK : begin_call(move, back, known);
        stuck += runs;
        if (runs) {
            rvli_nccl_call_drop(known->call);
            known->call = NULL;
        }
        if (first == RVL_OK && status != RVL_OK) {
            first = status;
            cause = *rvli_error_get();
        }
    }
    /* Other ranks begin to undo only after they have waited for the move. */
    move->options.stop = NULL;
    if (move->options.timeout_ns < UINT64_MAX - GRACE_NS)
        move->options.timeout_ns += GRACE_NS;
    rvl_status status = finish_calls(move, back);
    if (first != RVL_OK)
        rvli_error_set(&cause);
    else if (status == RVL_OK && stuck > 0)
        status = fail_stuck(move->kind, stuck);
    return first != RVL_OK ? first : status;
}

/* ---- Both phases ---- */

static void free_move(rvl_communicator_move *move)
{
    for (size_t i = 0; i < move->count; i++)
        if (rvli_nccl_call_is_done(move->known[i].call))
            rvli_known_end_call(move->known[i].comm, move->known[i].call);
    rvli_known_free(move->known, move->count);
    free(move);
    rvli_known_release();
}

static rvl_status check_room(const rvl_communicator_move *move)
{
    rvl_forecast forecast;
    rvl_status status =
        rvli_nccl_forecast(&move->nccl, move->kind, move->known, move->count, &forecast);
    if (status != RVL_OK || forecast.fits)
        return status;
    rvli_error(RVL_ERR_DEVICE_OOM, "there is no room for the communicators: free memory on the "
                                   "device, and resume them again");
    rvli_error_op(rvli_nccl_move_name(RVL_TRANSITION_RESUME));
    rvli_error_tag(RVL_COMMUNICATOR_TAG);
    rvli_error_bytes(forecast.device, forecast.needed_bytes, forecast.free_bytes);
    return RVL_ERR_DEVICE_OOM;
}

/* The checks that this rank can make before it calls NCCL. */
static rvl_status check_move(rvl_communicator_move *move)
{
    rvl_status status = rvli_guard_refuse_capture(move->kind);
    if (status == RVL_OK && move->count > 0)
        status = rvli_nccl_find(&move->nccl);
    if (status == RVL_OK)
        status = rvli_nccl_require(&move->nccl, move->known, move->count);
    if (status == RVL_OK)
        status = check_calls(move);
    return status == RVL_OK ? check_room(move) : status;
}

static rvl_status make(rvl_communicator_move *move)
{
    rvl_status status = rvli_known_list(&move->known, &move->count);
    if (status == RVL_OK)
        status = check_move(move);
    return status == RVL_OK ? begin_calls(move) : status;
}

rvl_status rvl_communicator_prepare(rvl_transition_kind kind,
                                    const rvl_communicator_options *options,
                                    rvl_communicator_move **move_out)
{
    if (move_out == NULL || (kind != RVL_TRANSITION_PAUSE && kind != RVL_TRANSITION_RESUME))
        return rvli_error(RVL_ERR_INVALID,
                          "move_out is NULL, or the kind is neither a pause nor a resume");
    rvl_communicator_move *move = calloc(1, sizeof *move);
    if (move == NULL)
        return rvli_error(RVL_ERR_HOST_OOM, "no host memory for a move of communicators");
    move->kind = kind;
    rvl_status status = rvli_options_read(&move->options, sizeof move->options, options);
    if (move->options.timeout_ns == 0)
        move->options.timeout_ns = TIMEOUT_NS;
    if (status == RVL_OK)
        status = rvli_known_claim(&move->generation);
    if (status != RVL_OK) {
        free(move);
        return status;
    }
    status = make(move);
    if (status == RVL_OK)
        *move_out = move;
    else
        free_move(move);
    return status;
}

static rvl_status check_handle(const rvl_communicator_move *move)
{
    return move != NULL ? rvli_known_check_process(move->generation)
                        : rvli_error(RVL_ERR_INVALID, "the move is NULL");
}

rvl_status rvl_communicator_wait(rvl_communicator_move *move)
{
    rvl_status status = check_handle(move);
    if (status != RVL_OK)
        return status;
    status = finish_calls(move, move->kind);
    if (move->failure.status == RVL_OK)
        return status;
    rvli_error_set(&move->failure);
    return move->failure.status;
}

rvl_status rvl_communicator_commit(rvl_communicator_move *move)
{
    rvl_status status = check_handle(move);
    if (status != RVL_OK)
        return status;
    for (size_t i = 0; i < move->count; i++)
        if (move->known[i].call != NULL)
            rvli_known_count(move->known[i].comm, move->kind);
    free_move(move);
    return RVL_OK;
}

rvl_status rvl_communicator_abort(rvl_communicator_move *move)
{
    rvl_status status = check_handle(move);
    if (status != RVL_OK)
        return status;
    status = undo(move);
    free_move(move);
    return status;
}

rvl_status rvli_communicators_move(rvl_transition_kind kind)
{
    rvl_communicator_move *move = NULL;
    rvl_status status = rvl_communicator_prepare(kind, NULL, &move);
    if (status != RVL_OK)
        return status;
    status = rvl_communicator_wait(move);
    if (status == RVL_OK)
        return rvl_communicator_commit(move);
    rvl_error cause = *rvli_error_get();
    (void)rvl_communicator_abort(move); /* the first failure has the cause */
    rvli_error_set(&cause);
    return status;
}
