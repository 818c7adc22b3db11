/* SPDX-License-Identifier: MIT */
#include "simcuda/nccl/carry.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "simcuda/driver/client.h"
#include "simcuda/driver/contents.h"
#include "simcuda/driver/owed.h"
#include "simcuda/driver/shared_contents.h"
#include "simcuda/nccl/reduce.h"
#include "simcuda/nccl/stuck.h"

#define POLL_NS_MIN 200000
#define POLL_NS_MAX 5000000

/* The data promised to a rank, and where to request it. It outlives its communicator. */
typedef struct job {
    rvli_wire_request key; /* meeting, rank, sequence, from, to */
    const char *name;
    rvli_carry_way way;
    rvli_nccl_type type;
    rvli_reduction reduction;
    int ranks;
    int source;
    size_t bytes;
    size_t at;
} job;

/* ---- Waiting ---- */

typedef struct patience {
    uint64_t began_ns, waited_ns;
    struct timespec moment;
    bool told;
} patience;

static patience begin_patience(void)
{
    return (patience){.began_ns = rvli_nccl_now_ns(), .moment.tv_nsec = POLL_NS_MIN};
}

static void nap(patience *of)
{
    nanosleep(&of->moment, NULL);
    of->moment.tv_nsec =
        of->moment.tv_nsec < POLL_NS_MAX / 2 ? of->moment.tv_nsec * 2 : POLL_NS_MAX;
    of->waited_ns = rvli_nccl_now_ns() - of->began_ns;
}

/* Waits a moment. false: the timeout is over. */
static bool wait_on(patience *of)
{
    if (of->waited_ns >= rvli_nccl_timeout_ns())
        return false;
    nap(of);
    return true;
}

/* Returns true once, after a while. */
static bool is_to_be_told(patience *of)
{
    bool now = !of->told && of->waited_ns >= RVLI_NCCL_TELL_AFTER_S * RVLI_SECOND_NS;
    of->told = of->told || now;
    return now;
}

/* ---- Asking ---- */

static rvli_stuck_call stuck_call(const job *of)
{
    return (rvli_stuck_call){of->key.id, (int)of->key.rank, of->ranks, of->name};
}

static void tell_waits(const job *of, int giver)
{
    fprintf(stderr,
            "reveille: NCCL: rank %" PRIu32 " of %d reads what %s brings, and waits for rank %d, "
            "which has not called it\n",
            of->key.rank, of->ranks, of->name, giver);
}

/* Handles ranks that have not come before the timeout. */
static rvli_stuck be_late(const rvli_stuck_call *call, uint32_t missing, uint64_t waited_ns)
{
    char sentence[RVLI_WIRE_TEXT_BYTES];
    snprintf(sentence, sizeof sentence,
             "rank %d of %d has waited %" PRIu64 " s for rank %" PRIu32
             " to call %s (" RVLI_NCCL_TIMEOUT_VARIABLE ")",
             call->rank, call->ranks, waited_ns / RVLI_SECOND_NS, missing, call->name);
    return rvli_stuck_by_lateness(call, sentence);
}

static rvl_status ask(const job *of, int giver, rvli_wire_answer *answer)
{
    rvli_wire_request request = of->key;
    request.kind = RVLI_WIRE_TAKE;
    request.bytes = (uint64_t)giver;
    return rvli_client_send(&request, answer);
}

/* Waits until a rank has come, if `wait` is set. false: it is still missing. *place_out: size 0
 * if the content is unknown. */
static bool find_brought(const job *of, int giver, bool wait, rvli_shared_place *place_out)
{
    rvli_wire_answer answer = {0};
    rvl_status status;
    patience waiting = begin_patience();
    *place_out = (rvli_shared_place){0};
    while ((status = ask(of, giver, &answer)) == RVL_ERR_BUSY && wait && wait_on(&waiting))
        if (is_to_be_told(&waiting))
            tell_waits(of, giver);
    if (status == RVL_ERR_BUSY && !wait)
        return false;
    const rvli_stuck_call call = stuck_call(of);
    if (status == RVL_ERR_BUSY)
        (void)be_late(&call, (uint32_t)giver, waiting.waited_ns);
    else if (status == RVL_ERR_STATE)
        (void)rvli_stuck_by_leaving(&call, giver);
    else if (status == RVL_OK && answer.count > 0)
        *place_out = (rvli_shared_place){.place = answer.place, .size_bytes = answer.total_bytes};
    return true;
}

