/* SPDX-License-Identifier: MIT */
/*
 * Shared by the files of the exporter: exports.c has the allocations with a handle, serve.c has the
 * connections of importers, and suspend.c has importers unmap memory for a pause.
 */
#ifndef RVL_HOOKS_EXPORT_EXPORT_INTERNAL_H
#define RVL_HOOKS_EXPORT_EXPORT_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "hooks/export/export.h"
#include "reveille/share.h"

/* An allocation that has a handle. */
typedef struct rvli_ipc_shared {
    struct rvli_ipc_shared *next;
    rvl_context *context;
    rvl_addr addr;
    uint64_t allocation_id;
    uint64_t size_bytes;
    uint64_t export_id;
    unsigned importers;
    bool moving; /* a pause that moves it has begun */
    bool taken;  /* that pause takes the memory: importers must release it */
    bool gone;   /* paused or freed since: kept while it has importers */
} rvli_ipc_shared;

/* A connection of an importer. */
typedef struct rvli_ipc_importer {
    struct rvli_ipc_importer *next;
    rvli_ipc_shared *of; /* NULL: has not asked for any yet */
    int socket;
    pid_t process;
    char program[24];
    uint32_t awaited; /* kind of the message without a reply yet; 0: none */
    int32_t answer;   /* rvl_status of its last reply */
    char text[RVLI_IPC_TEXT_BYTES];
} rvli_ipc_importer;

/* Guards everything in this file. Taken before any context's lock. */
extern pthread_mutex_t rvli_ipc_lock;

extern rvli_ipc_shared *rvli_ipc_exports;

/* Newest first. Only the serving thread adds and removes. */
extern rvli_ipc_importer *rvli_ipc_importers;

/* Signalled when an importer has replied or is gone. Initialized when serving starts. */
extern pthread_cond_t rvli_ipc_changed;

/* ---- exports.c ---- */

/* Returns NULL if there is no such export, or if its memory was paused or freed since. */
rvli_ipc_shared *rvli_ipc_find_export(uint64_t export_id);

/* The current export of an allocation, or NULL. */
rvli_ipc_shared *rvli_ipc_find_export_of(const rvl_context *context, rvl_addr addr,
                                         uint64_t allocation_id);

/* Gives a copy of the draft a number and adds it. With the lock held. RVL_ERR_HOST_OOM. */
rvl_status rvli_ipc_add_export(const rvli_ipc_shared *draft, rvli_ipc_shared **export_out);

/* In a forked child: forgets the parent's exports. */
void rvli_ipc_forget_exports(void);

/* Frees it if it is gone and no pause or importer uses it. */
void rvli_ipc_drop_if_unused(rvli_ipc_shared *what);

/*
 * As rvl_allocation_export(), with error messages for users of handles. With the lock held, so that
 * a pause, which asks importers first, cannot begin between two calls.
 */
rvl_status rvli_ipc_read_blocks(rvl_context *context, rvl_addr addr,
                                const rvl_export_options *options, int *fds_out,
                                uint64_t *block_bytes_out, size_t capacity, rvl_export *export_out);

/* ---- serve.c ---- */

/* Starts the serving thread, if it does not run yet. */
rvl_status rvli_ipc_serve(void);

/* In a forked child: closes the parent's sockets. */
void rvli_ipc_stop_serving(void);

/* The nonce of this process as an exporter; 0 before serving starts. */
uint64_t rvli_ipc_nonce(void);

/* ---- suspend.c ---- */

/* In a forked child: resets the lock of pauses. */
void rvli_ipc_begin_rounds(void);

#endif
