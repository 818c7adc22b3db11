/* SPDX-License-Identifier: MIT */
#include "hooks/ipc_export.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/error.h"
#include "base/text.h"
#include "core/model.h"
#include "hooks/message.h"
#include "hooks/settings.h"

/* Connections that have not said yet what they want; the oldest of more is closed. */
#define STRANGERS_MAX 64u

/* An allocation that has a handle. */
typedef struct shared {
    struct shared *next;
    rvl_context *context;
    rvl_addr addr;
    uint64_t allocation_id;
    uint64_t size_bytes;
    uint64_t export_id;
    unsigned importers;
    bool moving; /* a pause has begun */
    bool gone;   /* paused or freed since: here for its importers' sake */
} shared;

/* A connection. */
typedef struct importer {
    struct importer *next;
    shared *of; /* NULL: it has not asked yet */
    int socket;
    pid_t process;
    char program[24];
    uint32_t awaited; /* kind of the message that it has not answered; 0: none */
    int32_t answer;   /* rvl_status of its last one */
    char text[RVLI_IPC_TEXT_BYTES];
} importer;

/* One pause of shared memory at a time. Before `lock`, which is before any context's. */
static pthread_mutex_t rounds = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed; /* an importer has answered or is gone */
static shared *exports;
static importer *importers; /* added and removed by the thread that serves alone, newest first */
static _Atomic unsigned export_count;
static uint64_t own_nonce; /* 0: nobody serves yet */
static uint64_t last_export_id;
static int listener = -1;
static int events = -1;

/* ---- Fork ---- */

static void lock_all(void)
{
    pthread_mutex_lock(&lock);
}

static void unlock_all(void)
{
    pthread_mutex_unlock(&lock);
}

/* The parent's connections are not the child's to keep open, and nobody serves here. */
static void begin_anew(void)
{
    for (importer *each = importers; each != NULL; each = each->next)
        close(each->socket);
    if (listener >= 0)
        close(listener);
    if (events >= 0)
        close(events);
    listener = events = -1;
    own_nonce = 0;
    importers = NULL;
    exports = NULL;
    atomic_store(&export_count, 0);
    pthread_mutex_init(&rounds, NULL);
    pthread_mutex_init(&lock, NULL);
}

__attribute__((constructor)) static void watch_forks(void)
{
    pthread_atfork(lock_all, unlock_all, begin_anew);
}

/* ---- Exports ---- */

static void drop_if_unused(shared *what)
{
    if (!what->gone || what->importers > 0)
        return;
    shared **at = &exports;
    while (*at != what)
        at = &(*at)->next;
    *at = what->next;
    atomic_fetch_sub(&export_count, 1);
    free(what);
}

/* The one of an allocation that importers can have now, NULL if there is none. */
static shared *find_export(const rvl_context *context, rvl_addr addr, uint64_t allocation_id)
{
    for (shared *each = exports; each != NULL; each = each->next)
        if (!each->gone && each->context == context && each->addr == addr &&
            each->allocation_id == allocation_id)
            return each;
    return NULL;
}

static shared *find_export_id(uint64_t export_id)
{
    for (shared *each = exports; each != NULL; each = each->next)
        if (!each->gone && each->export_id == export_id)
            return each;
    return NULL;
}

static rvl_status paused_now(void)
{
    return rvli_error(RVL_ERR_STATE, "the memory is paused: resume it, and pass a new handle on");
}

/* With the context's lock held. id 0: any. */
static rvl_status look_up(rvl_context *context, rvl_addr addr, uint64_t id,
                          rvli_allocation **allocation_out)
{
    rvli_allocation *found = rvli_index_get(&context->by_addr, addr);
    if (found == NULL || found->freeing || (id != 0 && found->id != id))
        return rvli_error(RVL_ERR_NOT_FOUND, "the memory was freed: pass a new handle on");
    if ((found->flags & RVL_ALLOC_EXPORTABLE) == 0)
        return rvli_error(RVL_ERR_NOT_SUPPORTED, "the driver did not make this memory exportable: "
                                                 "share memory from outside regions instead");
    if (found->state != RVL_STATE_ACTIVE)
        return paused_now();
    *allocation_out = found;
    return RVL_OK;
}

