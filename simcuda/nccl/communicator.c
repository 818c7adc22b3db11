/* SPDX-License-Identifier: MIT */
/*
 * Communicators: their creation, in which all ranks meet, and their end.
 *
 * A communicator's name is derived from the unique id. A split communicator's name is derived
 * from its parent's name. All ranks derive the same name, and meet under it. A split takes two
 * meetings: one of all ranks, which exchange color and key, and one of the ranks of a color.
 */
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "simcuda/driver/client.h"
#include "simcuda/driver/polled.h"
#include "simcuda/nccl/comm.h"
#include "simcuda/nccl/stuck.h"

#define TIMEOUT_USUAL_S 600
#define POLL_NS_MIN 200000
#define POLL_NS_MAX 20000000
#define DEVICES_MAX 64

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static rvli_comm *live;

uint64_t rvli_nccl_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * RVLI_SECOND_NS + (uint64_t)now.tv_nsec;
}

/* ---- Names ---- */

static uint64_t digest(uint64_t seed, const void *bytes, size_t count) /* FNV-1a */
{
    const unsigned char *each = bytes;
    for (size_t i = 0; i < count; i++)
        seed = (seed ^ each[i]) * UINT64_C(0x100000001b3);
    return seed;
}

static void make_name(char name[RVLI_COMM_NAME_BYTES], const void *bytes, size_t count)
{
    uint64_t first = digest(UINT64_C(0xcbf29ce484222325), bytes, count);
    snprintf(name, RVLI_COMM_NAME_BYTES, "%016" PRIx64 "%016" PRIx64, first,
             digest(first, bytes, count));
}

/* The name of a communicator made from another: by the number of the call, and the color. */
static void make_child_name(char name[RVLI_COMM_NAME_BYTES], const char *parent, unsigned child,
                            const char *kind, int color)
{
    char text[128];
    int length = snprintf(text, sizeof text, "%s/%u/%s/%d", parent, child, kind, color);
    make_name(name, text, (size_t)length);
}

/* ---- Meeting ---- */

static rvli_nccl_result failed_to_ask(rvl_status status)
{
    return status == RVL_ERR_NO_DRIVER
               ? rvli_nccl_fail(RVLI_NCCL_SYSTEM_ERROR, "there is no machine of simulated GPUs")
               : rvli_nccl_fail(RVLI_NCCL_INTERNAL_ERROR, "the machine answers with error %d",
                                (int)status);
}

static rvli_nccl_result meet(const char *name, int rank, int ranks, uint64_t brought,
                             uint64_t *meeting_out)
{
    rvli_wire_answer answer;
    rvli_wire_request request = {
        .kind = RVLI_WIRE_MEET, .bytes = brought, .rank = (uint32_t)rank, .ranks = (uint32_t)ranks};
    snprintf(request.text, sizeof request.text, "%s", name);
    rvl_status status = rvli_client_send(&request, &answer);
    if (status == RVL_OK)
        *meeting_out = answer.id;
    if (status == RVL_ERR_STATE)
        return rvli_nccl_fail(RVLI_NCCL_INVALID_USAGE,
                              "rank %d of %d is there already, or others say another number of "
                              "ranks: each rank takes part once",
                              rank, ranks);
    return status == RVL_OK ? RVLI_NCCL_SUCCESS : failed_to_ask(status);
}

static bool brought_by(uint64_t meeting, int rank, uint64_t *brought_out)
{
    rvli_wire_answer answer;
    rvli_wire_request request = {.kind = RVLI_WIRE_BROUGHT, .id = meeting, .rank = (uint32_t)rank};
    if (rvli_client_send(&request, &answer) != RVL_OK)
        return false;
    *brought_out = answer.id;
    return true;
}

static void part(uint64_t *meeting, int rank)
{
    const rvli_wire_request request = {
        .kind = RVLI_WIRE_PART, .id = *meeting, .rank = (uint32_t)rank};
    if (*meeting != 0)
        rvli_client_post(&request);
    *meeting = 0;
}

