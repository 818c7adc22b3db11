/* SPDX-License-Identifier: MIT */
/*
 * Memory that processes share: the exporter's server and the importer, in one process without a
 * thread. What they wait for, and what their threads would do, is done by the thread that fuzzes:
 * a wait makes the next steps of the input (ipc_steps.h), so that nothing sleeps, and a run is the
 * same each time. Peers say what they should not, in any order. Whatever they do, memory is paused
 * or it is not, an import is whole or there is none, and in the end no descriptor, block, export or
 * connection is left.
 */
#include "ipc_steps.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backends/sim/sim.h"
#include "base/error.h"
#include "base/shown.h"
#include "core/context/context.h"
#include "core/tables.h"
#include "fuzz.h"
#include "hooks/export/export_internal.h"
#include "hooks/ipc/import.h"
#include "hooks/ipc/ipc.h"
#include "hooks/region/guard.h"
#include "reveille/reveille.h"

#define WRAP __attribute__((visibility("default")))
#define GRANULE (UINT64_C(2) << 20)
#define EXPORTER_NONCE UINT64_C(0x1000)
#define FDS_MAX (RVLI_IPC_BLOCKS + 2)
#define BLOCKS_MAX 512u /* more than one input can import */
#define WHO FUZZ_IPC_WHO

typedef struct slot {
    rvl_addr addr; /* 0: free */
    uint64_t export_id;
} slot;

typedef struct exporter {
    int socket; /* -1: not connected */
    unsigned granted;
    rvl_addr addr; /* of the import; 0: none */
    unsigned references;
} exporter;

static struct {
    const fuzz_ipc_step *next, *end;
    bool waits; /* a call of this process is on: others alone go on */
    bool reached;
    slot slots[WHO];
    int importers[WHO]; /* sockets; -1: none */
    exporter exporters[WHO];
    rvli_handle blocks[BLOCKS_MAX]; /* imported, and not released yet */
    unsigned block_count;
} now;

static rvl_context *context;
static rvl_tag tags[2];
static rvli_backend_ops inner;
static int block_fd, other_fd;

static void run_step(const fuzz_ipc_step *step);

static bool make_next_step(void)
{
    if (now.next == now.end)
        return false;
    run_step(now.next++);
    return true;
}

/* ---- Instead of threads, of time, and of the driver ---- */

static void *(*server)(void *);
static void *(*listener)(void *);
static bool imports; /* what is started listens to exporters */

WRAP rvl_status __wrap_rvli_ipc_start_thread(void *(*run)(void *));
WRAP int __wrap_epoll_wait(int events, struct epoll_event *event, int count, int timeout);
WRAP int __wrap_pthread_cond_timedwait(pthread_cond_t *condition, pthread_mutex_t *mutex,
                                       const struct timespec *end);
WRAP bool __wrap_rvli_ipc_wait(int socket, uint64_t end_ns);
WRAP int __wrap_rvli_ipc_connect(uint32_t process, uint64_t nonce, uint64_t end_ns);
WRAP rvl_status __wrap_rvli_saver_context(int device, rvl_context **context_out);
WRAP bool __wrap_rvli_saver_find(rvl_addr addr, rvl_context **context_out, rvl_addr *begin_out);
WRAP void __wrap_rvli_say(const char *text);
WRAP void __wrap_rvli_say_error(const char *what);
int __real_epoll_wait(int events, struct epoll_event *event, int count, int timeout);
int __real_pthread_cond_timedwait(pthread_cond_t *condition, pthread_mutex_t *mutex,
                                  const struct timespec *end);
bool __real_rvli_ipc_wait(int socket, uint64_t end_ns);
int __real_rvli_ipc_connect(uint32_t process, uint64_t nonce, uint64_t end_ns);

rvl_status __wrap_rvli_ipc_start_thread(void *(*run)(void *))
{
    *(imports ? &listener : &server) = run;
    return RVL_OK;
}

/* Threads end where there is nothing to do, and are run again when there may be. */
int __wrap_epoll_wait(int events, struct epoll_event *event, int count, int timeout)
{
    (void)timeout;
    int ready = __real_epoll_wait(events, event, count, 0);
    if (ready != 0)
        return ready;
    errno = EBADF;
    return -1;
}

