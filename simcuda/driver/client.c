/* SPDX-License-Identifier: MIT */
#include "simcuda/driver/client.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define UNDER "run the program under `reveille run`"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static int machine = -1;
static uint64_t connection; /* the kernel's unique number of the socket */
static pid_t owner;         /* the process that opened it */
static bool lost;
static bool has_memory; /* has requested memory or a context */
static int devices;
static char own_name[RVLI_WIRE_TEXT_BYTES]; /* the machine's name for this process */
static void (*forget_all)(void);

/* A number that identifies a socket. 0: the file is not a socket. */
static uint64_t number_of(int file)
{
    uint64_t number = 0;
    socklen_t size = sizeof number;
    struct stat status;
    if (getsockopt(file, SOL_SOCKET, SO_COOKIE, &number, &size) == 0)
        return number;
    /* qemu's user mode lacks this option. A socket's inode is unique while it is open. */
    return fstat(file, &status) == 0 && S_ISSOCK(status.st_mode) ? (uint64_t)status.st_ino : 0;
}

/* Whether the descriptor still is the connection, and has not been reused by the program. */
static bool is_connection(void)
{
    return machine >= 0 && connection != 0 && number_of(machine) == connection;
}

/* ---- After a fork ---- */

static void before_fork(void)
{
    pthread_mutex_lock(&mutex);
}

static void in_parent(void)
{
    pthread_mutex_unlock(&mutex);
}

static void in_child(void)
{
    if (is_connection())
        close(machine);
    machine = -1;
    lost = false;
    has_memory = false;
    own_name[0] = '\0';
    pthread_mutex_init(&mutex, NULL);
    if (forget_all != NULL)
        forget_all();
}

static void at_exit(int status, void *unused)
{
    (void)unused;
    rvli_client_end(status, NULL);
}

__attribute__((constructor)) static void watch_process(void)
{
    pthread_atfork(before_fork, in_parent, in_child);
    on_exit(at_exit, NULL); /* not atexit(), which gets no status */
}

void rvli_client_on_fork(void (*forget)(void))
{
    forget_all = forget;
}

/* ---- Messages, with the lock held ---- */

static bool send_request(const rvli_wire_request *request)
{
    size_t size = request->text[0] != '\0' ? sizeof *request : RVLI_WIRE_PLAIN_BYTES;
    ssize_t sent;
    while ((sent = send(machine, request, size, MSG_NOSIGNAL)) < 0 && errno == EINTR)
        ;
    return sent == (ssize_t)size;
}

/* file: receives a descriptor, if one comes; NULL: none is expected. */
static bool receive(rvli_wire_answer *answer, int *file)
{
    ssize_t length;
    rvli_wire_parcel parcel;
    rvli_wire_wrap(&parcel, answer, sizeof *answer, -1);
    if (file != NULL) {
        parcel.message.msg_control = parcel.control;
        parcel.message.msg_controllen = sizeof parcel.control;
    }
    while ((length = recvmsg(machine, &parcel.message, MSG_CMSG_CLOEXEC)) < 0 && errno == EINTR)
        ;
    const struct cmsghdr *header =
        file != NULL && length > 0 ? CMSG_FIRSTHDR(&parcel.message) : NULL;
    if (header != NULL && header->cmsg_type == SCM_RIGHTS)
        memcpy(file, CMSG_DATA(header), sizeof *file);
    return length == (ssize_t)sizeof *answer;
}

static void lose(const char *why, const char *remedy)
{
    if (!lost)
        fprintf(stderr, "reveille: %s: no simulated GPU can be used: %s\n", why, remedy);
    lost = true;
    if (is_connection())
        close(machine);
    machine = -1;
}

/* Whether a request can be sent. If not, the reason is printed once. */
static rvl_status check(void)
{
    if (owner != getpid())
        return RVL_ERR_FORKED;
    if (is_connection())
        return RVL_OK;
    lose("the program has closed the descriptor of its connection",
         "leave descriptors open that it did not open");
    return RVL_ERR_NO_DRIVER;
}

static rvl_status exchange(const rvli_wire_request *request, rvli_wire_answer *answer, int *file)
{
    rvl_status status = check();
    if (status != RVL_OK)
        return status;
    if (send_request(request) && receive(answer, file))
        return (rvl_status)answer->status;
    lose("the machine has ended", UNDER);
    return RVL_ERR_NO_DRIVER;
}

/* ---- The name of the process ---- */