/* ---- Answering importers ---- */

static void refuse(const importer *who, rvl_status status, const char *why)
{
    rvli_ipc_message message = rvli_ipc_message_of(RVLI_IPC_REFUSE);
    message.status = status;
    rvli_text_copy(message.text, sizeof message.text, why);
    (void)rvli_ipc_send(who->socket, &message, NULL, 0);
}

/* As many blocks as one message takes, from *block_io on. */
static rvl_status send_blocks(rvl_context *context, const importer *who, rvli_ipc_message *message,
                              const rvli_block **block_io)
{
    int fds[RVLI_IPC_BLOCKS];
    unsigned count = 0;
    rvl_status status = RVL_OK;
    while (*block_io != NULL && count < RVLI_IPC_BLOCKS && status == RVL_OK) {
        const rvli_block *block = *block_io;
        status =
            context->ops.export_block(context->self, block->device, block->handle, &fds[count]);
        if (status != RVL_OK)
            break;
        message->block_bytes[count++] = block->size;
        *block_io = block->next;
    }
    if (status == RVL_OK && !rvli_ipc_send(who->socket, message, fds, count))
        status = rvli_error(RVL_ERR_IO, "the importer does not read");
    message->block_first += count;
    while (count > 0)
        close(fds[--count]);
    return status;
}

/* The context's lock keeps a transition from taking the blocks away meanwhile; nothing waits. */
static rvl_status grant(const importer *who, const shared *what)
{
    rvli_allocation *allocation = NULL;
    rvl_context *context = what->context;
    rvli_lock(context);
    rvl_status status = look_up(context, what->addr, what->allocation_id, &allocation);
    if (status == RVL_OK) {
        rvli_ipc_message message = rvli_ipc_message_of(RVLI_IPC_GRANT);
        const rvli_block *next = allocation->blocks;
        message.size_bytes = allocation->size;
        for (const rvli_block *each = next; each != NULL; each = each->next)
            message.block_count++;
        while (next != NULL && status == RVL_OK)
            status = send_blocks(context, who, &message, &next);
    }
    rvli_unlock(context);
    return status;
}

static void answer_ask(importer *who, const rvli_ipc_message *ask)
{
    shared *what = ask->nonce == own_nonce ? find_export_id(ask->export_id) : NULL;
    rvl_status status;
    if (what == NULL)
        status = rvli_error(RVL_ERR_NOT_FOUND, "the handle is from before a pause, or its memory "
                                               "was freed: get a new one from the exporter");
    else
        status = what->moving ? paused_now() : grant(who, what);
    if (status != RVL_OK) {
        refuse(who, status, rvli_error_get()->message);
        return;
    }
    who->of = what;
    what->importers++;
}

static void note_answer(importer *who, const rvli_ipc_message *message)
{
    if (message->about != who->awaited)
        return; /* it comes late */
    who->awaited = 0;
    who->answer = message->status;
    rvli_text_copy(who->text, sizeof who->text, message->text);
    pthread_cond_broadcast(&changed);
}

/* ---- The thread that serves ---- */

static void remove_importer(importer *gone)
{
    importer **at = &importers;
    while (*at != gone)
        at = &(*at)->next;
    *at = gone->next;
    epoll_ctl(events, EPOLL_CTL_DEL, gone->socket, NULL);
    close(gone->socket);
    if (gone->of != NULL) {
        gone->of->importers--;
        drop_if_unused(gone->of);
    }
    free(gone);
    pthread_cond_broadcast(&changed);
}

/* Whoever writes nonsense is let go. */
static void serve_importer(importer *who)
{
    rvli_ipc_message message;
    unsigned none;
    rvl_status status = rvli_ipc_receive(who->socket, &message, NULL, 0, &none);
    if (status == RVL_ERR_TIMEOUT)
        return;
    if (status == RVL_OK && who->of == NULL && message.kind == RVLI_IPC_ASK)
        answer_ask(who, &message);
    else if (status == RVL_OK && who->of != NULL && message.kind == RVLI_IPC_DONE)
        note_answer(who, &message);
    else
        remove_importer(who);
}