static void run_threads(void)
{
    if (server != NULL)
        server(NULL);
    if (listener != NULL)
        listener(NULL);
}

/* A pause waits for its importers. */
int __wrap_pthread_cond_timedwait(pthread_cond_t *condition, pthread_mutex_t *mutex,
                                  const struct timespec *end)
{
    if (condition != &rvli_ipc_changed)
        return __real_pthread_cond_timedwait(condition, mutex, end);
    pthread_mutex_unlock(mutex);
    bool waits = now.waits;
    now.waits = true;
    bool made = make_next_step();
    now.waits = waits;
    pthread_mutex_lock(mutex);
    return made ? 0 : ETIMEDOUT;
}

/* An import waits for its exporter. */
bool __wrap_rvli_ipc_wait(int socket, uint64_t end_ns)
{
    (void)end_ns;
    bool ready, waits = now.waits;
    now.waits = true;
    do
        ready = __real_rvli_ipc_wait(socket, 0);
    while (!ready && make_next_step());
    now.waits = waits;
    return ready;
}

static void hang_up(int *socket)
{
    if (*socket >= 0)
        close(*socket);
    *socket = -1;
}

int __wrap_rvli_ipc_connect(uint32_t process, uint64_t nonce, uint64_t end_ns)
{
    int ends[2];
    exporter *who = &now.exporters[nonce % WHO];
    (void)process;
    (void)end_ns;
    require(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0);
    hang_up(&who->socket);
    who->socket = ends[0];
    who->granted = 0;
    return ends[1];
}

rvl_status __wrap_rvli_saver_context(int device, rvl_context **context_out)
{
    require(device == 0);
    *context_out = context;
    return RVL_OK;
}

/* What it is given has a peer's words in it. */
/* Memory that a handle can be had of: what has a slot. */
bool __wrap_rvli_saver_find(rvl_addr addr, rvl_context **context_out, rvl_addr *begin_out)
{
    for (unsigned i = 0; i < WHO; i++)
        if (addr != 0 && now.slots[i].addr == addr) {
            *context_out = context;
            *begin_out = addr;
            return true;
        }
    return false;
}

void __wrap_rvli_say(const char *text)
{
    require(text[0] != '\0');
}

void __wrap_rvli_say_error(const char *what)
{
    require(what[0] != '\0' && rvli_error_get()->message[0] != '\0');
}

static rvl_status export_block(void *self, int device, rvli_handle block, int *fd_out)
{
    (void)self;
    require(device == 0 && block != 0);
    *fd_out = dup(block_fd);
    require(*fd_out >= 0);
    return RVL_OK;
}

static rvl_status import_block(void *self, int device, int fd, uint64_t size,
                               rvli_handle *block_out)
{
    struct stat given, known;
    if (fstat(fd, &given) != 0 || fstat(block_fd, &known) != 0 || given.st_ino != known.st_ino ||
        given.st_dev != known.st_dev || size == 0 || size % GRANULE != 0 ||
        size > UINT64_C(1) << 40)
        return rvli_error(RVL_ERR_INVALID, "it names no memory of that size");
    rvl_status status = inner.create(self, device, size, 0, block_out);
    require(now.block_count < BLOCKS_MAX);
    if (status == RVL_OK)
        now.blocks[now.block_count++] = *block_out;
    return status;
}

static rvl_status release_block(void *self, int device, rvli_handle block, uint64_t size)
{
    unsigned at = 0;
    while (at < now.block_count && now.blocks[at] != block)
        at++;
    if (at < now.block_count)
        now.blocks[at] = now.blocks[--now.block_count];
    return inner.release(self, device, block, size);
}

/* ---- What there is for all executions ---- */

