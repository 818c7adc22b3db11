/* SPDX-License-Identifier: MIT */
/*
 * Memory that processes share, in one process: an exporter with an importer that is played by hand,
 * and an importer with such an exporter. Either says what it should not, and every step is made to
 * fail.
 */
#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/error.h"
#include "core/tables.h"
#include "cuda/gpu.h"
#include "fake.h"
#include "hooks/export/export.h"
#include "hooks/ipc/import.h"
#include "hooks/process/message.h"
#include "hooks/region/saver.h"

#define SIZE (UINT64_C(4) << 20)
#define NONCE UINT64_C(0x1234)

static uint64_t end_ns(unsigned timeout_ms)
{
    return rvli_monotonic_ns() + timeout_ms * UINT64_C(1000000);
}

/* ---- Failures of the host, on this thread alone ---- */

#define WRAP __attribute__((visibility("default")))

static _Thread_local unsigned countdown; /* calls until one fails; 0: none does */
static _Thread_local bool failed;

static bool fails(void)
{
    if (countdown == 0 || --countdown > 0)
        return false;
    failed = true;
    errno = ENOMEM;
    return true;
}

#define WRAPPED(result, name, parameters, arguments, failure)                                      \
    result __real_##name parameters;                                                               \
    WRAP result __wrap_##name parameters;                                                          \
    result __wrap_##name parameters                                                                \
    {                                                                                              \
        return fails() ? failure : __real_##name arguments;                                        \
    }

WRAPPED(void *, calloc, (size_t count, size_t size), (count, size), NULL)
WRAPPED(void *, malloc, (size_t size), (size), NULL)
WRAPPED(int, listen, (int fd, int backlog), (fd, backlog), -1)
WRAPPED(int, epoll_create1, (int flags), (flags), -1)
WRAPPED(int, epoll_ctl, (int events, int what, int fd, struct epoll_event *event),
        (events, what, fd, event), -1)
WRAPPED(int, pthread_create,
        (pthread_t * thread, const pthread_attr_t *how, void *(*run)(void *), void *argument),
        (thread, how, run, argument), EAGAIN)

static unsigned open_descriptors(void)
{
    unsigned count = 0;
    fake_stats_get(); /* the fake driver closes its ends of what nobody holds any more */
    DIR *all = opendir("/proc/self/fd");
    assert_non_null(all);
    while (readdir(all) != NULL)
        count++;
    closedir(all);
    return count;
}

/* ---- What both sides have ---- */

static rvl_context *context;
static rvl_addr memory;

static rvl_addr allocate(void)
{
    const rvli_thread_settings settings = {
        .tag = "w", .region = RVLI_REGION_INSIDE, .host_backup = true};
    rvl_addr addr = 0;
    atomic_store(&rvli_saver_exportable, true);
    assert_int_equal(rvli_saver_alloc(0, SIZE, &settings, &addr), RVL_OK);
    return addr;
}

static int prepare(void **state)
{
    rvl_addr begin;
    (void)state;
    memory = allocate();
    return rvli_saver_find(memory + 1, &context, &begin) && begin == memory ? 0 : -1;
}

static rvli_ipc_name name_in(const rvli_ipc_handle *handle)
{
    rvli_ipc_name name;
    bool whole = false;
    assert_true(rvli_ipc_read_handle(handle, &name, &whole));
    assert_true(whole);
    return name;
}

static rvli_ipc_message hear(int socket, int *fd_out)
{
    rvli_ipc_message message;
    int fds[RVLI_IPC_BLOCKS];
    unsigned count = 0;
    assert_true(rvli_ipc_wait(socket, end_ns(5000)));
    assert_int_equal(rvli_ipc_receive(socket, &message, fds, RVLI_IPC_BLOCKS, &count), RVL_OK);
    assert_int_equal(count, fd_out != NULL);
    if (fd_out != NULL)
        *fd_out = fds[0];
    return message;
}

static void expect_closed(int socket)
{
    rvli_ipc_message message;
    unsigned none;
    assert_true(rvli_ipc_wait(socket, end_ns(5000)));
    assert_int_equal(rvli_ipc_receive(socket, &message, NULL, 0, &none), RVL_ERR_NOT_FOUND);
    close(socket);
}