static uint64_t timeout_ns(const char *variable, unsigned long least_s, unsigned long usual_s)
{
    const char *text = getenv(variable);
    char *end = NULL;
    unsigned long seconds = text != NULL ? strtoul(text, &end, 10) : 0;
    return (end != text && seconds >= least_s ? seconds : usual_s) * RVLI_SECOND_NS;
}

uint64_t rvli_nccl_timeout_ns(void)
{
    return timeout_ns(RVLI_NCCL_TIMEOUT_VARIABLE, 1, TIMEOUT_USUAL_S);
}

uint64_t rvli_nccl_left_timeout_ns(void)
{
    return timeout_ns(RVLI_NCCL_LEFT_VARIABLE, 0, RVLI_NCCL_LEFT_USUAL_S);
}

/* Asks once whether all ranks have come. RVLI_NCCL_IN_PROGRESS: not yet. */
static rvli_nccl_result have_met(rvli_comm *comm, uint64_t meeting)
{
    rvli_wire_answer answer;
    rvli_wire_request request = {.kind = RVLI_WIRE_MET, .id = meeting};
    rvl_status status = rvli_client_send(&request, &answer);
    uint64_t waited_ns = rvli_nccl_now_ns() - comm->began_ns;
    if (status == RVL_OK)
        return RVLI_NCCL_SUCCESS;
    if (status == RVL_ERR_STATE)
        return rvli_nccl_fail(RVLI_NCCL_REMOTE_ERROR,
                              "rank %d of %d waits for the others, and %s, has ended", comm->rank,
                              comm->ranks, answer.text);
    if (status != RVL_ERR_BUSY)
        return failed_to_ask(status);
    if (waited_ns >= rvli_nccl_timeout_ns())
        return rvli_nccl_fail(
            RVLI_NCCL_SYSTEM_ERROR,
            "rank %d of %d has waited %" PRIu64 " s for ranks that have not "
            "come: %s. Start them, or give more time by " RVLI_NCCL_TIMEOUT_VARIABLE,
            comm->rank, comm->ranks, waited_ns / RVLI_SECOND_NS, answer.text);
    if (!comm->told && waited_ns >= RVLI_NCCL_TELL_AFTER_S * RVLI_SECOND_NS) {
        fprintf(stderr, "reveille: NCCL: rank %d of %d waits for ranks that have not come: %s\n",
                comm->rank, comm->ranks, answer.text);
        comm->told = true;
    }
    return RVLI_NCCL_IN_PROGRESS;
}

static rvli_nccl_result wait_for_all(rvli_comm *comm, uint64_t meeting)
{
    struct timespec moment = {.tv_nsec = POLL_NS_MIN};
    rvli_nccl_result result;
    while ((result = have_met(comm, meeting)) == RVLI_NCCL_IN_PROGRESS) {
        nanosleep(&moment, NULL);
        moment.tv_nsec = moment.tv_nsec < POLL_NS_MAX / 2 ? moment.tv_nsec * 2 : POLL_NS_MAX;
    }
    if (result != RVLI_NCCL_SUCCESS)
        fprintf(stderr, "reveille: NCCL: %s\n", ncclGetLastError(comm));
    return result;
}

rvli_nccl_result rvli_comm_meet(rvli_comm *comm, const char *what, uint64_t *meeting_out)
{
    char name[RVLI_COMM_NAME_BYTES];
    *meeting_out = 0;
    if (comm->ranks == 1 || !comm->sized)
        return RVLI_NCCL_SUCCESS;
    make_child_name(name, comm->name, comm->moves++, what, 0);
    comm->began_ns = rvli_nccl_now_ns();
    comm->told = false;
    return meet(name, comm->rank, comm->ranks, 0, meeting_out);
}

rvli_nccl_result rvli_comm_wait(rvli_comm *comm, uint64_t *meeting)
{
    rvli_nccl_result result = *meeting != 0 ? wait_for_all(comm, *meeting) : RVLI_NCCL_SUCCESS;
    part(meeting, comm->rank);
    return result;
}

/* ---- A communicator ---- */