#define CUT_BYTES 15 /* the kernel cuts a program's name here */

static void read_line(const char *path, char text[RVLI_WIRE_TEXT_BYTES])
{
    int file = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t length = file >= 0 ? read(file, text, RVLI_WIRE_TEXT_BYTES - 1) : 0;
    text[length > 0 ? length : 0] = '\0';
    text[strcspn(text, "\n")] = '\0';
    if (file >= 0)
        close(file);
}

/* A process that sets its title also writes it over its arguments, so "sglang::scheduler_TP0" is
 * complete there. A worker of Ray appends a full stop and the running method. */
static void read_program(char text[RVLI_WIRE_TEXT_BYTES])
{
    char title[RVLI_WIRE_TEXT_BYTES];
    read_line("/proc/self/comm", text);
    if (strlen(text) < CUT_BYTES)
        return;
    read_line("/proc/self/cmdline", title);
    if (strncmp(title, text, CUT_BYTES) == 0)
        snprintf(text, RVLI_WIRE_TEXT_BYTES, "%.*s", (int)strcspn(title, ". "), title);
}

/* Reads the process's rank, as torchrun and others set it. A process id changes from run to run. */
static void read_rank(rvli_wire_request *named)
{
    const char *text = getenv("RANK");
    char *end = NULL;
    unsigned long rank = text != NULL && *text >= '0' && *text <= '9' ? strtoul(text, &end, 10) : 0;
    if (end == NULL || *end != '\0' || rank >= UINT32_MAX)
        return;
    named->rank = (uint32_t)rank;
    named->ranks = 1;
}

/*
 * Sends the name before the first request that needs one. Not earlier: workers of Ray and
 * engines set their titles after they have loaded CUDA.
 */
static rvl_status introduce(const rvli_wire_request *before)
{
    rvli_wire_request named = {.kind = RVLI_WIRE_NAME};
    rvli_wire_answer answer;
    if (own_name[0] != '\0' || !rvli_wire_needs_name(before))
        return RVL_OK;
    read_program(named.text);
    read_rank(&named);
    rvl_status status = exchange(&named, &answer, NULL);
    if (status == RVL_OK)
        memcpy(own_name, answer.text, sizeof own_name);
    return status;
}

/* ---- The connection ---- */

static bool connect_to(const char *name)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    size_t length = strlen(name);
    if (length + 1 >= sizeof address.sun_path)
        return false;
    memcpy(address.sun_path + 1, name, length);
    machine = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    owner = getpid();
    connection = machine >= 0 ? number_of(machine) : 0;
    return connection != 0 &&
           connect(machine, (struct sockaddr *)&address,
                   (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + length)) == 0;
}

/* Whether the machine belongs to this user. It drops connections of other users without a
 * message. */
