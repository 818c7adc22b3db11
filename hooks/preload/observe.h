/* SPDX-License-Identifier: MIT */
/*
 * Reports what the program does with device memory besides Reveille.
 *
 * Calls are seen at two levels: the CUDA runtime and the driver below it. A call that the runtime
 * makes inside another is the same event, so only the outermost is reported. Reveille's own calls
 * are never reported. An allocation is reported after it has succeeded or was refused for lack of
 * memory, a free before the call.
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
    uint64_t size_bytes; /* 0 for frees */
    int device;          /* -1: the device of the thread's context */
    const void *caller;  /* return address of the call; NULL for frees */
    bool refused;        /* out of memory: there is no id */
} rvli_seen;

/* The runtime's and the driver's error code for lack of memory. */
#define RVLI_SEEN_OUT_OF_MEMORY 2

typedef void (*rvli_observer)(const rvli_seen *seen);

extern _Atomic(rvli_observer) rvli_observer_now;
/* The number of calls of the runtime and the driver that this thread is inside. */
extern _Thread_local unsigned rvli_calls_open __attribute__((tls_model("initial-exec")));

/* Sets the observer, which is called on the calling thread; NULL: none. */
void rvli_observe(rvli_observer observer);

void rvli_seen_tell(const rvli_seen *seen);

static inline bool rvli_seen_wanted(void)
{
    return rvli_calls_open == 0 &&
           atomic_load_explicit(&rvli_observer_now, memory_order_relaxed) != NULL;
}

/* Around a call that allocates. */
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

/* Around a call that frees. */
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
