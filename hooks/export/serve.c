/* SPDX-License-Identifier: MIT */
/*
 * The thread that serves importers: it accepts connections, grants or refuses requests, takes
 * replies, and notices when importers are gone.
 */
#include "hooks/export/export_internal.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/error.h"
#include "base/text.h"

/* Limit of connections that have not sent a request yet. Beyond it, the oldest is closed. */
#define STRANGERS_MAX 64u

pthread_cond_t rvli_ipc_changed;
rvli_ipc_importer *rvli_ipc_importers;

static uint64_t own_nonce; /* 0: not serving yet */
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

/* Grants as many blocks as fit in one message, from `next->first_block` on. */
static rvl_status grant_some(const rvli_ipc_importer *who, const rvli_ipc_shared *what,
                             rvl_export_options *next, uint64_t *block_count_out)
{
    int fds[RVLI_IPC_BLOCKS];
    rvl_export made = {.struct_size = sizeof made};
    rvli_ipc_message message = rvli_ipc_message_of(RVLI_IPC_GRANT);
    rvl_status status = rvli_ipc_read_blocks(what->context, what->addr, next, fds,
                                             message.block_bytes, RVLI_IPC_BLOCKS, &made);
    if (status != RVL_OK)
        return status;
    message.size_bytes = made.size_bytes;
    message.block_count = (uint32_t)made.block_count;
    message.block_first = (uint32_t)next->first_block;
    if (!rvli_ipc_send(who->socket, &message, fds, (unsigned)made.file_count))
        status = rvli_error(RVL_ERR_IO, "the importer does not read");
    for (uint64_t i = 0; i < made.file_count; i++)
        close(fds[i]);
    next->first_block += made.file_count;
    *block_count_out = made.block_count;
    return status;
}

static rvl_status grant(const rvli_ipc_importer *who, const rvli_ipc_shared *what)
{
    rvl_export_options next = {.struct_size = sizeof next, .allocation_id = what->allocation_id};
    uint64_t block_count = 0;
    rvl_status status;
    do
        status = grant_some(who, what, &next, &block_count);
    while (status == RVL_OK && next.first_block < block_count);
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
        return; /* a late reply */
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

/* Disconnects an importer that sends anything unexpected. */
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
            (void)poll(NULL, 0, 10); /* until some descriptor is closed */
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
            return unused; /* the program has closed our descriptor */
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
