/* SPDX-License-Identifier: MIT */
#include "simcuda/machine/shared.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "reveille/record.h"
#include "reveille/replay.h"

#define EVENTS_MAX 64
#define TURN_AWAY_MS 100    /* the first message follows the connection at once */
#define LAST_WORDS_MAX 4096 /* bounds the wait for processes that the command left running */

/* ---- The socket ---- */

static bool make_name(char name[RVLI_WIRE_NAME_BYTES])
{
    unsigned char random[16];
    if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random)
        return false;
    int length = snprintf(name, RVLI_WIRE_NAME_BYTES, "%s", RVLI_WIRE_PREFIX);
    for (size_t i = 0; i < sizeof random; i++)
        length += snprintf(name + length, 3, "%02x", random[i]);
    snprintf(name + length, RVLI_WIRE_NAME_BYTES - (size_t)length, "-%0*" PRIx32,
             RVLI_WIRE_NETWORK_DIGITS, rvli_wire_network());
    return true;
}

static rvl_status failed(rvl_error *error, const char *message)
{
    error->status = RVL_ERR_IO;
    error->native_code = errno;
    snprintf(error->message, sizeof error->message, "%s", message);
    snprintf(error->native_name, sizeof error->native_name, "%s", strerror(errno));
    return RVL_ERR_IO;
}

static bool watch(const rvli_machine *machine, int file, void *what)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = what};
    return epoll_ctl(machine->events, EPOLL_CTL_ADD, file, &event) == 0;
}

static rvl_status listen_for_processes(rvli_machine *machine, rvl_error *error)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (!make_name(machine->name))
        return failed(error, "no random numbers for the name of the machine's socket");
    size_t length = strlen(machine->name);
    memcpy(address.sun_path + 1, machine->name, length); /* a leading NUL: the abstract namespace */
    machine->events = epoll_create1(EPOLL_CLOEXEC);
    machine->listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (machine->events < 0 || machine->listener < 0 ||
        bind(machine->listener, (struct sockaddr *)&address,
             (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + length)) != 0 ||
        listen(machine->listener, SOMAXCONN) != 0 || !watch(machine, machine->listener, machine))
        return failed(error, "the socket of the machine cannot be opened");
    return RVL_OK;
}

/* PyTorch's processes connect to the store, not to the machine's socket. */
static rvl_status open_store(rvli_machine *machine, rvl_error *error)
{
    machine->store = rvli_store_open();
    if (machine->store == NULL || !watch(machine, rvli_store_file(machine->store), machine->store))
        return failed(error, "the store for one rank of many cannot be opened");
    return RVL_OK;
}

static rvl_status open_shared(rvli_machine *machine, rvl_error *error)
{
    if (rvli_shared_open(&machine->shared) != RVL_OK ||
        !watch(machine, rvli_shared_file(machine->shared), machine->shared))
        return failed(error, "the files for memory that processes share cannot be opened (epoll, "
                             "memfd_create(): a container's seccomp profile must allow them)");
    return RVL_OK;
}

/* ---- Processes ---- */

static void close_file(int file)
{
    if (file >= 0)
        close(file);
}

/*
 * Turns away a process if no descriptor is left. Otherwise the process would wait forever in the
 * socket's queue, and epoll would report the queue again and again. The spare descriptor is used
 * to tell the process.
 */
static void turn_away(rvli_machine *machine)
{
    rvli_wire_request hello;
    const rvli_wire_answer answer = {.status = RVL_ERR_BUSY};
    close_file(machine->spare);
    int file = accept4(machine->listener, NULL, NULL, SOCK_CLOEXEC);
    struct pollfd waiting = {.fd = file, .events = POLLIN};
    if (file >= 0 && poll(&waiting, 1, TURN_AWAY_MS) == 1 &&
        recv(file, &hello, sizeof hello, MSG_DONTWAIT) > 0)
        (void)send(file, &answer, sizeof answer, MSG_NOSIGNAL | MSG_DONTWAIT);
    machine->turned_away += file >= 0;
    close_file(file);
    machine->spare = open("/dev/null", O_RDONLY | O_CLOEXEC);
}

