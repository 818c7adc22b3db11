/* SPDX-License-Identifier: MIT */
#include "hooks/ipc/import.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/text.h"
#include "hooks/process/captures.h"
#include "hooks/process/message.h"
#include "hooks/process/settings.h"
#include "hooks/region/saver.h"
#include "reveille/share.h"

/* Limit of blocks, more than any allocation has. */
#define BLOCKS_MAX (UINT32_C(1) << 20)

/* An open import. Its allocation has its state. */
typedef struct import {
    struct import *next;
    rvli_ipc_handle handle;
    int device;
    rvl_context *context; /* the device is number 0 in it */
    unsigned references;
    rvl_addr addr; /* 0: not mapped yet */
    int socket;    /* -1: the exporter is gone */
    uint64_t number;
} import;

/* An import that is being requested. */
typedef struct request {
    import *new;
    rvl_import *memory; /* NULL: nothing granted yet */
    uint64_t size_bytes;
    uint64_t added_bytes;
    uint32_t block_count;
    uint32_t added_blocks;
} request;

static pthread_mutex_t opening = PTHREAD_MUTEX_INITIALIZER; /* before `lock` */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static import *imports;
static uint64_t last_number;
static int events = -1; /* guarded by `opening` */

/* ---- Fork ---- */

static void lock_all(void)
{
    pthread_mutex_lock(&lock);
}

static void unlock_all(void)
{
    pthread_mutex_unlock(&lock);
}

/* In a forked child: closes the parent's connections, which would otherwise outlive the parent. */
static void begin_again(void)
{
    for (import *each = imports; each != NULL; each = each->next)
        if (each->socket >= 0)
            close(each->socket);
    if (events >= 0)
        close(events);
    events = -1;
    imports = NULL;
    pthread_mutex_init(&opening, NULL);
    pthread_mutex_init(&lock, NULL);
}

__attribute__((constructor)) static void watch_forks(void)
{
    pthread_atfork(lock_all, unlock_all, begin_again);
}

/* ---- Its memory ---- */

static rvl_state state_of(const import *of)
{
    rvl_allocation facts = {.struct_size = sizeof facts, .state = RVL_STATE_LOST};
    (void)rvl_allocation_find(of->context, of->addr, &facts);
    return facts.state;
}

static rvl_status refuse_capture(void)
{
    return rvli_capture_running()
               ? rvli_error(RVL_ERR_BUSY, "a stream is being captured there: end the capture first")
               : RVL_OK;
}

/* Unmaps the memory once nothing on the device uses it. */
static rvl_status suspend(const import *of)
{
    rvl_status status = state_of(of) == RVL_STATE_ACTIVE ? refuse_capture() : RVL_OK;
    return status == RVL_OK ? rvl_import_pause(of->context, of->addr) : status;
}

/* Releases the memory unless it is mapped: then the driver keeps it for this process. */
static void give_back(const import *of)
{
    if (state_of(of) != RVL_STATE_ACTIVE && rvl_import_release(of->context, of->addr) != RVL_OK)
        rvli_say_error("giving imported memory back");
}

static rvl_status restore(const import *of)
{
    if (state_of(of) != RVL_STATE_PAUSED)
        return RVL_OK;
    rvl_status status = rvl_import_resume(of->context, of->addr);
    if (status != RVL_OK) {
        rvl_error cause = *rvli_error_get();
        rvli_say_error("imported memory is lost, mapping it again after a failed pause");
        give_back(of);
        rvli_error_set(&cause);
    }
    return status;
}

/* Frees the memory and its address. On failure, nothing has changed. */
static rvl_status free_memory(const import *of)
{
    rvl_status status = RVL_OK;
    if (state_of(of) == RVL_STATE_ACTIVE) {
        status = refuse_capture();
        if (status == RVL_OK)
            status = rvl_device_synchronize(of->context, 0);
    }
    return status == RVL_OK ? rvl_free(of->context, of->addr) : status;
}

/* ---- Messages from the exporter ---- */

static void hang_up(import *of)
{
    if (of->socket < 0)
        return;
    epoll_ctl(events, EPOLL_CTL_DEL, of->socket, NULL);
    close(of->socket);
    of->socket = -1;
}

