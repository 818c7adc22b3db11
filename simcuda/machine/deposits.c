/* SPDX-License-Identifier: MIT */
#include "simcuda/machine/deposits.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "simcuda/machine/shared.h"

/* How one rank takes part. */
typedef struct part {
    const rvli_client *client; /* NULL: the rank has neither brought data nor come */
    uint64_t place;
    uint64_t bytes; /* 0: unknown content, or none */
    bool came;
    bool waits; /* for the other ranks */
    bool done;  /* it takes no more data */
} part;

struct rvli_deposit {
    rvli_deposit *next;
    uint64_t sequence;
    uint32_t from, to; /* RVLI_WIRE_ALL: all ranks */
    uint32_t count;    /* parts: one for each rank, or two for sender and receiver */
    uint32_t open;     /* parts that are not done */
    uint32_t first;    /* the first rank with a known call */
    char *call;        /* NULL: no rank has given its call */
    part parts[];
};

/* The first operation of all ranks, or of a pair, that a rank has left without calling. */
struct rvli_unended {
    rvli_unended *next;
    uint64_t sequence;
    uint32_t from, to;
    uint32_t gone; /* the rank that left */
};

/* ---- Finding ---- */

static uint32_t rank_of(const rvli_deposit *of, uint32_t index)
{
    return of->from == RVLI_WIRE_ALL ? index : index == 0 ? of->from : of->to;
}

static bool is_of(const rvli_deposit *of, const rvli_wire_request *request)
{
    return of->sequence == request->sequence && of->from == request->from && of->to == request->to;
}

static rvli_deposit *find(const rvli_deposits *all, const rvli_wire_request *request)
{
    rvli_deposit *each = all->first;
    while (each != NULL && !is_of(each, request))
        each = each->next;
    return each;
}

/* The part that a request is about. For a rank that sends to itself, gets selects the
 * receiver's. */
static part *part_of(rvli_deposit *of, uint32_t rank, bool gets)
{
    if (of->from == RVLI_WIRE_ALL)
        return rank < of->count ? &of->parts[rank] : NULL;
    if (rank == (gets ? of->to : of->from))
        return &of->parts[gets];
    return NULL;
}

/* ---- The end of an operation ---- */

static void drop(rvli_machine *machine, rvli_deposits *all, rvli_deposit *gone)
{
    rvli_deposit **link = &all->first, *before = NULL;
    while (*link != gone) {
        before = *link;
        link = &before->next;
    }
    *link = gone->next;
    if (all->last == gone)
        all->last = before;
    all->count--;
    all->parts -= gone->count;
    for (uint32_t i = 0; i < gone->count; i++)
        if (gone->parts[i].bytes > 0)
            rvli_shared_give_place(machine->shared, gone->parts[i].place, gone->parts[i].bytes);
    free(gone->call);
    free(gone);
}

/* Returns 1 + a rank that will never come. 0: there is none. */
static uint64_t find_gone(const rvli_meeting *meeting, const rvli_deposit *of)
{
    rvli_client *holder;
    for (uint32_t i = 0; i < of->count; i++)
        if (!of->parts[i].came &&
            rvli_meeting_seat(meeting, rank_of(of, i), &holder) == RVLI_SEAT_LEFT)
            return (uint64_t)rank_of(of, i) + 1;
    return 0;
}

/* Returns the index of a rank that waits for others, except ranks of the process that ends.
 * `count`: there is none. */
static uint32_t find_waiting(const rvli_deposit *of, const rvli_client *ended)
{
    uint32_t i = 0;
    while (i < of->count &&
           (!of->parts[i].waits || (ended != NULL && of->parts[i].client == ended)))
        i++;
    return i;
}

/* If a rank waits for one that has left, the machine keeps the first message about it. In a
 * pair, only the receiver waits. */
