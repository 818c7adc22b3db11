/* SPDX-License-Identifier: MIT */
/* Telling the listener of the process (reveille/listen.h), and the list of all contexts. */
#ifndef RVL_CORE_LISTENER_H
#define RVL_CORE_LISTENER_H

#include "core/tables.h"
#include "reveille/listen.h"

/* Who hears of a context; NULL: nobody. */
const rvl_listener *rvli_listener_of(const rvl_context *context);

/* Of every context on real devices. before_bytes: RVL_MAX_DEVICES of them. */
void rvli_listener_tell_opening(const rvli_backend_ops *ops, uint64_t *before_bytes);
void rvli_listener_tell_opened(const rvl_context *context, const uint64_t *before_bytes);

void rvli_listener_tell_alloc(const rvl_context *context, const rvli_allocation *allocation,
                              rvl_addr addr);
/* There was no memory. May change the error record. */
void rvli_listener_tell_refusal(const rvl_context *context, const rvli_tag *tag, int device,
                                uint64_t requested_bytes, uint64_t free_bytes);
/* Of the whole process: RVL_EVENT_SLEEP with `discard`, or RVL_EVENT_WAKE with `paused`. */
void rvli_listener_tell_sleep(rvl_event_kind kind, bool skips);
void rvli_listener_tell_free(const rvl_context *context, rvl_addr addr);

/* ---- All contexts on real devices ---- */

/* A context has been opened, or is about to be closed. */
void rvli_listener_enter(rvl_context *context);
void rvli_listener_leave(rvl_context *context);

/*
 * All of this process, as many as there is room for; how many there are. Those of a parent process
 * are none.
 */
size_t rvli_listener_contexts(rvl_context **contexts_out, size_t capacity);

/* It has been closed, on devices of a mask of the driver's numbers. */
void rvli_listener_tell_closed(const rvli_backend_ops *ops, uint64_t ordinals);
uint64_t rvli_listener_ordinals(const rvl_context *context);

#endif