static void limit_strangers(void)
{
    unsigned count = 0;
    importer *oldest = NULL;
    for (importer *each = importers; each != NULL; each = each->next)
        if (each->of == NULL) {
            oldest = each;
            count++;
        }
    if (count > STRANGERS_MAX)
        remove_importer(oldest);
}

static void accept_importer(void)
{
    int socket = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (socket < 0) {
        if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)
            (void)poll(NULL, 0, 10); /* until somebody has closed something */
        return;
    }
    importer *new = calloc(1, sizeof *new);
    struct epoll_event event = {.events = EPOLLIN, .data = {.ptr = new}};
    if (new == NULL || !rvli_ipc_peer(socket, &new->process) ||
        epoll_ctl(events, EPOLL_CTL_ADD, socket, &event) != 0) {
        close(socket);
        free(new);
        return;
    }
    rvli_ipc_program(new->process, new->program, sizeof new->program);
    new->socket = socket;
    new->next = importers;
    importers = new;
    limit_strangers();
}

static void *serve(void *unused)
{
    struct epoll_event event;
    int from = events;
    for (;;) {
        int ready = epoll_wait(from, &event, 1, -1);
        if (ready < 0 && errno != EINTR)
            return unused; /* the program has closed what is not its own */
        if (ready != 1)
            continue;
        pthread_mutex_lock(&lock);
        if (event.data.ptr == &listener)
            accept_importer();
        else
            serve_importer(event.data.ptr);
        pthread_mutex_unlock(&lock);
    }
}

static rvl_status no_socket(void)
{
    int cause = errno;
    rvli_error(RVL_ERR_IO, "no socket for memory that processes share: see the limit of open "
                           "files (ulimit -n)");
    rvli_error_native(cause, "");
    return RVL_ERR_IO;
}

static void stop_listening(void)
{
    if (listener >= 0)
        close(listener);
    if (events >= 0)
        close(events);
    listener = events = -1;
}

/* With the lock held. */
static rvl_status serve_from_now_on(void)
{
    pthread_condattr_t monotonic;
    struct epoll_event event = {.events = EPOLLIN, .data = {.ptr = &listener}};
    if (own_nonce != 0)
        return RVL_OK;
    uint64_t nonce = rvli_ipc_random();
    listener = rvli_ipc_listen((uint32_t)getpid(), nonce);
    events = listener >= 0 ? epoll_create1(EPOLL_CLOEXEC) : -1;
    rvl_status status = events >= 0 && epoll_ctl(events, EPOLL_CTL_ADD, listener, &event) == 0
                            ? RVL_OK
                            : no_socket();
    if (status == RVL_OK) {
        pthread_condattr_init(&monotonic);
        pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
        pthread_cond_init(&changed, &monotonic);
        pthread_condattr_destroy(&monotonic);
        status = rvli_ipc_start_thread(serve);
    }
    if (status == RVL_OK)
        own_nonce = nonce;
    else
        stop_listening();
    return status;
}

/* ---- Exporting ---- */

/* With the lock held. */
static rvl_status add_export(const shared *draft, shared **export_out)
{
    shared *new = malloc(sizeof *new);
    if (new == NULL)
        return rvli_error(RVL_ERR_HOST_OOM, "no host memory for a handle");
    *new = *draft;
    new->export_id = ++last_export_id;
    new->next = exports;
    exports = new;
    atomic_fetch_add(&export_count, 1);
    *export_out = new;
    return RVL_OK;
}

