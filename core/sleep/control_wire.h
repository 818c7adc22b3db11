/* SPDX-License-Identifier: MIT */
/*
 * The protocol between a process that listens (control.c) and one that asks (control_ask.c): a
 * request packet and an answer packet, on a separate connection. The socket's name begins with a
 * zero byte and contains the process's number, so it is in no file system and disappears with the
 * process.
 */
#ifndef RVL_CORE_CONTROL_WIRE_H
#define RVL_CORE_CONTROL_WIRE_H

#include <stddef.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "base/text.h"
#include "reveille/control.h"

#define RVLI_CONTROL_MAGIC UINT64_C(0x016c7463204c5652) /* "RVL ctl", version 1 */

typedef struct rvli_control_request {
    uint64_t magic;
    uint32_t verb;
    uint32_t zero;
    uint64_t flags;
    uint64_t timeout_ns;
} rvli_control_request;

typedef struct rvli_control_answer {
    uint64_t magic;
    int32_t status;
    uint32_t changed;
    uint64_t time_ns;
    char why[RVL_CONTROL_WHY_BYTES];
} rvli_control_answer;

static inline socklen_t rvli_control_address(int process, struct sockaddr_un *address_out)
{
    *address_out = (struct sockaddr_un){.sun_family = AF_UNIX};
    rvli_text text = rvli_text_begin(address_out->sun_path + 1, sizeof address_out->sun_path - 1);
    rvli_text_add(&text, "reveille-control-");
    rvli_text_add_u64(&text, (uint64_t)process);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + text.length);
}

#endif