/* ---- Handles and messages ---- */

static void damaged_handles_are_told(void **state)
{
    (void)state;
    const rvli_ipc_name name = {
        .process = 7, .nonce = NONCE, .export_id = 3, .size_bytes = UINT64_MAX};
    rvli_ipc_handle handle;
    rvli_ipc_write_handle(&name, &handle);
    rvli_ipc_name read = name_in(&handle);
    assert_int_equal(read.process, 7);
    assert_int_equal(read.nonce, NONCE);
    assert_int_equal(read.export_id, 3);
    assert_int_equal(read.size_bytes, UINT64_MAX);
    for (size_t i = 0; i < sizeof handle; i++) {
        bool whole = true;
        handle.bytes[i] ^= 0x10;
        assert_int_equal(rvli_ipc_read_handle(&handle, &read, &whole), i >= 8);
        assert_int_equal(whole, i < 8);
        handle.bytes[i] ^= 0x10;
    }
}

static void other_packets_are_no_messages(void **state)
{
    (void)state;
    int ends[2], fds[RVLI_IPC_BLOCKS];
    unsigned count = 77, before = open_descriptors();
    rvli_ipc_message message = rvli_ipc_message_of(RVLI_IPC_ASK), got;
    char longer[sizeof message + 1] = {0};
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends), 0);
    assert_int_equal(rvli_ipc_receive(ends[1], &got, NULL, 0, &count), RVL_ERR_TIMEOUT);
    assert_int_equal(send(ends[0], &message, sizeof message - 1, 0), sizeof message - 1);
    assert_int_equal(rvli_ipc_receive(ends[1], &got, NULL, 0, &count), RVL_ERR_INVALID);
    memcpy(longer, &message, sizeof message);
    assert_int_equal(send(ends[0], longer, sizeof longer, 0), sizeof longer);
    assert_int_equal(rvli_ipc_receive(ends[1], &got, NULL, 0, &count), RVL_ERR_INVALID);
    const int two[] = {ends[0], ends[1]};
    for (unsigned room = 0; room < 2; room++) { /* more descriptors than there is room for */
        assert_true(rvli_ipc_send(ends[0], &message, two, 2));
        assert_int_equal(rvli_ipc_receive(ends[1], &got, fds, room, &count), RVL_ERR_INVALID);
    }
    assert_true(rvli_ipc_send(ends[0], &message, two, 2));
    message.magic ^= 1;
    assert_true(rvli_ipc_send(ends[0], &message, two, 2));
    assert_int_equal(rvli_ipc_receive(ends[1], &got, fds, 2, &count), RVL_OK);
    assert_int_equal(count, 2);
    close(fds[0]);
    close(fds[1]);
    assert_int_equal(rvli_ipc_receive(ends[1], &got, fds, 2, &count), RVL_ERR_INVALID);
    close(ends[0]);
    assert_int_equal(rvli_ipc_receive(ends[1], &got, NULL, 0, &count), RVL_ERR_NOT_FOUND);
    assert_false(rvli_ipc_send(ends[1], &message, NULL, 0));
    assert_false(rvli_ipc_wait(-1, end_ns(1)));
    close(ends[1]);
    assert_int_equal(open_descriptors(), before);
}

/* ---- The exporter ---- */

/* The first export starts to serve, and each of its steps may fail. */
static void exporting_fails(void **state)
{
    (void)state;
    rvli_ipc_handle handle;
    rvl_status status = RVL_ERR_IO;
    unsigned steps = 0, before = open_descriptors();
    while (status != RVL_OK) {
        memset(&handle, 0x33, sizeof handle);
        countdown = ++steps;
        failed = false;
        status = rvli_ipc_export(context, memory, &handle);
        countdown = 0;
        assert_int_equal(status == RVL_OK, !failed);
        if (status == RVL_OK)
            break;
        assert_true(status == RVL_ERR_IO || status == RVL_ERR_HOST_OOM);
        assert_int_equal(rvli_error_get()->status, status);
        assert_int_equal(handle.bytes[63], 0x33);
        assert_true(open_descriptors() <= before + 2);
    }
    assert_true(steps > 4);
    assert_true(rvli_ipc_is_own(name_in(&handle).nonce));
    assert_int_equal(open_descriptors(), before + 2);
    assert_int_equal(rvli_ipc_export(context, memory + 1, &handle), RVL_ERR_NOT_FOUND);
}

