/* SPDX-License-Identifier: MIT */
/*
 * What a thread wants of its allocations, and where that comes from at first: the environment.
 *
 * The state of a thread is a few bytes of static thread-local storage, so that a call outside a
 * region costs one read. Names of tags are kept for good: there are few.
 */
#ifndef RVL_HOOKS_PROCESS_SETTINGS_H
#define RVL_HOOKS_PROCESS_SETTINGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "reveille/status.h"

#define RVLI_TAG_DEFAULT "default"
#define RVLI_TAG_MAX_BYTES 255u

typedef enum rvli_region {
    RVLI_REGION_UNKNOWN = 0, /* the thread has not asked yet */
    RVLI_REGION_OUTSIDE,
    RVLI_REGION_INSIDE
} rvli_region;

typedef struct rvli_thread_settings {
    const char *tag;
    uint8_t region; /* rvli_region */
    bool host_backup;
    bool reclaimed; /* host memory of the backup goes back to the system at resume: "mmap" */
    bool disk_backup;
} rvli_thread_settings;

/* What the whole process shares, as the environment has it. */
typedef struct rvli_process_settings {
    rvli_thread_settings thread; /* with which every thread begins */
    bool retain;
    bool keep_host;     /* host memory of backups is kept for the next pause */
    bool host_ahead;    /* and made before the first */
    bool host_pageable; /* not registered with the driver */
    bool control;       /* others may have the process sleep */
    bool poison;        /* memory that comes back without its content is filled */
    const char *disk_directory;
    const char *store_path;  /* of host backups; NULL: in own memory */
    bool store_overflow;     /* what it has no room for goes to disk */
    unsigned ipc_timeout_ms; /* how long a pause or an import waits for other processes */
} rvli_process_settings;

/* Reads the environment, once. RVL_ERR_INVALID, with the message, if it is not understood. */
rvl_status rvli_settings_check(void);

/* As it is; ends the process with a message if it is not understood. */
const rvli_process_settings *rvli_settings(void);

/* The calling thread's. They stay where they are as long as the thread lives. */
rvli_thread_settings *rvli_settings_of_thread(void);

/* The same, found once for each thread and library. */
extern _Thread_local rvli_thread_settings *rvli_settings_at_hand
    __attribute__((tls_model("initial-exec")));
rvli_thread_settings *rvli_thread_settings_fill(void);
static inline rvli_thread_settings *rvli_thread_settings_get(void)
{
    rvli_thread_settings *settings = rvli_settings_at_hand;
    return settings != NULL ? settings : rvli_thread_settings_fill();
}

/* Says that a variable has a value that is not understood. understood: "a number of MiB". */
void rvli_say_refused(const char *variable, const char *value, const char *understood);

/* A copy of a name that lives for good; NULL: no host memory. Thread-safe. */
const char *rvli_intern(const char *name);

#endif
