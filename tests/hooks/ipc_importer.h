/* SPDX-License-Identifier: MIT */
/*
 * A process that opens handles on demand: the other end of the scenarios of ipc_program.c, which
 * gives it orders over a socket and gets a report for each.
 */
#ifndef RVL_TESTS_HOOKS_IPC_IMPORTER_H
#define RVL_TESTS_HOOKS_IPC_IMPORTER_H

#include <stdint.h>
#include <sys/types.h>

#include "cudart_fake.h"

typedef enum order_verb {
    OPEN,           /* handle into slot: a value of cudaError_t */
    OPEN_CACHED,    /* as PyTorch does: if the handle is known, into slot what it gave then */
    OPEN_BY_DRIVER, /* the same by the driver's functions, as a static runtime does it */
    CLOSE_BY_DRIVER,
    CLOSE,    /* slot: a value of cudaError_t */
    HOLDS,    /* slot: 1 if all bytes are value, 0 if not, -1 if they cannot be read */
    FILL,     /* slot, with value: 0 */
    DISTANCE, /* from slot to slot number value, in bytes */
    DEVICE,   /* value: becomes the current one */
    CAPTURE,  /* value 1: begins, 0: ends */
    FAIL,     /* text: entry point of the driver; its value-th call fails with 999 */
    UNLOAD,   /* the driver is gone, as at the end of a process */
    MAPPINGS, /* that there are */
    HANDLES,
    RANGES,
    FORK,    /* a child that does nothing for a while */
    THREADS, /* handle, opened and closed by many at once: failures */
    SILENT   /* connections to the exporter (slot: its process) that say nothing: how many */
} order_verb;

#define SLOTS 8

typedef struct order {
    order_verb verb;
    int slot;
    int64_t value;
    int64_t size; /* of what lies in the slot */
    ipc_handle handle;
    char text[48];
} order;

typedef struct report {
    int64_t value;
    char text[256]; /* the message of the last error */
} report;

/* An entry point of the driver, found as a runtime finds it. */
void find_in_driver(const char *name, void *function_out);

/* Carries orders out until the socket closes. Returns the exit status of the process. */
int importer_run(int socket);

#endif