/* The device of this thread, as in the runtime: 0 if none was set. */
static rvli_nccl_result current_device(int *device_out)
{
    CUcontext context;
    CUresult result = cuInit(0);
    if (result == CUDA_SUCCESS)
        result = cuCtxGetDevice(device_out);
    if (result == CUDA_ERROR_INVALID_CONTEXT) {
        result = cuDevicePrimaryCtxRetain(&context, 0);
        if (result == CUDA_SUCCESS)
            result = cuCtxSetCurrent(context);
        *device_out = 0;
    }
    return rvli_nccl_driven(result);
}

static bool is_set(const rvli_nccl_config *config, int value)
{
    return config != NULL && value != RVLI_NCCL_NOT_SET;
}

static rvli_nccl_result check_config(const rvli_nccl_config *config)
{
    if (config == NULL)
        return RVLI_NCCL_SUCCESS;
    if (config->size_bytes < sizeof *config || config->magic != RVLI_NCCL_CONFIG_MAGIC)
        return rvli_nccl_fail(RVLI_NCCL_INVALID_ARGUMENT,
                              "ncclConfig_t is not set up: begin with NCCL_CONFIG_INITIALIZER");
    if (is_set(config, config->blocking) && config->blocking != 0 && config->blocking != 1)
        return rvli_nccl_fail(RVLI_NCCL_INVALID_ARGUMENT,
                              "ncclConfig_t: blocking is %d: it is 0 or 1", config->blocking);
    return RVLI_NCCL_SUCCESS;
}

/* The machine's number of a device, regardless of CUDA_VISIBLE_DEVICES. Negative: none. */
static int card_of(int device)
{
    int bus = 0;
    CUresult result = cuDeviceGetAttribute(&bus, CU_DEVICE_ATTRIBUTE_PCI_BUS_ID, device);
    return result == CUDA_SUCCESS ? bus - 1 : -1;
}

static rvli_comm *make_comm(int rank, int ranks, int device, const rvli_nccl_config *config)
{
    rvli_comm *made = calloc(1, sizeof *made);
    if (made != NULL)
        made->pairs = calloc((size_t)ranks, sizeof *made->pairs);
    if (made == NULL || made->pairs == NULL) {
        free(made);
        return NULL;
    }
    made->mark = RVLI_COMM_MARK;
    made->rank = rank;
    made->ranks = ranks;
    made->device = device;
    made->card = card_of(device);
    made->sized = true;
    made->blocking = !is_set(config, config != NULL ? config->blocking : 0) || config->blocking;
    made->began_ns = rvli_nccl_now_ns();
    pthread_mutex_lock(&mutex);
    made->next = live;
    live = made;
    pthread_mutex_unlock(&mutex);
    return made;
}

bool rvli_comm_with(uint64_t meeting, int rank, void (*call)(rvli_comm *, void *), void *user)
{
    pthread_mutex_lock(&mutex);
    rvli_comm *found = live;
    while (found != NULL && (found->meeting != meeting || found->rank != rank))
        found = found->next;
    if (found != NULL)
        call(found, user);
    pthread_mutex_unlock(&mutex);
    return found != NULL;
}

static void take(rvli_comm *comm, void *user)
{
    *(rvli_comm **)user = comm;
}

rvli_comm *rvli_comm_find(uint64_t meeting, int rank)
{
    rvli_comm *found = NULL;
    (void)rvli_comm_with(meeting, rank, take, &found);
    return found;
}

static void free_comm(rvli_comm *comm)
{
    pthread_mutex_lock(&mutex);
    rvli_comm **link = &live;
    while (*link != NULL && *link != comm)
        link = &(*link)->next;
    if (*link == comm)
        *link = comm->next;
    pthread_mutex_unlock(&mutex);
    rvli_comm_give_memory(comm);
    part(&comm->meeting, comm->rank);
    comm->mark = 0;
    free(comm->scalars);
    free(comm->pairs);
    free(comm);
}

/* Refuses two ranks on one GPU, as NCCL does. All ranks are on one machine, so more ranks than
 * GPUs means that two share one. */
