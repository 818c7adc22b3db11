/* SPDX-License-Identifier: MIT */
/*
 * This process's connection to the machine (simcuda/wire/wire.h): opened by the first that needs
 * it, one call at a time. A forked child has none of its parent's memory, and opens a connection of
 * its own if the parent has not used CUDA. A child of a bare clone() has a copy of everything here,
 * or even the same memory: it is known by its process id, and refused. A program may close every
 * descriptor and open its own ones in their places: what is there is looked at before each use.
 */
#ifndef RVL_SIMCUDA_CLIENT_H
#define RVL_SIMCUDA_CLIENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "reveille/status.h"
#include "simcuda/wire/wire.h"

/* Opens the connection if there is none. RVL_ERR_NO_DRIVER: there is no machine, which is told. */
rvl_status rvli_client_open(void);

/*
 * Tells a range's begin or end, of a process that has not used CUDA by that. One that has no memory
 * marks what other processes do at its word, so it waits until the machine has heard it.
 */
void rvli_client_mark(const rvli_wire_request *request);

/* What the machine calls this process, as its traces do; "" before it is open. */
const char *rvli_client_name(void);

/* Number of devices, once it is open. */
int rvli_client_devices(void);

/*
 * Asks the machine and waits for its answer; text may be NULL. Returns what it answers, or
 * RVL_ERR_NO_DRIVER where there is no machine, or none any more.
 */
rvl_status rvli_client_ask(rvli_wire_kind kind, int device, uint64_t bytes, const char *text,
                           rvli_wire_answer *answer_out);

/* The same of a whole request. */
rvl_status rvli_client_send(const rvli_wire_request *request, rvli_wire_answer *answer_out);

/* The same, with a file descriptor if one came, which becomes the caller's; else -1. */
rvl_status rvli_client_send_for_file(const rvli_wire_request *request, rvli_wire_answer *answer_out,
                                     int *file_out);

/* Says what needs no answer. */
void rvli_client_post(const rvli_wire_request *request);
void rvli_client_tell(rvli_wire_kind kind, uint64_t bytes, uint64_t id);

/* The same, with a text. */
void rvli_client_note(rvli_wire_kind kind, uint64_t bytes, const char *text);

/*
 * The program ends with this status. error: the one that ended it, or "": none; NULL: it is at its
 * end, where one that the machine has no name for says nothing. The machine takes the first word.
 */
void rvli_client_end(int status, const char *error);

/* Called in a forked child, before anything else here. */
void rvli_client_on_fork(void (*forget)(void));

#endif
