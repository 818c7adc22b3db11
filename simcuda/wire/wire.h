/* SPDX-License-Identifier: MIT */
/*
 * What a process that uses simulated GPUs and the machine that simulates them say to each other.
 *
 * A process has one connection for each of its simulated libraries, over a Unix socket of whole
 * messages (SOCK_SEQPACKET). Its name is in the abstract namespace, so that it goes with the
 * machine, and is passed on in the environment. The machine asks the kernel who is at the other
 * end. Every message has the same size, and both ends are of the same build: the version is checked
 * once, at the first message.
 *
 * A request is answered, except for RVLI_WIRE_CONTEXT_GIVE, RVLI_WIRE_REFUSED, RVLI_WIRE_POOL,
 * RVLI_WIRE_FREE, RVLI_WIRE_HOST_GIVE, RVLI_WIRE_PART, RVLI_WIRE_UNKNOWN, RVLI_WIRE_ASSUMED,
 * RVLI_WIRE_RACE, RVLI_WIRE_TAKEN, RVLI_WIRE_WAITS and RVLI_WIRE_END: nobody waits for those. For
 * RVLI_WIRE_ENTER and RVLI_WIRE_LEAVE some wait, and some do not.
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
 * Holds the socket's name without its leading NUL: a prefix, 32 hexadecimal digits, and 8 of the
 * network namespace, since from another one the socket looks as if nobody had opened it.
 */
#define RVLI_WIRE_VARIABLE "REVEILLE_MACHINE"
#define RVLI_WIRE_PREFIX "reveille-machine-"
#define RVLI_WIRE_NAME_BYTES 64

/*
 * The largest copy that a process keeps the content of, in bytes. 1 MiB: what PyTorch calls small
 * has a pool of its own, and positions or masks of 131072 tokens are no more.
 */
#define RVLI_WIRE_KEEP_VARIABLE "REVEILLE_KEEP_CONTENTS"
#define RVLI_WIRE_KEEP_USUAL ((size_t)1 << 20)

/*
 * Whether PyTorch's large tensors in host memory are counted: "all", or the size in bytes up to
 * which they keep their content. Not set: they are not.
 */
#define RVLI_WIRE_HOST_VARIABLE "REVEILLE_KEEP_HOST"

#define RVLI_WIRE_TEXT_BYTES 256 /* names of stages and programs, with their NUL */

#define RVLI_WIRE_NETWORK_DIGITS 8

/* Of the namespace that this process is in; 0: not known. */
static inline uint32_t rvli_wire_network(void)
{
    struct stat found;
    return stat("/proc/self/ns/net", &found) == 0 ? (uint32_t)found.st_ino : 0;
}