static rvli_ipc_name exported_at(rvl_addr addr)
{
    rvli_ipc_handle handle;
    assert_int_equal(rvli_ipc_export(context, addr, &handle), RVL_OK);
    return name_in(&handle);
}

static rvli_ipc_name exported(void)
{
    return exported_at(memory);
}

static int call(const rvli_ipc_name *name)
{
    int socket = rvli_ipc_connect(name->process, name->nonce, end_ns(1000));
    assert_true(socket >= 0);
    return socket;
}

static void say(int socket, rvli_ipc_kind kind, const rvli_ipc_name *name)
{
    rvli_ipc_message message = rvli_ipc_message_of(kind);
    message.nonce = name->nonce;
    message.export_id = name->export_id;
    assert_true(rvli_ipc_send(socket, &message, NULL, 0));
}

static void wrong_questions_are_refused(void **state)
{
    (void)state;
    rvli_ipc_name name = exported(), wrong = name;
    unsigned before = open_descriptors();
    int socket = call(&name);
    wrong.nonce++;
    say(socket, RVLI_IPC_ASK, &wrong);
    rvli_ipc_message answer = hear(socket, NULL);
    assert_int_equal(answer.kind, RVLI_IPC_REFUSE);
    assert_int_equal(answer.status, RVL_ERR_NOT_FOUND);
    assert_non_null(strstr(answer.text, "from before a pause"));
    wrong = name;
    wrong.export_id++;
    say(socket, RVLI_IPC_ASK, &wrong);
    assert_int_equal(hear(socket, NULL).kind, RVLI_IPC_REFUSE);
    say(socket, RVLI_IPC_DONE, &name); /* before it has anything */
    expect_closed(socket);
    for (int kind = 0; kind < 9; kind++) {
        socket = call(&name);
        if (kind == RVLI_IPC_ASK)
            say(socket, RVLI_IPC_GRANT, &name);
        else
            say(socket, (rvli_ipc_kind)kind, &name);
        expect_closed(socket);
    }
    assert_int_equal(open_descriptors(), before);
}

static int get_grant(const rvli_ipc_name *name, int *fd_out)
{
    int socket = call(name);
    say(socket, RVLI_IPC_ASK, name);
    rvli_ipc_message grant = hear(socket, fd_out);
    assert_int_equal(grant.kind, RVLI_IPC_GRANT);
    assert_int_equal(grant.size_bytes, SIZE);
    assert_int_equal(grant.block_count, 1);
    assert_int_equal(grant.block_bytes[0], SIZE);
    return socket;
}

static void asking_twice_ends_it(void **state)
{
    (void)state;
    rvli_ipc_name name = exported();
    int fd, socket = get_grant(&name, &fd);
    close(fd);
    say(socket, RVLI_IPC_ASK, &name);
    expect_closed(socket);
}

typedef struct pause_result {
    rvl_status status;
    char message[256];
} pause_result;

static void *pause_it(void *argument)
{
    pause_result *result = argument;
    result->status = rvli_saver_pause("w");
    memcpy(result->message, rvli_error_get()->message, sizeof result->message);
    return NULL;
}

static void done(int socket, uint32_t about, rvl_status status, const char *text)
{
    rvli_ipc_message message = rvli_ipc_message_of(RVLI_IPC_DONE);
    message.about = about;
    message.status = status;
    strcpy(message.text, text);
    assert_true(rvli_ipc_send(socket, &message, NULL, 0));
}

static void expect_ended(pthread_t thread, const pause_result *result, rvl_status status)
{
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(result->status, status);
}

static void expect_told(int socket, rvli_ipc_kind kind)
{
    assert_int_equal(hear(socket, NULL).kind, kind);
    done(socket, kind, RVL_OK, "");
}

