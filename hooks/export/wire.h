/* SPDX-License-Identifier: MIT */
/*
 * The protocol between a process that imports memory and the process that exports it.
 *
 * The exporter listens on an abstract socket. The socket's name contains the process number and a
 * nonce, and so does every handle. Each import has its own connection, which stays open while the
 * import is held. A message is one packet of a fixed size:
 *
 *   importer                       exporter
 *   ASK export                 ->
 *                              <-  GRANT with one descriptor for each block, repeated; or REFUSE
 *                              <-  SUSPEND, before a pause: unmap, and keep the blocks
 *   DONE status                ->
 *                              <-  RESTORE, if the pause failed: map again
 *   DONE status                ->
 *                              <-  DROP, once paused: release the blocks
 *   closes
 *
 * Either may close at any time: the importer has then released its import, or the exporter is gone.
 * Connections of other users are refused.
 */
#ifndef RVL_HOOKS_EXPORT_WIRE_H
#define RVL_HOOKS_EXPORT_WIRE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "hooks/process/cuda_values.h"
#include "reveille/status.h"

/* The content of a handle's 64 bytes. All handles of one export are equal. */
typedef struct rvli_ipc_name {
    uint32_t process;    /* of the exporter */
    uint64_t nonce;      /* of the exporter, because process numbers are reused */
    uint64_t export_id;  /* new after every pause, never reused */
    uint64_t size_bytes; /* of the allocation */
} rvli_ipc_name;

void rvli_ipc_write_handle(const rvli_ipc_name *name, rvli_ipc_handle *handle_out);
/* Whether a handle is Reveille's. For a damaged one, returns true and sets *whole_out to false. */
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

/* Maximum number of file descriptors in a message. */
#define RVLI_IPC_BLOCKS 16u
#define RVLI_IPC_TEXT_BYTES 204

typedef struct rvli_ipc_message {
    uint64_t magic; /* also the version */
    uint32_t kind;  /* rvli_ipc_kind */
    uint32_t about; /* DONE: kind of the message that this replies to */
    int32_t status; /* rvl_status of REFUSE and DONE */
    uint64_t nonce; /* ASK: of the exporter */
    uint64_t export_id;
    uint64_t size_bytes;                   /* GRANT: of all blocks */
    uint32_t block_count;                  /* GRANT: in all */
    uint32_t block_first;                  /* GRANT: number of the first block in this message */
    uint64_t block_bytes[RVLI_IPC_BLOCKS]; /* GRANT */
    char text[RVLI_IPC_TEXT_BYTES];        /* REFUSE and DONE: why */
} rvli_ipc_message;

rvli_ipc_message rvli_ipc_message_of(rvli_ipc_kind kind);

/*
 * Returns a socket that listens under a process's name, or one that is connected to it. Connecting
 * is given up when the monotonic clock reaches end_ns. On failure returns -1 with errno set: EAGAIN
 * when the time is up.
 */
int rvli_ipc_listen(uint32_t process, uint64_t nonce);
int rvli_ipc_connect(uint32_t process, uint64_t nonce, uint64_t end_ns);

/*
 * The process at the other end, 0 if it is not visible from here. Returns false if it is another
 * user's.
 */
bool rvli_ipc_peer(int socket, pid_t *process_out);

/*
 * Sends one message with file descriptors. Never waits. Returns false if the other end is gone or
 * does not read.
 */
bool rvli_ipc_send(int socket, const rvli_ipc_message *message, const int *fds, unsigned fd_count);

/*
 * Receives one message. The caller owns the descriptors that came with it. RVL_ERR_INVALID: it is
 * not a message, or has more than fd_capacity descriptors; RVL_ERR_TIMEOUT: there is none yet;
 * RVL_ERR_NOT_FOUND: the other end has closed. Sets no error record.
 */
rvl_status rvli_ipc_receive(int socket, rvli_ipc_message *message_out, int *fds_out,
                            unsigned fd_capacity, unsigned *fd_count_out);

/* Waits for a message. Returns false once the monotonic clock reaches end_ns. */
bool rvli_ipc_wait(int socket, uint64_t end_ns);

/* The name of a process's program, "?" if it is unknown. */
void rvli_ipc_program(pid_t process, char *name_out, size_t size);

/* Starts a thread with all signals blocked. RVL_ERR_HOST_OOM. */
rvl_status rvli_ipc_start_thread(void *(*run)(void *));

/* A random number, never 0. */
uint64_t rvli_ipc_random(void);

#endif