typedef enum rvli_wire_kind {
    RVLI_WIRE_HELLO = 1, /* bytes: the version; id: 1: to mark stages -> count: devices */
    RVLI_WIRE_NAME,      /* text: the program; with ranks 1, rank: its launcher's -> text: what the
                            machine calls the process; before all that needs a name */
    RVLI_WIRE_DEVICE,    /* device -> total_bytes, text: the profile's name, "" if it has none;
                            streams_bytes, graph_bytes, kernel_bytes: of the profile */
    RVLI_WIRE_CONTEXT,   /* device: the driver takes its own share there for a context */
    RVLI_WIRE_ALLOC,     /* device, bytes, text: the tag -> id */
    RVLI_WIRE_FREE,      /* id; no answer */
    RVLI_WIRE_MEMORY,    /* device -> free_bytes, total_bytes */
    RVLI_WIRE_HOST_TAKE, /* bytes of host memory; id: rvli_wire_host */
    RVLI_WIRE_HOST_GIVE, /* bytes, id: as it was taken; no answer */
    /* Marks of stages, with bytes: the process's wall clock then, in microseconds since 1970. */
    RVLI_WIRE_STAGE,        /* text: a flat stage of the process begins */
    RVLI_WIRE_ENTER,        /* id, text: a range of the process begins, a stage; an answer where
                               ranks is not 0 */
    RVLI_WIRE_LEAVE,        /* id: it ends; an answer as there */
    RVLI_WIRE_UNKNOWN,      /* bytes that nobody knows were read; text: the reader; no answer */
    RVLI_WIRE_ASSUMED,      /* bytes that a rule made up; text: the line that asked; no answer */
    RVLI_WIRE_RACE,         /* text: what a card may do instead of what is done here; no answer */
    RVLI_WIRE_CONTEXT_GIVE, /* device: a context is destroyed; no answer */
    RVLI_WIRE_REFUSED, /* device (-1: host memory), bytes: asked for, id: free, text: the line of
                          the program: its own allocator has refused; no answer */
    RVLI_WIRE_POOL,    /* device, id: the most that a pool has reserved, bytes: and what it may
                          be on a card (simcuda/driver/pool.c); no answer */

    /* Ranks that come together (simcuda/machine/meeting.h). */
    RVLI_WIRE_MEET,    /* text: which meeting; rank of ranks; bytes: what it brings -> id */
    RVLI_WIRE_MET,     /* id -> RVL_OK, or RVL_ERR_BUSY and text: who is missing */
    RVLI_WIRE_BROUGHT, /* id, rank -> id: what that rank brought; RVL_ERR_NOT_FOUND: it is absent */
    RVLI_WIRE_PART,    /* id, rank: it leaves; no answer */

    /* A communicator of NCCL takes a part of its memory on a device (rvli_wire_nccl_part), and
     * gives it back. */
    RVLI_WIRE_NCCL_TAKE, /* device, bytes: part -> free_bytes: what it can suspend, total_bytes: in
                            all */
    RVLI_WIRE_NCCL_GIVE, /* device, bytes: part */

    /*
     * Memory that processes share (simcuda/machine/shared.h). All answer id, key, count: the
     * device, total_bytes, place: of its content, and owner: a number of that process. What was
     * imported is let go of by RVLI_WIRE_FREE, once for each import.
     */
    RVLI_WIRE_EXPORT,      /* id; 0: of a new event */
    RVLI_WIRE_EXPORT_FILE, /* id -> and a file descriptor, in which an rvli_wire_ticket lies */
    RVLI_WIRE_OPEN,        /* id: the key, bytes: the owner */
    RVLI_WIRE_IMPORT,      /* id: the key in a ticket */
    RVLI_WIRE_CONTENTS,    /* -> a file descriptor: where contents of shared memory are */

    /*
     * What ranks bring each other by an operation of NCCL (simcuda/machine/deposits.h). All have
     * id: the meeting of the communicator, rank, sequence, and from and to: RVLI_WIRE_ALL, or the
     * two ranks of a send and its receive.
     */
    RVLI_WIRE_BRING, /* bytes -> place: for them, in the file of RVLI_WIRE_CONTENTS; as COME */
    RVLI_WIRE_COME, /* bytes: rvli_wire_come; ranks: RVLI_WIRE_AWAITS, or 0; text: the call as ranks
                       compare it, or "". The rank takes part, and has brought what it does. ->
                       text: "" or what rank `count` has called instead; id: 0, or one more than a
                       rank that has left without calling it. RVL_ERR_BUSY: it is too far ahead of
                       others */
    RVLI_WIRE_TAKE, /* bytes: the rank that brings -> count: 1, place, total_bytes; count 0:
                       unknown. RVL_ERR_BUSY:  it has not come; RVL_ERR_STATE: it will not */
    RVLI_WIRE_TAKEN, /* the rank needs no more of it; no answer */
    RVLI_WIRE_DONE,  /* bytes: a rank, or RVLI_WIRE_ALL -> RVL_OK: it has come, or never will.
                        RVL_ERR_BUSY, id: as of COME; count: a rank that has not */
    RVLI_WIRE_WAITS, /* text: "rank 0 of 2 has waited 600 s for ..."; no answer */

    RVLI_WIRE_AWAY, /* bytes 1: the process leaves its devices, 0: it comes back (away.c) */

    /* An engine has sized its KV cache. text: its name; id: blocks, ranks: tokens of a block,
     * sequence: tokens in all; bytes: of it on a GPU. */
    RVLI_WIRE_ENGINE,

    RVLI_WIRE_LENGTH, /* bytes: tokens that a sequence will have, by the rule of the run */

    RVLI_WIRE_END, /* bytes: the exit status with which the process ends; text: the error that
                      nobody caught, "": none is known; no answer */
} rvli_wire_kind;

/* Host memory that a process takes. */
typedef enum rvli_wire_host {
    RVLI_WIRE_PINNED, /* or registered */
    RVLI_WIRE_PAGEABLE,
    RVLI_WIRE_HOST_KINDS,
} rvli_wire_host;

/* How a rank takes part in an operation. */
typedef enum rvli_wire_come {
    RVLI_WIRE_GIVES, /* it needs nothing of what others bring */
    RVLI_WIRE_GETS,  /* it may ask for that, until it says RVLI_WIRE_TAKEN */
    RVLI_WIRE_ENDS,  /* it has waited long enough: the communicator brings nothing from now on */
} rvli_wire_come;

#define RVLI_WIRE_ALL UINT32_MAX /* all ranks, or an operation of all */
#define RVLI_WIRE_AWAITS 1u      /* the operation is complete when the other ranks have come */

/* When a communicator takes memory: when it is made, and with its first collective. */
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
    uint64_t streams_bytes; /* 34 streams take these; 0: not known, as the next two */
    uint64_t graph_bytes;   /* the first graph */
    uint64_t kernel_bytes;  /* the first kernel */
    char text[RVLI_WIRE_TEXT_BYTES];
} rvli_wire_answer;

/* All but what asks about the machine, which libraries do before the program has said its title. */
static inline bool rvli_wire_needs_name(const rvli_wire_request *request)
{
    return request->kind != RVLI_WIRE_HELLO && request->kind != RVLI_WIRE_NAME &&
           request->kind != RVLI_WIRE_DEVICE && request->kind != RVLI_WIRE_MEMORY &&
           request->kind != RVLI_WIRE_CONTENTS;
}

/* What lies in a descriptor that stands for memory. */
typedef struct rvli_wire_ticket {
    uint64_t magic;
    uint64_t key;
} rvli_wire_ticket;
#define RVLI_WIRE_TICKET_MAGIC UINT64_C(0x74656b6369742d72) /* "r-ticket" */

/* A message that may bring a file descriptor, with room for what the kernel wants to know of it. */
typedef struct rvli_wire_parcel {
    struct iovec part;
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(int))];
    struct msghdr message;
} rvli_wire_parcel;

/* For sending with a file; file -1: for sending without one, and for receiving. */
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

/* The part of a message that is not text: what is sent where there is none. */
#define RVLI_WIRE_PLAIN_BYTES offsetof(rvli_wire_request, text)

#endif