/* Admits only processes of this user: the machine prints their names and their memory. */
static void admit(rvli_machine *machine)
{
    struct ucred peer;
    socklen_t size = sizeof peer;
    int file = accept4(machine->listener, NULL, NULL, SOCK_CLOEXEC);
    if (file < 0) {
        if (errno == EMFILE || errno == ENFILE)
            turn_away(machine);
        return;
    }
    rvli_client *client = NULL;
    if (getsockopt(file, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == geteuid())
        client = calloc(1, sizeof *client);
    if (client == NULL || !watch(machine, file, client)) {
        free(client);
        close(file);
        return;
    }
    client->file = file;
    client->pid = peer.pid;
    client->next = machine->clients;
    machine->clients = client;
}

static void dismiss(rvli_machine *machine, rvli_client *client)
{
    rvli_client **link = &machine->clients;
    while (*link != client)
        link = &(*link)->next;
    *link = client->next;
    rvli_client_take_back(machine, client);
    rvli_name_drop(machine, client);
    /* Closing is not enough if a forked child has a copy: epoll would report it again. */
    (void)epoll_ctl(machine->events, EPOLL_CTL_DEL, client->file, NULL);
    close(client->file);
    free(client);
}

/*
 * Serves the requests without answers that a process has sent by now, and the process's end. The
 * client stays connected, since the list of ready events may still refer to it.
 */
static void catch_up(rvli_machine *machine, rvli_client *client)
{
    rvli_wire_answer none;
    int file = -1;
    for (;;) {
        rvli_wire_request request = {0};
        ssize_t length =
            recv(client->file, &request, sizeof request, MSG_DONTWAIT | MSG_PEEK | MSG_TRUNC);
        if (length == 0) {
            rvli_client_take_back(machine, client);
            client->greeted = false; /* ignores all further messages */
        }
        if (length < (ssize_t)RVLI_WIRE_PLAIN_BYTES || length > (ssize_t)sizeof request ||
            !client->greeted || !rvli_client_is_quiet(&request))
            return;
        (void)recv(client->file, &request, sizeof request, MSG_DONTWAIT);
        request.text[RVLI_WIRE_TEXT_BYTES - 1] = '\0';
        (void)rvli_client_serve(machine, client, &request, &none, &file);
    }
}

static bool is_of_stage(const rvli_wire_request *request)
{
    return request->kind == RVLI_WIRE_ENTER || request->kind == RVLI_WIRE_LEAVE;
}

/*
 * Serves earlier messages of other processes first. For example, one process frees memory and
 * tells another process, which then asks how much is free, or ends a stage. A free has no answer
 * to wait for, so it may still be in a socket.
 */
static void catch_up_with_others(rvli_machine *machine, const rvli_client *asking)
{
    struct epoll_event one;
    bool alone = asking->next == NULL && machine->clients == asking;
    if (alone && !rvli_shared_any(machine->shared))
        return;
    if (epoll_wait(machine->events, &one, 1, 0) <= 0)
        return; /* the usual case */
    for (rvli_client *each = machine->clients; each != NULL; each = each->next)
        if (each != asking)
            catch_up(machine, each);
    rvli_shared_serve(machine);
}

/* Sends an answer, with a file if there is one. */
static bool send_answer(const rvli_client *client, const rvli_wire_answer *answer, int file)
{
    rvli_wire_parcel parcel;
    rvli_wire_wrap(&parcel, (void *)(uintptr_t)answer, sizeof *answer, file);
    return sendmsg(client->file, &parcel.message, MSG_NOSIGNAL | MSG_DONTWAIT) ==
           (ssize_t)sizeof *answer;
}

/* Handles one message of a process. A malformed message ends the connection, as its end does. */
static void hear(rvli_machine *machine, rvli_client *client)
{
    rvli_wire_request request = {0};
    rvli_wire_answer answer = {0};
    ssize_t length = recv(client->file, &request, sizeof request, MSG_DONTWAIT | MSG_TRUNC);
    if (length < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    bool whole = length >= (ssize_t)RVLI_WIRE_PLAIN_BYTES && length <= (ssize_t)sizeof request;
    request.text[RVLI_WIRE_TEXT_BYTES - 1] = '\0';
    int file = -1;
    bool sent = false;
    if (whole && (!rvli_client_is_quiet(&request) || is_of_stage(&request)))
        catch_up_with_others(machine, client);
    switch (whole ? rvli_client_serve(machine, client, &request, &answer, &file)
                  : RVLI_CLIENT_END) {
    case RVLI_CLIENT_ANSWER:
        sent = send_answer(client, &answer, file);
        close_file(file);
        if (sent)
            return;
        break;
    case RVLI_CLIENT_QUIET:
        return;
    case RVLI_CLIENT_END:
        break;
    }
    dismiss(machine, client);
}

/* ---- The machine ---- */

static rvl_status open_context(rvli_machine *machine, const rvli_machine_options *options)
{
    const rvl_profile *devices[RVL_MAX_DEVICES];
    rvl_sim_options sim = {.struct_size = sizeof sim,
                           .memory = RVL_SIM_ACCOUNTED,
                           .devices = devices,
                           .device_count = (size_t)options->gpus};
    rvl_context_options context = {
        .struct_size = sizeof context, .backend_options = &sim, .process_name = "machine"};
    rvl_status status = rvl_profile_load(options->device, &machine->profile);
    if (status != RVL_OK)
        return status;
    for (int i = 0; i < options->gpus; i++)
        devices[i] = &machine->profile;
    return rvl_context_open("sim", &context, &machine->context);
}

static rvl_status open_recorded(rvli_machine *machine, const rvli_machine_options *options,
                                rvl_error *error_out)
{
    rvl_status status = open_context(machine, options);
    if (status == RVL_OK)
        status = rvl_record_start(machine->context, options->record);
    if (status == RVL_OK && options->stage != NULL)
        status = rvl_stage(machine->context, options->stage);
    if (status != RVL_OK)
        rvl_last_error(error_out);
    return status;
}

rvl_status rvli_machine_open(const rvli_machine_options *options, rvl_error *error_out,
                             rvli_machine **machine_out)
{
    rvli_machine *machine = calloc(1, sizeof *machine);
    if (machine == NULL) {
        errno = ENOMEM;
        failed(error_out, "no memory for the machine");
        return RVL_ERR_HOST_OOM;
    }
    machine->listener = machine->events = -1;
    machine->spare = open("/dev/null", O_RDONLY | O_CLOEXEC);
    machine->gpus = options->gpus;
    machine->host_limit_bytes = options->host_bytes;
    machine->keeps_times = options->keep_times;
    machine->profile.struct_size = sizeof machine->profile;
    rvl_status status = open_recorded(machine, options, error_out);
    if (status == RVL_OK)
        status = listen_for_processes(machine, error_out);
    if (status == RVL_OK)
        status = open_shared(machine, error_out);
    if (status == RVL_OK && options->world > 0)
        status = open_store(machine, error_out);
    if (status == RVL_OK)
        *machine_out = machine;
    else
        rvli_machine_close(machine);
    return status;
}

const char *rvli_machine_name(const rvli_machine *machine)
{
    return machine->name;
}

uint16_t rvli_machine_store_port(const rvli_machine *machine)
{
    return machine->store != NULL ? rvli_store_port(machine->store) : 0;
}

/* Handles all events that are ready. Returns whether `until` is readable. */
static bool serve_once(rvli_machine *machine, int timeout_ms, int *count_out)
{
    struct epoll_event ready[EVENTS_MAX];
    bool ended = false;
    *count_out = epoll_wait(machine->events, ready, EVENTS_MAX, timeout_ms);
    for (int i = 0; i < *count_out; i++) {
        if (ready[i].data.ptr == machine)
            admit(machine);
        else if (ready[i].data.ptr == NULL)
            ended = true;
        else if (ready[i].data.ptr == machine->store)
            rvli_store_serve(machine->store);
        else if (ready[i].data.ptr == machine->shared)
            rvli_shared_serve(machine);
        else
            hear(machine, ready[i].data.ptr);
    }
    return ended;
}

static uint64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* Calls the watch once its period is over, even under load. Returns false if the watch ends it,
 * and else stores how long to wait. */
static bool look(rvli_machine *machine, const rvli_machine_watch *watching, uint64_t *next_ms,
                 int *wait_ms_out)
{
    uint64_t now = now_ms();
    if (now >= *next_ms) {
        if (!watching->look(watching->user, machine))
            return false;
        *next_ms = now + (uint64_t)watching->period_ms;
    }
    *wait_ms_out = (int)(*next_ms - now);
    return true;
}

static void look_for_strays(rvli_machine *machine, uint64_t *next_ms, int *wait_ms)
{
    uint64_t now = now_ms();
    if (machine->strays_root == 0 || machine->strays.process != 0)
        return;
    if (now >= *next_ms) {
        rvli_strays_look(&machine->strays, machine->strays_root);
        *next_ms = now + RVLI_STRAYS_PERIOD_MS;
    }
    int left_ms = (int)(*next_ms - now);
    *wait_ms = *wait_ms >= 0 && *wait_ms < left_ms ? *wait_ms : left_ms;
}

rvl_status rvli_machine_serve(rvli_machine *machine, int until, const rvli_machine_watch *watching)
{
    int count = 0, wait_ms = -1;
    uint64_t next_ms = 0, strays_ms = now_ms() + RVLI_STRAYS_FIRST_MS;
    bool ended = false;
    if (!watch(machine, until, NULL))
        return RVL_ERR_IO;
    while (!ended) {
        if (watching != NULL && !look(machine, watching, &next_ms, &wait_ms))
            break;
        look_for_strays(machine, &strays_ms, &wait_ms);
        ended = serve_once(machine, wait_ms, &count);
        if (count < 0 && errno != EINTR)
            return RVL_ERR_IO;
    }
    epoll_ctl(machine->events, EPOLL_CTL_DEL, until, NULL);
    machine->over = true;
    /* Last messages without an answer may still be on their way to this process. */
    for (int i = 0; i < LAST_WORDS_MAX && count > 0; i++)
        (void)serve_once(machine, 0, &count);
    return ended ? RVL_OK : RVL_ERR_TIMEOUT;
}

void rvli_machine_watch_strays(rvli_machine *machine, pid_t root, const char *library)
{
    if (realpath(library, machine->strays.own) != NULL) /* the form that the kernel shows in maps */
        *strrchr(machine->strays.own, '/') = '\0';
    else
        machine->strays.own[0] = '\0';
    machine->strays_root = root;
}

const rvli_strays *rvli_machine_strays(const rvli_machine *machine)
{
    return &machine->strays;
}

int rvli_machine_gpus(const rvli_machine *machine)
{
    return machine->gpus;
}

uint64_t rvli_machine_processes(const rvli_machine *machine)
{
    return machine->users;
}

const rvli_machine_pool *rvli_machine_widest_pool(const rvli_machine *machine)
{
    return &machine->pool;
}

const rvli_machine_races *rvli_machine_races_seen(const rvli_machine *machine)
{
    return &machine->races;
}

uint64_t rvli_machine_turned_away(const rvli_machine *machine)
{
    return machine->turned_away;
}

const rvli_machine_refusal *rvli_machine_refused(const rvli_machine *machine)
{
    return &machine->refused;
}

const rvli_machine_host *rvli_machine_host_peak(const rvli_machine *machine)
{
    return &machine->host_peak;
}

void rvli_machine_ended(rvli_machine *machine, int status)
{
    bool by_signal = WIFSIGNALED(status);
    (void)rvl_record_end(machine->context,
                         (uint32_t)(by_signal ? WTERMSIG(status) : WEXITSTATUS(status)),
                         by_signal ? RVL_ENDED_BY_SIGNAL : 0, machine->turned_away,
                         machine->waits[0] != '\0' ? machine->waits : NULL);
}

rvli_times rvli_machine_take_times(rvli_machine *machine)
{
    rvli_times times = machine->times;
    rvli_times_mark(&times, rvl_clock_ns(machine->context), 0);
    machine->times = (rvli_times){0};
    return times;
}

rvl_status rvli_machine_close(rvli_machine *machine)
{
    while (machine->clients != NULL)
        dismiss(machine, machine->clients);
    rvl_status status = rvl_context_close(machine->context, NULL);
    rvli_names_forget(machine);
    if (machine->shared != NULL)
        rvli_shared_close(machine->shared);
    if (machine->store != NULL)
        rvli_store_close(machine->store);
    close_file(machine->listener);
    close_file(machine->events);
    close_file(machine->spare);
    rvli_times_clear(&machine->times);
    free(machine);
    return status;
}