/* Reads a part of what a rank has brought. If the rank brought less than agreed, the part is
 * unknown. */
static bool take_part(const job *of, int giver, char *bytes, bool *known, bool wait)
{
    rvli_shared_place place;
    if (!find_brought(of, giver, wait, &place))
        return false;
    memset(known, false, of->bytes);
    if (place.size_bytes < of->at + of->bytes || !rvli_shared_contents_begin(rvli_contents_most()))
        return true;
    place.at = of->at;
    (void)rvli_shared_contents_read(&place, bytes, of->bytes);
    rvli_shared_contents_list(&place, known, of->bytes);
    return true;
}

/* ---- Reducing ---- */

/* A number is known if all of its bytes are. */
static void know_whole_numbers(const job *of, bool *known)
{
    size_t each = rvli_type_bytes(of->type);
    for (size_t at = 0; at < of->bytes; at += each)
        if (memchr(known + at, false, each) != NULL)
            memset(known + at, false, each);
}

static bool add_ranks(const job *of, char *bytes, bool *known, char *room, bool wait)
{
    bool *known_there = (bool *)room + of->bytes;
    size_t count = of->bytes / rvli_type_bytes(of->type);
    if (!take_part(of, 0, bytes, known, wait))
        return false;
    for (int rank = 1; rank < of->ranks; rank++) {
        if (!take_part(of, rank, room, known_there, wait))
            return false;
        rvli_reduce_into(of->type, of->reduction, bytes, room, count);
        for (size_t i = 0; i < of->bytes; i++)
            known[i] = known[i] && known_there[i];
    }
    if (of->reduction == RVLI_REDUCE_AVERAGE)
        rvli_reduce_after_average(of->type, bytes, count, of->ranks);
    know_whole_numbers(of, known);
    return true;
}

static bool reduce(const job *of, char *bytes, bool *known, bool wait)
{
    char *room = calloc(2, of->bytes);
    bool done = room == NULL || add_ranks(of, bytes, known, room, wait);
    free(room);
    return done;
}

/* ---- What a stream owes ---- */

static void tell_incomplete(const rvli_owed *of, uint32_t missing)
{
    fprintf(stderr,
            "reveille: NCCL: rank %" PRIu32 " of %" PRIu32 " waits until %s is complete, "
            "which rank %" PRIu32 " has not called\n",
            of->rank, of->ranks, of->name, missing);
}

/* The state of an incomplete operation. gone: 1 + a rank that has left. */
static rvli_owed_end end_of(const rvli_stuck_call *call, uint64_t gone, uint32_t missing,
                            const patience *waiting)
{
    rvli_stuck state;
    if (gone != 0)
        state = rvli_stuck_by_leaving(call, (int)gone - 1);
    else if (waiting->waited_ns >= rvli_nccl_timeout_ns())
        state = be_late(call, missing, waiting->waited_ns);
    else
        return rvli_stuck_ask(call) == RVLI_STUCK_FAILED ? RVLI_OWED_NEVER : RVLI_OWED_NOT_YET;
    return state == RVLI_STUCK_ENDED    ? RVLI_OWED_COME
           : state == RVLI_STUCK_FAILED ? RVLI_OWED_NEVER
                                        : RVLI_OWED_NOT_YET;
}

/* Without wait, it asks once. With wait, it returns when the result is known. */
static rvli_owed_end have_come(const rvli_owed *of, bool wait)
{
    const rvli_stuck_call call = {of->meeting, (int)of->rank, (int)of->ranks, of->name};
    const rvli_wire_request done = {.kind = RVLI_WIRE_DONE,
                                    .id = of->meeting,
                                    .bytes = of->giver,
                                    .rank = of->rank,
                                    .sequence = of->sequence,
                                    .from = of->from,
                                    .to = of->to};
    patience waiting = begin_patience();
    for (;;) {
        rvli_wire_answer answer = {0};
        rvl_status status = rvli_client_send(&done, &answer);
        if (status != RVL_ERR_BUSY && answer.id == 0)
            return RVLI_OWED_COME;
        rvli_owed_end end = end_of(&call, answer.id, answer.count, &waiting);
        if (!wait || end != RVLI_OWED_NOT_YET)
            return end;
        if (answer.id == 0 && is_to_be_told(&waiting))
            tell_incomplete(of, answer.count);
        nap(&waiting);
    }
}

/* A rank that only sends does not wait for receivers: a small message fits into NCCL's buffers. */
static bool waits_for_others(const rvli_carried *call)
{
    bool alone = call->way == RVLI_CARRY_ONE && call->peer < 0 && call->source == call->comm->rank;
    return call->way != RVLI_CARRY_NOTHING && !alone;
}

