/* SPDX-License-Identifier: MIT */
/*
 * The settings of a thread for its allocations, and those of the process. The environment has their
 * initial values.
 *
 * A thread's settings take a few bytes of static thread-local storage, so a call outside a region
 * costs one read. Names of tags are never freed: there are few.
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
    RVLI_REGION_UNKNOWN = 0, /* not read from the environment yet */
    RVLI_REGION_OUTSIDE,
    RVLI_REGION_INSIDE
} rvli_region;

typedef struct rvli_thread_settings {
    const char *tag;
    uint8_t region; /* rvli_region */
    bool host_backup;
    bool reclaimed; /* return host memory of the backup to the system at resume: "mmap" */
    bool disk_backup;
} rvli_thread_settings;

/* The settings of the process, from the environment. */
typedef struct rvli_process_settings {
    rvli_thread_settings thread; /* initial settings of every thread */
    bool retain;
    bool keep_host;     /* keep host memory of backups for the next pause */
    bool host_ahead;    /* allocate it before the first pause */
    bool host_pageable; /* do not register it with the driver */
    bool control;       /* other processes may put this one to sleep */
    bool poison;        /* fill memory that is resumed without its content */
    const char *disk_directory;
    const char *store_path;  /* the store for host backups; NULL: none, use own memory */
    bool store_overflow;     /* if the store is full, write to disk */
    unsigned ipc_timeout_ms; /* how long a pause or an import waits for other processes */
} rvli_process_settings;

/*
 * Reads the environment once. Returns RVL_ERR_INVALID, with a message, if a value is not
 * understood.
 */
rvl_status rvli_settings_check(void);

/* The settings of the process. Ends the process with a message if a value is not understood. */
const rvli_process_settings *rvli_settings(void);

/* The calling thread's settings. The pointer is valid as long as the thread lives. */
rvli_thread_settings *rvli_settings_of_thread(void);

/* The calling thread's settings, cached in each library. */
extern _Thread_local rvli_thread_settings *rvli_settings_at_hand
    __attribute__((tls_model("initial-exec")));
rvli_thread_settings *rvli_thread_settings_fill(void);
static inline rvli_thread_settings *rvli_thread_settings_get(void)
{
    rvli_thread_settings *settings = rvli_settings_at_hand;
    return settings != NULL ? settings : rvli_thread_settings_fill();
}

/* Prints that a variable has a value that is not understood. understood: "a number of MiB". */
void rvli_say_refused(const char *variable, const char *value, const char *understood);

/* Returns a copy of the name that is never freed, or NULL without host memory. Thread-safe. */
const char *rvli_intern(const char *name);

#endif
