/* SPDX-License-Identifier: MIT */
/*
 * The error record of the calling thread.
 *
 * A failure is described once, where it is detected. The lowest layer that knows the cause fills
 * the record and returns the status. Higher layers add what only they know (tag, bytes) and pass
 * the status on. Nothing here needs memory or calls vsnprintf, so the out-of-memory path is safe
 * (see error.c).
 */
#ifndef RVL_BASE_ERROR_H
#define RVL_BASE_ERROR_H

#include <stdbool.h>

#include "reveille/status.h"

/* Begins a new record with this status and message, and clears everything else. Returns status. */
rvl_status rvli_error(rvl_status status, const char *message);

/* Adds the backend's own code and name to the record. */
void rvli_error_native(int code, const char *name);

/* Adds an errno value and its name. */
void rvli_error_errno(int number);

/* Adds the step ("create") that failed. */
void rvli_error_op(const char *op);

/* Adds the device (RVL_NO_DEVICE: none), the bytes requested and the bytes free. */
void rvli_error_bytes(int device, uint64_t requested_bytes, uint64_t free_bytes);

/* Adds the tag. */
void rvli_error_tag(const char *tag);

/* Replaces the message, keeping everything else. */
void rvli_error_message(const char *message);

/* Adds the file, and the line and column in it, from 1. 0: unknown. */
void rvli_error_place(const char *file, uint32_t line, uint32_t column);

/* Adds the key of a config, or the name of a step's setting. */
void rvli_error_key(const char *key);

/* Returns the record for reading. */
const rvl_error *rvli_error_get(void);

/*
 * Returns the record, which lives in libreveille and serves all libraries of the process. make: the
 * caller is about to write, so the thread gets its own record. Otherwise the result is only for
 * reading.
 */
RVL_API rvl_error *rvl_private_error_record(bool make);

/*
 * For a call that recovers from a failure: it succeeds and leaves the record unchanged. Costs next
 * to nothing in a thread that has not seen a failure yet.
 */
typedef struct rvli_error_before {
    bool any;
    rvl_error record;
} rvli_error_before;
void rvli_error_keep(rvli_error_before *before_out);
void rvli_error_put_back(const rvli_error_before *before);

/* Restores a saved record, so that errors while undoing do not hide the cause. */
void rvli_error_set(const rvl_error *saved);

#endif
