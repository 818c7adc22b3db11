/* SPDX-License-Identifier: MIT */
/*
 * A listener is told what this process's contexts on real devices do with memory.
 *
 * Use it to record or count a whole process, including the contexts that other code opens there. A
 * process has one listener. While the recording (docs/record.md) is on, it is the listener. A
 * listener is not told of simulated contexts or imported memory: the process that made that memory
 * records it.
 */
#ifndef REVEILLE_LISTEN_H
#define REVEILLE_LISTEN_H

#include "reveille/guard.h"

#ifdef __cplusplus
extern "C" {
#endif

/* An allocation, as passed to a listener. Valid until the listener's function returns. */
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

/* Value of an entry of used_bytes that `opening` does not know. */
#define RVL_LISTENED_UNKNOWN UINT64_MAX

/*
 * All functions are called without a lock, on the thread that does the operation. They must not
 * change anything of a context. Only the last three may be NULL.
 */
typedef struct rvl_listener {
    size_t struct_size;
    /* A context is about to be opened. used_bytes has RVL_MAX_DEVICES entries, indexed by the
       driver's number of the device, for the bytes in use there. They are RVL_LISTENED_UNKNOWN; the
       function may fill them in for `opened`. */
    void (*opening)(uint64_t *used_bytes);
    /* The context is open. ordinals: bit n is the driver's device n. */
    void (*opened)(uint64_t ordinals, const uint64_t *used_bytes);
    void (*closed)(uint64_t ordinals);
    /* Memory was allocated, or a free has failed and the memory is still allocated. */
    void (*allocated)(const rvl_listened *what);
    /* Memory is about to be freed. There may be none at the address. */
    void (*freeing)(const rvl_context *context, rvl_addr addr);
    /* Called around a transition that the context's guard allowed. */
    void (*before)(const rvl_transition *transition);
    void (*after)(const rvl_transition *transition);
    /* rvl_stage() and rvl_step() */
    void (*stage)(const rvl_context *context, const char *name);
    void (*step)(const rvl_context *context);
    /* An allocation or a resume found no room. free_bytes: on that device, at that moment. */
    void (*refused)(const rvl_listened *what, uint64_t free_bytes);
    /* Called before the pauses of a sleep. Do not use the process's devices from now on. discards:
       contents are not kept. */
    void (*sleeping)(bool discards);
    /* Called after the resumes of a wake, or after a sleep has failed. paused: the tags stay
       paused. */
    void (*awake)(bool paused);
} rvl_listener;

/*
 * Sets the listener of the process. NULL removes it. The struct is not copied and must stay
 * unchanged until the process ends, because threads may be in its functions. Returns RVL_OK;
 * RVL_ERR_INVALID (a function of the listener is NULL); RVL_ERR_VERSION; RVL_ERR_STATE (the process
 * has another listener. Remove it first). Thread-safe. Since 0.1.
 */
RVL_API rvl_status rvl_listener_set(const rvl_listener *listener);

/*
 * Returns whether an allocation that begins at addr is paused, in any context on real devices that
 * this process has opened. Leaves the error record unchanged. Thread-safe. Since 0.1.
 */
RVL_API bool rvl_address_is_paused(rvl_addr addr);

#ifdef __cplusplus
}
#endif
#endif