static void pauses_ask_importers(void **state)
{
    (void)state;
    rvli_ipc_name name = exported();
    pause_result result;
    pthread_t thread;
    int fd, socket = get_grant(&name, &fd);
    close(fd);
    assert_int_equal(pthread_create(&thread, NULL, pause_it, &result), 0);
    assert_int_equal(hear(socket, NULL).kind, RVLI_IPC_SUSPEND);
    int late = call(&name);
    say(late, RVLI_IPC_ASK, &name); /* it is being paused now */
    assert_int_equal(hear(late, NULL).status, RVL_ERR_STATE);
    close(late);
    done(socket, RVLI_IPC_DROP, RVL_OK, ""); /* which nobody has asked */
    done(socket, RVLI_IPC_SUSPEND, RVL_ERR_BUSY, "because of this");
    assert_int_equal(hear(socket, NULL).kind, RVLI_IPC_RESTORE);
    done(socket, RVLI_IPC_RESTORE, RVL_OK, "");
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(result.status, RVL_ERR_BUSY);
    assert_non_null(strstr(result.message, "cannot let go: because of this"));

    assert_int_equal(pthread_create(&thread, NULL, pause_it, &result), 0);
    assert_int_equal(hear(socket, NULL).kind, RVLI_IPC_SUSPEND);
    done(socket, RVLI_IPC_SUSPEND, RVL_ERR_BUSY, "");
    expect_told(socket, RVLI_IPC_RESTORE);
    expect_ended(thread, &result, RVL_ERR_BUSY);
    assert_non_null(strstr(result.message, "cannot let go: it does not say why"));

    assert_int_equal(pthread_create(&thread, NULL, pause_it, &result), 0);
    assert_int_equal(hear(socket, NULL).kind, RVLI_IPC_SUSPEND);
    done(socket, RVLI_IPC_SUSPEND, RVL_OK, "");
    assert_int_equal(hear(socket, NULL).kind, RVLI_IPC_DROP);
    close(socket);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(result.status, RVL_OK);
    rvli_ipc_handle handle;
    assert_int_equal(rvli_ipc_export(context, memory, &handle), RVL_ERR_STATE);
    assert_int_equal(rvli_saver_resume("w"), RVL_OK);
    assert_int_not_equal(exported().export_id, name.export_id);
}

static void *pause_context(void *argument)
{
    pause_result *result = argument;
    result->status = rvl_pause(context, NULL, 0, NULL);
    return NULL;
}

/* While a pause waits for importers nobody can become one of what it moves. */
static void nothing_is_exported_meanwhile(void **state)
{
    (void)state;
    rvl_addr other = allocate();
    rvli_ipc_name name = exported();
    rvli_ipc_handle handle;
    pause_result result;
    pthread_t thread;
    int fd, socket = get_grant(&name, &fd);
    close(fd);
    assert_int_equal(pthread_create(&thread, NULL, pause_it, &result), 0);
    assert_int_equal(hear(socket, NULL).kind, RVLI_IPC_SUSPEND);
    assert_int_equal(rvli_ipc_export(context, other, &handle), RVL_ERR_STATE);
    assert_int_equal(rvli_ipc_export(context, memory, &handle), RVL_ERR_STATE);
    done(socket, RVLI_IPC_SUSPEND, RVL_OK, "");
    expect_told(socket, RVLI_IPC_DROP);
    expect_ended(thread, &result, RVL_OK);
    close(socket);
    assert_int_equal(rvli_saver_resume("w"), RVL_OK);
    assert_int_equal(rvli_saver_free(other), RVL_OK);
}

static rvl_status export_it(void *user, rvl_tag tag)
{
    (void)tag;
    return rvli_ipc_export(context, memory, user) == RVL_ERR_STATE ? RVL_OK : RVL_ERR_BUSY;
}