static void answer(const import *of, uint32_t about, rvl_status status)
{
    rvli_ipc_message message = rvli_ipc_message_of(RVLI_IPC_DONE);
    message.about = about;
    message.status = status;
    if (status != RVL_OK)
        rvli_text_copy(message.text, sizeof message.text, rvli_error_get()->message);
    (void)rvli_ipc_send(of->socket, &message, NULL, 0);
}

/* If the exporter ends during a pause, the content of its memory is unknown: releases it. */
static void hear(import *of)
{
    rvli_ipc_message message;
    unsigned none;
    rvl_status status = rvli_ipc_receive(of->socket, &message, NULL, 0, &none);
    if (status == RVL_ERR_TIMEOUT)
        return;
    if (status == RVL_OK && message.kind == RVLI_IPC_SUSPEND) {
        answer(of, message.kind, suspend(of));
    } else if (status == RVL_OK && message.kind == RVLI_IPC_RESTORE) {
        answer(of, message.kind, restore(of));
    } else {
        give_back(of);
        hang_up(of);
    }
}

static void *listen_to_exporters(void *unused)
{
    struct epoll_event event;
    int from = events;
    for (;;) {
        int ready = epoll_wait(from, &event, 1, -1);
        if (ready < 0 && errno != EINTR)
            return unused; /* the program has closed our descriptor */
        if (ready != 1)
            continue;
        pthread_mutex_lock(&lock);
        import *each = imports;
        while (each != NULL && each->number != event.data.u64)
            each = each->next;
        if (each != NULL && each->socket >= 0)
            hear(each);
        pthread_mutex_unlock(&lock);
    }
}

/* ---- Asking for memory ---- */

static rvl_status call_exporter(const rvli_ipc_name *name, uint64_t end_ns, int *socket_out)
{
    pid_t process;
    int socket = rvli_ipc_connect(name->process, name->nonce, end_ns);
    if (socket < 0 && (errno == ECONNREFUSED || errno == ENOENT))
        return rvli_error(RVL_ERR_NOT_FOUND, "the process that gave this handle is gone: get a new "
                                             "one from the process that has the memory now");
    if (socket < 0) {
        int cause = errno;
        bool late = cause == EAGAIN || cause == EWOULDBLOCK || cause == EINPROGRESS;
        rvl_status status = late ? RVL_ERR_TIMEOUT : RVL_ERR_IO;
        rvli_error(status, "the process that gave this handle cannot be reached");
        rvli_error_native(cause, "");
        return status;
    }
    if (!rvli_ipc_peer(socket, &process)) {
        close(socket);
        return rvli_error(RVL_ERR_IO, "the process that gave this handle belongs to another user");
    }
    *socket_out = socket;
    return RVL_OK;
}

static rvl_status wrong_grant(void)
{
    return rvli_error(RVL_ERR_IO, "the process that gave this handle does not speak as this "
                                  "version does: use one version of Reveille in all of them");
}

static rvl_status begin_memory(request *draft, const rvli_ipc_message *grant)
{
    if (grant->block_count == 0 || grant->block_count > BLOCKS_MAX || grant->size_bytes == 0)
        return wrong_grant();
    draft->size_bytes = grant->size_bytes;
    draft->block_count = grant->block_count;
    return rvl_import_begin(draft->new->context, grant->size_bytes, NULL, &draft->memory);
}

/* Whether a grant continues the previous ones. */
static bool goes_on(const request *draft, const rvli_ipc_message *grant, unsigned fd_count)
{
    uint64_t left = draft->size_bytes - draft->added_bytes;
    for (unsigned i = 0; i < fd_count && i < RVLI_IPC_BLOCKS; i++) {
        if (grant->block_bytes[i] > left)
            return false;
        left -= grant->block_bytes[i];
    }
    return fd_count > 0 && grant->block_first == draft->added_blocks &&
           grant->block_count == draft->block_count && grant->size_bytes == draft->size_bytes &&
           fd_count <= draft->block_count - draft->added_blocks;
}