static void note_gone(rvli_machine *machine, const rvli_meeting *meeting, const rvli_deposit *of,
                      const rvli_client *ended)
{
    uint64_t gone = find_gone(meeting, of);
    uint32_t waiting = find_waiting(of, ended);
    const char *call = of->call != NULL ? of->call : "ncclRecv";
    if (gone == 0 || waiting == of->count || machine->waits[0] != '\0')
        return;
    snprintf(machine->waits, sizeof machine->waits,
             "rank %" PRIu32 " of %" PRIu32 " calls %.*s, and rank %" PRIu64
             " has left without calling it",
             rank_of(of, waiting), rvli_meeting_ranks(meeting), (int)strcspn(call, " "), call,
             gone - 1);
}

/* The entry for the same ranks. NULL: all forgotten operations were complete. */
static rvli_unended *find_unended(const rvli_deposits *all, uint32_t from, uint32_t to)
{
    rvli_unended *each = all->unended;
    while (each != NULL && (each->from != from || each->to != to))
        each = each->next;
    return each;
}

/* If host memory is short, the operation counts as complete. */
static void remember(rvli_deposits *all, const rvli_deposit *of, uint64_t gone)
{
    rvli_unended *known = find_unended(all, of->from, of->to);
    if (gone == 0 || (known != NULL && known->sequence <= of->sequence))
        return;
    rvli_unended *made = known != NULL ? known : malloc(sizeof *made);
    if (made == NULL)
        return;
    if (known == NULL) {
        *made = (rvli_unended){.next = all->unended, .from = of->from, .to = of->to};
        all->unended = made;
    }
    made->sequence = of->sequence;
    made->gone = (uint32_t)gone - 1;
}

void rvli_deposits_forget(rvli_deposits *all)
{
    while (all->unended != NULL) {
        rvli_unended *next = all->unended->next;
        free(all->unended);
        all->unended = next;
    }
}

/* Drops the operation if no rank can take from it any more. */
static void end_if_done(rvli_machine *machine, const rvli_meeting *meeting, rvli_deposits *all,
                        rvli_deposit *of)
{
    if (of->open > 0)
        return;
    remember(all, of, find_gone(meeting, of));
    drop(machine, all, of);
}

static void give_up(rvli_machine *machine, rvli_deposits *all)
{
    while (all->first != NULL)
        drop(machine, all, all->first);
    all->given_up = true;
}

static void finish(rvli_deposit *of, part *done)
{
    of->open -= !done->done;
    done->done = true;
}

/* Finishes the parts of ranks that left before they came, and of the process that ended. */
static void finish_those_that_left(const rvli_meeting *meeting, rvli_deposit *of,
                                   const rvli_client *ended)
{
    rvli_client *holder;
    for (uint32_t i = 0; i < of->count; i++) {
        part *each = &of->parts[i];
        bool left = rvli_meeting_seat(meeting, rank_of(of, i), &holder) == RVLI_SEAT_LEFT;
        bool gone = ended != NULL && each->client == ended;
        if (gone)
            each->client = NULL; /* another client may get this address */
        if (gone || (left && !each->came))
            finish(of, each);
    }
}

void rvli_deposits_settle(rvli_machine *machine, rvli_meeting *meeting, const rvli_client *ended)
{
    rvli_deposits *all = rvli_meeting_deposits(meeting);
    rvli_deposit *next;
    for (rvli_deposit *each = all->first; each != NULL; each = next) {
        next = each->next;
        note_gone(machine, meeting, each, ended);
        finish_those_that_left(meeting, each, ended);
        end_if_done(machine, meeting, all, each);
    }
}

/* ---- The beginning of an operation ---- */

static bool names_ranks(const rvli_meeting *meeting, const rvli_wire_request *request)
{
    uint32_t ranks = rvli_meeting_ranks(meeting);
    bool all = request->from == RVLI_WIRE_ALL && request->to == RVLI_WIRE_ALL;
    return all || (request->from < ranks && request->to < ranks);
}

static rvli_deposit *make(const rvli_meeting *meeting, const rvli_wire_request *request)
{
    uint32_t count = request->from == RVLI_WIRE_ALL ? rvli_meeting_ranks(meeting) : 2;
    rvli_deposit *made = calloc(1, sizeof *made + count * sizeof *made->parts);
    if (made == NULL)
        return NULL;
    made->sequence = request->sequence;
    made->from = request->from;
    made->to = request->to;
    made->count = made->open = count;
    finish_those_that_left(meeting, made, NULL);
    return made;
}

