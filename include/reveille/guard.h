/* SPDX-License-Identifier: MIT */
/*
 * A guard: called before every pause and resume of a context, and after it.
 *
 * A tag's callbacks (reveille/memory.h) are for the owner of a tag. A guard is for the owner of the
 * whole context: it sees every transition, with all tags at once, whatever code begins it. It may
 * refuse a transition, wait for other processes to release the memory, and note how it ended.
 */
#ifndef REVEILLE_GUARD_H
#define REVEILLE_GUARD_H

#include <stdbool.h>

#include "reveille/transition.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum rvl_transition_kind {
    RVL_TRANSITION_PAUSE = 0,
    RVL_TRANSITION_RESUME
} rvl_transition_kind;

/* Whether a transition is a pause or a resume. Thread-safe. Since 0.1. */
RVL_API rvl_transition_kind rvl_transition_get_kind(const rvl_transition *transition);

/* Returns the context of a transition. Thread-safe. Since 0.1. */
RVL_API rvl_context *rvl_transition_get_context(const rvl_transition *transition);

/*
 * The tags of a transition, by index from 0, in order of their numbers. 0 past the last.
 * Thread-safe. Since 0.1.
 */
RVL_API rvl_tag rvl_transition_get_tag(const rvl_transition *transition, size_t index);

/* Results of rvl_transition_find(). */
#define RVL_TRANSITION_MOVES 1u /* the transition moves the allocation */
#define RVL_TRANSITION_RENEWED                                                                     \
    2u /* a pause failed late: it has other physical memory, or is lost */

/*
 * What a transition does with an allocation, by its number (rvl_allocation.id): RVL_TRANSITION_*,
 * or 0 if it is not moved. RENEWED is only known once the transition has ended. Allocations that
 * share memory with others (rvl_tag_options.coalesce_bytes) are not found by their own numbers.
 * Thread-safe. Since 0.1.
 */
RVL_API uint32_t rvl_transition_find(const rvl_transition *transition, uint64_t allocation_id);

/*
 * Both run on the thread that pauses or resumes, with no lock held, under the rules of a tag's
 * callbacks: they may read statistics, and may not change anything (RVL_ERR_STATE).
 *
 * before: called when the allocations to move are chosen and no other thread can begin to use them,
 * but before any tag's callback. If it does not return RVL_OK, the transition is refused, changes
 * nothing and returns that status.
 *
 * after: called after each `before` that returned RVL_OK. done: the transition succeeded. It cannot
 * fail, and what it leaves in the error record is discarded.
 */
typedef rvl_status (*rvl_guard_before_fn)(void *user, const rvl_transition *transition);
typedef void (*rvl_guard_after_fn)(void *user, const rvl_transition *transition, bool done);

typedef struct rvl_guard {
    size_t struct_size;
    rvl_guard_before_fn before; /* NULL: every transition is allowed */
    rvl_guard_after_fn after;   /* NULL: not called */
    void *user;                 /* passed to both */
} rvl_guard;

/*
 * Sets the guard of a context, which has at most one. NULL removes it. The struct is copied. A
 * transition that has begun keeps the guard that it called: wait for the transition before you free
 * what `user` points to. Returns RVL_OK, RVL_ERR_INVALID, RVL_ERR_VERSION or RVL_ERR_FORKED.
 * Thread-safe, also from a callback. Since 0.1.
 */
RVL_API rvl_status rvl_context_set_guard(rvl_context *context, const rvl_guard *guard);

#ifdef __cplusplus
}
#endif
#endif
