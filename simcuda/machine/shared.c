/* SPDX-License-Identifier: MIT */
#include "simcuda/machine/shared.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#define PAGE_BYTES UINT64_C(4096)

/* Ids of events have this bit. No address has it. */
#define EVENT_BIT (UINT64_C(1) << 63)

/* Descriptors kept free for processes that connect. */
#define FILES_LEFT 64

typedef struct piece {
    uint64_t id;
    uint64_t key;
    int device;
    uint64_t bytes;           /* 0: an event */
    uint64_t place;           /* of its content in the file */
    const rvli_client *owner; /* NULL: the owner has freed it */
    uint64_t holds;           /* number of holds by processes and files */
} piece;

/* The machine's end of a file descriptor that stands for a piece. */
typedef struct handed {
    piece *of;
    int file;
    struct handed *next;
} handed;

struct rvli_shared {
    rvli_intmap by_id;
    rvli_intmap by_key;
    uint64_t last_key;
    uint64_t last_event;
    handed *files;
    int events;
    int contents;
    uint64_t contents_end;
};

/* ---- The whole ---- */

static void close_file(int file)
{
    if (file >= 0)
        close(file);
}

rvl_status rvli_shared_open(rvli_shared **shared_out)
{
    rvli_shared *shared = calloc(1, sizeof *shared);
    if (shared == NULL)
        return RVL_ERR_HOST_OOM;
    shared->events = epoll_create1(EPOLL_CLOEXEC);
    shared->contents = memfd_create("reveille-contents", MFD_CLOEXEC);
    /* Starts at a random key, so that a handle of another machine is invalid here. */
    if (shared->events < 0 || shared->contents < 0 ||
        getrandom(&shared->last_key, sizeof shared->last_key, 0) !=
            (ssize_t)sizeof shared->last_key) {
        rvli_shared_close(shared);
        return RVL_ERR_IO;
    }
    *shared_out = shared;
    return RVL_OK;
}

void rvli_shared_close(rvli_shared *shared)
{
    for (handed *each = shared->files, *next; each != NULL; each = next) {
        next = each->next;
        close(each->file);
        free(each);
    }
    for (size_t i = 0; i < shared->by_id.capacity; i++)
        if (shared->by_id.slots[i].key != 0)
            free((piece *)(uintptr_t)shared->by_id.slots[i].value);
    rvli_intmap_destroy(&shared->by_id);
    rvli_intmap_destroy(&shared->by_key);
    close_file(shared->events);
    close_file(shared->contents);
    free(shared);
}

int rvli_shared_contents(const rvli_shared *shared)
{
    return fcntl(shared->contents, F_DUPFD_CLOEXEC, 0);
}

/* ---- Pieces ---- */

static piece *find(const rvli_intmap *map, uint64_t key)
{
    uint64_t value = 0;
    return rvli_intmap_get(map, key, &value) ? (piece *)(uintptr_t)value : NULL;
}

/* Room for the bytes, and behind them a map of which are known
 * (simcuda/driver/shared_contents.h). */
static uint64_t room_for_contents(uint64_t bytes)
{
    return 2 * ((bytes + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES);
}

uint64_t rvli_shared_take_place(rvli_shared *shared, uint64_t bytes)
{
    uint64_t place = shared->contents_end;
    shared->contents_end += room_for_contents(bytes);
    return place;
}

void rvli_shared_give_place(const rvli_shared *shared, uint64_t place, uint64_t bytes)
{
    (void)fallocate(shared->contents, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)place,
                    (off_t)room_for_contents(bytes));
}

static rvl_status enter(rvli_shared *shared, piece *made)
{
    rvl_status status = rvli_intmap_reserve(&shared->by_id);
    if (status == RVL_OK)
        status = rvli_intmap_reserve(&shared->by_key);
    if (status != RVL_OK)
        return status;
    made->key = ++shared->last_key;
    if (made->key == 0)
        made->key = ++shared->last_key;
    made->place = rvli_shared_take_place(shared, made->bytes);
    (void)rvli_intmap_insert(&shared->by_id, made->id, (uintptr_t)made); /* reserved above */
    (void)rvli_intmap_insert(&shared->by_key, made->key, (uintptr_t)made);
    return RVL_OK;
}