/* Nor is anything exported for the first time. */
static void callbacks_export_nothing(void **state)
{
    (void)state;
    rvli_ipc_handle handle;
    rvl_tag tag;
    const rvl_tag_options options = {
        .struct_size = sizeof options, .before_unmap = export_it, .callback_user = &handle};
    const rvl_tag_options none = {.struct_size = sizeof none};
    assert_int_equal(rvl_tag_define(context, "w", &options, &tag), RVL_OK);
    assert_int_equal(rvli_saver_pause("w"), RVL_OK);
    assert_int_equal(rvl_tag_define(context, "w", &none, &tag), RVL_OK);
    assert_int_equal(rvli_saver_resume("w"), RVL_OK);
}

/* A pause of the context itself asks them just so. */
static void contexts_ask_importers(void **state)
{
    (void)state;
    rvli_ipc_name name = exported();
    pause_result result;
    pthread_t thread;
    int fd, socket = get_grant(&name, &fd);
    close(fd);
    assert_int_equal(pthread_create(&thread, NULL, pause_context, &result), 0);
    assert_int_equal(hear(socket, NULL).kind, RVLI_IPC_SUSPEND);
    done(socket, RVLI_IPC_SUSPEND, RVL_ERR_BUSY, "because of this");
    expect_told(socket, RVLI_IPC_RESTORE);
    expect_ended(thread, &result, RVL_ERR_BUSY);
    assert_int_equal(exported().export_id, name.export_id);

    assert_int_equal(pthread_create(&thread, NULL, pause_context, &result), 0);
    expect_told(socket, RVLI_IPC_SUSPEND);
    expect_told(socket, RVLI_IPC_DROP);
    expect_ended(thread, &result, RVL_OK);
    close(socket);
    assert_int_equal(rvl_resume(context, NULL, 0, NULL), RVL_OK);
    assert_int_not_equal(exported().export_id, name.export_id);
}

/* A pause that failed late: the first allocation was released, and has other memory since. */
static void what_is_made_again_is_not_restored(void **state)
{
    (void)state;
    rvl_addr second = allocate();
    rvli_ipc_name names[] = {exported(), exported_at(second)};
    pause_result result;
    pthread_t thread;
    int fds[2], sockets[] = {get_grant(&names[0], &fds[0]), get_grant(&names[1], &fds[1])};
    memset((void *)(uintptr_t)memory, 7, SIZE);
    assert_true(fake_fail("cuMemRelease", 2, CUDA_ERROR_UNKNOWN, true));
    assert_int_equal(pthread_create(&thread, NULL, pause_it, &result), 0);
    expect_told(sockets[0], RVLI_IPC_SUSPEND);
    expect_told(sockets[1], RVLI_IPC_SUSPEND);
    expect_told(sockets[0], RVLI_IPC_DROP);
    expect_told(sockets[1], RVLI_IPC_RESTORE);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_not_equal(result.status, RVL_OK);
    assert_true(fake_fail("cuMemRelease", 0, CUDA_SUCCESS, false));
    assert_int_equal(*(const volatile char *)(uintptr_t)(memory + SIZE - 1), 7);
    assert_int_not_equal(exported().export_id, names[0].export_id);
    assert_int_equal(exported_at(second).export_id, names[1].export_id);
    for (int i = 0; i < 2; i++) {
        close(sockets[i]);
        close(fds[i]);
    }
    assert_int_equal(rvli_saver_free(second), RVL_OK);
}

/* ---- The importer ---- */

/* What the hand-made exporter answers, once. */
typedef struct script {
    int listener;
    int socket; /* of the import; -1 once closed */
    bool closes;
    size_t bytes; /* of the message, 0: it says nothing */
    rvli_ipc_message message;
    int fds[2];
    unsigned fd_count;
    unsigned again; /* so many blocks are said to be there in a second message; 0: there is none */
} script;

