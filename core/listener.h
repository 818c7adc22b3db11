/* SPDX-License-Identifier: MIT */
/* Calls the listener of the process (reveille/listen.h), and keeps the list of all contexts. */
#ifndef RVL_CORE_LISTENER_H
#define RVL_CORE_LISTENER_H

#include "core/tables.h"
#include "reveille/listen.h"

/* Returns the listener for a context, or NULL. */
const rvl_listener *rvli_listener_of(const rvl_context *context);

/* For every context on real devices. before_bytes: RVL_MAX_DEVICES entries. */
void rvli_listener_tell_opening(const rvli_backend_ops *ops, uint64_t *before_bytes);
void rvli_listener_tell_opened(const rvl_context *context, const uint64_t *before_bytes);

void rvli_listener_tell_alloc(const rvl_context *context, const rvli_allocation *allocation,
                              rvl_addr addr);
/* Reports that there was no memory. May change the error record. */
void rvli_listener_tell_refusal(const rvl_context *context, const rvli_tag *tag, int device,
                                uint64_t requested_bytes, uint64_t free_bytes);
/*
 * Reports for the whole process: RVL_EVENT_SLEEP with `discard`, or RVL_EVENT_WAKE with `paused`.
 */
void rvli_listener_tell_sleep(rvl_event_kind kind, bool skips);
void rvli_listener_tell_free(const rvl_context *context, rvl_addr addr);

/* ---- All contexts on real devices ---- */

/* Adds an opened context to the list, or removes one that is about to be closed. */
void rvli_listener_enter(rvl_context *context);
void rvli_listener_leave(rvl_context *context);

/*
 * Copies the contexts of this process, as many as fit, and returns their number. Excludes those of
 * a parent process.
 */
size_t rvli_listener_contexts(rvl_context **contexts_out, size_t capacity);

/* Reports that a context was closed. ordinals: a mask of the driver's device numbers. */
void rvli_listener_tell_closed(const rvli_backend_ops *ops, uint64_t ordinals);
uint64_t rvli_listener_ordinals(const rvl_context *context);

#endif
