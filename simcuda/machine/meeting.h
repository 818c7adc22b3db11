/* SPDX-License-Identifier: MIT */
/*
 * Meetings: how the ranks of a job, each a process or a thread of one, find each other. A meeting
 * has a name that its ranks know, and as many seats as it has ranks. Who comes takes the seat of
 * its rank, and brings a number that the others may read. Nobody waits here: a rank asks again
 * until all have come.
 *
 * A meeting that all have come to stays whole when some leave. It is forgotten when the last has
 * left. Who leaves before, and be it because its process has ended, is named to those who wait.
 */
#ifndef RVL_SIMCUDA_MACHINE_MEETING_H
#define RVL_SIMCUDA_MACHINE_MEETING_H

#include "simcuda/machine/internal.h"

#define RVLI_RANKS_MAX (1u << 20)

/*
 * Takes the seat request->rank of request->ranks in the meeting request->text, with request->bytes.
 * RVL_ERR_INVALID: no such seat; RVL_ERR_STATE: it is taken, or the others count other ranks;
 * RVL_ERR_HOST_OOM.
 */
rvl_status rvli_meeting_join(rvli_machine *machine, rvli_client *client,
                             const rvli_wire_request *request, uint64_t *id_out);

/*
 * RVL_OK: all have come. RVL_ERR_BUSY: text says which ranks are missing. RVL_ERR_STATE: text says
 * who came and has left before that. RVL_ERR_NOT_FOUND.
 */
rvl_status rvli_meeting_ask(rvli_machine *machine, uint64_t id, char text[RVLI_WIRE_TEXT_BYTES]);

/* What a rank brought. RVL_ERR_NOT_FOUND: it is not there. */
rvl_status rvli_meeting_read(rvli_machine *machine, uint64_t id, uint32_t rank,
                             uint64_t *brought_out);

/* The meeting with an id, for what its ranks bring each other (deposits.h). NULL: there is none. */
rvli_meeting *rvli_meeting_find(rvli_machine *machine, uint64_t id);

typedef enum rvli_seat {
    RVLI_SEAT_NONE, /* the meeting has no such rank */
    RVLI_SEAT_EMPTY,
    RVLI_SEAT_HELD,
    RVLI_SEAT_LEFT,
} rvli_seat;

/* holder_out: who holds it, else NULL. */
rvli_seat rvli_meeting_seat(const rvli_meeting *meeting, uint32_t rank, rvli_client **holder_out);
uint32_t rvli_meeting_ranks(const rvli_meeting *meeting);

/* Whether all ranks have come, and be it that some have left since. */
bool rvli_meeting_is_whole(const rvli_meeting *meeting);

/* A rank of a process leaves; the process leaves all its seats. */
void rvli_meeting_part(rvli_machine *machine, rvli_client *client, uint64_t id, uint32_t rank);
void rvli_meeting_forget(rvli_machine *machine, rvli_client *client);

#endif