static rvli_nccl_result check_devices(rvli_comm *comm)
{
    int holders[DEVICES_MAX];
    for (int i = 0; i < DEVICES_MAX; i++)
        holders[i] = -1;
    for (int rank = 0; rank < comm->ranks && rank <= DEVICES_MAX; rank++) {
        uint64_t device;
        bool came = brought_by(comm->meeting, rank, &device);
        comm->alone = comm->alone || !came; /* all started ranks have come */
        if (!came || device >= DEVICES_MAX)
            continue;
        if (holders[device] >= 0)
            return rvli_nccl_fail(RVLI_NCCL_INVALID_USAGE,
                                  "Duplicate GPU detected: rank %d and rank %d both on CUDA device "
                                  "%d",
                                  holders[device], rank, (int)device);
        holders[device] = rank;
    }
    return RVLI_NCCL_SUCCESS;
}

/* Completes the communicator after all ranks have come. */
static rvli_nccl_result begin_use(rvli_comm *comm)
{
    rvli_nccl_result result = check_devices(comm);
    if (result == RVLI_NCCL_SUCCESS && !comm->shares && comm->ranks > 1)
        result = rvli_comm_take_memory(comm);
    if (result == RVLI_NCCL_SUCCESS)
        comm->state = RVLI_COMM_READY;
    return result;
}

rvli_nccl_result rvli_comm_give_up(rvli_comm *comm, rvli_nccl_result result)
{
    comm->state = RVLI_COMM_OVER;
    comm->result = result;
    part(&comm->meeting, comm->rank);
    return result;
}

static rvli_nccl_result finish(rvli_comm *comm)
{
    rvli_nccl_result result = wait_for_all(comm, comm->meeting);
    if (result == RVLI_NCCL_SUCCESS)
        result = begin_use(comm);
    return result == RVLI_NCCL_SUCCESS ? result : rvli_comm_give_up(comm, result);
}

/* Advances a nonblocking communicator by one step. */
static void go_on(rvli_comm *comm)
{
    rvli_nccl_result result = have_met(comm, comm->meeting);
    if (result == RVLI_NCCL_IN_PROGRESS)
        return;
    if (result == RVLI_NCCL_SUCCESS)
        result = begin_use(comm);
    if (result != RVLI_NCCL_SUCCESS)
        (void)rvli_comm_give_up(comm, result);
}

/* ---- Creation by a unique id ---- */

rvli_nccl_result ncclGetUniqueId(rvli_nccl_id *id)
{
    unsigned char random[16];
    if (id == NULL)
        return rvli_nccl_fail(RVLI_NCCL_INVALID_ARGUMENT, "ncclGetUniqueId: the id is NULL");
    if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random)
        return rvli_nccl_fail(RVLI_NCCL_SYSTEM_ERROR, "no random numbers: %s", strerror(errno));
    memset(id, 0, sizeof *id);
    memcpy(id->bytes, random, sizeof random);
    return RVLI_NCCL_SUCCESS;
}

typedef struct made_comm {
    rvli_comm *comm;
    rvli_comm **out;
} made_comm;

static rvli_nccl_result begin_made(void *job)
{
    (void)job; /* it has come to the meeting already */
    return RVLI_NCCL_SUCCESS;
}

static rvli_nccl_result end_made(void *job)
{
    made_comm *made = job;
    rvli_nccl_result result = finish(made->comm);
    if (result != RVLI_NCCL_SUCCESS) {
        *made->out = NULL;
        free_comm(made->comm);
    }
    free(made);
    return result;
}

/* Waits now, or when the group ends. A nonblocking communicator never waits. */
static rvli_nccl_result hand_out(rvli_comm *comm, rvli_comm **out)
{
    made_comm *made = malloc(sizeof *made);
    if (made == NULL)
        return rvli_nccl_fail(RVLI_NCCL_SYSTEM_ERROR, "out of host memory");
    *made = (made_comm){comm, out};
    *out = comm;
    if (!comm->blocking) {
        free(made);
        return RVLI_NCCL_IN_PROGRESS;
    }
    if (!rvli_group_is_open())
        return end_made(made);
    rvli_nccl_result result = rvli_group_add(begin_made, end_made, made);
    if (result != RVLI_NCCL_SUCCESS)
        free(made);
    return result;
}