static rvl_status export_draft(const shared *draft, rvli_ipc_handle *handle_out)
{
    rvl_status status = serve_from_now_on();
    if (status != RVL_OK)
        return status;
    shared *found = find_export(draft->context, draft->addr, draft->allocation_id);
    if (found == NULL)
        status = add_export(draft, &found);
    else if (found->moving)
        status = paused_now();
    if (status != RVL_OK)
        return status;
    const rvli_ipc_name name = {.process = (uint32_t)getpid(),
                                .nonce = own_nonce,
                                .export_id = found->export_id,
                                .size_bytes = found->size_bytes};
    rvli_ipc_write_handle(&name, handle_out);
    return RVL_OK;
}

rvl_status rvli_ipc_export(rvl_context *context, rvl_addr addr, rvli_ipc_handle *handle_out)
{
    shared draft = {.context = context, .addr = addr};
    rvli_allocation *allocation = NULL;
    rvl_status status = rvli_context_check(context);
    if (status != RVL_OK)
        return status;
    rvli_lock(context);
    status = look_up(context, addr, 0, &allocation);
    if (status == RVL_OK) {
        draft.allocation_id = allocation->id;
        draft.size_bytes = allocation->size;
    }
    rvli_unlock(context);
    if (status != RVL_OK)
        return status;
    pthread_mutex_lock(&lock);
    status = export_draft(&draft, handle_out);
    pthread_mutex_unlock(&lock);
    return status;
}

bool rvli_ipc_is_own(uint64_t nonce)
{
    pthread_mutex_lock(&lock);
    bool own = own_nonce != 0 && nonce == own_nonce;
    pthread_mutex_unlock(&lock);
    return own;
}

void rvli_ipc_forget(const rvl_context *context, uint64_t allocation_id)
{
    if (atomic_load_explicit(&export_count, memory_order_relaxed) == 0)
        return;
    pthread_mutex_lock(&lock);
    for (shared *each = exports, *next; each != NULL; each = next) {
        next = each->next;
        if (each->context != context || each->allocation_id != allocation_id)
            continue;
        each->gone = true;
        drop_if_unused(each);
    }
    pthread_mutex_unlock(&lock);
}

/* ---- Pausing ---- */

/* Whether a pause of the tag moves it. */
static bool moves_with(const shared *what, const rvl_tag *tag)
{
    rvl_allocation facts = {.struct_size = sizeof facts};
    return rvl_allocation_find(what->context, what->addr, &facts) == RVL_OK &&
           facts.id == what->allocation_id && facts.state == RVL_STATE_ACTIVE &&
           (tag == NULL || facts.tag == *tag);
}

static bool begin_move(const rvl_context *context, const rvl_tag *tag)
{
    bool any = false;
    rvl_error before = *rvli_error_get();
    for (shared *each = exports; each != NULL; each = each->next) {
        each->moving = !each->gone && each->context == context && moves_with(each, tag);
        any = any || each->moving;
    }
    rvli_error_set(&before);
    return any;
}

static bool moves(const importer *who)
{
    return who->of != NULL && who->of->moving;
}

static const importer *find_silent(void)
{
    const importer *each = importers;
    while (each != NULL && !(moves(each) && each->awaited != 0))
        each = each->next;
    return each;
}

/* Says one thing to all that hold what moves, and waits for their answers. */
static void tell_all(rvli_ipc_kind kind, unsigned timeout_ms)
{
    struct timespec end;
    const rvli_ipc_message message = rvli_ipc_message_of(kind);
    for (importer *each = importers; each != NULL; each = each->next)
        if (moves(each)) {
            each->awaited = (uint32_t)kind;
            (void)rvli_ipc_send(each->socket, &message, NULL, 0);
        }
    clock_gettime(CLOCK_MONOTONIC, &end);
    end.tv_sec += timeout_ms / 1000;
    end.tv_nsec += (long)(timeout_ms % 1000) * 1000000;
    if (end.tv_nsec >= 1000000000) {
        end.tv_sec++;
        end.tv_nsec -= 1000000000;
    }
    while (find_silent() != NULL && pthread_cond_timedwait(&changed, &lock, &end) == 0) {
    }
}

static bool has_not_let_go(const importer *who)
{
    return moves(who) && (who->awaited != 0 || who->answer != RVL_OK);
}

