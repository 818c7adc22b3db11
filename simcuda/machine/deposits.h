/* SPDX-License-Identifier: MIT */
/*
 * What the ranks of a communicator bring each other, operation by operation. A rank brings when it
 * calls the operation, and takes when its program reads the result, so no rank waits for another in
 * a call. The bytes lie in the file of shared contents (shared.h); here is who has brought what and
 * who still may take it.
 *
 * A communicator is the meeting that made it. An operation of it has a number, and so has every
 * send of one rank to another with its receive. It is forgotten when no rank can take any more:
 * each has taken, or has said that it needs nothing, or its process has ended; or it has left and
 * never came.
 *
 * The file bounds the bytes. The number of operations that somebody may still take from is bounded,
 * too: a rank that is so far ahead of others has to wait, as a card's queue of launches would have
 * it. If that takes too long it ends this, and what the communicator would bring is unknown.
 *
 * An operation that a rank has left without calling is forgotten, too, and never complete: the
 * first of its kind is remembered, since that rank calls none of those behind it.
 */
#ifndef RVL_SIMCUDA_MACHINE_DEPOSITS_H
#define RVL_SIMCUDA_MACHINE_DEPOSITS_H

#include "simcuda/machine/internal.h"
#include "simcuda/machine/meeting.h"

#define RVLI_DEPOSITS_MAX 1024u             /* operations of a communicator */
#define RVLI_DEPOSIT_PARTS_MAX (1u << 18)   /* ranks in all of them */
#define RVLI_DEPOSIT_BYTES_MAX (1ull << 40) /* of one */

typedef struct rvli_deposit rvli_deposit;
typedef struct rvli_unended rvli_unended;

/* Of one meeting. All zeroes is none. */
typedef struct rvli_deposits {
    rvli_deposit *first, *last;
    rvli_unended *unended; /* forgotten, and never complete */
    uint32_t count;
    uint64_t parts;
    bool given_up;        /* nothing is brought any more */
    bool difference_told; /* that ranks make different calls */
} rvli_deposits;

rvli_deposits *rvli_meeting_deposits(rvli_meeting *meeting);
void rvli_meeting_drop_if_empty(rvli_machine *machine, rvli_meeting *meeting);

/* A place for what a rank brings. RVL_ERR_NOT_FOUND: it is no rank of the communicator, or has
 * left; RVL_ERR_INVALID; RVL_ERR_STATE: it has come already; RVL_ERR_HOST_OOM: also of too many. */
rvl_status rvli_deposits_bring(rvli_machine *machine, rvli_client *client,
                               const rvli_wire_request *request, uint64_t *place_out);

/* A rank takes part from now on, and what it has brought can be taken. The answer names the first
 * rank's call if that is another, once for a communicator. As rvli_deposits_bring(). */
rvl_status rvli_deposits_come(rvli_machine *machine, rvli_client *client,
                              const rvli_wire_request *request, rvli_wire_answer *answer);

/* What a rank has brought. RVL_ERR_BUSY: it has not come; RVL_ERR_STATE: and never will. */
rvl_status rvli_deposits_take(rvli_machine *machine, rvli_client *client,
                              const rvli_wire_request *request, rvli_wire_answer *answer);

void rvli_deposits_taken(rvli_machine *machine, rvli_client *client,
                         const rvli_wire_request *request);

/* Whether a rank, or each (RVLI_WIRE_ALL), has come to an operation that the asking rank has come
 * to. RVL_ERR_BUSY: rank `count` of the answer is still missing. One that never will come is in its
 * id, as in that of rvli_deposits_come(). */
rvl_status rvli_deposits_done(rvli_machine *machine, const rvli_wire_request *request,
                              rvli_wire_answer *answer);

/* After ranks have left a meeting; ended: with their process, or NULL. */
void rvli_deposits_settle(rvli_machine *machine, rvli_meeting *meeting, const rvli_client *ended);

/* The meeting is no more. */
void rvli_deposits_forget(rvli_deposits *all);

#endif