static rvli_nccl_result join(rvli_comm *comm, rvli_comm **out)
{
    rvli_nccl_result result =
        meet(comm->name, comm->rank, comm->ranks, (uint64_t)comm->card, &comm->meeting);
    bool in_meeting = result == RVLI_NCCL_SUCCESS;
    if (in_meeting)
        result = hand_out(comm, out);
    if (!in_meeting)
        free_comm(comm);
    return result;
}

static rvli_nccl_result init_rank(rvli_comm **out, int ranks, const void *id, size_t id_bytes,
                                  int rank, const rvli_nccl_config *config)
{
    int device = 0;
    if (out == NULL || ranks < 1 || rank < 0 || rank >= ranks)
        return rvli_nccl_fail(RVLI_NCCL_INVALID_ARGUMENT,
                              "rank %d of %d: a rank is at least 0 and below the number of ranks",
                              rank, ranks);
    rvli_nccl_result result = check_config(config);
    if (result == RVLI_NCCL_SUCCESS)
        result = current_device(&device);
    if (result != RVLI_NCCL_SUCCESS)
        return result;
    rvli_comm *comm = make_comm(rank, ranks, device, config);
    if (comm == NULL)
        return rvli_nccl_fail(RVLI_NCCL_SYSTEM_ERROR, "out of host memory");
    make_name(comm->name, id, id_bytes);
    return join(comm, out);
}

rvli_nccl_result ncclCommInitRankConfig(rvli_comm **comm, int ranks, rvli_nccl_id id, int rank,
                                        const rvli_nccl_config *config)
{
    return init_rank(comm, ranks, &id, sizeof id, rank, config);
}

rvli_nccl_result ncclCommInitRank(rvli_comm **comm, int ranks, rvli_nccl_id id, int rank)
{
    return init_rank(comm, ranks, &id, sizeof id, rank, NULL);
}

rvli_nccl_result ncclCommInitRankScalable(rvli_comm **comm, int ranks, int rank, int id_count,
                                          const rvli_nccl_id *ids, const rvli_nccl_config *config)
{
    if (id_count < 1 || id_count > ranks || ids == NULL)
        return rvli_nccl_fail(
            RVLI_NCCL_INVALID_ARGUMENT,
            "ncclCommInitRankScalable: %d ids of %d ranks: from 1 to as many as ranks", id_count,
            ranks);
    return init_rank(comm, ranks, ids, (size_t)id_count * sizeof *ids, rank, config);
}

static rvli_nccl_result enter(int device)
{
    CUcontext context;
    CUresult result = cuDevicePrimaryCtxRetain(&context, device);
    return rvli_nccl_driven(result == CUDA_SUCCESS ? cuCtxSetCurrent(context) : result);
}

rvli_nccl_result ncclCommInitAll(rvli_comm **comms, int count, const int *devices)
{
    int before = 0;
    rvli_nccl_id id;
    if (comms == NULL || count < 1)
        return rvli_nccl_fail(RVLI_NCCL_INVALID_ARGUMENT, "ncclCommInitAll: %d devices", count);
    rvli_nccl_result result = current_device(&before);
    if (result == RVLI_NCCL_SUCCESS)
        result = ncclGetUniqueId(&id);
    if (result != RVLI_NCCL_SUCCESS)
        return result;
    (void)ncclGroupStart();
    for (int i = 0; i < count && result == RVLI_NCCL_SUCCESS; i++) {
        result = enter(devices != NULL ? devices[i] : i);
        if (result == RVLI_NCCL_SUCCESS)
            result = ncclCommInitRank(&comms[i], count, id, i);
    }
    rvli_nccl_result ended = ncclGroupEnd();
    (void)enter(before);
    return result == RVLI_NCCL_SUCCESS ? ended : result;
}

/* ---- Creation from another communicator ---- */

typedef struct split {
    rvli_comm *parent;
    uint64_t meeting; /* of all ranks of the parent */
    unsigned child;
    int color;
    int key;
    rvli_nccl_config config;
    bool configured;
    rvli_comm *made;
    rvli_comm **out;
} split;

static rvli_comm *make_child(const rvli_comm *parent, int rank, int ranks,
                             const rvli_nccl_config *config)
{
    rvli_comm *made = make_comm(rank, ranks, parent->device, config);
    if (made == NULL)
        return NULL;
    made->blocking = true; /* its ranks have met, so there is little to wait for */
    made->shares =
        parent->ranks == 1 ||
        (is_set(config, config != NULL ? config->split_share : 0) && config->split_share == 1);
    return made;
}

