/* SPDX-License-Identifier: MIT */
/*
 * The listening side: a thread takes one request at a time and performs it.
 *
 * The thread waits for a connection, and for a pipe that tells it to end. The kernel identifies the
 * connecting process before any of its request is read. A forked child has a copy of the socket but
 * not the thread. It closes its copy, so that the name disappears when the parent ends.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/options.h"
#include "base/packet.h"
#include "core/sleep/control_wire.h"

#define BACKLOG 16
#define RETRY_MS 100
#define PATIENCE_S 2 /* for the request of a process that has connected */

typedef enum control_state { CONTROL_CLOSED, CONTROL_OPEN, CONTROL_CLOSING } control_state;

typedef struct control {
    control_state state;
    int listener;
    int end[2]; /* a pipe: closing its write end ends the thread */
    pthread_t thread;
    rvl_control_options options;
} control;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards everything below */
static control the = {.listener = -1, .end = {-1, -1}};
static _Thread_local bool serving __attribute__((tls_model("initial-exec")));

/* ---- Fork ---- */

static void close_all(control *c)
{
    int *all[] = {&c->listener, &c->end[0], &c->end[1]};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (*all[i] >= 0)
            close(*all[i]);
        *all[i] = -1;
    }
    c->state = CONTROL_CLOSED;
}

static void before_fork(void)
{
    pthread_mutex_lock(&lock);
}

static void in_parent(void)
{
    pthread_mutex_unlock(&lock);
}

static void in_child(void)
{
    close_all(&the);
    serving = false;
    in_parent();
}

__attribute__((constructor)) static void watch_forks(void)
{
    pthread_atfork(before_fork, in_parent, in_child);
}

/* ---- A request ---- */

static rvl_status move_process(const rvl_control_request *request)
{
    const rvl_sleep_options sleep = {
        .struct_size = sizeof sleep, .flags = request->flags, .timeout_ns = request->timeout_ns};
    const rvl_wake_up_options wake = {
        .struct_size = sizeof wake, .flags = request->flags, .timeout_ns = request->timeout_ns};
    return request->verb == RVL_CONTROL_SLEEP ? rvl_sleep(NULL, &sleep) : rvl_wake_up(NULL, &wake);
}

static rvl_control_options options_now(void)
{
    pthread_mutex_lock(&lock);
    rvl_control_options options = the.options;
    pthread_mutex_unlock(&lock);
    return options;
}

static rvli_control_answer do_request(const rvli_control_request *asked)
{
    const rvl_control_options how = options_now();
    const rvl_control_request request = {.struct_size = sizeof request,
                                         .verb = (rvl_control_verb)asked->verb,
                                         .flags = asked->flags,
                                         .timeout_ns = asked->timeout_ns};
    rvli_control_answer answer = {.magic = RVLI_CONTROL_MAGIC};
    bool to_sleep = request.verb == RVL_CONTROL_SLEEP;
    if (rvl_context_is_asleep(NULL) == to_sleep)
        return answer;
    uint64_t begin_ns = rvli_monotonic_ns();
    rvl_status status =
        how.move != NULL ? how.move(how.user, &request, answer.why) : move_process(&request);
    answer.time_ns = rvli_monotonic_ns() - begin_ns;
    answer.status = status;
    answer.changed = status == RVL_OK;
    answer.why[sizeof answer.why - 1] = '\0';
    if (status != RVL_OK && answer.why[0] == '\0')
        rvli_text_copy(answer.why, sizeof answer.why, rvli_error_get()->message);
    return answer;
}

static bool is_understood(const rvli_control_request *asked)
{
    return asked->magic == RVLI_CONTROL_MAGIC && asked->zero == 0 &&
           (asked->verb == RVL_CONTROL_SLEEP || asked->verb == RVL_CONTROL_WAKE_UP);
}

