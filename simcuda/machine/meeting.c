/* SPDX-License-Identifier: MIT */
#include "simcuda/machine/meeting.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "simcuda/machine/deposits.h"

typedef struct seat {
    rvli_client *holder; /* NULL: the rank has not come, or has left */
    bool came;
    uint64_t brought;
} seat;

struct rvli_meeting {
    rvli_meeting *next;
    uint64_t id;
    char name[RVLI_WIRE_TEXT_BYTES];
    char ended[RVLI_WIRE_TEXT_BYTES]; /* the rank that left before all had come; "": none */
    uint32_t ranks;
    uint32_t came;
    uint32_t held;
    rvli_deposits deposits;
    seat seats[];
};

/* ---- Finding ---- */

static rvli_meeting *find_named(const rvli_machine *machine, const char *name)
{
    rvli_meeting *each = machine->meetings;
    while (each != NULL && strcmp(each->name, name) != 0)
        each = each->next;
    return each;
}

static rvli_meeting *find(const rvli_machine *machine, uint64_t id)
{
    rvli_meeting *each = machine->meetings;
    while (each != NULL && each->id != id)
        each = each->next;
    return each;
}

rvli_meeting *rvli_meeting_find(rvli_machine *machine, uint64_t id)
{
    return find(machine, id);
}

rvli_seat rvli_meeting_seat(const rvli_meeting *meeting, uint32_t rank, rvli_client **holder_out)
{
    *holder_out = rank < meeting->ranks ? meeting->seats[rank].holder : NULL;
    if (rank >= meeting->ranks)
        return RVLI_SEAT_NONE;
    if (*holder_out != NULL)
        return RVLI_SEAT_HELD;
    return meeting->seats[rank].came ? RVLI_SEAT_LEFT : RVLI_SEAT_EMPTY;
}

uint32_t rvli_meeting_ranks(const rvli_meeting *meeting)
{
    return meeting->ranks;
}

bool rvli_meeting_is_whole(const rvli_meeting *meeting)
{
    return meeting->came == meeting->ranks;
}

rvli_deposits *rvli_meeting_deposits(rvli_meeting *meeting)
{
    return &meeting->deposits;
}

static rvli_meeting *begin(rvli_machine *machine, const char *name, uint32_t ranks)
{
    rvli_meeting *made = calloc(1, sizeof *made + ranks * sizeof *made->seats);
    if (made == NULL)
        return NULL;
    snprintf(made->name, sizeof made->name, "%s", name);
    made->ranks = ranks;
    made->id = ++machine->meetings_begun;
    made->next = machine->meetings;
    machine->meetings = made;
    return made;
}

/* Drops an empty meeting, unless ranks still have data to take from ranks that left. */
void rvli_meeting_drop_if_empty(rvli_machine *machine, rvli_meeting *meeting)
{
    rvli_meeting **link = &machine->meetings;
    if (meeting->held > 0 || meeting->deposits.count > 0)
        return;
    while (*link != meeting)
        link = &(*link)->next;
    *link = meeting->next;
    rvli_deposits_forget(&meeting->deposits);
    free(meeting);
}

/* ---- Coming ---- */

rvl_status rvli_meeting_join(rvli_machine *machine, rvli_client *client,
                             const rvli_wire_request *request, uint64_t *id_out)
{
    if (request->ranks == 0 || request->ranks > RVLI_RANKS_MAX || request->rank >= request->ranks)
        return RVL_ERR_INVALID;
    rvli_meeting *meeting = find_named(machine, request->text);
    if (meeting == NULL)
        meeting = begin(machine, request->text, request->ranks);
    if (meeting == NULL)
        return RVL_ERR_HOST_OOM;
    if (meeting->ranks != request->ranks || meeting->seats[request->rank].came)
        return RVL_ERR_STATE;
    meeting->seats[request->rank] = (seat){client, true, request->bytes};
    meeting->came++;
    meeting->held++;
    *id_out = meeting->id;
    return RVL_OK;
}

/* ---- Presence ---- */

/* Lists the ranks that have not come, as in "1, 3-7", as far as there is room. */
static void list_missing(const rvli_meeting *meeting, char text[RVLI_WIRE_TEXT_BYTES])
{
    size_t length = 0;
    for (uint32_t i = 0; i < meeting->ranks; i++) {
        uint32_t last = i;
        if (meeting->seats[i].came)
            continue;
        while (last + 1 < meeting->ranks && !meeting->seats[last + 1].came)
            last++;
        if (length + 32 > RVLI_WIRE_TEXT_BYTES) {
            snprintf(text + length, RVLI_WIRE_TEXT_BYTES - length, ", ...");
            return;
        }
        length += (size_t)snprintf(text + length, RVLI_WIRE_TEXT_BYTES - length, "%s%" PRIu32,
                                   length > 0 ? ", " : "", i);
        if (last > i)
            length +=
                (size_t)snprintf(text + length, RVLI_WIRE_TEXT_BYTES - length, "-%" PRIu32, last);
        i = last;
    }
}

rvl_status rvli_meeting_ask(rvli_machine *machine, uint64_t id, char text[RVLI_WIRE_TEXT_BYTES])
{
    const rvli_meeting *meeting = find(machine, id);
    if (meeting == NULL)
        return RVL_ERR_NOT_FOUND;
    if (meeting->came == meeting->ranks || machine->store != NULL)
        return RVL_OK;
    if (meeting->ended[0] != '\0') {
        memcpy(text, meeting->ended, RVLI_WIRE_TEXT_BYTES);
        return RVL_ERR_STATE;
    }
    list_missing(meeting, text);
    return RVL_ERR_BUSY;
}

rvl_status rvli_meeting_read(rvli_machine *machine, uint64_t id, uint32_t rank,
                             uint64_t *brought_out)
{
    const rvli_meeting *meeting = find(machine, id);
    if (meeting == NULL || rank >= meeting->ranks || !meeting->seats[rank].came)
        return RVL_ERR_NOT_FOUND;
    *brought_out = meeting->seats[rank].brought;
    return RVL_OK;
}

/* ---- Leaving ---- */

/* Frees the seat. If it leaves before all have come, the meeting cannot complete: the name is
 * kept to tell the ranks that wait. */
static void leave(rvli_meeting *meeting, uint32_t rank)
{
    if (meeting->came < meeting->ranks && meeting->ended[0] == '\0')
        snprintf(meeting->ended, sizeof meeting->ended, "rank %" PRIu32 ", %.200s", rank,
                 meeting->seats[rank].holder->tenant->name);
    meeting->seats[rank].holder = NULL;
    meeting->held--;
}

void rvli_meeting_part(rvli_machine *machine, rvli_client *client, uint64_t id, uint32_t rank)
{
    rvli_meeting *meeting = find(machine, id);
    if (meeting == NULL || rank >= meeting->ranks || meeting->seats[rank].holder != client)
        return;
    leave(meeting, rank);
    rvli_deposits_settle(machine, meeting, NULL);
    rvli_meeting_drop_if_empty(machine, meeting);
}

void rvli_meeting_forget(rvli_machine *machine, rvli_client *client)
{
    rvli_meeting *next;
    for (rvli_meeting *each = machine->meetings; each != NULL; each = next) {
        next = each->next;
        for (uint32_t rank = 0; rank < each->ranks; rank++)
            if (each->seats[rank].holder == client)
                leave(each, rank);
        rvli_deposits_settle(machine, each, client);
        rvli_meeting_drop_if_empty(machine, each);
    }
}