static void open_once(void)
{
    static const rvl_tag_options in_blocks = {.struct_size = sizeof in_blocks,
                                              .block_bytes = GRANULE};
    const rvl_sim_options sim = {
        .struct_size = sizeof sim, .memory = RVL_SIM_ACCOUNTED, .flags = RVL_SIM_OVERCOMMIT};
    const rvl_context_options options = {.struct_size = sizeof options, .backend_options = &sim};
    if (context != NULL)
        return;
    rvli_backend_ops ops = inner = rvli_sim_ops;
    ops.export_block = export_block;
    ops.import_block = import_block;
    ops.release = release_block;
    require(rvli_context_open_ops(&ops, &options, &context) == RVL_OK);
    require(rvl_context_set_guard(context, &rvli_hooks_guard) == RVL_OK);
    require(rvl_tag_define(context, "blocks", &in_blocks, &tags[0]) == RVL_OK);
    require(rvl_tag_define(context, "whole", NULL, &tags[1]) == RVL_OK);
    block_fd = memfd_create("block", MFD_CLOEXEC);
    other_fd = memfd_create("other", MFD_CLOEXEC);
    require(block_fd >= 0 && other_fd >= 0);
}

static rvl_state state_of(const slot *s)
{
    rvl_allocation found = {.struct_size = sizeof found};
    require(rvl_allocation_find(context, s->addr, &found) == RVL_OK);
    return found.state;
}

/* ---- Messages ---- */