static void serve(int socket)
{
    const struct timeval patience = {.tv_sec = PATIENCE_S};
    rvli_control_request asked;
    unsigned descriptors = 0;
    pid_t process;
    (void)setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    if (!rvli_packet_peer(socket, &process) ||
        rvli_packet_take(socket, &asked, sizeof asked, NULL, 0, &descriptors, 0) !=
            RVLI_PACKET_TAKEN)
        return;
    rvli_control_answer answer = {.magic = RVLI_CONTROL_MAGIC, .status = RVL_ERR_VERSION};
    rvli_text_copy(answer.why, sizeof answer.why,
                   "the request is of another version of Reveille: use the command that belongs to "
                   "the process's library");
    if (is_understood(&asked))
        answer = do_request(&asked);
    (void)rvli_packet_send(socket, &answer, sizeof answer, NULL, 0, MSG_DONTWAIT);
}

static void *run(void *user)
{
    const control *c = user; /* its descriptors stay open until this thread has ended */
    struct pollfd waits[] = {{.fd = c->listener, .events = POLLIN}, {.fd = c->end[0]}};
    serving = true;
    for (;;) {
        if (poll(waits, 2, -1) < 0 && errno != EINTR)
            return NULL;
        if (waits[1].revents != 0)
            return NULL;
        int socket = accept4(c->listener, NULL, NULL, SOCK_CLOEXEC);
        if (socket >= 0) {
            serve(socket);
            close(socket);
        } else if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED) {
            (void)poll(&waits[1], 1, RETRY_MS); /* no descriptor left: the connection stays
                                                   pending */
        }
    }
}

/* ---- Opening and closing ---- */

static int listen_for(int process)
{
    struct sockaddr_un address;
    socklen_t length = rvli_control_address(process, &address);
    int listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (listener >= 0 && (bind(listener, (struct sockaddr *)&address, length) != 0 ||
                          listen(listener, BACKLOG) != 0)) {
        int cause = errno;
        close(listener);
        errno = cause;
        return -1;
    }
    return listener;
}

/* With the lock held. */
static rvl_status start(void)
{
    sigset_t all, before;
    the.listener = listen_for((int)getpid());
    if (the.listener < 0 || pipe2(the.end, O_CLOEXEC) != 0) {
        int cause = errno;
        close_all(&the);
        rvli_error(RVL_ERR_IO, "no socket to be asked on could be made");
        rvli_error_errno(cause);
        return RVL_ERR_IO;
    }
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&the.thread, NULL, run, &the);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error != 0) {
        close_all(&the);
        return rvli_error(RVL_ERR_HOST_OOM, "no thread to be asked on could be started");
    }
    the.state = CONTROL_OPEN;
    return RVL_OK;
}

rvl_status rvl_control_open(const rvl_control_options *user_options)
{
    rvl_control_options options;
    rvl_status status = rvli_options_read(&options, sizeof options, user_options);
    if (status != RVL_OK)
        return status;
    pthread_mutex_lock(&lock);
    if (the.state == CONTROL_CLOSED)
        status = start();
    else if (the.state == CONTROL_CLOSING)
        status =
            rvli_error(RVL_ERR_BUSY, "another thread is in rvl_control_close(): wait for that");
    if (status == RVL_OK && user_options != NULL)
        the.options = options;
    pthread_mutex_unlock(&lock);
    return status;
}

rvl_status rvl_control_close(void)
{
    if (serving)
        return rvli_error(RVL_ERR_STATE, "a request is being done on this thread: close later");
    pthread_mutex_lock(&lock);
    control_state before = the.state;
    if (before == CONTROL_OPEN) {
        the.state = CONTROL_CLOSING;
        close(the.end[1]);
        the.end[1] = -1;
    }
    pthread_mutex_unlock(&lock); /* the thread takes this lock, and may fork */
    if (before == CONTROL_CLOSING)
        return rvli_error(RVL_ERR_BUSY, "another thread is in rvl_control_close(): wait for that");
    if (before == CONTROL_CLOSED)
        return RVL_OK;
    pthread_join(the.thread, NULL);
    pthread_mutex_lock(&lock);
    close_all(&the);
    pthread_mutex_unlock(&lock);
    return RVL_OK;
}