static void *play(void *argument)
{
    script *plays = argument;
    rvli_ipc_message message;
    unsigned none;
    rvli_ipc_wait(plays->listener, end_ns(5000));
    plays->socket = accept(plays->listener, NULL, NULL);
    rvli_ipc_wait(plays->socket, end_ns(5000));
    (void)rvli_ipc_receive(plays->socket, &message, NULL, 0, &none);
    if (plays->bytes == sizeof message)
        (void)rvli_ipc_send(plays->socket, &plays->message, plays->fds, plays->fd_count);
    else if (plays->bytes > 0)
        (void)!send(plays->socket, &plays->message, plays->bytes, MSG_NOSIGNAL);
    if (plays->again > 0) {
        plays->message.block_first = plays->fd_count;
        plays->message.block_count = plays->again;
        (void)rvli_ipc_send(plays->socket, &plays->message, plays->fds, plays->fd_count);
    }
    if (plays->closes)
        close(plays->socket);
    return NULL;
}

static rvli_ipc_handle handle_of(int listener_number)
{
    const rvli_ipc_name name = {.process = (uint32_t)getpid(),
                                .nonce = NONCE,
                                .export_id = (uint64_t)listener_number,
                                .size_bytes = SIZE};
    rvli_ipc_handle handle;
    rvli_ipc_write_handle(&name, &handle);
    return handle;
}

static rvl_status import_from(script *plays, rvl_addr *addr_out)
{
    static int number;
    pthread_t thread;
    rvli_ipc_handle handle = handle_of(++number);
    const rvli_ipc_name name = name_in(&handle);
    plays->listener = rvli_ipc_listen(name.process, name.nonce);
    assert_true(plays->listener >= 0);
    assert_int_equal(pthread_create(&thread, NULL, play, plays), 0);
    rvl_status status = rvli_ipc_import(&handle, &name, 0, addr_out);
    assert_int_equal(pthread_join(thread, NULL), 0);
    close(plays->listener);
    return status;
}

static script grant_of(unsigned fd_count, int fd)
{
    script plays = {.bytes = sizeof plays.message,
                    .message = rvli_ipc_message_of(RVLI_IPC_GRANT),
                    .fds = {fd, fd},
                    .fd_count = fd_count};
    plays.message.size_bytes = SIZE;
    plays.message.block_count = 1;
    plays.message.block_bytes[0] = SIZE;
    return plays;
}

static void check_refused(script *plays, rvl_status status)
{
    rvl_addr addr = 77;
    fake_live before = fake_stats_get().live;
    unsigned descriptors = open_descriptors();
    assert_int_equal(import_from(plays, &addr), status);
    assert_int_equal(rvli_error_get()->status, status);
    assert_int_equal(addr, 77);
    if (!plays->closes)
        close(plays->socket);
    fake_live after = fake_stats_get().live;
    assert_memory_equal(&after, &before, sizeof after);
    assert_int_equal(open_descriptors(), descriptors);
}

/* Of the memory of this process: the fake driver imports it, and shares it. */
static int exported_fd(void)
{
    int fd = -1;
    rvli_allocation *allocation = rvli_index_get(&context->by_addr, memory);
    assert_non_null(allocation);
    assert_int_equal(context->ops.export_block(context->self, 0, allocation->blocks->handle, &fd),
                     RVL_OK);
    return fd;
}

static rvl_addr import_well(script *plays)
{
    rvl_addr addr = 0;
    int fd = exported_fd();
    *plays = grant_of(1, fd);
    assert_int_equal(import_from(plays, &addr), RVL_OK);
    close(fd);
    return addr;
}

static void close_well(rvl_addr addr)
{
    rvl_status status = RVL_ERR_IO;
    assert_true(rvli_ipc_release(addr, &status));
    assert_int_equal(status, RVL_OK);
}

/* The first import starts to listen. */
static void importing_fails(void **state)
{
    (void)state;
    rvl_addr addr = 0;
    rvl_status status = RVL_ERR_IO;
    unsigned steps = 0;
    int fd = exported_fd();
    while (status != RVL_OK) {
        script plays = grant_of(1, fd);
        pthread_t thread;
        rvli_ipc_handle handle = handle_of(1000);
        const rvli_ipc_name name = name_in(&handle);
        fake_live before = fake_stats_get().live;
        plays.listener = rvli_ipc_listen(name.process, name.nonce);
        assert_int_equal(pthread_create(&thread, NULL, play, &plays), 0);
        countdown = ++steps;
        failed = false;
        status = rvli_ipc_import(&handle, &name, 0, &addr);
        countdown = 0;
        int wake = rvli_ipc_connect(name.process, name.nonce, end_ns(1000)); /* if nobody came */
        assert_int_equal(status == RVL_OK, !failed);
        if (wake >= 0)
            close(wake);
        assert_int_equal(pthread_join(thread, NULL), 0);
        close(plays.listener);
        close(plays.socket);
        fake_live after = fake_stats_get().live;
        if (status != RVL_OK)
            assert_memory_equal(&after, &before, sizeof after);
        assert_true(steps < 40);
    }
    assert_true(steps > 4);
    close(fd);
    close_well(addr);
}

