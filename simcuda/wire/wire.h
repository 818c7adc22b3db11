/* SPDX-License-Identifier: MIT */
/*
 * What a process that uses simulated GPUs and the machine that simulates them say to each other.
 *
 * One connection is one process, over a Unix socket of whole messages (SOCK_SEQPACKET). Its name is
 * in the abstract namespace, so that it goes with the machine, and is passed on in the environment.
 * The machine asks the kernel who is at the other end. Every message has the same size, and both
 * ends are of the same build: the version is checked once, at the first message.
 *
 * A request is answered, but for RVLI_WIRE_FREE and RVLI_WIRE_HOST_GIVE: nobody waits for those.
 */
#ifndef RVL_SIMCUDA_WIRE_H
#define RVL_SIMCUDA_WIRE_H

#include <stdint.h>

#define RVLI_WIRE_VERSION 1u

/* Holds the socket's name without its leading NUL: 32 hexadecimal digits behind a prefix. */
#define RVLI_WIRE_VARIABLE "REVEILLE_MACHINE"
#define RVLI_WIRE_PREFIX "reveille-machine-"
#define RVLI_WIRE_NAME_BYTES 64

#define RVLI_WIRE_TEXT_BYTES 256 /* names of stages and programs, with their NUL */

typedef enum rvli_wire_kind {
    RVLI_WIRE_HELLO = 1, /* bytes: the version; text: the program. -> count: devices */
    RVLI_WIRE_DEVICE,    /* device -> total_bytes, text: the profile's name, "" if it has none */
    RVLI_WIRE_CONTEXT,   /* device: the driver takes its own share there, once a process */
    RVLI_WIRE_ALLOC,     /* device, bytes, text: the tag -> id */
    RVLI_WIRE_FREE,      /* id; no answer */
    RVLI_WIRE_MEMORY,    /* device -> free_bytes, total_bytes */
    RVLI_WIRE_HOST_TAKE, /* bytes of pinned host memory */
    RVLI_WIRE_HOST_GIVE, /* bytes; no answer */
    RVLI_WIRE_STAGE,     /* text: a stage begins */
} rvli_wire_kind;

typedef struct rvli_wire_request {
    uint32_t kind;
    int32_t device;
    uint64_t bytes;
    uint64_t id;
    char text[RVLI_WIRE_TEXT_BYTES];
} rvli_wire_request;

typedef struct rvli_wire_answer {
    int32_t status; /* rvl_status */
    uint32_t count;
    uint64_t id;
    uint64_t free_bytes;
    uint64_t total_bytes;
    char text[RVLI_WIRE_TEXT_BYTES];
} rvli_wire_answer;

/* The part of a message that is not text: what is sent where there is none. */
#define RVLI_WIRE_PLAIN_BYTES offsetof(rvli_wire_request, text)

#endif