static void owe(const rvli_carried *call, const rvli_wire_request *key)
{
    const rvli_owed what = {.meeting = key->id,
                            .sequence = key->sequence,
                            .from = key->from,
                            .to = key->to,
                            .giver = call->way == RVLI_CARRY_ONE ? (uint32_t)call->source
                                                                 : RVLI_WIRE_ALL,
                            .rank = key->rank,
                            .ranks = (uint32_t)call->comm->ranks,
                            .device = call->comm->device,
                            .name = call->name,
                            .have_come = have_come};
    if (waits_for_others(call))
        rvli_owed_add(call->stream, &what);
}

/* ---- The promise ---- */

static bool bring(void *user, char *bytes, bool *known, bool wait)
{
    const job *of = user;
    if (of->way == RVLI_CARRY_ONE)
        return take_part(of, of->source, bytes, known, wait);
    if (of->way == RVLI_CARRY_REDUCE)
        return reduce(of, bytes, known, wait);
    for (int rank = 0; rank < of->ranks; rank++) {
        size_t at = (size_t)rank * of->bytes;
        if (!take_part(of, rank, bytes + at, known + at, wait))
            return false;
    }
    return true;
}

static void end(void *user)
{
    rvli_wire_request request = ((job *)user)->key;
    request.kind = RVLI_WIRE_TAKEN;
    rvli_client_post(&request);
    free(user);
}

static const rvli_bringer bringer = {bring, end};

/* ---- What this rank brings ---- */

static size_t bytes_got(const rvli_carried *call)
{
    return call->way == RVLI_CARRY_EACH      ? call->bytes * (size_t)call->comm->ranks
           : call->way == RVLI_CARRY_NOTHING ? 0
                                             : call->bytes;
}

static bool is_captured(CUstream stream)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    return cuStreamIsCapturing(stream, &status) == CUDA_SUCCESS &&
           status != CU_STREAM_CAPTURE_STATUS_NONE;
}

/* is_shared: ranks come to the operation one by one. is_counted: they do so now, not at each
 * launch of the graph that contains it. */
static bool is_shared(const rvli_carried *call)
{
    return !call->comm->alone && call->largest > 0;
}

static bool is_counted(const rvli_carried *call)
{
    return is_shared(call) && !call->captured;
}

static bool is_carried(const rvli_carried *call)
{
    return is_counted(call) && call->largest <= rvli_contents_limit();
}

static bool *known_of(const rvli_carried *call)
{
    return (bool *)call->snapshot + call->from_bytes;
}

static bool any_known(const rvli_carried *call)
{
    return call->snapshot != NULL && memchr(known_of(call), true, call->from_bytes) != NULL;
}

/* Reads the factor of an operation that the program has made. false: it is unknown. */
static bool read_scalar(const rvli_comm *comm, int operation, rvli_nccl_type type, char *scalar)
{
    const rvli_scalar *made = &comm->scalars[operation - RVLI_NCCL_OPERATIONS];
    if (made->on_device == 0)
        memcpy(scalar, made->value, sizeof made->value);
    return made->type == type &&
           (made->on_device == 0 ||
            rvli_contents_read(made->on_device, scalar, rvli_type_bytes(type)));
}

static void scale(rvli_carried *call)
{
    char scalar[sizeof(double)] = {0};
    size_t count = call->from_bytes / rvli_type_bytes(call->type);
    if (call->operation == RVLI_REDUCE_AVERAGE)
        rvli_reduce_before_average(call->type, call->snapshot, count, call->comm->ranks);
    if (call->operation < RVLI_NCCL_OPERATIONS)
        return;
    if (read_scalar(call->comm, call->operation, call->type, scalar))
        rvli_reduce_scale(call->type, call->snapshot, count, scalar);
    else
        memset(known_of(call), false, call->from_bytes);
}

/* A communicator of one rank gets its own data, possibly multiplied. */
static bool is_local(const rvli_carried *call)
{
    return call->comm->ranks == 1 && call->peer < 0;
}

static bool is_multiplied(const rvli_carried *call)
{
    return call->reduces && call->operation >= RVLI_NCCL_OPERATIONS;
}

