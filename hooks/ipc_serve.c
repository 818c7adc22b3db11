/* SPDX-License-Identifier: MIT */
/*
 * The thread that serves importers: it accepts their connections, grants or refuses what they ask
 * for, takes their answers, and notes when they are gone.
 */
#include "hooks/ipc_export_internal.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/error.h"
#include "base/text.h"

/* Connections that have not said yet what they want; the oldest of more is closed. */
#define STRANGERS_MAX 64u

pthread_cond_t rvli_ipc_changed;
rvli_ipc_importer *rvli_ipc_importers;

static uint64_t own_nonce; /* 0: nobody serves yet */
static int listener = -1;
static int events = -1;

uint64_t rvli_ipc_nonce(void)
{
    return own_nonce;
}

/* ---- Answering importers ---- */

static void refuse(const rvli_ipc_importer *who, rvl_status status, const char *why)
{
    rvli_ipc_message message = rvli_ipc_message_of(RVLI_IPC_REFUSE);
    message.status = status;
    rvli_text_copy(message.text, sizeof message.text, why);
    (void)rvli_ipc_send(who->socket, &message, NULL, 0);
}

/* As many blocks as one message takes, from *block_io on. */
static rvl_status send_blocks(rvl_context *context, const rvli_ipc_importer *who,
                              rvli_ipc_message *message, const rvli_block **block_io)
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
static rvl_status grant(const rvli_ipc_importer *who, const rvli_ipc_shared *what)
{
    rvli_allocation *allocation = NULL;
    rvl_context *context = what->context;
    rvli_lock(context);
    rvl_status status = rvli_ipc_look_up(context, what->addr, what->allocation_id, &allocation);
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

static void answer_ask(rvli_ipc_importer *who, const rvli_ipc_message *ask)
{
    rvli_ipc_shared *what = ask->nonce == own_nonce ? rvli_ipc_find_export(ask->export_id) : NULL;
    rvl_status status;
    if (what == NULL)
        status = rvli_error(RVL_ERR_NOT_FOUND, "the handle is from before a pause, or its memory "
                                               "was freed: get a new one from the exporter");
    else
        status = grant(who, what);
    if (status != RVL_OK) {
        refuse(who, status, rvli_error_get()->message);
        return;
    }
    who->of = what;
    what->importers++;
}

static void note_answer(rvli_ipc_importer *who, const rvli_ipc_message *message)
{
    if (message->about != who->awaited)
        return; /* it comes late */
    who->awaited = 0;
    who->answer = message->status;
    rvli_text_copy(who->text, sizeof who->text, message->text);
    pthread_cond_broadcast(&rvli_ipc_changed);
}

/* ---- The thread ---- */

static void remove_importer(rvli_ipc_importer *gone)
{
    rvli_ipc_importer **at = &rvli_ipc_importers;
    while (*at != gone)
        at = &(*at)->next;
    *at = gone->next;
    epoll_ctl(events, EPOLL_CTL_DEL, gone->socket, NULL);
    close(gone->socket);
    if (gone->of != NULL) {
        gone->of->importers--;
        rvli_ipc_drop_if_unused(gone->of);
    }
    free(gone);
    pthread_cond_broadcast(&rvli_ipc_changed);
}

/* Whoever writes nonsense is let go. */
static void serve_importer(rvli_ipc_importer *who)
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
    rvli_ipc_importer *oldest = NULL;
    for (rvli_ipc_importer *each = rvli_ipc_importers; each != NULL; each = each->next)
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
    rvli_ipc_importer *new = calloc(1, sizeof *new);
    struct epoll_event event = {.events = EPOLLIN, .data = {.ptr = new}};
    if (new == NULL || !rvli_ipc_peer(socket, &new->process) ||
        epoll_ctl(events, EPOLL_CTL_ADD, socket, &event) != 0) {
        close(socket);
        free(new);
        return;
    }
    rvli_ipc_program(new->process, new->program, sizeof new->program);
    new->socket = socket;
    new->next = rvli_ipc_importers;
    rvli_ipc_importers = new;
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
        pthread_mutex_lock(&rvli_ipc_lock);
        if (event.data.ptr == &listener)
            accept_importer();
        else
            serve_importer(event.data.ptr);
        pthread_mutex_unlock(&rvli_ipc_lock);
    }
}

/* ---- Beginning and ending ---- */

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
rvl_status rvli_ipc_serve(void)
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
        pthread_cond_init(&rvli_ipc_changed, &monotonic);
        pthread_condattr_destroy(&monotonic);
        status = rvli_ipc_start_thread(serve);
    }
    if (status == RVL_OK)
        own_nonce = nonce;
    else
        stop_listening();
    return status;
}

void rvli_ipc_stop_serving(void)
{
    for (const rvli_ipc_importer *each = rvli_ipc_importers; each != NULL; each = each->next)
        close(each->socket);
    stop_listening();
    own_nonce = 0;
    rvli_ipc_importers = NULL;
}
