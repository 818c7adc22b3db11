/* SPDX-License-Identifier: MIT */
/*
 * What the files of the exporter share: ipc_export.c has the allocations with a handle, ipc_serve.c
 * the connections of those who import them, and ipc_suspend.c takes one from the other at a pause.
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
    bool moving; /* a pause has begun */
    bool taken;  /* by that pause, for good */
    bool gone;   /* paused or freed since: here for its importers' sake */
} rvli_ipc_shared;

/* A connection. */
typedef struct rvli_ipc_importer {
    struct rvli_ipc_importer *next;
    rvli_ipc_shared *of; /* NULL: it has not asked yet */
    int socket;
    pid_t process;
    char program[24];
    uint32_t awaited; /* kind of the message that it has not answered; 0: none */
    int32_t answer;   /* rvl_status of its last one */
    char text[RVLI_IPC_TEXT_BYTES];
} rvli_ipc_importer;

/* Guards all that is here. Before any context's lock. */
extern pthread_mutex_t rvli_ipc_lock;

extern rvli_ipc_shared *rvli_ipc_exports;

/* Added and removed by the thread that serves alone, newest first. */
extern rvli_ipc_importer *rvli_ipc_importers;

/* An importer has answered or is gone. It is there once somebody serves. */
extern pthread_cond_t rvli_ipc_changed;

/* ---- ipc_exports.c ---- */

/* NULL: its memory was paused or freed since, or it never was. */
rvli_ipc_shared *rvli_ipc_find_export(uint64_t export_id);

/* The one of an allocation that importers can have now, NULL if there is none. */
rvli_ipc_shared *rvli_ipc_find_export_of(const rvl_context *context, rvl_addr addr,
                                         uint64_t allocation_id);

/* Numbers a draft and adds it. With the lock held. RVL_ERR_HOST_OOM. */
rvl_status rvli_ipc_add_export(const rvli_ipc_shared *draft, rvli_ipc_shared **export_out);

/* In a child by fork: there are none. */
void rvli_ipc_forget_exports(void);

/* Takes it away if it is gone, and no pause or importer has to do with it any more. */
void rvli_ipc_drop_if_unused(rvli_ipc_shared *what);

/*
 * As rvl_allocation_export(), with messages for those who have a handle. With the lock held: it
 * keeps a pause, which asks importers first, from beginning between two calls.
 */
rvl_status rvli_ipc_read_blocks(rvl_context *context, rvl_addr addr,
                                const rvl_export_options *options, int *fds_out,
                                uint64_t *block_bytes_out, size_t capacity, rvl_export *export_out);

/* ---- ipc_serve.c ---- */

/* From now on there is a thread that serves. */
rvl_status rvli_ipc_serve(void);

/* In a child by fork: closes what is the parent's. */
void rvli_ipc_stop_serving(void);

/* The random number of those who serve; 0: nobody does yet. */
uint64_t rvli_ipc_nonce(void);

/* ---- ipc_suspend.c ---- */

/* In a child by fork: no pause is going on. */
void rvli_ipc_begin_rounds(void);

#endif