/* Makes a piece of what a process has, so that others can import it. */
static rvl_status make(rvli_machine *machine, const rvli_client *client, uint64_t id,
                       piece **piece_out)
{
    rvl_allocation facts = {.struct_size = sizeof facts};
    piece *made = calloc(1, sizeof *made);
    if (made == NULL)
        return RVL_ERR_HOST_OOM;
    *made = (piece){.id = id, .owner = client, .holds = 1};
    rvl_status status = RVL_OK;
    if (!(id & EVENT_BIT)) {
        status = rvl_allocation_find(machine->context, id, &facts);
        made->device = facts.device;
        made->bytes = facts.size_bytes;
    }
    if (status == RVL_OK)
        status = enter(machine->shared, made);
    if (status == RVL_OK)
        *piece_out = made;
    else
        free(made);
    return status;
}

static void let_go(rvli_machine *machine, piece *of)
{
    rvli_shared *shared = machine->shared;
    if (--of->holds > 0)
        return;
    rvli_intmap_remove(&shared->by_id, of->id, NULL);
    rvli_intmap_remove(&shared->by_key, of->key, NULL);
    if (of->bytes > 0) {
        (void)rvl_free(machine->context, of->id);
        rvli_shared_give_place(shared, of->place, of->bytes);
    }
    free(of);
}

static void describe(const piece *of, rvli_wire_answer *answer)
{
    answer->id = of->id;
    answer->key = of->key;
    answer->place = of->place;
    answer->total_bytes = of->bytes;
    answer->count = (uint32_t)of->device;
    answer->owner = of->owner != NULL ? of->owner->tenant->process : 0;
}

/* ---- Holds of processes ---- */

/* Adds a hold to what a process has. RVL_ERR_HOST_OOM. */
static rvl_status hold(rvli_client *client, uint64_t id)
{
    uint64_t holds = 0;
    rvl_status status = rvli_intmap_reserve(&client->memory);
    if (status != RVL_OK)
        return status;
    (void)rvli_intmap_remove(&client->memory, id, &holds);
    return rvli_intmap_insert(&client->memory, id, holds + 1);
}

static rvl_status new_event(rvli_machine *machine, rvli_client *client, piece **piece_out)
{
    uint64_t id = EVENT_BIT | ++machine->shared->last_event;
    rvl_status status = hold(client, id);
    if (status == RVL_OK)
        status = make(machine, client, id, piece_out);
    if (status != RVL_OK)
        (void)rvli_intmap_remove(&client->memory, id, NULL);
    return status;
}

static rvl_status export(rvli_machine *machine, rvli_client *client, uint64_t id, piece **piece_out)
{
    if (id == 0)
        return new_event(machine, client, piece_out);
    if (!rvli_intmap_get(&client->memory, id, NULL))
        return RVL_ERR_NOT_FOUND;
    *piece_out = find(&machine->shared->by_id, id);
    return *piece_out != NULL ? RVL_OK : make(machine, client, id, piece_out);
}

rvl_status rvli_shared_export(rvli_machine *machine, rvli_client *client, uint64_t id,
                              rvli_wire_answer *answer)
{
    piece *of = NULL;
    rvl_status status = export(machine, client, id, &of);
    if (status == RVL_OK)
        describe(of, answer);
    return status;
}

static bool is_there(const rvli_machine *machine, uint64_t process)
{
    const rvli_tenant *each = machine->tenants;
    while (each != NULL && each->process != process)
        each = each->next;
    return each != NULL;
}

