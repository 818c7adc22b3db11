/* SPDX-License-Identifier: MIT */
/*
 * What two processes that have the hook say to each other about memory that one has of the other.
 *
 * The exporter listens on an abstract socket. The name has its process number and a random number,
 * both in every handle it gives out. Each import is a connection of its own, which stays open while
 * the import is held. A message is one packet of a fixed size:
 *
 *   importer                       exporter
 *   ASK export                 ->
 *                              <-  GRANT, a file descriptor a block (as many as it takes), or
 * REFUSE
 *                              <-  SUSPEND, before a pause: unmap, and keep the blocks
 *   DONE status                ->
 *                              <-  RESTORE, if the pause failed: map again
 *   DONE status                ->
 *                              <-  DROP, once paused: give the blocks back
 *   closes
 *
 * Either may close at any time: the importer has then let go, or the exporter is gone. Only
 * processes of the same user are talked to.
 */
#ifndef RVL_HOOKS_EXPORT_WIRE_H
#define RVL_HOOKS_EXPORT_WIRE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "hooks/process/cuda_values.h"
#include "reveille/status.h"

/* What is in the 64 bytes of a handle. The same export always has the same handle. */
typedef struct rvli_ipc_name {
    uint32_t process;    /* of the exporter */
    uint64_t nonce;      /* of the exporter: another process may get its number */
    uint64_t export_id;  /* new after every pause, and never used again */
    uint64_t size_bytes; /* of the allocation */
} rvli_ipc_name;

void rvli_ipc_write_handle(const rvli_ipc_name *name, rvli_ipc_handle *handle_out);
/* Whether a handle is one of Reveille's; a damaged one is, and *whole_out then false. */
bool rvli_ipc_read_handle(const rvli_ipc_handle *handle, rvli_ipc_name *name_out, bool *whole_out);

typedef enum rvli_ipc_kind {
    RVLI_IPC_ASK = 1,
    RVLI_IPC_GRANT,
    RVLI_IPC_REFUSE,
    RVLI_IPC_SUSPEND,
    RVLI_IPC_RESTORE,
    RVLI_IPC_DROP,
    RVLI_IPC_DONE
} rvli_ipc_kind;

/* File descriptors in one message. */
#define RVLI_IPC_BLOCKS 16u
#define RVLI_IPC_TEXT_BYTES 204

typedef struct rvli_ipc_message {
    uint64_t magic; /* also the version */
    uint32_t kind;  /* rvli_ipc_kind */
    uint32_t about; /* DONE: kind of what it answers */
    int32_t status; /* rvl_status of REFUSE and DONE */
    uint64_t nonce; /* ASK: of the exporter that is meant */
    uint64_t export_id;
    uint64_t size_bytes;  /* GRANT: of all blocks, as the three below */
    uint32_t block_count; /* in all */
    uint32_t block_first; /* number of the first one here */
    uint64_t block_bytes[RVLI_IPC_BLOCKS];
    char text[RVLI_IPC_TEXT_BYTES]; /* REFUSE and DONE: why */
} rvli_ipc_message;

rvli_ipc_message rvli_ipc_message_of(rvli_ipc_kind kind);

/*
 * A socket that listens under a process's name, or one that is connected to it before the monotonic
 * clock is at end_ns. -1: errno says, EAGAIN when the time is up.
 */
int rvli_ipc_listen(uint32_t process, uint64_t nonce);
int rvli_ipc_connect(uint32_t process, uint64_t nonce, uint64_t end_ns);

/* The process at the other end, 0 if it is not seen from here. False: it is another user's. */
bool rvli_ipc_peer(int socket, pid_t *process_out);

/*
 * One message, and file descriptors with it; never waits. False: the other end is gone, or does not
 * read.
 */
bool rvli_ipc_send(int socket, const rvli_ipc_message *message, const int *fds, unsigned fd_count);

/*
 * Takes one message. Descriptors that came with it are the caller's; more than fd_capacity, or
 * anything that is not a message, is RVL_ERR_INVALID. RVL_ERR_TIMEOUT: there is none yet;
 * RVL_ERR_NOT_FOUND: the other end has closed. No record is filled.
 */
rvl_status rvli_ipc_receive(int socket, rvli_ipc_message *message_out, int *fds_out,
                            unsigned fd_capacity, unsigned *fd_count_out);

/* Waits until there is something to receive, or the monotonic clock is at end_ns: then false. */
bool rvli_ipc_wait(int socket, uint64_t end_ns);

/* The name of a process's program, "?" if nobody says. */
void rvli_ipc_program(pid_t process, char *name_out, size_t size);

/* A thread of the library that no signal interrupts. RVL_ERR_HOST_OOM. */
rvl_status rvli_ipc_start_thread(void *(*run)(void *));

/* A random number that is not 0. */
uint64_t rvli_ipc_random(void);

#endif
