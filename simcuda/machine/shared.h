/* SPDX-License-Identifier: MIT */
/*
 * Memory that several processes share. The process that allocated it exports it, and the memory
 * stays charged to that process. It is freed once no process holds it, and no file that stands
 * for it is open. Events are exported, too, as memory of size 0.
 *
 * There are two ways to import it. The first is by a key, which is never reused; CUDA's IPC
 * handles contain it. The second is by a file descriptor, which holds the memory while any copy
 * of it is open. The descriptor is one end of a pair of sockets, with the key queued in it. The
 * machine has the other end, and sees there when the last copy is closed.
 */
#ifndef RVL_SIMCUDA_MACHINE_SHARED_H
#define RVL_SIMCUDA_MACHINE_SHARED_H

#include "simcuda/machine/internal.h"

/* RVL_ERR_IO: its files cannot be opened. */
rvl_status rvli_shared_open(rvli_shared **shared_out);
void rvli_shared_close(rvli_shared *shared);

/* Readable when the last copy of a descriptor was closed. */
int rvli_shared_file(const rvli_shared *shared);
void rvli_shared_serve(rvli_machine *machine);

/* Whether there may be something to serve: a descriptor stands for memory. */
bool rvli_shared_any(const rvli_shared *shared);

/*
 * Returns the key of what a process has, and the place of its content. id 0: makes an event, and
 * returns its id. RVL_ERR_NOT_FOUND: the process does not have it; RVL_ERR_HOST_OOM.
 */
rvl_status rvli_shared_export(rvli_machine *machine, rvli_client *client, uint64_t id,
                              rvli_wire_answer *answer);

/* As rvli_shared_export(), as a file descriptor, which the caller owns. RVL_ERR_IO: no more
 * descriptors. */
rvl_status rvli_shared_export_file(rvli_machine *machine, rvli_client *client, uint64_t id,
                                   rvli_wire_answer *answer, int *file_out);

/* How a process imports. */
typedef enum rvli_shared_way {
    RVLI_SHARED_BY_KEY,  /* not for the exporter, and only while the exporter holds it */
    RVLI_SHARED_BY_FILE, /* for every process */
} rvli_shared_way;

/*
 * Adds a hold on the object with a key (request->id) to a process. RVL_ERR_INVALID: its owner
 * (request->bytes) has released it; RVL_ERR_NOT_FOUND: the owner has ended; RVL_ERR_STATE: the
 * process itself owns it; RVL_ERR_HOST_OOM.
 */
rvl_status rvli_shared_import(rvli_machine *machine, rvli_client *client,
                              const rvli_wire_request *request, rvli_shared_way way,
                              rvli_wire_answer *answer);

/* Removes a hold of a process. The last hold frees the object. Also for memory that was never
 * exported. */
void rvli_shared_release(rvli_machine *machine, rvli_client *client, uint64_t id);

/* Takes and returns a place for contents of so many bytes that belong to no memory. */
uint64_t rvli_shared_take_place(rvli_shared *shared, uint64_t bytes);
void rvli_shared_give_place(const rvli_shared *shared, uint64_t place, uint64_t bytes);

/* A duplicate of the file with the contents of shared memory, which the caller owns; -1: failed. */
int rvli_shared_contents(const rvli_shared *shared);

#endif
