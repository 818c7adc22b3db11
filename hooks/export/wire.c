/* SPDX-License-Identifier: MIT */
#include "hooks/export/wire.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stddef.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/packet.h"
#include "base/shown.h"
#include "base/text.h"
#include "hooks/process/thread.h"

#define HANDLE_MAGIC UINT64_C(0x01435049204c5652)  /* "RVL IPC", version 1 */
#define MESSAGE_MAGIC UINT64_C(0x01637069204c5652) /* "RVL ipc", version 1 */
#define BACKLOG 128

/* ---- Handles ---- */

typedef struct handle_layout {
    uint64_t magic;
    uint64_t process;
    uint64_t nonce;
    uint64_t export_id;
    uint64_t size_bytes;
    uint64_t zero[2];
    uint64_t check; /* of all fields before it */
} handle_layout;

_Static_assert(sizeof(handle_layout) == sizeof(rvli_ipc_handle), "a handle has 64 bytes");

static uint64_t check_of(const handle_layout *layout)
{
    const unsigned char *bytes = (const unsigned char *)layout;
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < offsetof(handle_layout, check); i++)
        hash = (hash ^ bytes[i]) * UINT64_C(0x100000001b3);
    return hash;
}

void rvli_ipc_write_handle(const rvli_ipc_name *name, rvli_ipc_handle *handle_out)
{
    handle_layout layout = {.magic = HANDLE_MAGIC,
                            .process = name->process,
                            .nonce = name->nonce,
                            .export_id = name->export_id,
                            .size_bytes = name->size_bytes};
    layout.check = check_of(&layout);
    memcpy(handle_out, &layout, sizeof layout);
}

bool rvli_ipc_read_handle(const rvli_ipc_handle *handle, rvli_ipc_name *name_out, bool *whole_out)
{
    handle_layout layout;
    memcpy(&layout, handle, sizeof layout);
    if (layout.magic != HANDLE_MAGIC)
        return false;
    *whole_out = layout.check == check_of(&layout) && layout.process <= INT32_MAX;
    *name_out = (rvli_ipc_name){.process = (uint32_t)layout.process,
                                .nonce = layout.nonce,
                                .export_id = layout.export_id,
                                .size_bytes = layout.size_bytes};
    return true;
}

/* ---- Sockets ---- */

static void add_hex(rvli_text *text, uint64_t value)
{
    char digits[17];
    for (int i = 0; i < 16; i++)
        digits[i] = "0123456789abcdef"[value >> (60 - 4 * i) & 15];
    digits[16] = '\0';
    rvli_text_add(text, digits);
}

/* A name that begins with a zero byte is not in a file system. */
static socklen_t address_of(uint32_t process, uint64_t nonce, struct sockaddr_un *address_out)
{
    memset(address_out, 0, sizeof *address_out);
    address_out->sun_family = AF_UNIX;
    rvli_text text = rvli_text_begin(address_out->sun_path + 1, sizeof address_out->sun_path - 1);
    rvli_text_add(&text, "reveille-ipc-");
    rvli_text_add_u64(&text, process);
    rvli_text_add(&text, "-");
    add_hex(&text, nonce);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + text.length);
}

static int new_socket(int flags)
{
    return socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | flags, 0);
}

int rvli_ipc_listen(uint32_t process, uint64_t nonce)
{
    struct sockaddr_un address;
    socklen_t length = address_of(process, nonce, &address);
    int socket = new_socket(SOCK_NONBLOCK);
    if (socket >= 0 &&
        (bind(socket, (struct sockaddr *)&address, length) != 0 || listen(socket, BACKLOG) != 0)) {
        close(socket);
        return -1;
    }
    return socket;
}

static uint64_t left_ns(uint64_t end_ns)
{
    uint64_t now_ns = rvli_monotonic_ns();
    return now_ns < end_ns ? end_ns - now_ns : 0;
}

/* Waits for room in the listener's backlog. */
int rvli_ipc_connect(uint32_t process, uint64_t nonce, uint64_t end_ns)
{
    struct sockaddr_un address;
    socklen_t length = address_of(process, nonce, &address);
    int socket = new_socket(0), result;
    if (socket < 0)
        return -1;
    do {
        uint64_t left_us = left_ns(end_ns) / 1000 + 1; /* 0 would be forever */
        const struct timeval limit = {.tv_sec = (time_t)(left_us / 1000000),
                                      .tv_usec = (suseconds_t)(left_us % 1000000)};
        (void)setsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
        result = connect(socket, (struct sockaddr *)&address, length);
    } while (result != 0 && errno == EINTR);
    if (result != 0) {
        int cause = errno;
        close(socket);
        errno = cause;
        return -1;
    }
    return socket;
}