/*
 * Finds this rank's place among those of its color, by key and then by rank. Ranks of which
 * nothing is known (one process plays one rank of many) are assumed to have the same color, and
 * this rank its rank as key.
 */
static void find_place(split *s, int *rank_out, int *ranks_out, bool *known_out)
{
    int before = 0, count = 0;
    *known_out = true;
    for (int rank = 0; rank < s->parent->ranks; rank++) {
        uint64_t brought;
        if (!brought_by(s->meeting, rank, &brought)) {
            *known_out = false;
            continue;
        }
        int color = (int)(uint32_t)(brought >> 32), key = (int)(uint32_t)brought;
        if (color != s->color)
            continue;
        count++;
        before += key < s->key || (key == s->key && rank < s->parent->rank);
    }
    *ranks_out = *known_out ? count : s->parent->ranks;
    *rank_out = *known_out                                 ? before
                : s->key >= 0 && s->key < s->parent->ranks ? s->key
                                                           : s->parent->rank;
}

static rvli_nccl_result begin_split(void *job)
{
    split *s = job;
    int rank, ranks;
    bool known;
    rvli_nccl_result result = wait_for_all(s->parent, s->meeting);
    if (result != RVLI_NCCL_SUCCESS || s->color == RVLI_NCCL_NO_COLOR)
        return result;
    find_place(s, &rank, &ranks, &known);
    s->made = make_child(s->parent, rank, ranks, s->configured ? &s->config : NULL);
    if (s->made == NULL)
        return rvli_nccl_fail(RVLI_NCCL_SYSTEM_ERROR, "out of host memory");
    s->made->sized = known;
    s->made->alone = !known;
    make_child_name(s->made->name, s->parent->name, s->child, "color", s->color);
    return meet(s->made->name, rank, ranks, (uint64_t)s->made->card, &s->made->meeting);
}

static rvli_nccl_result end_split(void *job)
{
    split *s = job;
    rvli_nccl_result result = RVLI_NCCL_SUCCESS;
    part(&s->meeting, s->parent->rank);
    if (s->made != NULL && s->made->meeting != 0)
        result = finish(s->made);
    if (s->made != NULL && s->made->state != RVLI_COMM_READY) {
        free_comm(s->made);
        s->made = NULL;
    }
    *s->out = s->made;
    free(s);
    return result;
}

rvli_nccl_result ncclCommSplit(rvli_comm *comm, int color, int key, rvli_comm **made,
                               const rvli_nccl_config *config)
{
    char name[RVLI_COMM_NAME_BYTES];
    rvli_nccl_result result = rvli_comm_check_ready(comm);
    if (result == RVLI_NCCL_SUCCESS)
        result = check_config(config);
    if (result != RVLI_NCCL_SUCCESS)
        return result;
    if (made == NULL || (color < 0 && color != RVLI_NCCL_NO_COLOR))
        return rvli_nccl_fail(RVLI_NCCL_INVALID_ARGUMENT,
                              "ncclCommSplit: color %d: it is at least 0, or NCCL_SPLIT_NOCOLOR",
                              color);
    *made = NULL;
    split *s = calloc(1, sizeof *s);
    if (s == NULL)
        return rvli_nccl_fail(RVLI_NCCL_SYSTEM_ERROR, "out of host memory");
    *s =
        (split){.parent = comm, .child = comm->children++, .color = color, .key = key, .out = made};
    if (config != NULL)
        s->config = *config;
    s->configured = config != NULL;
    comm->began_ns = rvli_nccl_now_ns();
    comm->told = false;
    make_child_name(name, comm->name, s->child, "split", 0);
    result = meet(name, comm->rank, comm->ranks, (uint64_t)(uint32_t)color << 32 | (uint32_t)key,
                  &s->meeting);
    if (result != RVLI_NCCL_SUCCESS) {
        free(s);
        return result;
    }
    if (rvli_group_is_open())
        return rvli_group_add(begin_split, end_split, s);
    result = begin_split(s);
    rvli_nccl_result ended = end_split(s);
    return result == RVLI_NCCL_SUCCESS ? ended : result;
}