static void wrong_grants_are_refused(void **state)
{
    (void)state;
    int ends[2], fd = exported_fd();
    assert_int_equal(pipe(ends), 0);
    script plays = {.closes = true};
    check_refused(&plays, RVL_ERR_NOT_FOUND); /* it hangs up */
    plays = (script){0};
    check_refused(&plays, RVL_ERR_TIMEOUT); /* it says nothing */
    plays = grant_of(1, fd);
    plays.bytes = 100;
    check_refused(&plays, RVL_ERR_IO); /* no message */
    plays = grant_of(0, fd);
    check_refused(&plays, RVL_ERR_IO); /* no memory */
    plays = grant_of(2, fd);
    check_refused(&plays, RVL_ERR_IO); /* more than it says */
    plays = grant_of(1, fd);
    plays.message.block_count = 0;
    check_refused(&plays, RVL_ERR_IO);
    plays.message.block_count = UINT32_MAX;
    check_refused(&plays, RVL_ERR_IO);
    plays = grant_of(1, fd);
    plays.message.size_bytes = 0;
    check_refused(&plays, RVL_ERR_IO);
    plays.message.size_bytes = 2 * SIZE; /* not what the blocks have */
    check_refused(&plays, RVL_ERR_IO);
    plays = grant_of(1, fd);
    plays.message.block_first = 1;
    check_refused(&plays, RVL_ERR_IO);
    plays = grant_of(1, fd);
    plays.message.size_bytes = plays.message.block_bytes[0] = 2 * SIZE; /* the driver knows */
    check_refused(&plays, RVL_ERR_INVALID);
    plays = grant_of(1, ends[0]);
    check_refused(&plays, RVL_ERR_INVALID); /* no memory of the driver */
    for (unsigned again = 0; again < 70; again += again == 0 ? 1 : 34) {
        plays = grant_of(2, fd); /* the first one is right: it has two of three blocks */
        plays.message.size_bytes = 3 * SIZE;
        plays.message.block_count = 3;
        plays.message.block_bytes[1] = SIZE;
        plays.again = again == 0 ? 3 : again; /* more than there are, or of fewer or more */
        check_refused(&plays, RVL_ERR_IO);
    }
    plays = grant_of(1, fd);
    plays.message.kind = RVLI_IPC_SUSPEND;
    check_refused(&plays, RVL_ERR_IO);
    plays = grant_of(0, fd);
    plays.message.kind = RVLI_IPC_REFUSE;
    check_refused(&plays, RVL_ERR_IO); /* and says that all is well */
    plays.message.status = -77;        /* no status of this version */
    check_refused(&plays, RVL_ERR_IO);
    plays.message.status = RVL_ERR_STATE; /* and no reason */
    check_refused(&plays, RVL_ERR_STATE);
    assert_non_null(strstr(rvli_error_get()->message, "does not say why"));
    memset(plays.message.text, 'x', sizeof plays.message.text);
    check_refused(&plays, RVL_ERR_STATE);
    assert_int_equal(strlen(rvli_error_get()->message), RVLI_IPC_TEXT_BYTES - 1);
    strcpy(plays.message.text,
           "no\n::error::\x1b[31m\xff"); /* lines and colours are made harmless */
    check_refused(&plays, RVL_ERR_STATE);
    assert_string_equal(rvli_error_get()->message, "no%0A::error::%1B[31m%FF");
    close(fd);
    close(ends[0]);
    close(ends[1]);
}

