/* SPDX-License-Identifier: MIT */
/*
 * The protocol between a process that uses simulated GPUs and the machine that simulates them.
 *
 * A process has one connection for each of its simulated libraries, over a Unix socket that
 * preserves message boundaries (SOCK_SEQPACKET). The socket's name is in the abstract namespace,
 * so it disappears with the machine. The name is passed on in the environment. The machine asks
 * the kernel which process is at the other end. All messages have one size, and both ends are of
 * the same build. The version is checked once, at the first message.
 *
 * Every request gets an answer, except RVLI_WIRE_CONTEXT_GIVE, RVLI_WIRE_REFUSED,
 * RVLI_WIRE_POOL, RVLI_WIRE_FREE, RVLI_WIRE_HOST_GIVE, RVLI_WIRE_PART, RVLI_WIRE_UNKNOWN,
 * RVLI_WIRE_ASSUMED, RVLI_WIRE_RACE, RVLI_WIRE_TAKEN, RVLI_WIRE_WAITS and RVLI_WIRE_END.
 * RVLI_WIRE_ENTER and RVLI_WIRE_LEAVE get one only where the request asks for it.
 */
#ifndef RVL_SIMCUDA_WIRE_H
#define RVL_SIMCUDA_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>

#define RVLI_WIRE_VERSION 14u

/*
 * The environment variable with the socket's name, without its leading NUL: a prefix, 32
 * hexadecimal digits, and 8 digits that identify the network namespace. From another namespace,
 * the socket looks as if nothing listened on it.
 */
#define RVLI_WIRE_VARIABLE "REVEILLE_MACHINE"
#define RVLI_WIRE_PREFIX "reveille-machine-"
#define RVLI_WIRE_NAME_BYTES 64

/*
 * The largest copy of which a process keeps the content, in bytes. The default is 1 MiB:
 * PyTorch's small allocations have a pool with this limit, and positions or masks of 131072
 * tokens fit.
 */
#define RVLI_WIRE_KEEP_VARIABLE "REVEILLE_KEEP_CONTENTS"
#define RVLI_WIRE_KEEP_USUAL ((size_t)1 << 20)

/*
 * Whether PyTorch's large tensors in host memory are counted: "all", or the size in bytes up to
 * which their content is kept. If the variable is not set, they are not counted.
 */
#define RVLI_WIRE_HOST_VARIABLE "REVEILLE_KEEP_HOST"

#define RVLI_WIRE_TEXT_BYTES 256 /* names of stages and programs, with the NUL */

#define RVLI_WIRE_NETWORK_DIGITS 8

/* The network namespace of this process. 0: unknown. */
static inline uint32_t rvli_wire_network(void)
{
    struct stat found;
    return stat("/proc/self/ns/net", &found) == 0 ? (uint32_t)found.st_ino : 0;
}

