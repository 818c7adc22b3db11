/* SPDX-License-Identifier: MIT */
/*
 * Memory that several processes have. The one that allocated it exports it, and it stays counted on
 * that one. It goes back when nobody has it any more: neither a process, nor a file that stands for
 * it. Events are exported, too, as memory of no bytes.
 *
 * There are two ways to it. A key, which is never used again, is what handles of CUDA's IPC hold.
 * A file descriptor holds the memory as long as a copy of it is open anywhere: it is one end of a
 * pair of sockets, in which the key lies, and the machine sees at the other end when the last copy
 * is closed.
 */
#ifndef RVL_SIMCUDA_MACHINE_SHARED_H
#define RVL_SIMCUDA_MACHINE_SHARED_H

#include "simcuda/machine/internal.h"

/* RVL_ERR_IO: no file for it. */
rvl_status rvli_shared_open(rvli_shared **shared_out);
void rvli_shared_close(rvli_shared *shared);

/* Can be read when the last copy of a descriptor was closed. */
int rvli_shared_file(const rvli_shared *shared);
void rvli_shared_serve(rvli_machine *machine);

/* Whether it may have something to say: a descriptor stands for memory. */
bool rvli_shared_any(const rvli_shared *shared);

/*
 * Answers the key of what a process has, and where its content is kept; id 0: of a new event, with
 * its id. RVL_ERR_NOT_FOUND: the process does not have it; RVL_ERR_HOST_OOM.
 */
rvl_status rvli_shared_export(rvli_machine *machine, rvli_client *client, uint64_t id,
                              rvli_wire_answer *answer);

/* The same as a file descriptor, which becomes the caller's. RVL_ERR_IO: there can be no more. */
rvl_status rvli_shared_export_file(rvli_machine *machine, rvli_client *client, uint64_t id,
                                   rvli_wire_answer *answer, int *file_out);

/* Who an import is for. */
typedef enum rvli_shared_way {
    RVLI_SHARED_BY_KEY,  /* for others than the exporter, and while that has it */
    RVLI_SHARED_BY_FILE, /* for everybody */
} rvli_shared_way;

/*
 * A process has what has a key (request->id) once more. RVL_ERR_INVALID: its owner
 * (request->bytes) has let go of it; RVL_ERR_NOT_FOUND: the owner has ended; RVL_ERR_STATE: it is
 * the process's own; RVL_ERR_HOST_OOM.
 */
rvl_status rvli_shared_import(rvli_machine *machine, rvli_client *client,
                              const rvli_wire_request *request, rvli_shared_way way,
                              rvli_wire_answer *answer);

/* A process has it once less; what nobody has is freed. Also memory that was never exported. */
void rvli_shared_release(rvli_machine *machine, rvli_client *client, uint64_t id);

/* A place for contents of so many bytes that are no memory, and its end. */
uint64_t rvli_shared_take_place(rvli_shared *shared, uint64_t bytes);
void rvli_shared_give_place(const rvli_shared *shared, uint64_t place, uint64_t bytes);

/* Where contents of shared memory are kept. A copy, which becomes the caller's; -1. */
int rvli_shared_contents(const rvli_shared *shared);

#endif
