/* SPDX-License-Identifier: MIT */
/*
 * This process's connection to the machine (simcuda/wire/wire.h). The first caller that needs it
 * opens it. It carries one call at a time. A forked child has none of its parent's memory. It
 * opens its own connection if the parent has not used CUDA. A child of a bare clone() has a copy
 * of all this state, or even shares it. The child is recognized by its process id, and refused.
 * A program may close every descriptor and open others in their place, so the descriptor is
 * checked before each use.
 */
#ifndef RVL_SIMCUDA_CLIENT_H
#define RVL_SIMCUDA_CLIENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "reveille/status.h"
#include "simcuda/wire/wire.h"

/* Opens the connection if needed. RVL_ERR_NO_DRIVER: there is no machine, which is reported. */
rvl_status rvli_client_open(void);

/*
 * Sends the beginning or the end of a range, which does not count as using CUDA. A process
 * without device memory may mark what other processes do at its command, so it waits until the
 * machine has handled the mark.
 */
void rvli_client_mark(const rvli_wire_request *request);

/* The machine's name for this process, as in its traces. "" before the name was sent. */
const char *rvli_client_name(void);

/* The number of devices, once the connection is open. */
int rvli_client_devices(void);

/*
 * Sends a request and waits for the answer. text may be NULL. Returns the status of the answer,
 * or RVL_ERR_NO_DRIVER if there is no machine, or it has ended.
 */
rvl_status rvli_client_ask(rvli_wire_kind kind, int device, uint64_t bytes, const char *text,
                           rvli_wire_answer *answer_out);

/* As rvli_client_ask(), for a complete request. */
rvl_status rvli_client_send(const rvli_wire_request *request, rvli_wire_answer *answer_out);

/* As rvli_client_send(), and receives a file descriptor, which the caller owns; else -1. */
rvl_status rvli_client_send_for_file(const rvli_wire_request *request, rvli_wire_answer *answer_out,
                                     int *file_out);

/* Sends a request that has no answer. */
void rvli_client_post(const rvli_wire_request *request);
void rvli_client_tell(rvli_wire_kind kind, uint64_t bytes, uint64_t id);

/* As rvli_client_tell(), with a text. */
void rvli_client_note(rvli_wire_kind kind, uint64_t bytes, const char *text);

/*
 * Reports that the program ends with this status. error: the error that ended it, or "": none.
 * NULL: called at the process's exit, where a process without a name reports nothing. The
 * machine keeps the first report.
 */
void rvli_client_end(int status, const char *error);

/* Registers forget(), which runs in a forked child before anything else here. */
void rvli_client_on_fork(void (*forget)(void));

#endif