typedef enum rvli_wire_kind {
    RVLI_WIRE_HELLO = 1, /* bytes: the version; id 1: only to mark stages -> count: devices */
    RVLI_WIRE_NAME, /* text: the program; with ranks 1, rank: the launcher's -> text: the machine's
                       name for the process. Comes before any request that needs a name */
    RVLI_WIRE_DEVICE,    /* device -> total_bytes, text: the profile's name, "" if it has none;
                            streams_bytes, graph_bytes, kernel_bytes: from the profile */
    RVLI_WIRE_CONTEXT,   /* device: the driver takes its share there for one context */
    RVLI_WIRE_ALLOC,     /* device, bytes, text: the tag -> id */
    RVLI_WIRE_FREE,      /* id; no answer */
    RVLI_WIRE_MEMORY,    /* device -> free_bytes, total_bytes */
    RVLI_WIRE_HOST_TAKE, /* bytes of host memory; id: an rvli_wire_host */
    RVLI_WIRE_HOST_GIVE, /* bytes, id: as taken; no answer */
    /* Marks of stages, with bytes: the wall clock of the process at the mark, in microseconds
     * since 1970. */
    RVLI_WIRE_STAGE, /* text: a flat stage that begins in the process */
    RVLI_WIRE_ENTER, /* id, text: a range that begins in the process, a stage; answered if ranks is
                        not 0 */
    RVLI_WIRE_LEAVE, /* id: the range that ends; answered if ranks is not 0 */
    RVLI_WIRE_UNKNOWN, /* bytes of unknown content that were read; text: the reader; no answer */
    RVLI_WIRE_ASSUMED, /* bytes that a rule made up; text: the line that read them; no answer */
    RVLI_WIRE_RACE,    /* text: what a card may do differently; no answer */
    RVLI_WIRE_CONTEXT_GIVE, /* device: a context there is destroyed; no answer */
    RVLI_WIRE_REFUSED, /* the program's own allocator has refused. device (-1: host memory), bytes:
                          requested, id: free bytes, text: the line of the program; no answer */
    RVLI_WIRE_POOL, /* device, id: the most that a pool has reserved, bytes: what that may be on a
                       card (simcuda/driver/pool.c); no answer */

    /* Ranks that meet (simcuda/machine/meeting.h). */
    RVLI_WIRE_MEET, /* text: the meeting; rank of ranks; bytes: the number that the rank brings ->
                       id */
    RVLI_WIRE_MET,  /* id -> RVL_OK, or RVL_ERR_BUSY and text: the missing ranks */
    RVLI_WIRE_BROUGHT, /* id, rank -> id: the number that this rank brought; RVL_ERR_NOT_FOUND: the
                          rank is absent */
    RVLI_WIRE_PART,    /* id, rank: the rank leaves; no answer */

    /* An NCCL communicator takes or returns a part of its memory on a device
     * (rvli_wire_nccl_part). */
    RVLI_WIRE_NCCL_TAKE, /* device, bytes: the part -> free_bytes: what it can suspend, total_bytes:
                            all of it */
    RVLI_WIRE_NCCL_GIVE, /* device, bytes: the part */

    /*
     * Memory that processes share (simcuda/machine/shared.h). All answers have id, key, count:
     * the device, total_bytes, place: of the content, and owner: a number of the owning process.
     * RVLI_WIRE_FREE releases an import, once for each import.
     */
    RVLI_WIRE_EXPORT,      /* id; 0: create an event */
    RVLI_WIRE_EXPORT_FILE, /* id -> and a file descriptor that contains an rvli_wire_ticket */
    RVLI_WIRE_OPEN,        /* id: the key, bytes: the owner */
    RVLI_WIRE_IMPORT,      /* id: the key in a ticket */
    RVLI_WIRE_CONTENTS,    /* -> a file descriptor: the file with the contents of shared memory */

    /*
     * Data that ranks exchange through an NCCL operation (simcuda/machine/deposits.h). All
     * requests have id: the communicator's meeting, rank, sequence, and from and to: both
     * RVLI_WIRE_ALL, or the two ranks of a send and its receive.
     */
    RVLI_WIRE_BRING, /* bytes -> place: room for them, in the file of RVLI_WIRE_CONTENTS; errors as
                        for COME */
    RVLI_WIRE_COME,  /* The rank takes part, and its data is complete. bytes: an rvli_wire_come;
                        ranks: RVLI_WIRE_AWAITS or 0; text: the call as ranks compare it, or "" ->
                        text: "", or the different call that rank `count` made; id: 0, or 1 + a rank
                        that has left without calling. RVL_ERR_BUSY: the rank is too far ahead of
                        others */
    RVLI_WIRE_TAKE,  /* bytes: the rank that brings -> count: 1, place, total_bytes; or count 0:
                        unknown. RVL_ERR_BUSY: that rank has not come; RVL_ERR_STATE: it never will
                      */
    RVLI_WIRE_TAKEN, /* the rank needs no more data of this operation; no answer */
    RVLI_WIRE_DONE,  /* bytes: a rank, or RVLI_WIRE_ALL -> RVL_OK: it has come, or never will.
                        RVL_ERR_BUSY, id: as for COME; count: a rank that has not come */
    RVLI_WIRE_WAITS, /* text: "rank 0 of 2 has waited 600 s for ..."; no answer */

    RVLI_WIRE_AWAY, /* bytes 1: the process leaves its devices, 0: it returns (away.c) */

    /* An engine has sized its KV cache. text: the engine's name; id: blocks, ranks: tokens per
     * block, sequence: total tokens; bytes: the cache's size on one GPU. */
    RVLI_WIRE_ENGINE,

    RVLI_WIRE_LENGTH, /* bytes: the number of tokens that the rule of the run gives to a sequence */

    RVLI_WIRE_END, /* bytes: the exit status of the process that ends; text: the uncaught error, "":
                      none known; no answer */
} rvli_wire_kind;

