/* SPDX-License-Identifier: MIT */
/*
 * A listener is told what this process's contexts on real devices do with memory.
 *
 * Use it to record or count a whole process, with the contexts that other code opens there. A
 * process has one listener. While the recording (docs/record.md) is on, it is the listener. A
 * listener is told nothing of simulated contexts, and nothing of imported memory: the process that
 * made that memory records it.
 */
#ifndef REVEILLE_LISTEN_H
#define REVEILLE_LISTEN_H

#include "reveille/guard.h"

#ifdef __cplusplus
extern "C" {
#endif

/* An allocation as a listener hears of it. Good until its function returns. */
typedef struct rvl_listened {
    size_t struct_size;
    const rvl_context *context;
    rvl_addr addr;
    uint64_t size_bytes; /* rounded up to the granularity */
    const char *tag;     /* "": untagged */
    int ordinal;         /* the driver's number of the device */
    rvl_backup backup;
    rvl_state state;
    uint32_t reserved; /* 0 */
} rvl_listened;

/* What `opening` leaves where it does not know. */
#define RVL_LISTENED_UNKNOWN UINT64_MAX

/*
 * All functions are called without a lock, on the thread that does it, and must not change
 * anything of a context. None but the last three may be NULL.
 */
typedef struct rvl_listener {
    size_t struct_size;
    /*
     * A context is about to be opened. used_bytes has RVL_MAX_DEVICES entries, for what is in use
     * of each device by the driver's number; they are RVL_LISTENED_UNKNOWN, and may be filled in
     * for `opened`.
     */
    void (*opening)(uint64_t *used_bytes);
    /* It has been opened. ordinals: bit n is the device that the driver calls n. */
    void (*opened)(uint64_t ordinals, const uint64_t *used_bytes);
    void (*closed)(uint64_t ordinals);
    /* Memory was allocated, or was not freed after all. */
    void (*allocated)(const rvl_listened *what);
    /* Memory is about to be freed. There may be none at the address. */
    void (*freeing)(const rvl_context *context, rvl_addr addr);
    /* Around a transition that the context's guard lets pass. */
    void (*before)(const rvl_transition *transition);
    void (*after)(const rvl_transition *transition);
    /* rvl_stage() and rvl_step() */
    void (*stage)(const rvl_context *context, const char *name);
    void (*step)(const rvl_context *context);
    /* There was no memory to allocate, or to resume. free_bytes: of that device, at that moment. */
    void (*refused)(const rvl_listened *what, uint64_t free_bytes);
    /* The process goes to sleep, ahead of its pauses. Ask nothing of its devices from now on.
     * discards: without contents */
    void (*sleeping)(bool discards);
    /* It is awake, behind its resumes, or has failed to sleep. paused: its tags stay so. */
    void (*awake)(bool paused);
} rvl_listener;

/*
 * Sets the listener of the process; NULL: nobody hears. The struct is not copied and must stay as
 * it is for as long as the process lives, since threads may be in its functions. Returns RVL_OK;
 * RVL_ERR_INVALID (a function of the listener is NULL); RVL_ERR_VERSION; RVL_ERR_STATE (the process
 * has another listener. Remove it first). Thread-safe. Since 0.1.
 */
RVL_API rvl_status rvl_listener_set(const rvl_listener *listener);

/*
 * Whether an allocation that begins at addr is paused, in any context on real devices that this
 * process has opened. Leaves the error record as it is. Thread-safe. Since 0.1.
 */
RVL_API bool rvl_address_is_paused(rvl_addr addr);

#ifdef __cplusplus
}
#endif
#endif
