/* SPDX-License-Identifier: MIT */
/*
 * The data that ranks of a communicator exchange, operation by operation. A rank brings its data
 * when it calls the operation, and takes data when its program reads the result. So no rank
 * waits for another inside a call. The bytes are in the file of shared contents (shared.h). This
 * file records which ranks have brought data, and which may still take it.
 *
 * A communicator is identified by the meeting that made it. Each of its operations has a number.
 * So has each send from one rank to another, with its receive. An operation is forgotten once no
 * rank can take from it: each rank has taken its data, needs none, has ended with its process,
 * or has left without coming.
 *
 * The size of the file bounds the bytes. The number of operations from which a rank may still
 * take is bounded, too: a rank that is too far ahead of others has to wait, as with the launch
 * queue of a card. If that takes too long, the rank gives up, and all later data of the
 * communicator is unknown.
 *
 * An operation that a rank has left without calling is also forgotten, but is never complete.
 * Only the first such operation for the same ranks is remembered, since that rank calls no later
 * one.
 */
#ifndef RVL_SIMCUDA_MACHINE_DEPOSITS_H
#define RVL_SIMCUDA_MACHINE_DEPOSITS_H

#include "simcuda/machine/internal.h"
#include "simcuda/machine/meeting.h"

#define RVLI_DEPOSITS_MAX 1024u             /* pending operations of a communicator */
#define RVLI_DEPOSIT_PARTS_MAX (1u << 18)   /* total ranks of these operations */
#define RVLI_DEPOSIT_BYTES_MAX (1ull << 40) /* per rank of an operation */

typedef struct rvli_deposit rvli_deposit;
typedef struct rvli_unended rvli_unended;

/* The operations of one meeting. Zeroed: none. */
typedef struct rvli_deposits {
    rvli_deposit *first, *last;
    rvli_unended *unended; /* operations forgotten before they were complete */
    uint32_t count;
    uint64_t parts;
    bool given_up;        /* no data is carried any more */
    bool difference_told; /* a difference between calls of ranks was reported */
} rvli_deposits;

rvli_deposits *rvli_meeting_deposits(rvli_meeting *meeting);
void rvli_meeting_drop_if_empty(rvli_machine *machine, rvli_meeting *meeting);

/* Reserves a place for a rank's data. RVL_ERR_NOT_FOUND: the process does not hold this rank of
 * the communicator, or has left; RVL_ERR_INVALID; RVL_ERR_STATE: the rank has come already;
 * RVL_ERR_HOST_OOM: also for too many operations. */
rvl_status rvli_deposits_bring(rvli_machine *machine, rvli_client *client,
                               const rvli_wire_request *request, uint64_t *place_out);

/* A rank takes part from now on, and others can take its data. The answer names the first rank's
 * call if this call differs, once for a communicator. Errors as for rvli_deposits_bring(). */
rvl_status rvli_deposits_come(rvli_machine *machine, rvli_client *client,
                              const rvli_wire_request *request, rvli_wire_answer *answer);

/* Finds the data of a rank. RVL_ERR_BUSY: it has not come; RVL_ERR_STATE: it never will. */
rvl_status rvli_deposits_take(rvli_machine *machine, rvli_client *client,
                              const rvli_wire_request *request, rvli_wire_answer *answer);

void rvli_deposits_taken(rvli_machine *machine, rvli_client *client,
                         const rvli_wire_request *request);

/* Checks whether a rank, or each (RVLI_WIRE_ALL), has come to an operation that the asking rank
 * has come to. RVL_ERR_BUSY: rank `count` of the answer is missing. The answer's id shows a rank
 * that will never come, as in rvli_deposits_come(). */
rvl_status rvli_deposits_done(rvli_machine *machine, const rvli_wire_request *request,
                              rvli_wire_answer *answer);

/* Call it after ranks have left a meeting. ended: the process that ended, or NULL. */
void rvli_deposits_settle(rvli_machine *machine, rvli_meeting *meeting, const rvli_client *ended);

/* Call it when the meeting is destroyed. */
void rvli_deposits_forget(rvli_deposits *all);

#endif