static bool is_own(void)
{
    struct ucred peer;
    socklen_t size = sizeof peer;
    return getsockopt(machine, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0 || peer.uid == geteuid();
}

/* Whether the machine was started in this process's network namespace. True if this is unknown. */
static bool is_near(const char *name)
{
    size_t length = strlen(name);
    uint32_t own = rvli_wire_network();
    uint32_t there = length > RVLI_WIRE_NETWORK_DIGITS
                         ? (uint32_t)strtoul(name + length - RVLI_WIRE_NETWORK_DIGITS, NULL, 16)
                         : 0;
    return own == 0 || there == 0 || own == there;
}

static void lose_unreached(const char *name)
{
    if (name == NULL)
        lose(RVLI_WIRE_VARIABLE " is not set", UNDER);
    else if (is_near(name))
        lose("the machine is gone", UNDER);
    else
        lose("`reveille run` was started in another network namespace than this program's",
             "start both in one: without `unshare --net`, in containers with the same --network");
}

static rvl_status open_locked(bool marks)
{
    rvli_wire_request hello = {.kind = RVLI_WIRE_HELLO, .bytes = RVLI_WIRE_VERSION, .id = marks};
    rvli_wire_answer answer;
    if (machine >= 0)
        return RVL_OK;
    if (lost)
        return RVL_ERR_NO_DRIVER;
    const char *name = getenv(RVLI_WIRE_VARIABLE);
    if (name == NULL || !connect_to(name)) {
        lose_unreached(name);
        return RVL_ERR_NO_DRIVER;
    }
    if (!is_own()) {
        lose("`reveille run` was started by another user than this program's",
             "become that user first, as with su -c 'reveille run ...'");
        return RVL_ERR_NO_DRIVER;
    }
    rvl_status status = exchange(&hello, &answer, NULL);
    if (status == RVL_OK)
        devices = (int)answer.count;
    else if (status == RVL_ERR_BUSY)
        lose("`reveille run` has no descriptor left for another process",
             "raise the limit of descriptors (ulimit -n) where it is started");
    else if (machine >= 0)
        lose("the machine is of another version of Reveille", UNDER);
    return status;
}

rvl_status rvli_client_open(void)
{
    pthread_mutex_lock(&mutex);
    rvl_status status = open_locked(false);
    pthread_mutex_unlock(&mutex);
    return status;
}

/* A name never changes while the process runs, so it is read without the lock. */
const char *rvli_client_name(void)
{
    return own_name;
}

int rvli_client_devices(void)
{
    return devices;
}

static rvl_status send_for(const rvli_wire_request *request, rvli_wire_answer *answer_out,
                           int *file_out)
{
    pthread_mutex_lock(&mutex);
    rvl_status status =
        open_locked(request->kind == RVLI_WIRE_STAGE || request->kind == RVLI_WIRE_ENGINE ||
                    request->kind == RVLI_WIRE_LENGTH);
    has_memory |= request->kind == RVLI_WIRE_CONTEXT || request->kind == RVLI_WIRE_ALLOC;
    if (status == RVL_OK)
        status = introduce(request);
    if (status == RVL_OK)
        status = exchange(request, answer_out, file_out);
    pthread_mutex_unlock(&mutex);
    return status;
}

rvl_status rvli_client_send(const rvli_wire_request *request, rvli_wire_answer *answer_out)
{
    return send_for(request, answer_out, NULL);
}

rvl_status rvli_client_send_for_file(const rvli_wire_request *request, rvli_wire_answer *answer_out,
                                     int *file_out)
{
    *file_out = -1;
    rvl_status status = send_for(request, answer_out, file_out);
    if (status == RVL_OK && *file_out < 0) /* the process cannot open more files */
        status = RVL_ERR_IO;
    return status;
}

rvl_status rvli_client_ask(rvli_wire_kind kind, int device, uint64_t bytes, const char *text,
                           rvli_wire_answer *answer_out)
{
    rvli_wire_request request = {.kind = kind, .device = device, .bytes = bytes};
    if (text != NULL)
        snprintf(request.text, sizeof request.text, "%s", text);
    return rvli_client_send(&request, answer_out);
}

static void post_locked(const rvli_wire_request *request)
{
    if (introduce(request) == RVL_OK && check() == RVL_OK && !send_request(request))
        lose("the machine has ended", UNDER);
}

void rvli_client_post(const rvli_wire_request *request)
{
    pthread_mutex_lock(&mutex);
    if (machine >= 0)
        post_locked(request);
    pthread_mutex_unlock(&mutex);
}

void rvli_client_mark(const rvli_wire_request *request)
{
    rvli_wire_request heard = *request;
    rvli_wire_answer answer;
    heard.ranks = 1;
    pthread_mutex_lock(&mutex);
    if (open_locked(true) == RVL_OK) {
        if (has_memory)
            post_locked(request);
        else if (introduce(request) == RVL_OK)
            (void)exchange(&heard, &answer, NULL);
    }
    pthread_mutex_unlock(&mutex);
}

void rvli_client_tell(rvli_wire_kind kind, uint64_t bytes, uint64_t id)
{
    const rvli_wire_request request = {.kind = kind, .bytes = bytes, .id = id};
    rvli_client_post(&request);
}

void rvli_client_note(rvli_wire_kind kind, uint64_t bytes, const char *text)
{
    rvli_wire_request request = {.kind = kind, .bytes = bytes};
    snprintf(request.text, sizeof request.text, "%s", text);
    rvli_client_post(&request);
}

/* Does not wait for the lock: at the end, another thread may hold it forever. */
void rvli_client_end(int status, const char *error)
{
    rvli_wire_request request = {.kind = RVLI_WIRE_END, .bytes = (uint64_t)status};
    snprintf(request.text, sizeof request.text, "%s", error != NULL ? error : "");
    if (pthread_mutex_trylock(&mutex) != 0)
        return;
    if (error != NULL)
        (void)open_locked(true);
    if (owner == getpid() && is_connection() && (own_name[0] != '\0' || error != NULL) &&
        introduce(&request) == RVL_OK)
        (void)send_request(&request);
    pthread_mutex_unlock(&mutex);
}