/* "process 4711 (python) has 4.0 MiB of it, and 2 more"; and the bytes of all. */
static const importer *name_holders(rvli_text *text, uint64_t *bytes_out)
{
    const importer *first = NULL;
    unsigned count = 0;
    *bytes_out = 0;
    for (const importer *each = importers; each != NULL; each = each->next) {
        if (!has_not_let_go(each))
            continue;
        first = first != NULL ? first : each;
        *bytes_out += each->of->size_bytes;
        count++;
    }
    if (first == NULL)
        return NULL;
    rvli_text_add(text, "process ");
    rvli_text_add_u64(text, (uint64_t)first->process);
    rvli_text_add(text, " (");
    rvli_text_add(text, first->program);
    rvli_text_add(text, ") holds ");
    rvli_text_add_bytes(text, first->of->size_bytes);
    rvli_text_add(text, " that it imported");
    if (count > 1) {
        rvli_text_add(text, " (");
        rvli_text_add_u64(text, count);
        rvli_text_add(text, " imports hold ");
        rvli_text_add_bytes(text, *bytes_out);
        rvli_text_add(text, ")");
    }
    return first;
}

static rvl_status verdict(unsigned timeout_ms)
{
    char message[sizeof(((rvl_error *)NULL)->message)];
    uint64_t bytes;
    rvli_text text = rvli_text_begin(message, sizeof message);
    const importer *first = name_holders(&text, &bytes);
    if (first == NULL)
        return RVL_OK;
    rvl_status status = first->awaited != 0 ? RVL_ERR_TIMEOUT : RVL_ERR_BUSY;
    if (status == RVL_ERR_TIMEOUT) {
        rvli_text_add(&text, " and does not let go within ");
        rvli_text_add_u64(&text, timeout_ms);
        rvli_text_add(&text, " ms: free it there, or end it");
    } else {
        rvli_text_add(&text, " and cannot let go: ");
        rvli_text_add(&text, first->text);
    }
    rvli_error(status, message);
    rvli_error_op("suspend");
    rvli_error_bytes(RVL_NO_DEVICE, bytes, 0);
    return status;
}

rvl_status rvli_ipc_suspend(rvl_context *context, const rvl_tag *tag, bool *begun_out)
{
    unsigned timeout_ms = rvli_settings()->ipc_timeout_ms;
    if (atomic_load(&export_count) == 0)
        return RVL_OK;
    pthread_mutex_lock(&rounds);
    pthread_mutex_lock(&lock);
    *begun_out = begin_move(context, tag);
    if (*begun_out)
        tell_all(RVLI_IPC_SUSPEND, timeout_ms);
    rvl_status status = *begun_out ? verdict(timeout_ms) : RVL_OK;
    pthread_mutex_unlock(&lock);
    if (!*begun_out)
        pthread_mutex_unlock(&rounds);
    return status;
}

/* They read nothing stale, but what they hold is not free yet. */
static void warn_of_holders(void)
{
    char message[RVLI_MESSAGE_BYTES];
    uint64_t bytes;
    rvli_text text = rvli_text_begin(message, sizeof message);
    rvli_text_add(&text, "memory was paused, but is not free yet: ");
    if (name_holders(&text, &bytes) != NULL)
        rvli_say(message);
}

void rvli_ipc_settle(rvl_context *context, bool paused)
{
    rvl_error before = *rvli_error_get();
    pthread_mutex_lock(&lock);
    tell_all(paused ? RVLI_IPC_DROP : RVLI_IPC_RESTORE, rvli_settings()->ipc_timeout_ms);
    if (paused)
        warn_of_holders();
    for (shared *each = exports, *next; each != NULL; each = next) {
        next = each->next;
        if (!each->moving || each->context != context)
            continue;
        each->moving = false;
        each->gone = each->gone || paused;
        drop_if_unused(each);
    }
    pthread_mutex_unlock(&lock);
    pthread_mutex_unlock(&rounds);
    rvli_error_set(&before);
}
