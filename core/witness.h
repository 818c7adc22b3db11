/* SPDX-License-Identifier: MIT */
/*
 * The witness: who hears, in this process, of what contexts on real devices do with memory.
 *
 * It is the recording of the process (hooks/recorder.h), which otherwise sees the driver's calls
 * alone and knows neither tags nor pauses. It hears of every context but those in which regions
 * allocate: the hooks tell of these themselves, since a tag of theirs lies in several.
 */
#ifndef RVL_CORE_WITNESS_H
#define RVL_CORE_WITNESS_H

#include "core/model.h"
#include "core/transition.h"

typedef struct rvli_witnessed {
    rvl_addr addr;
    uint64_t size_bytes;
    const char *tag; /* the context's */
    int ordinal;     /* the driver's number of the device */
    rvl_backup backup;
    bool paused;
} rvli_witnessed;

/* Called without a lock, on the thread that does it. What they answer fails nothing. */
typedef struct rvli_witness {
    /*
     * A context is about to be opened: fills in what is in use of each device of the driver. It has
     * been opened on devices of a mask.
     */
    void (*opening)(uint64_t *before_bytes);
    void (*opened)(uint64_t ordinals, const uint64_t *before_bytes);
    void (*closed)(uint64_t ordinals);
    void (*allocated)(const rvli_witnessed *what); /* or not freed after all */
    void (*freeing)(rvl_addr addr);                /* maybe nobody's address */
    rvli_guard guard;                              /* before and after pauses and resumes */
    rvl_status (*stage)(const char *name);
    rvl_status (*step)(void);
} rvli_witness;

/* From now on it hears. It must stay. Thread-safe. */
void rvli_witness_set(const rvli_witness *witness);

/* Who hears of a context; NULL: nobody. */
const rvli_witness *rvli_witness_of(const rvl_context *context);

/* Of every context on real devices. before_bytes: RVL_MAX_DEVICES of them. */
void rvli_witness_tell_opening(const rvli_backend_ops *ops, uint64_t *before_bytes);
void rvli_witness_tell_opened(const rvl_context *context, const uint64_t *before_bytes);

void rvli_witness_tell_alloc(const rvl_context *context, const rvli_allocation *allocation,
                             rvl_addr addr);
void rvli_witness_tell_free(const rvl_context *context, rvl_addr addr);

/* ---- All contexts on real devices ---- */

/* A context has been opened, or is about to be closed. */
void rvli_witness_enter(rvl_context *context);
void rvli_witness_leave(rvl_context *context);

/* It has been closed, on devices of a mask of the driver's numbers. */
void rvli_witness_tell_closed(const rvli_backend_ops *ops, uint64_t ordinals);
uint64_t rvli_witness_ordinals(const rvl_context *context);

/* Whether an allocation of any of them begins at addr and is paused. The error record stays. */
bool rvli_is_paused_anywhere(rvl_addr addr);

#endif