void rvli_carry_read(rvli_carried *call)
{
    call->snapshot = NULL;
    if (is_local(call) && !is_multiplied(call))
        return;
    call->captured = is_captured(call->stream);
    if (!is_carried(call) || call->from == NULL)
        return;
    call->snapshot = malloc(2 * call->from_bytes);
    if (call->snapshot == NULL)
        return; /* the content is unknown */
    rvli_contents_read_known((CUdeviceptr)call->from, call->snapshot, known_of(call),
                             call->from_bytes);
    if (call->reduces)
        scale(call);
}

static void tell_ahead(const rvli_carried *call)
{
    fprintf(stderr,
            "reveille: NCCL: rank %d of %d calls %s, and waits: others are too many operations "
            "behind\n",
            call->comm->rank, call->comm->ranks, call->name);
}

static void fall_behind(const rvli_carried *call, uint64_t waited_ns)
{
    const rvli_stuck_call stuck = {call->comm->meeting, call->comm->rank, call->comm->ranks,
                                   call->name};
    char sentence[RVLI_WIRE_TEXT_BYTES];
    snprintf(sentence, sizeof sentence,
             "rank %d of %d has waited %" PRIu64 " s for others, which are too many operations "
             "behind (" RVLI_NCCL_TIMEOUT_VARIABLE ")",
             call->comm->rank, call->comm->ranks, waited_ns / RVLI_SECOND_NS);
    (void)rvli_stuck_by_lateness(&stuck, sentence);
}

/*
 * Takes part. A rank that is far ahead waits here, as for the launch queue of a card. Meanwhile
 * it takes the data that has arrived for it, so that it does not block the others.
 */
static rvl_status take_part_in(const rvli_carried *call, const rvli_wire_request *request,
                               rvli_wire_answer *answer)
{
    rvl_status status;
    patience waiting = begin_patience();
    while ((status = rvli_client_send(request, answer)) == RVL_ERR_BUSY && wait_on(&waiting)) {
        rvli_contents_tidy();
        if (is_to_be_told(&waiting))
            tell_ahead(call);
    }
    if (status == RVL_ERR_BUSY) {
        rvli_wire_request end = *request;
        end.kind = RVLI_WIRE_COME;
        end.bytes = RVLI_WIRE_ENDS;
        (void)rvli_client_send(&end, answer);
        fall_behind(call, waiting.waited_ns);
    }
    return status;
}

/* Writes the runs of known bytes to a place that is all unknown. */
static void write_known(const rvli_carried *call, const rvli_shared_place *place)
{
    const bool *known = known_of(call);
    for (size_t i = 0, run; i < call->from_bytes; i += run) {
        for (run = 1; i + run < call->from_bytes && known[i + run] == known[i]; run++)
            ;
        rvli_shared_place part = *place;
        part.at = i;
        if (known[i])
            rvli_shared_contents_write(&part, call->snapshot + i, run);
    }
}

static void give(const rvli_carried *call, rvli_wire_request request)
{
    rvli_wire_answer answer;
    request.kind = RVLI_WIRE_BRING;
    request.bytes = call->from_bytes;
    if (!rvli_shared_contents_begin(rvli_contents_most()) ||
        take_part_in(call, &request, &answer) != RVL_OK)
        return;
    const rvli_shared_place place = {.place = answer.place, .size_bytes = call->from_bytes};
    write_known(call, &place);
}

/* ---- Whether all ranks make the same call ---- */

/* Describes a call for comparison: "ncclAllReduce of 4096 bytes of float32, sum". "" for a pair,
 * which numbers its own sends and receives. */
static void describe(const rvli_carried *call, char text[RVLI_WIRE_TEXT_BYTES])
{
    static const char *const types[] = {"int8",    "uint8",    "int32",       "uint32",
                                        "int64",   "uint64",   "float16",     "float32",
                                        "float64", "bfloat16", "float8_e4m3", "float8_e5m2"};
    static const char *const operations[] = {"sum", "product", "max", "min", "average"};
    _Static_assert(sizeof types / sizeof *types == RVLI_NCCL_TYPES, "a name for each type");
    text[0] = '\0';
    if (call->peer >= 0)
        return;
    int length = snprintf(text, RVLI_WIRE_TEXT_BYTES, "%s of %zu bytes", call->name, call->bytes);
    if (call->reduces)
        snprintf(
            text + length, RVLI_WIRE_TEXT_BYTES - (size_t)length, " of %s, %s", types[call->type],
            call->operation < RVLI_NCCL_OPERATIONS ? operations[call->operation] : "multiplied");
}