static void send_packet(int socket, const void *bytes, size_t size, const int *fds, unsigned count)
{
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(FDS_MAX * sizeof(int))] = {0};
    struct iovec part = {(void *)(uintptr_t)bytes, size};
    struct msghdr packet = {.msg_iov = &part, .msg_iovlen = 1};
    if (count > 0) {
        packet.msg_control = control;
        packet.msg_controllen = CMSG_SPACE(count * sizeof(int));
        struct cmsghdr *header = CMSG_FIRSTHDR(&packet);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(count * sizeof(int));
        memcpy(CMSG_DATA(header), fds, count * sizeof(int));
    }
    if (socket >= 0)
        (void)sendmsg(socket, &packet, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static void change_field(rvli_ipc_message *message, const fuzz_ipc_step *step)
{
    static const uint64_t odd[] = {0, 1, 2, GRANULE - 1, UINT32_MAX, INT64_MAX, UINT64_MAX};
    uint64_t number = step->value < 7 ? odd[step->value] : step->value;
    switch ((fuzz_ipc_change)(step->change % FUZZ_IPC_CHANGES)) {
    case FUZZ_IPC_MAGIC:
        message->magic ^= (uint64_t)1 << step->value % 64;
        break;
    case FUZZ_IPC_KIND:
        message->kind = (uint32_t)number;
        break;
    case FUZZ_IPC_ABOUT:
        message->about = (uint32_t)number;
        break;
    case FUZZ_IPC_STATUS:
        message->status = (int32_t)number;
        break;
    case FUZZ_IPC_NONCE:
        message->nonce ^= number;
        break;
    case FUZZ_IPC_EXPORT_ID:
        message->export_id += number;
        break;
    case FUZZ_IPC_SIZE:
        message->size_bytes = number * (step->value % 2 == 0 ? GRANULE : 1);
        break;
    case FUZZ_IPC_COUNT:
        message->block_count = (uint32_t)number;
        break;
    case FUZZ_IPC_FIRST:
        message->block_first = (uint32_t)number;
        break;
    case FUZZ_IPC_BLOCK:
        message->block_bytes[step->value % RVLI_IPC_BLOCKS] = number * GRANULE;
        break;
    case FUZZ_IPC_TEXT: /* without an end, with what does harm to a terminal */
        memset(message->text, step->value, sizeof message->text);
        break;
    default:
        break;
    }
}

static void say(int socket, rvli_ipc_message *message, const fuzz_ipc_step *step, unsigned fd_count)
{
    struct {
        rvli_ipc_message message;
        char more[8];
    } packet = {0};
    int fds[FDS_MAX];
    fuzz_ipc_change change = (fuzz_ipc_change)(step->change % FUZZ_IPC_CHANGES);
    size_t size = sizeof *message;
    change_field(message, step);
    packet.message = *message;
    size += change == FUZZ_IPC_LONGER ? 1 + step->value % 8 : 0;
    size -= change == FUZZ_IPC_SHORTER ? 1 + step->value : 0;
    fd_count = change == FUZZ_IPC_FDS ? FDS_MAX : fd_count;
    for (unsigned i = 0; i < fd_count; i++)
        fds[i] = step->fds & FUZZ_IPC_NO_BLOCK ? other_fd : block_fd;
    send_packet(socket, &packet, size, fds, fd_count);
}

/* Takes one message, and closes what came with it. */
static bool hear(int socket, rvli_ipc_message *message_out)
{
    int fds[RVLI_IPC_BLOCKS];
    unsigned count = 0;
    if (socket < 0 || rvli_ipc_receive(socket, message_out, fds, RVLI_IPC_BLOCKS, &count) != RVL_OK)
        return false;
    require(memchr(message_out->text, '\0', sizeof message_out->text) != NULL);
    require(message_out->kind != RVLI_IPC_GRANT || count > 0);
    while (count > 0)
        close(fds[--count]);
    return true;
}

/* ---- This process ---- */

static void free_slot(slot *s)
{
    rvli_allocation *allocation = rvli_index_get(&context->by_addr, s->addr);
    require(allocation != NULL);
    uint64_t id = allocation->id;
    require(rvl_free(context, s->addr) == RVL_OK);
    rvli_ipc_forget(context, id);
    *s = (slot){0};
}

static void alloc_slot(slot *s, const fuzz_ipc_step *step)
{
    const rvl_alloc_options options = {.struct_size = sizeof options,
                                       .tag_id = tags[step->who % 2],
                                       .flags = step->kind % 8 == 7 ? 0 : RVL_ALLOC_EXPORTABLE};
    if (s->addr == 0)
        require(rvl_alloc(context, (1 + step->value % 40) * GRANULE, &options, &s->addr) == RVL_OK);
}

static int device_0(int *device_out)
{
    *device_out = 0;
    return RVLI_CUDA_SUCCESS;
}

/* A process may not open what is its own, nor anything by a handle that has changed. */
static void open_own(const rvli_ipc_handle *handle, const fuzz_ipc_step *step)
{
    rvli_ipc_handle damaged = *handle;
    uint64_t addr = 77;
    int error = RVLI_CUDA_SUCCESS;
    require(rvli_ipc_open(handle, device_0, &addr, &error) && error == RVLI_CUDA_INVALID_CONTEXT);
    damaged.bytes[step->value % sizeof damaged] ^= (char)(1 + step->status % 127);
    if (rvli_ipc_open(&damaged, device_0, &addr, &error)) /* false: it is no handle of ours */
        require(error == RVLI_CUDA_INVALID_HANDLE);
    require(addr == 77);
}

static void export_slot(slot *s, const fuzz_ipc_step *step)
{
    rvli_ipc_handle handle;
    rvli_ipc_name name;
    bool whole = false;
    int error = RVLI_CUDA_UNKNOWN;
    require(rvli_ipc_get(s->addr, &handle, &error) == (s->addr != 0));
    if (error != RVLI_CUDA_SUCCESS) {
        require(s->addr == 0 || rvli_error_get()->message[0] != '\0');
        return;
    }
    require(rvli_ipc_read_handle(&handle, &name, &whole) && whole);
    require(rvli_ipc_is_own(name.nonce) && rvli_ipc_find_export(name.export_id) != NULL);
    require(s->export_id == 0 || s->export_id == name.export_id ||
            rvli_ipc_find_export(s->export_id) == NULL);
    s->export_id = name.export_id;
    open_own(&handle, step);
}

/* All of a tag is paused, and its handles good no more; or nothing has changed. */
static void pause_tag(unsigned number)
{
    rvl_state before[WHO];
    for (unsigned i = 0; i < WHO; i++)
        before[i] = now.slots[i].addr != 0 ? state_of(&now.slots[i]) : RVL_STATE_LOST;
    rvl_status status = rvl_pause(context, &tags[number], 1, NULL);
    require(status == RVL_OK || status == RVL_ERR_BUSY || status == RVL_ERR_TIMEOUT);
    now.reached = now.reached || status == RVL_OK;
    for (unsigned i = 0; i < WHO; i++) {
        const slot *s = &now.slots[i];
        if (s->addr == 0)
            continue;
        bool moved = status == RVL_OK && i % 2 == number;
        require(state_of(s) == (moved ? RVL_STATE_PAUSED : before[i]));
        require(!moved || s->export_id == 0 || rvli_ipc_find_export(s->export_id) == NULL);
    }
}

static void import(unsigned number)
{
    exporter *who = &now.exporters[number];
    rvli_ipc_handle handle;
    rvl_addr addr = 77;
    unsigned blocks = now.block_count;
    const rvli_ipc_name name = {.process = (uint32_t)getpid(),
                                .nonce = EXPORTER_NONCE + number,
                                .export_id = number,
                                .size_bytes = GRANULE};
    rvli_ipc_write_handle(&name, &handle);
    int error = RVLI_CUDA_SUCCESS;
    imports = true;
    require(rvli_ipc_open(&handle, device_0, &addr, &error));
    imports = false;
    require((error == RVLI_CUDA_SUCCESS) == (addr != 77));
    if (error == RVLI_CUDA_SUCCESS) {
        require(who->addr == 0 || who->addr == addr);
        who->addr = addr;
        who->references++;
        now.reached = true;
    } else {
        require(rvli_error_get()->message[0] != '\0' && now.block_count <= blocks);
    }
}

static void release(exporter *who)
{
    int error = RVLI_CUDA_UNKNOWN;
    require(!rvli_ipc_close(77, &error)); /* nothing was opened there */
    if (who->references == 0)
        return;
    require(rvli_ipc_close(who->addr, &error) && error == RVLI_CUDA_SUCCESS);
    who->addr = --who->references == 0 ? 0 : who->addr;
}

/* ---- Others ---- */

static void ask(int socket, const fuzz_ipc_step *step)
{
    rvli_ipc_message message = rvli_ipc_message_of(RVLI_IPC_ASK);
    message.nonce = rvli_ipc_nonce();
    message.export_id = now.slots[step->value % WHO].export_id;
    say(socket, &message, step, 0);
}

static void answer(int socket, const fuzz_ipc_step *step)
{
    rvli_ipc_message message, heard;
    if (!hear(socket, &heard))
        return;
    message = rvli_ipc_message_of(RVLI_IPC_DONE);
    message.about = heard.kind;
    message.status = -(int32_t)(step->status % 16);
    memcpy(message.text, "a\nreason\x1b", 10);
    if (heard.kind != RVLI_IPC_GRANT && heard.kind != RVLI_IPC_REFUSE)
        say(socket, &message, step, 0);
}

static void say_anything(int socket, const fuzz_ipc_step *step)
{
    rvli_ipc_message message = rvli_ipc_message_of((rvli_ipc_kind)(step->kind % 9));
    message.nonce = rvli_ipc_nonce();
    message.about = step->value % 9;
    message.status = -(int32_t)(step->status % 16);
    message.export_id = now.slots[step->value % WHO].export_id;
    say(socket, &message, step, step->fds % 3);
}

/* The next blocks of as many as it began with. */
static void grant(exporter *who, const fuzz_ipc_step *step)
{
    rvli_ipc_message message = rvli_ipc_message_of(RVLI_IPC_GRANT);
    unsigned all = 1 + step->value % 40;
    unsigned left = all > who->granted ? all - who->granted : 0;
    unsigned count = step->fds % RVLI_IPC_BLOCKS;
    count = count > 0 ? count : left < RVLI_IPC_BLOCKS ? left : RVLI_IPC_BLOCKS;
    message.size_bytes = all * GRANULE;
    message.block_count = all;
    message.block_first = who->granted;
    for (unsigned i = 0; i < RVLI_IPC_BLOCKS; i++)
        message.block_bytes[i] = GRANULE;
    who->granted += count;
    say(who->socket, &message, step, count);
}

/* ---- Steps ---- */

static void connect_importer(int *socket)
{
    hang_up(socket);
    if (rvli_ipc_nonce() != 0)
        *socket = __real_rvli_ipc_connect((uint32_t)getpid(), rvli_ipc_nonce(), UINT64_MAX);
}

/* What others do, and what this process may do while a call of it is on. */
static void run_others(const fuzz_ipc_step *step)
{
    rvli_ipc_message heard;
    unsigned number = step->who % WHO;
    int *importer = &now.importers[number];
    exporter *who = &now.exporters[number];
    switch ((fuzz_ipc_verb)(step->verb % FUZZ_IPC_VERBS)) {
    case FUZZ_IPC_EXPORT:
        export_slot(&now.slots[number], step);
        break;
    case FUZZ_IPC_CONNECT:
        connect_importer(importer);
        break;
    case FUZZ_IPC_ASK:
        ask(*importer, step);
        break;
    case FUZZ_IPC_SAY:
        say_anything(*importer, step);
        break;
    case FUZZ_IPC_ANSWER:
        answer(*importer, step);
        break;
    case FUZZ_IPC_HANG_UP:
        hang_up(importer);
        break;
    case FUZZ_IPC_GRANT:
        grant(who, step);
        break;
    case FUZZ_IPC_TELL:
        say_anything(who->socket, step);
        break;
    case FUZZ_IPC_HEAR:
        (void)hear(who->socket, &heard);
        break;
    case FUZZ_IPC_END:
        hang_up(&who->socket);
        break;
    default:
        return;
    }
    run_threads();
}

static void run_step(const fuzz_ipc_step *step)
{
    unsigned number = step->who % WHO;
    slot *s = &now.slots[number];
    fuzz_ipc_verb verb = (fuzz_ipc_verb)(step->verb % FUZZ_IPC_VERBS);
    if (now.waits)
        run_others(step);
    else if (verb == FUZZ_IPC_ALLOC)
        alloc_slot(s, step);
    else if (verb == FUZZ_IPC_FREE && s->addr != 0)
        free_slot(s);
    else if (verb == FUZZ_IPC_PAUSE)
        pause_tag(number % 2);
    else if (verb == FUZZ_IPC_RESUME)
        require(rvl_resume(context, &tags[number % 2], 1, NULL) == RVL_OK);
    else if (verb == FUZZ_IPC_IMPORT)
        import(number);
    else if (verb == FUZZ_IPC_RELEASE)
        release(&now.exporters[number]);
    else
        run_others(step);
}

static void end_all(void)
{
    for (unsigned i = 0; i < WHO; i++) {
        hang_up(&now.importers[i]);
        hang_up(&now.exporters[i].socket);
        while (now.exporters[i].references > 0)
            release(&now.exporters[i]);
    }
    run_threads();
    for (unsigned i = 0; i < WHO; i++)
        if (now.slots[i].addr != 0)
            free_slot(&now.slots[i]);
    require(rvli_ipc_importers == NULL && rvli_ipc_exports == NULL && now.block_count == 0);
}

/* The lowest number that is free: one more, and a descriptor is left open. */
static int lowest_descriptor(void)
{
    int lowest = dup(block_fd);
    require(lowest >= 0);
    close(lowest);
    return lowest;
}

bool fuzz_run(const uint8_t *data, size_t size)
{
    static fuzz_ipc_step steps[256];
    size_t count = size / sizeof *steps < 256 ? size / sizeof *steps : 256;
    bool served = server != NULL, listened = listener != NULL;
    open_once();
    int lowest = lowest_descriptor();
    memcpy(steps, data, count * sizeof *steps);
    memset(&now, 0, sizeof now);
    now.next = steps;
    now.end = steps + count;
    for (unsigned i = 0; i < WHO; i++)
        now.importers[i] = now.exporters[i].socket = -1;
    while (make_next_step()) {
    }
    end_all();
    bool started = served == (server != NULL) && listened == (listener != NULL);
    require(!started || lowest_descriptor() == lowest);
    rvl_device_stats stats = {.struct_size = sizeof stats};
    require(rvl_device_get_stats(context, 0, &stats) == RVL_OK && stats.used_bytes == 0);
    return now.reached;
}