/* A process names itself. */
static void names_of_processes_are_made_harmless(void **state)
{
    (void)state;
    char before[16], name[64];
    assert_int_equal(prctl(PR_GET_NAME, before), 0);
    assert_int_equal(prctl(PR_SET_NAME, "a\n\x1b[31mb\xff"), 0);
    rvli_ipc_program(getpid(), name, sizeof name);
    assert_int_equal(prctl(PR_SET_NAME, before), 0);
    assert_string_equal(name, "a%0A%1B[31mb%FF");
    rvli_ipc_program(0, name, sizeof name);
    assert_string_equal(name, "?");
}

/* What hooks say is a line, whatever it is made of. */
static void hooks_say_one_line(void **state)
{
    (void)state;
    char line[256] = "";
    int ends[2], before = dup(STDERR_FILENO);
    assert_int_equal(pipe(ends), 0);
    dup2(ends[1], STDERR_FILENO);
    rvli_say("tag \"a\n::error::\x1b[31m\" is paused");
    dup2(before, STDERR_FILENO);
    close(ends[1]);
    assert_true(read(ends[0], line, sizeof line - 1) > 0);
    close(ends[0]);
    close(before);
    assert_string_equal(line, "reveille: tag \"a%0A::error::%1B[31m\" is paused\n");
}

static void exporters_say_odd_things(void **state)
{
    (void)state;
    script plays;
    uint64_t handles = fake_stats_get().live.handles;
    rvl_addr addr = import_well(&plays);
    const rvli_ipc_name nobody = {0};
    say(plays.socket, RVLI_IPC_RESTORE, &nobody); /* of what was not suspended */
    rvli_ipc_message answer = hear(plays.socket, NULL);
    assert_int_equal(answer.about, RVLI_IPC_RESTORE);
    assert_int_equal(answer.status, RVL_OK);
    for (int i = 0; i < 2; i++) { /* twice */
        say(plays.socket, RVLI_IPC_SUSPEND, &nobody);
        answer = hear(plays.socket, NULL);
        assert_int_equal(answer.about, RVLI_IPC_SUSPEND);
        assert_int_equal(answer.status, RVL_OK);
    }
    close(plays.socket); /* it ends in the middle of a pause */
    for (int i = 0; i < 500 && fake_stats_get().live.handles > handles; i++)
        usleep(10000);
    assert_int_equal(fake_stats_get().live.handles, handles);
    close_well(addr);

    addr = import_well(&plays);
    *(volatile char *)(uintptr_t)addr = 5;
    say(plays.socket, RVLI_IPC_ASK, &nobody); /* nonsense: it is not heard any more */
    expect_closed(plays.socket);
    assert_int_equal(*(volatile char *)(uintptr_t)memory, 5);
    assert_int_equal(*(volatile char *)(uintptr_t)addr, 5);
    close_well(addr);
    assert_int_equal(fake_stats_get().live.handles, handles);
    rvl_status status;
    assert_false(rvli_ipc_release(addr, &status));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(damaged_handles_are_told),
        cmocka_unit_test(other_packets_are_no_messages),
        cmocka_unit_test(exporting_fails),
        cmocka_unit_test(wrong_questions_are_refused),
        cmocka_unit_test(asking_twice_ends_it),
        cmocka_unit_test(pauses_ask_importers),
        cmocka_unit_test(nothing_is_exported_meanwhile),
        cmocka_unit_test(callbacks_export_nothing),
        cmocka_unit_test(contexts_ask_importers),
        cmocka_unit_test(what_is_made_again_is_not_restored),
        cmocka_unit_test(importing_fails),
        cmocka_unit_test(wrong_grants_are_refused),
        cmocka_unit_test(names_of_processes_are_made_harmless),
        cmocka_unit_test(hooks_say_one_line),
        cmocka_unit_test(exporters_say_odd_things),
    };
    setenv("RVL_CUDA_LIBRARY", RVL_CUDA_FAKE_PATH, 1);
    if (!gpu_is_there())
        return 1;
    alarm(100);
    return cmocka_run_group_tests(tests, prepare, NULL);
}
