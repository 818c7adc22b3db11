/* SPDX-License-Identifier: MIT */
/*
 * The error record of the calling thread.
 *
 * A failure is described once, where it is decided: the lowest layer that knows the cause fills the
 * record and returns the status; layers above add what only they know (tag, bytes) and pass the
 * status on. Nothing here needs memory or calls vsnprintf, so that the out-of-memory path is safe
 * (see error.c).
 */
#ifndef RVL_BASE_ERROR_H
#define RVL_BASE_ERROR_H

#include <stdbool.h>

#include "reveille/status.h"

/* Begins a new record: status and message, everything else cleared. Returns status. */
rvl_status rvli_error(rvl_status status, const char *message);

/* Adds the backend's own code and name to the record. */
void rvli_error_native(int code, const char *name);

/* Adds a value of errno and its name. */
void rvli_error_errno(int number);

/* Adds the step ("create") that failed. */
void rvli_error_op(const char *op);

/* Adds where and how much: device (RVL_NO_DEVICE: none), bytes asked for, bytes free. */
void rvli_error_bytes(int device, uint64_t requested_bytes, uint64_t free_bytes);

/* Adds the tag. */
void rvli_error_tag(const char *tag);

/* Replaces the message, keeping everything else. */
void rvli_error_message(const char *message);

/* Adds the file, and where in it: line and column from 1, 0 where there is none. */
void rvli_error_place(const char *file, uint32_t line, uint32_t column);

/* Adds the key of a config, or the name of a setting of a step. */
void rvli_error_key(const char *key);

/* The record itself, to read. */
const rvl_error *rvli_error_get(void);

/*
 * The record: libreveille has it, for all libraries of the process. make: it is about to be
 * written, so the thread gets its own. Else what is returned is for reading.
 */
RVL_API rvl_error *rvl_private_error_record(bool make);

/*
 * For a call that gets over a failure: it succeeds, and leaves the record as it was. Next to
 * nothing in a thread that has seen no failure yet.
 */
typedef struct rvli_error_before {
    bool any;
    rvl_error record;
} rvli_error_before;
void rvli_error_keep(rvli_error_before *before_out);
void rvli_error_put_back(const rvli_error_before *before);

/* Puts a saved record back: what undoing wrote must not hide the cause. */
void rvli_error_set(const rvl_error *saved);

#endif