static rvl_status take_grant(request *draft, const rvli_ipc_message *grant, const int *fds,
                             unsigned fd_count)
{
    rvl_status status = draft->memory == NULL ? begin_memory(draft, grant) : RVL_OK;
    if (status == RVL_OK && !goes_on(draft, grant, fd_count))
        status = wrong_grant();
    if (status == RVL_OK)
        status = rvl_import_add(draft->memory, fds, grant->block_bytes, fd_count);
    if (status != RVL_OK)
        return status;
    draft->added_blocks += fd_count;
    for (unsigned i = 0; i < fd_count; i++)
        draft->added_bytes += grant->block_bytes[i];
    return RVL_OK;
}

static bool is_failure(int32_t status)
{
#define OR_IS(name, value, text) || status == (value)
    return status != RVL_OK && (false RVL_STATUS_MAP(OR_IS));
#undef OR_IS
}

/* Returns the peer's status with its reason. Both may be invalid, and the reason may be missing. */
static rvl_status refused(const rvli_ipc_message *refusal)
{
    if (!is_failure(refusal->status))
        return wrong_grant();
    return rvli_error((rvl_status)refusal->status,
                      refusal->text[0] != '\0'
                          ? refusal->text
                          : "the process that gave this handle refuses it and does not say why: "
                            "get a new handle from it");
}

/* Receives one reply. *more_io: whether more will follow. */
static rvl_status hear_answer(request *draft, uint64_t end_ns, bool *more_io)
{
    rvli_ipc_message message;
    int fds[RVLI_IPC_BLOCKS], socket = draft->new->socket;
    unsigned count = 0;
    if (!rvli_ipc_wait(socket, end_ns))
        return rvli_error(RVL_ERR_TIMEOUT, "the process that gave this handle does not answer");
    rvl_status status = rvli_ipc_receive(socket, &message, fds, RVLI_IPC_BLOCKS, &count);
    if (status == RVL_ERR_TIMEOUT)
        return RVL_OK;
    if (status == RVL_ERR_NOT_FOUND)
        return rvli_error(status, "the process that gave this handle is gone");
    if (status != RVL_OK)
        return wrong_grant();
    if (message.kind == RVLI_IPC_GRANT) {
        status = take_grant(draft, &message, fds, count);
        *more_io = status == RVL_OK && draft->added_blocks < draft->block_count;
    } else if (message.kind == RVLI_IPC_REFUSE) {
        status = refused(&message);
    } else {
        status = wrong_grant();
    }
    while (count > 0)
        close(fds[--count]);
    return status;
}

static rvl_status ask(request *draft, const rvli_ipc_name *name, uint64_t end_ns)
{
    rvli_ipc_message message = rvli_ipc_message_of(RVLI_IPC_ASK);
    bool more = true;
    message.nonce = name->nonce;
    message.export_id = name->export_id;
    if (!rvli_ipc_send(draft->new->socket, &message, NULL, 0))
        return rvli_error(RVL_ERR_NOT_FOUND, "the process that gave this handle is gone");
    rvl_status status = RVL_OK;
    while (more && status == RVL_OK)
        status = hear_answer(draft, end_ns, &more);
    return status == RVL_OK && draft->added_bytes != draft->size_bytes ? wrong_grant() : status;
}

/* With `opening` held. */
static rvl_status listen_from_now_on(void)
{
    if (events >= 0)
        return RVL_OK;
    events = epoll_create1(EPOLL_CLOEXEC);
    if (events < 0)
        return rvli_error(RVL_ERR_IO, "no file for memory that processes share: see the limit of "
                                      "open files (ulimit -n)");
    rvl_status status = rvli_ipc_start_thread(listen_to_exporters);
    if (status != RVL_OK) {
        close(events);
        events = -1;
    }
    return status;
}

/* Hands the import to the thread, which also gets messages that have arrived since. */
static rvl_status publish(import *draft)
{
    pthread_mutex_lock(&lock);
    draft->number = ++last_number;
    struct epoll_event event = {.events = EPOLLIN, .data = {.u64 = draft->number}};
    rvl_status status = RVL_OK;
    if (epoll_ctl(events, EPOLL_CTL_ADD, draft->socket, &event) != 0)
        status = rvli_error(RVL_ERR_HOST_OOM, "no host memory for an import");
    if (status == RVL_OK) {
        draft->next = imports;
        imports = draft;
    }
    pthread_mutex_unlock(&lock);
    return status;
}