static void tell_difference(const rvli_carried *call, const char *own,
                            const rvli_wire_answer *answer)
{
    if (answer->text[0] != '\0')
        fprintf(stderr,
                "reveille: NCCL: rank %d of %d calls %s, and rank %" PRIu32 " calls %s: all ranks "
                "must make the same call. On cards this hangs, or brings wrong values\n",
                call->comm->rank, call->comm->ranks, own, answer->count, answer->text);
}

/* Handles ranks that have left: ranks that wait for them would wait forever. */
static void meet_gone(const rvli_carried *call, int gone)
{
    const rvli_stuck_call stuck = {call->comm->meeting, call->comm->rank, call->comm->ranks,
                                   call->name};
    if (waits_for_others(call))
        (void)rvli_stuck_by_leaving(&stuck, gone);
    else if (!atomic_exchange(&call->comm->unheard_told, true))
        fprintf(stderr,
                "reveille: NCCL: rank %d of %d calls %s, and rank %d has left without calling it: "
                "on cards rank %d waits as soon as NCCL's buffers are full\n",
                call->comm->rank, call->comm->ranks, call->name, gone, call->comm->rank);
}

/* Takes part, with the data that was brought. */
static rvl_status come(const rvli_carried *call, const rvli_wire_request *key, bool reads)
{
    rvli_wire_answer answer = {0};
    rvli_wire_request request = *key;
    request.kind = RVLI_WIRE_COME;
    request.bytes = reads ? RVLI_WIRE_GETS : RVLI_WIRE_GIVES;
    request.ranks = waits_for_others(call) ? RVLI_WIRE_AWAITS : 0;
    describe(call, request.text);
    rvl_status status = take_part_in(call, &request, &answer);
    if (status == RVL_OK)
        tell_difference(call, request.text, &answer);
    if (status == RVL_OK && answer.id != 0)
        meet_gone(call, (int)answer.id - 1);
    return status;
}

/* ---- The operation ---- */

/* Sends and receives of a pair are numbered separately, since other ranks need not know of them. */
static rvli_wire_request next_key(rvli_comm *comm, const rvli_carried *call)
{
    rvli_wire_request key = {.id = comm->meeting,
                             .rank = (uint32_t)comm->rank,
                             .from = RVLI_WIRE_ALL,
                             .to = RVLI_WIRE_ALL};
    if (call->peer < 0) {
        key.sequence = comm->carried++;
        return key;
    }
    bool sends = call->way == RVLI_CARRY_NOTHING;
    key.from = (uint32_t)(sends ? comm->rank : call->peer);
    key.to = (uint32_t)(sends ? call->peer : comm->rank);
    key.sequence = comm->pairs[call->peer][sends]++;
    return key;
}

/* Whether this rank reads data of other ranks. */
static bool gets(const rvli_carried *call)
{
    return call->way == RVLI_CARRY_EACH || (call->way == RVLI_CARRY_REDUCE && any_known(call)) ||
           (call->way == RVLI_CARRY_ONE && (call->source != call->comm->rank || call->peer >= 0));
}

static void promise(const rvli_carried *call, const rvli_wire_request *key)
{
    job *made = malloc(sizeof *made);
    if (made != NULL)
        *made = (job){.key = *key,
                      .name = call->name,
                      .way = call->way,
                      .type = call->type,
                      .reduction = call->operation < RVLI_NCCL_OPERATIONS
                                       ? (rvli_reduction)call->operation
                                       : RVLI_REDUCE_SUM,
                      .ranks = call->comm->ranks,
                      .source = call->source,
                      .bytes = call->bytes,
                      .at = call->at};
    if (made == NULL ||
        !rvli_contents_promise((CUdeviceptr)call->to, bytes_got(call), &bringer, made)) {
        rvli_contents_forget((CUdeviceptr)call->to, bytes_got(call));
        if (made != NULL)
            end(made);
    }
}

/* Data that is too large to carry is unknown, but ranks still wait for each other. */
static void come_with_nothing(const rvli_carried *call)
{
    rvli_wire_request key = next_key(call->comm, call), taken = key;
    bool receives = call->peer >= 0 && call->way == RVLI_CARRY_ONE;
    if (come(call, &key, receives) != RVL_OK)
        return;
    owe(call, &key);
    taken.kind = RVLI_WIRE_TAKEN;
    if (receives)
        rvli_client_post(&taken);
}