/* Kinds of host memory that a process takes. */
typedef enum rvli_wire_host {
    RVLI_WIRE_PINNED, /* or registered */
    RVLI_WIRE_PAGEABLE,
    RVLI_WIRE_HOST_KINDS,
} rvli_wire_host;

/* How a rank takes part in an operation. */
typedef enum rvli_wire_come {
    RVLI_WIRE_GIVES, /* it needs no data of other ranks */
    RVLI_WIRE_GETS,  /* it may ask for data until it sends RVLI_WIRE_TAKEN */
    RVLI_WIRE_ENDS,  /* it has waited too long: the communicator carries no data from now on */
} rvli_wire_come;

#define RVLI_WIRE_ALL UINT32_MAX /* all ranks, or an operation of all ranks */
#define RVLI_WIRE_AWAITS 1u      /* the operation completes once the other ranks have come */

/* When a communicator takes memory: at its creation, and with its first collective. */
typedef enum rvli_wire_nccl_part {
    RVLI_WIRE_NCCL_MADE,
    RVLI_WIRE_NCCL_COLLECTIVE,
    RVLI_WIRE_NCCL_PARTS,
} rvli_wire_nccl_part;
#define RVLI_WIRE_LAST RVLI_WIRE_END

typedef struct rvli_wire_request {
    uint32_t kind;
    int32_t device;
    uint64_t bytes;
    uint64_t id;
    uint32_t rank;
    uint32_t ranks;
    uint64_t sequence;
    uint32_t from;
    uint32_t to;
    char text[RVLI_WIRE_TEXT_BYTES];
} rvli_wire_request;

typedef struct rvli_wire_answer {
    int32_t status; /* rvl_status */
    uint32_t count;
    uint64_t id;
    uint64_t free_bytes;
    uint64_t total_bytes;
    uint64_t key;
    uint64_t place;
    uint64_t owner;
    uint64_t streams_bytes; /* memory of 34 streams; 0: unknown, here and in the next two */
    uint64_t graph_bytes;   /* memory of the first graph */
    uint64_t kernel_bytes;  /* memory of the first kernel */
    char text[RVLI_WIRE_TEXT_BYTES];
} rvli_wire_answer;

/* True for all requests except those about the machine itself. Libraries send these before the
 * program has told its name. */
static inline bool rvli_wire_needs_name(const rvli_wire_request *request)
{
    return request->kind != RVLI_WIRE_HELLO && request->kind != RVLI_WIRE_NAME &&
           request->kind != RVLI_WIRE_DEVICE && request->kind != RVLI_WIRE_MEMORY &&
           request->kind != RVLI_WIRE_CONTENTS;
}

/* The content of a file descriptor that stands for memory. */
typedef struct rvli_wire_ticket {
    uint64_t magic;
    uint64_t key;
} rvli_wire_ticket;
#define RVLI_WIRE_TICKET_MAGIC UINT64_C(0x74656b6369742d72) /* "r-ticket" */

/* A message that may carry a file descriptor, with room for the kernel's control data. */
typedef struct rvli_wire_parcel {
    struct iovec part;
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(int))];
    struct msghdr message;
} rvli_wire_parcel;

/* Prepares to send with a file. file -1: to send without one, or to receive. */
static inline void rvli_wire_wrap(rvli_wire_parcel *parcel, void *bytes, size_t size, int file)
{
    parcel->part = (struct iovec){bytes, size};
    parcel->message = (struct msghdr){.msg_iov = &parcel->part, .msg_iovlen = 1};
    if (file < 0)
        return;
    memset(parcel->control, 0, sizeof parcel->control);
    parcel->message.msg_control = parcel->control;
    parcel->message.msg_controllen = sizeof parcel->control;
    struct cmsghdr *header = CMSG_FIRSTHDR(&parcel->message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(header), &file, sizeof file);
}

/* The part of a message before the text. Sent alone if there is no text. */
#define RVLI_WIRE_PLAIN_BYTES offsetof(rvli_wire_request, text)

#endif