bool rvli_ipc_peer(int socket, pid_t *process_out)
{
    return rvli_packet_peer(socket, process_out);
}

/* ---- Messages ---- */

rvli_ipc_message rvli_ipc_message_of(rvli_ipc_kind kind)
{
    return (rvli_ipc_message){.magic = MESSAGE_MAGIC, .kind = (uint32_t)kind};
}

_Static_assert(RVLI_IPC_BLOCKS <= RVLI_PACKET_FDS, "a packet takes the blocks of a message");

bool rvli_ipc_send(int socket, const rvli_ipc_message *message, const int *fds, unsigned fd_count)
{
    return rvli_packet_send(socket, message, sizeof *message, fds, fd_count, MSG_DONTWAIT);
}

/* A peer's text goes into error records and messages, so escape it. */
static void take_text(rvli_ipc_message *message)
{
    char text[sizeof message->text];
    memcpy(text, message->text, sizeof text);
    text[sizeof text - 1] = '\0';
    rvli_shown(RVLI_SHOWN_PLAIN, text, message->text, sizeof message->text);
}

static void close_all(const int *fds, unsigned count)
{
    while (count > 0)
        close(fds[--count]);
}

rvl_status rvli_ipc_receive(int socket, rvli_ipc_message *message_out, int *fds_out,
                            unsigned fd_capacity, unsigned *fd_count_out)
{
    unsigned count = 0;
    switch (rvli_packet_take(socket, message_out, sizeof *message_out, fds_out, fd_capacity, &count,
                             MSG_DONTWAIT)) {
    case RVLI_PACKET_NONE:
        return RVL_ERR_TIMEOUT;
    case RVLI_PACKET_CLOSED:
        return RVL_ERR_NOT_FOUND;
    case RVLI_PACKET_WRONG:
    case RVLI_PACKET_STARVED:
        return RVL_ERR_INVALID;
    default:
        break;
    }
    if (message_out->magic != MESSAGE_MAGIC) {
        close_all(fds_out, count);
        return RVL_ERR_INVALID;
    }
    take_text(message_out);
    *fd_count_out = count;
    return RVL_OK;
}

bool rvli_ipc_wait(int socket, uint64_t end_ns)
{
    for (;;) {
        struct pollfd poller = {.fd = socket, .events = POLLIN};
        int ready = poll(&poller, 1, (int)((left_ns(end_ns) + 999999) / 1000000));
        if (ready >= 0 || errno != EINTR)
            return ready > 0;
    }
}

/* ---- Processes ---- */

/* A process chooses its own name, which may have any bytes. */
void rvli_ipc_program(pid_t process, char *name_out, size_t size)
{
    char path[48], name[64]; /* the kernel keeps 15 bytes */
    rvli_text text = rvli_text_begin(path, sizeof path);
    rvli_text_add(&text, "/proc/");
    rvli_text_add_u64(&text, (uint64_t)process);
    rvli_text_add(&text, "/comm");
    int file = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t bytes = file >= 0 ? read(file, name, sizeof name - 1) : -1;
    if (file >= 0)
        close(file);
    if (bytes <= 0) {
        rvli_text_copy(name_out, size, "?");
        return;
    }
    bytes -= name[bytes - 1] == '\n' ? 1 : 0;
    name[bytes] = '\0';
    rvli_shown(RVLI_SHOWN_PLAIN, name, name_out, size);
}

rvl_status rvli_ipc_start_thread(void *(*run)(void *))
{
    return rvli_start_thread(run, NULL,
                             "no thread for memory that processes share could be started: see the "
                             "limit of processes (ulimit -u)");
}

uint64_t rvli_ipc_random(void)
{
    uint64_t number = 0;
    if (getrandom(&number, sizeof number, 0) != (ssize_t)sizeof number || number == 0)
        number = rvli_monotonic_ns() ^ (uint64_t)getpid() << 40;
    return number;
}