/* If the machine refuses, no data is carried, and this rank's result is unknown. */
static void exchange(const rvli_carried *call)
{
    rvli_wire_request key = next_key(call->comm, call);
    bool reads = gets(call);
    if (any_known(call))
        give(call, key);
    bool came = come(call, &key, reads) == RVL_OK;
    if (came)
        owe(call, &key);
    if (reads && came)
        promise(call, &key);
    else if (reads || call->way == RVLI_CARRY_REDUCE)
        rvli_contents_forget((CUdeviceptr)call->to, bytes_got(call));
}

/* ---- In graphs ---- */

static CUresult graph_of(CUstream stream, CUgraph *graph_out)
{
    CUstreamCaptureStatus status;
#if CUDA_VERSION >= 13000
    return cuStreamGetCaptureInfo(stream, &status, NULL, graph_out, NULL, NULL, NULL);
#else
    return cuStreamGetCaptureInfo_v2(stream, &status, NULL, graph_out, NULL, NULL);
#endif
}

/* An operation that was captured. */
typedef struct in_graph {
    rvli_carried call;
    uint64_t meeting; /* of its communicator, which may be destroyed before the graph is launched */
    int rank;
    CUdeviceptr lost; /* unknown after each launch */
    size_t lost_bytes;
} in_graph;

/* Called by each launch: the rank comes to the operation, and its result is unknown. */
static void call_again(void *user)
{
    const in_graph *of = user;
    rvli_carried call = of->call;
    if (of->lost_bytes > 0)
        rvli_contents_forget(of->lost, of->lost_bytes);
    call.comm = rvli_comm_find(of->meeting, of->rank);
    call.stream = rvli_owed_launched_on();
    call.captured = false;
    if (call.comm != NULL && is_counted(&call))
        come_with_nothing(&call);
}

static CUresult call_at_launch(const rvli_carried *call, CUdeviceptr lost, size_t lost_bytes)
{
    CUgraph graph = NULL;
    CUuserObject owner;
    in_graph *made = malloc(sizeof *made);
    if (made == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *made = (in_graph){*call, call->comm->meeting, call->comm->rank, lost, lost_bytes};
    made->call.snapshot = NULL;
    CUresult result = cuUserObjectCreate(&owner, made, free, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC);
    if (result != CUDA_SUCCESS) {
        free(made);
        return result;
    }
    result = graph_of(call->stream, &graph);
    if (result == CUDA_SUCCESS)
        result = cuGraphRetainUserObject(graph, owner, 1, CU_GRAPH_USER_OBJECT_MOVE);
    if (result != CUDA_SUCCESS) {
        (void)cuUserObjectRelease(owner, 1);
        return result;
    }
    return cuLaunchHostFunc(call->stream, call_again, made);
}

/* Makes the result unknown, since no rank brings data. This rank's own part is already in place. */
static rvli_nccl_result get_nothing(const rvli_carried *call)
{
    CUdeviceptr to = (CUdeviceptr)call->to;
    bool has_all = call->way == RVLI_CARRY_ONE && call->source == call->comm->rank;
    size_t own = (size_t)call->comm->rank * call->bytes, all = has_all ? 0 : bytes_got(call);
    if (call->captured)
        return all > 0 || is_shared(call) ? rvli_nccl_driven(call_at_launch(call, to, all))
                                          : RVLI_NCCL_SUCCESS;
    if (all == 0)
        return RVLI_NCCL_SUCCESS;
    if (call->way != RVLI_CARRY_EACH) {
        rvli_contents_forget(to, all);
        return RVLI_NCCL_SUCCESS;
    }
    rvli_contents_forget(to, own);
    rvli_contents_forget(to + own + call->bytes, all - own - call->bytes);
    return RVLI_NCCL_SUCCESS;
}

/* Stores the rank's own data, multiplied. */
static void reduce_alone(const rvli_carried *call)
{
    if (call->snapshot != NULL)
        rvli_contents_write_known((CUdeviceptr)call->to, call->snapshot, known_of(call),
                                  call->bytes);
    else
        rvli_contents_forget((CUdeviceptr)call->to, call->bytes);
}

rvli_nccl_result rvli_carry(rvli_carried *call, rvli_nccl_result result)
{
    bool local = is_local(call);
    if (result == RVLI_NCCL_SUCCESS && local && is_multiplied(call) && !call->captured)
        reduce_alone(call);
    else if (result == RVLI_NCCL_SUCCESS && !local && is_carried(call))
        exchange(call);
    else if (result == RVLI_NCCL_SUCCESS && !local) {
        if (is_counted(call))
            come_with_nothing(call);
        result = get_nothing(call);
    }
    free(call->snapshot);
    return result;
}