static rvl_status find_or_make(const rvli_meeting *meeting, rvli_deposits *all,
                               const rvli_wire_request *request, rvli_deposit **found_out)
{
    *found_out = find(all, request);
    if (*found_out != NULL)
        return RVL_OK;
    if (all->given_up)
        return RVL_ERR_STATE;
    if (all->count >= RVLI_DEPOSITS_MAX || all->parts >= RVLI_DEPOSIT_PARTS_MAX)
        return RVL_ERR_BUSY;
    rvli_deposit *made = make(meeting, request);
    if (made == NULL)
        return RVL_ERR_HOST_OOM;
    *(all->last != NULL ? &all->last->next : &all->first) = made;
    all->last = *found_out = made;
    all->count++;
    all->parts += made->count;
    return RVL_OK;
}

/* ---- Requests ---- */

/* The meeting in which the process holds the rank of the request. All ranks must have come to
 * the meeting: an operation that waits for a rank that may never come would stay forever. */
static rvli_meeting *meeting_of(rvli_machine *machine, const rvli_client *client,
                                const rvli_wire_request *request)
{
    rvli_client *holder = NULL;
    rvli_meeting *meeting = rvli_meeting_find(machine, request->id);
    if (meeting == NULL || !rvli_meeting_is_whole(meeting) || !names_ranks(meeting, request))
        return NULL;
    (void)rvli_meeting_seat(meeting, request->rank, &holder);
    return holder == client ? meeting : NULL;
}

rvl_status rvli_deposits_bring(rvli_machine *machine, rvli_client *client,
                               const rvli_wire_request *request, uint64_t *place_out)
{
    if (request->bytes == 0 || request->bytes > RVLI_DEPOSIT_BYTES_MAX)
        return RVL_ERR_INVALID;
    rvli_meeting *meeting = meeting_of(machine, client, request);
    if (meeting == NULL)
        return RVL_ERR_NOT_FOUND;
    rvli_deposit *of = NULL;
    rvl_status status = find_or_make(meeting, rvli_meeting_deposits(meeting), request, &of);
    if (status != RVL_OK)
        return status;
    part *own = part_of(of, request->rank, false);
    if (own == NULL)
        return RVL_ERR_INVALID;
    if (own->came || own->bytes > 0)
        return RVL_ERR_STATE;
    own->client = client;
    own->bytes = request->bytes;
    own->place = *place_out = rvli_shared_take_place(machine->shared, request->bytes);
    return RVL_OK;
}

/* All ranks of an operation make the same call. After one difference, all later operations
 * differ as well, and either rank may come second. So the difference is reported once, to one
 * rank. */
static void compare_calls(rvli_deposits *all, rvli_deposit *of, const rvli_wire_request *request,
                          rvli_wire_answer *answer)
{
    if (request->text[0] == '\0' || all->difference_told)
        return;
    if (of->call == NULL) {
        of->call = strndup(request->text, sizeof request->text - 1);
        of->first = request->rank;
    } else if (strncmp(of->call, request->text, sizeof request->text - 1) != 0) {
        snprintf(answer->text, sizeof answer->text, "%s", of->call);
        answer->count = of->first;
        all->difference_told = true;
    }
}

rvl_status rvli_deposits_come(rvli_machine *machine, rvli_client *client,
                              const rvli_wire_request *request, rvli_wire_answer *answer)
{
    rvli_meeting *meeting = meeting_of(machine, client, request);
    if (meeting == NULL)
        return RVL_ERR_NOT_FOUND;
    if (request->bytes > RVLI_WIRE_ENDS)
        return RVL_ERR_INVALID;
    rvli_deposit *of = NULL;
    rvli_deposits *all = rvli_meeting_deposits(meeting);
    if (request->bytes == RVLI_WIRE_ENDS) {
        give_up(machine, all);
        return RVL_OK;
    }
    rvl_status status = find_or_make(meeting, all, request, &of);
    if (status != RVL_OK)
        return status;
    bool gets = request->bytes == RVLI_WIRE_GETS;
    part *own = part_of(of, request->rank, gets);
    if (own == NULL || own->came)
        return own == NULL ? RVL_ERR_INVALID : RVL_ERR_STATE;
    own->client = client;
    own->came = true;
    own->waits = request->ranks == RVLI_WIRE_AWAITS;
    compare_calls(all, of, request, answer);
    answer->id = find_gone(meeting, of);
    note_gone(machine, meeting, of, NULL);
    if (!gets)
        finish(of, own);
    end_if_done(machine, meeting, all, of);
    return RVL_OK;
}