/* Undoes a failed request in reverse order. Keeps the error record. */
static void undo(request *draft)
{
    rvl_error cause = *rvli_error_get();
    if (draft->new->addr != 0)
        (void)rvl_free(draft->new->context, draft->new->addr);
    rvl_import_cancel(draft->memory);
    if (draft->new->socket >= 0)
        close(draft->new->socket);
    free(draft->new);
    rvli_error_set(&cause);
}

/* With `opening` held. */
static rvl_status import_new(import *new, const rvli_ipc_name *name, rvl_addr *addr_out)
{
    request draft = {.new = new};
    new->socket = -1;
    new->references = 1;
    rvl_device_info info = {.struct_size = sizeof info};
    rvl_status status = rvli_saver_context(new->device, &new->context);
    if (status == RVL_OK) /* fails in a forked child: the context is the parent's */
        status = rvl_device_get_info(new->context, 0, &info);
    if (status == RVL_OK)
        status = listen_from_now_on();
    /* This limits the connection and all replies together. */
    uint64_t end_ns = rvli_monotonic_ns() + rvli_settings()->ipc_timeout_ms * UINT64_C(1000000);
    if (status == RVL_OK)
        status = call_exporter(name, end_ns, &new->socket);
    if (status == RVL_OK)
        status = ask(&draft, name, end_ns);
    if (status == RVL_OK)
        status = rvl_import_finish(draft.memory, &new->addr);
    if (status == RVL_OK) {
        draft.memory = NULL;
        *addr_out = new->addr; /* once published, another thread may close it */
        status = publish(new);
    }
    if (status != RVL_OK)
        undo(&draft);
    return status;
}

/* ---- The calls ---- */

/* Counts one more opening of an open import. Returns false if it is not open. */
static bool open_again(const rvli_ipc_handle *handle, int device, rvl_addr *addr_out,
                       rvl_status *status_out)
{
    pthread_mutex_lock(&lock);
    import *found = imports;
    while (found != NULL &&
           (found->device != device || memcmp(&found->handle, handle, sizeof *handle) != 0))
        found = found->next;
    if (found != NULL && state_of(found) == RVL_STATE_ACTIVE) {
        found->references++;
        *addr_out = found->addr;
        *status_out = RVL_OK;
    } else if (found != NULL) {
        *status_out = rvli_error(RVL_ERR_NOT_FOUND, "the handle is from before a pause: get a new "
                                                    "one from the exporter");
    }
    pthread_mutex_unlock(&lock);
    return found != NULL;
}

rvl_status rvli_ipc_import(const rvli_ipc_handle *handle, const rvli_ipc_name *name, int device,
                           rvl_addr *addr_out)
{
    rvl_status status = RVL_OK;
    pthread_mutex_lock(&opening);
    if (!open_again(handle, device, addr_out, &status)) {
        import *draft = calloc(1, sizeof *draft);
        if (draft != NULL) {
            draft->handle = *handle;
            draft->device = device;
            status = import_new(draft, name, addr_out);
        } else {
            status = rvli_error(RVL_ERR_HOST_OOM, "no host memory for an import");
        }
    }
    pthread_mutex_unlock(&opening);
    return status;
}

/* With the lock held. */
static rvl_status close_import(import **at)
{
    import *gone = *at;
    if (--gone->references > 0)
        return RVL_OK;
    rvl_status status = free_memory(gone);
    if (status != RVL_OK) {
        gone->references++;
        return status;
    }
    hang_up(gone);
    *at = gone->next;
    free(gone);
    return RVL_OK;
}

bool rvli_ipc_release(rvl_addr addr, rvl_status *status_out)
{
    pthread_mutex_lock(&lock);
    import **at = &imports;
    while (*at != NULL && (*at)->addr != addr)
        at = &(*at)->next;
    bool found = *at != NULL;
    if (found)
        *status_out = close_import(at);
    pthread_mutex_unlock(&lock);
    return found;
}