static bool is_among(int rank, const int *ranks, int count)
{
    for (int i = 0; i < count; i++)
        if (ranks[i] == rank)
            return true;
    return false;
}

/* The remaining ranks know each other, so they need not ask. */
rvli_nccl_result ncclCommShrink(rvli_comm *comm, const int *excluded, int excluded_count,
                                rvli_comm **made, const rvli_nccl_config *config, int flags)
{
    int rank = 0, ranks = 0;
    (void)flags; /* no operation is running that could be aborted */
    rvli_nccl_result result = rvli_comm_check(comm);
    if (result == RVLI_NCCL_SUCCESS)
        result = check_config(config);
    if (result != RVLI_NCCL_SUCCESS)
        return result;
    if (made == NULL || excluded == NULL || excluded_count < 1 ||
        is_among(comm->rank, excluded, excluded_count))
        return rvli_nccl_fail(RVLI_NCCL_INVALID_ARGUMENT,
                              "ncclCommShrink: name the ranks that go; they do not call it");
    for (int i = 0; i < comm->ranks; i++) {
        bool stays = !is_among(i, excluded, excluded_count);
        ranks += stays;
        rank += stays && i < comm->rank;
    }
    rvli_comm *child = make_child(comm, rank, ranks, config);
    if (child == NULL)
        return rvli_nccl_fail(RVLI_NCCL_SYSTEM_ERROR, "out of host memory");
    make_child_name(child->name, comm->name, comm->children++, "shrink", excluded_count);
    return join(child, made);
}

/* ---- The end ---- */

/* Also allowed while it is suspended. */
rvli_nccl_result ncclCommFinalize(rvli_comm *comm)
{
    rvli_nccl_result result = rvli_comm_check(comm);
    if (result == RVLI_NCCL_SUCCESS && comm->state != RVLI_COMM_SUSPENDED)
        result = rvli_comm_check_ready(comm);
    if (result != RVLI_NCCL_SUCCESS)
        return result;
    rvli_polled_end(); /* its watchdog waits for collectives that it has not seen complete */
    rvli_comm_give_memory(comm);
    comm->state = RVLI_COMM_OVER;
    return RVLI_NCCL_SUCCESS;
}

rvli_nccl_result ncclCommDestroy(rvli_comm *comm)
{
    if (comm == NULL)
        return RVLI_NCCL_SUCCESS;
    rvli_nccl_result result = rvli_comm_check(comm);
    if (result != RVLI_NCCL_SUCCESS)
        return result;
    if (comm->state != RVLI_COMM_OVER)
        rvli_polled_end(); /* it was aborted, and so is its watchdog */
    free_comm(comm);
    return RVLI_NCCL_SUCCESS;
}

rvli_nccl_result ncclCommAbort(rvli_comm *comm)
{
    return ncclCommDestroy(comm);
}

rvli_nccl_result ncclCommRevoke(rvli_comm *comm, int flags)
{
    rvli_nccl_result result = rvli_comm_check_ready(comm);
    if (result == RVLI_NCCL_SUCCESS && flags != 0)
        return rvli_nccl_fail(RVLI_NCCL_INVALID_ARGUMENT, "ncclCommRevoke: flags are %d, not 0",
                              flags);
    if (result == RVLI_NCCL_SUCCESS)
        comm->state = RVLI_COMM_OVER;
    return result;
}

/* ---- State of a communicator ---- */

rvli_nccl_result rvli_comm_check(const rvli_comm *comm)
{
    return comm != NULL && comm->mark == RVLI_COMM_MARK
               ? RVLI_NCCL_SUCCESS
               : rvli_nccl_fail(RVLI_NCCL_INVALID_ARGUMENT, "this is not a communicator");
}

/* The result of a call on a communicator that is over. ncclGetLastError() has the reason. */
static rvli_nccl_result why_over(const rvli_comm *comm)
{
    rvli_nccl_result result = comm->result;
    if (result == RVLI_NCCL_SUCCESS)
        return rvli_nccl_fail(RVLI_NCCL_INVALID_USAGE, "the communicator was finalized or revoked");
    return comm->stuck.sentence[0] != '\0' ? rvli_nccl_fail(result, "%s", comm->stuck.sentence)
                                           : result;
}