rvl_status rvli_shared_import(rvli_machine *machine, rvli_client *client,
                              const rvli_wire_request *request, rvli_shared_way way,
                              rvli_wire_answer *answer)
{
    piece *of = find(&machine->shared->by_key, request->id);
    if (of == NULL || (way == RVLI_SHARED_BY_KEY && of->owner == NULL))
        return is_there(machine, request->bytes) ? RVL_ERR_INVALID : RVL_ERR_NOT_FOUND;
    if (way == RVLI_SHARED_BY_KEY && of->owner == client)
        return RVL_ERR_STATE;
    rvl_status status = hold(client, of->id);
    if (status != RVL_OK)
        return status;
    of->holds++;
    describe(of, answer);
    return RVL_OK;
}

void rvli_shared_release(rvli_machine *machine, rvli_client *client, uint64_t id)
{
    uint64_t holds = 0;
    if (!rvli_intmap_remove(&client->memory, id, &holds))
        return; /* not this process's */
    if (holds > 1)
        (void)rvli_intmap_insert(&client->memory, id, holds - 1); /* reserved above */
    piece *of = find(&machine->shared->by_id, id);
    if (of == NULL) {
        (void)rvl_free(machine->context, id);
        return;
    }
    if (holds == 1 && of->owner == client)
        of->owner = NULL;
    let_go(machine, of);
}

/* ---- Files ---- */

/* Makes a pair of sockets. The key is queued in the end that is given away. */
static bool pair(uint64_t key, int ends[2])
{
    const rvli_wire_ticket ticket = {RVLI_WIRE_TICKET_MAGIC, key};
    struct rlimit limit = {0};
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
        return false;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && (rlim_t)ends[1] + FILES_LEFT < limit.rlim_cur &&
        send(ends[0], &ticket, sizeof ticket, MSG_NOSIGNAL) == (ssize_t)sizeof ticket)
        return true;
    close(ends[0]);
    close(ends[1]);
    return false;
}

static rvl_status hand_out(rvli_shared *shared, piece *of, int *file_out)
{
    int ends[2];
    handed *made = calloc(1, sizeof *made);
    if (made == NULL)
        return RVL_ERR_HOST_OOM;
    if (!pair(of->key, ends)) {
        free(made);
        return RVL_ERR_IO;
    }
    *made = (handed){.of = of, .file = ends[0], .next = shared->files};
    struct epoll_event event = {.events = 0,
                                .data.ptr = made}; /* reports only that the other end is closed */
    if (epoll_ctl(shared->events, EPOLL_CTL_ADD, ends[0], &event) != 0) {
        close(ends[0]);
        close(ends[1]);
        free(made);
        return RVL_ERR_IO;
    }
    shared->files = made;
    of->holds++;
    *file_out = ends[1];
    return RVL_OK;
}

rvl_status rvli_shared_export_file(rvli_machine *machine, rvli_client *client, uint64_t id,
                                   rvli_wire_answer *answer, int *file_out)
{
    piece *of = NULL;
    rvl_status status = id != 0 ? export(machine, client, id, &of) : RVL_ERR_INVALID;
    if (status == RVL_OK)
        status = hand_out(machine->shared, of, file_out);
    if (status == RVL_OK)
        describe(of, answer);
    return status;
}

int rvli_shared_file(const rvli_shared *shared)
{
    return shared->events;
}

static void drop(rvli_machine *machine, handed *gone)
{
    handed **link = &machine->shared->files;
    while (*link != gone)
        link = &(*link)->next;
    *link = gone->next;
    /* Closing is not enough if a forked child has a copy: epoll would report it again. */
    (void)epoll_ctl(machine->shared->events, EPOLL_CTL_DEL, gone->file, NULL);
    close(gone->file);
    let_go(machine, gone->of);
    free(gone);
}

bool rvli_shared_any(const rvli_shared *shared)
{
    return shared->files != NULL;
}

void rvli_shared_serve(rvli_machine *machine)
{
    struct epoll_event ready;
    while (epoll_wait(machine->shared->events, &ready, 1, 0) == 1)
        drop(machine, ready.data.ptr);
}