/* Also finds a rank that has left since it came. */
static part *taker(rvli_deposit *of, const rvli_client *client, uint32_t rank)
{
    part *own = part_of(of, rank, true);
    return own != NULL && own->came && own->client == client ? own : NULL;
}

rvl_status rvli_deposits_take(rvli_machine *machine, rvli_client *client,
                              const rvli_wire_request *request, rvli_wire_answer *answer)
{
    rvli_meeting *meeting = rvli_meeting_find(machine, request->id);
    rvli_deposit *of = meeting != NULL ? find(rvli_meeting_deposits(meeting), request) : NULL;
    if (of == NULL)
        return RVL_OK; /* unknown: nothing is carried there any more */
    const part *giver =
        request->bytes <= UINT32_MAX ? part_of(of, (uint32_t)request->bytes, false) : NULL;
    if (giver == NULL || taker(of, client, request->rank) == NULL)
        return RVL_ERR_INVALID;
    if (giver->came) {
        answer->count = giver->bytes > 0;
        answer->place = giver->place;
        answer->total_bytes = giver->bytes;
        return RVL_OK;
    }
    rvli_client *holder;
    rvli_seat seat = rvli_meeting_seat(meeting, (uint32_t)request->bytes, &holder);
    return seat == RVLI_SEAT_LEFT || machine->store != NULL ? RVL_ERR_STATE : RVL_ERR_BUSY;
}

static bool is_awaited(const rvli_machine *machine, const rvli_meeting *meeting,
                       const rvli_deposit *of, uint32_t index)
{
    rvli_client *holder;
    return machine->store == NULL && !of->parts[index].came && !of->parts[index].done &&
           rvli_meeting_seat(meeting, rank_of(of, index), &holder) != RVLI_SEAT_LEFT;
}

/* Returns 1 + a rank that never called this forgotten operation. 0: there is none. */
static uint64_t find_missed(const rvli_deposits *all, const rvli_wire_request *request)
{
    const rvli_unended *known = find_unended(all, request->from, request->to);
    return known != NULL && known->sequence <= request->sequence ? (uint64_t)known->gone + 1 : 0;
}

/* A forgotten operation is done, unless a rank left without calling it. The asking rank has
 * come. */
rvl_status rvli_deposits_done(rvli_machine *machine, const rvli_wire_request *request,
                              rvli_wire_answer *answer)
{
    rvli_meeting *meeting = rvli_meeting_find(machine, request->id);
    if (meeting == NULL)
        return RVL_OK;
    const rvli_deposits *all = rvli_meeting_deposits(meeting);
    const rvli_deposit *of = find(all, request);
    answer->id = of != NULL ? find_gone(meeting, of) : find_missed(all, request);
    for (uint32_t i = 0; of != NULL && i < of->count; i++) {
        answer->count = rank_of(of, i);
        bool asked = request->bytes == RVLI_WIRE_ALL || request->bytes == answer->count;
        if (asked && is_awaited(machine, meeting, of, i))
            return RVL_ERR_BUSY;
    }
    return RVL_OK;
}

void rvli_deposits_taken(rvli_machine *machine, rvli_client *client,
                         const rvli_wire_request *request)
{
    rvli_meeting *meeting = rvli_meeting_find(machine, request->id);
    rvli_deposits *all = meeting != NULL ? rvli_meeting_deposits(meeting) : NULL;
    rvli_deposit *of = all != NULL ? find(all, request) : NULL;
    part *own = of != NULL ? taker(of, client, request->rank) : NULL;
    if (own == NULL)
        return;
    finish(of, own);
    end_if_done(machine, meeting, all, of);
    rvli_meeting_drop_if_empty(machine, meeting);
}