rvli_nccl_result rvli_comm_check_ready(rvli_comm *comm)
{
    rvli_nccl_result result = rvli_comm_check(comm);
    if (result != RVLI_NCCL_SUCCESS)
        return result;
    if (comm->state == RVLI_COMM_JOINING)
        go_on(comm);
    rvli_stuck_look(comm);
    rvli_comm_state state = comm->state; /* clang 14 does not accept an atomic here */
    switch (state) {
    case RVLI_COMM_READY:
        return RVLI_NCCL_SUCCESS;
    case RVLI_COMM_JOINING:
        return rvli_nccl_fail(RVLI_NCCL_INVALID_ARGUMENT,
                              "the communicator is not ready: ask ncclCommGetAsyncError() first");
    case RVLI_COMM_SUSPENDED:
        return rvli_nccl_fail(RVLI_NCCL_INVALID_USAGE,
                              "the communicator is suspended: ncclCommResume() comes first");
    case RVLI_COMM_OVER:
        break;
    }
    return why_over(comm);
}

rvli_nccl_result ncclCommGetAsyncError(rvli_comm *comm, rvli_nccl_result *result)
{
    rvli_nccl_result checked = rvli_comm_check(comm);
    if (checked == RVLI_NCCL_SUCCESS && result == NULL)
        return rvli_nccl_fail(RVLI_NCCL_INVALID_ARGUMENT, "ncclCommGetAsyncError: NULL");
    if (checked != RVLI_NCCL_SUCCESS)
        return checked;
    if (comm->state == RVLI_COMM_JOINING && !comm->blocking)
        go_on(comm);
    rvli_stuck_look(comm);
    *result = comm->state == RVLI_COMM_JOINING ? RVLI_NCCL_IN_PROGRESS : comm->result;
    if (*result != RVLI_NCCL_SUCCESS && comm->state == RVLI_COMM_OVER)
        (void)why_over(comm);
    return RVLI_NCCL_SUCCESS;
}

static rvli_nccl_result tell(const rvli_comm *comm, int value, int *out)
{
    rvli_nccl_result result = rvli_comm_check(comm);
    if (result == RVLI_NCCL_SUCCESS && out == NULL)
        return rvli_nccl_fail(RVLI_NCCL_INVALID_ARGUMENT, "there is no place for the answer");
    if (result == RVLI_NCCL_SUCCESS)
        *out = value;
    return result;
}

rvli_nccl_result ncclCommCount(const rvli_comm *comm, int *count)
{
    return tell(comm, comm != NULL ? comm->ranks : 0, count);
}

rvli_nccl_result ncclCommCuDevice(const rvli_comm *comm, int *device)
{
    return tell(comm, comm != NULL ? comm->device : 0, device);
}

rvli_nccl_result ncclCommUserRank(const rvli_comm *comm, int *rank)
{
    return tell(comm, comm != NULL ? comm->rank : 0, rank);
}

RVLI_NCCL_ALSO(ncclGetUniqueId)
RVLI_NCCL_ALSO(ncclCommInitRank)
RVLI_NCCL_ALSO(ncclCommInitRankConfig)
RVLI_NCCL_ALSO(ncclCommInitRankScalable)
RVLI_NCCL_ALSO(ncclCommInitAll)
RVLI_NCCL_ALSO(ncclCommSplit)
RVLI_NCCL_ALSO(ncclCommShrink)
RVLI_NCCL_ALSO(ncclCommFinalize)
RVLI_NCCL_ALSO(ncclCommDestroy)
RVLI_NCCL_ALSO(ncclCommAbort)
RVLI_NCCL_ALSO(ncclCommRevoke)
RVLI_NCCL_ALSO(ncclCommGetAsyncError)
RVLI_NCCL_ALSO(ncclCommCount)
RVLI_NCCL_ALSO(ncclCommCuDevice)
RVLI_NCCL_ALSO(ncclCommUserRank)
