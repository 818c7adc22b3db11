/* SPDX-License-Identifier: MIT */
/*
 * What the program does with device memory beside Reveille, for those who want to know.
 *
 * Calls are seen at two levels, the CUDA runtime and the driver below it. One that the runtime
 * makes on behalf of a call that was seen is the same event: only the outermost is told. Reveille's
 * own calls are never told. An allocation is told when it has succeeded or was refused for want of
 * memory, a free before it is made.
 */
#ifndef RVL_HOOKS_PRELOAD_OBSERVE_H
#define RVL_HOOKS_PRELOAD_OBSERVE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum rvli_seen_kind {
    RVLI_SEEN_ALLOC,  /* id: an address */
    RVLI_SEEN_FREE,   /* id: an address */
    RVLI_SEEN_CREATE, /* id: a handle of physical memory */
    RVLI_SEEN_RELEASE /* id: a handle */
} rvli_seen_kind;

typedef struct rvli_seen {
    const char *function; /* "cudaMallocAsync", "cuMemCreate" */
    rvli_seen_kind kind;
    uint64_t id;
    uint64_t size_bytes; /* 0 where memory is given back */
    int device;          /* -1: that of the thread's context */
    const void *caller;  /* where the call came from; NULL where memory is given back */
    bool refused;        /* there was no memory, and there is no id */
} rvli_seen;

/* Of the runtime and of the driver: there is no memory. */
#define RVLI_SEEN_OUT_OF_MEMORY 2

typedef void (*rvli_observer)(const rvli_seen *seen);

extern _Atomic(rvli_observer) rvli_observer_now;
/* Calls of the runtime and the driver that this thread is in. */
extern _Thread_local unsigned rvli_calls_open __attribute__((tls_model("initial-exec")));

/* From now on observer is told, on the thread that calls; NULL: nobody. */
void rvli_observe(rvli_observer observer);

void rvli_seen_tell(const rvli_seen *seen);

static inline bool rvli_seen_wanted(void)
{
    return rvli_calls_open == 0 &&
           atomic_load_explicit(&rvli_observer_now, memory_order_relaxed) != NULL;
}

/* Around a call that gives memory. */
static inline void rvli_call_begin(void)
{
    rvli_calls_open++;
}

static inline void rvli_call_end(int error, const char *function, rvli_seen_kind kind, uint64_t id,
                                 uint64_t size_bytes, int device, const void *caller)
{
    rvli_calls_open--;
    bool refused = error == RVLI_SEEN_OUT_OF_MEMORY;
    if ((error == 0 || refused) && rvli_seen_wanted())
        rvli_seen_tell(&(rvli_seen){function, kind, id, size_bytes, device, caller, refused});
}

/* Around a call that takes memory back. */
static inline void rvli_return_begin(const char *function, rvli_seen_kind kind, uint64_t id)
{
    if (rvli_seen_wanted())
        rvli_seen_tell(&(rvli_seen){function, kind, id, 0, -1, NULL, false});
    rvli_calls_open++;
}

static inline void rvli_return_end(void)
{
    rvli_calls_open--;
}

#endif
