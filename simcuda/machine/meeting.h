/* SPDX-License-Identifier: MIT */
/*
 * Meetings: how the ranks of a job, each a process or a thread of one, find each other. A
 * meeting has a name that its ranks know, and a seat for each rank. A rank that comes takes its
 * seat, and brings a number that the other ranks may read. No call blocks: a rank asks again
 * until all have come.
 *
 * Once all ranks have come, the meeting stays valid when some leave. It is destroyed when the
 * last has left. If a rank leaves before, or its process ends, the ranks that wait get its name.
 */
#ifndef RVL_SIMCUDA_MACHINE_MEETING_H
#define RVL_SIMCUDA_MACHINE_MEETING_H

#include "simcuda/machine/internal.h"

#define RVLI_RANKS_MAX (1u << 20)

/*
 * Takes seat request->rank of request->ranks in the meeting request->text, with request->bytes.
 * RVL_ERR_INVALID: no such seat; RVL_ERR_STATE: it is taken, or other ranks gave another number
 * of ranks; RVL_ERR_HOST_OOM.
 */
rvl_status rvli_meeting_join(rvli_machine *machine, rvli_client *client,
                             const rvli_wire_request *request, uint64_t *id_out);

/*
 * RVL_OK: all have come. RVL_ERR_BUSY: text lists the missing ranks. RVL_ERR_STATE: text names
 * the rank that left before that. RVL_ERR_NOT_FOUND.
 */
rvl_status rvli_meeting_ask(rvli_machine *machine, uint64_t id, char text[RVLI_WIRE_TEXT_BYTES]);

/* Reads a rank's number. RVL_ERR_NOT_FOUND: the rank is absent. */
rvl_status rvli_meeting_read(rvli_machine *machine, uint64_t id, uint32_t rank,
                             uint64_t *brought_out);

/* Finds a meeting by its id, for the data that ranks exchange (deposits.h). NULL: there is none. */
rvli_meeting *rvli_meeting_find(rvli_machine *machine, uint64_t id);

typedef enum rvli_seat {
    RVLI_SEAT_NONE, /* the meeting has no such rank */
    RVLI_SEAT_EMPTY,
    RVLI_SEAT_HELD,
    RVLI_SEAT_LEFT,
} rvli_seat;

/* Returns the state of a seat. holder_out: the holder, or NULL. */
rvli_seat rvli_meeting_seat(const rvli_meeting *meeting, uint32_t rank, rvli_client **holder_out);
uint32_t rvli_meeting_ranks(const rvli_meeting *meeting);

/* Whether all ranks have come. Some may have left since. */
bool rvli_meeting_is_whole(const rvli_meeting *meeting);

/* rvli_meeting_part() frees one seat of a process; rvli_meeting_forget() frees all of them. */
void rvli_meeting_part(rvli_machine *machine, rvli_client *client, uint64_t id, uint32_t rank);
void rvli_meeting_forget(rvli_machine *machine, rvli_client *client);

#endif
