/* SPDX-License-Identifier: MIT */
/*
 * The model: what must hold of the memory of one thread.
 *
 * Each thread has a process of its own in the context that all share, with tags and allocations
 * that no other thread touches. So states, contents, backups and counters of them are known to the
 * byte, whatever the others do. The device's room is shared: whether a request fits is exact with
 * one thread, and has bounds with several.
 */
#ifndef RVL_STRESS_OWNER_H
#define RVL_STRESS_OWNER_H

#include "calls.h"
#include "tests/support/fault.h"

#define OWNER_TAGS 4
#define OWNER_SLOTS 12
#define GRANULE_BYTES (UINT64_C(64) << 10)
#define SLOT_GRANULES_MAX 6
#define CARRIER_GRANULES 8
#define DEVICES_MAX 2
#define EXTERNAL_GRANULES_MAX 8
/* What one thread can hold on a device at most, shared blocks and external bytes included. */
#define OWNER_BYTES_MAX                                                                            \
    ((OWNER_SLOTS * (SLOT_GRANULES_MAX + CARRIER_GRANULES) + EXTERNAL_GRANULES_MAX) * GRANULE_BYTES)

#define SHARED_TAGS 3
#define SHARED_SLOTS 2 /* of one thread, in tags that all move */
#define SHARED_BYTES GRANULE_BYTES

#define CONTENT_UNKNOWN 0 /* else the number of the pattern it was filled with */

/* The context of a round, as all threads know it. */
typedef struct arena {
    rvl_context *context;
    fault_injector *fault; /* NULL: opened by rvl_context_open() */
    int threads;
    int devices;
    bool accounted;
    bool overcommit;
    bool has_disk;
    bool verifies;
    bool roomy;  /* nothing can run out, whatever the threads do */
    bool faulty; /* any call may be failed by a fault that another thread has set */
    uint64_t capacity_bytes;
    uint64_t keep_bytes;
    uint64_t shared_bytes_max; /* of the allocations that all threads share */
} arena;

typedef struct slot {
    rvl_addr addr; /* 0: free */
    uint64_t size;
    uint64_t id;
    int tag;
    int device;
    rvl_backup policy;
    uint64_t access_mask;
    rvl_state state;
    uint64_t content; /* while it is active */
    bool exportable;
    bool held;       /* there is a backup */
    uint64_t backup; /* content of the backup */
} slot;

typedef struct owned_tag {
    rvl_tag number;
    char name[32];
    bool retain;
    bool callbacks;
    bool veto;    /* its callback refuses the next pause */
    bool shares;  /* allocations have shared blocks, or had: sums are bounds */
    bool blurred; /* a fault has hit it: sums are bounds */
    uint64_t pauses;
    uint64_t resumes;
    uint64_t peak_bytes[DEVICES_MAX];
    _Atomic int unmaps; /* calls of callbacks in the running transition */
    _Atomic int maps;
    struct owner *owner;
} owned_tag;

/* A pause or resume that the thread is about to make, as the context's guard must see it. */
typedef struct guarded {
    bool expected;
    bool known; /* what it moves: of tags that all share it is not */
    bool pause;
    unsigned touched;   /* tags that allocations move of */
    rvl_status refusal; /* what the guard answers */
    int befores;
    int afters;
    bool done;
} guarded;

typedef struct owner {
    caller by;
    const arena *in;
    struct stress_round *round;
    rvl_process process;
    char process_name[32];
    char cause[32];
    owned_tag tags[OWNER_TAGS];
    slot slots[OWNER_SLOTS];
    uint64_t external_bytes[DEVICES_MAX];
    uint64_t next_content;
    bool upset; /* a call has failed that had begun: what it made and gave back has cost time */
    uint64_t last_id;
    uint64_t stages; /* marked by this thread in this round */
    uint64_t steps;
    rvl_addr shared[SHARED_SLOTS];
    guarded guarded;
} owner;

/* Begins a thread's memory in a new context: its process and tags. */
void owner_begin(owner *o, const arena *in, uint64_t seed, uint64_t random, int thread);

/* ---- Sums ---- */

typedef struct tag_sums {
    uint64_t active_bytes[DEVICES_MAX];
    uint64_t paused_bytes[DEVICES_MAX];
    uint64_t host_bytes;
    uint64_t disk_bytes;
    uint64_t count;
} tag_sums;

tag_sums owner_sums(const owner *o, int tag);

/* What the thread's allocations and external bytes take on a device, shared blocks not counted. */
uint64_t owner_used_bytes(const owner *o, int device);

/* Whether the sums of the tag are exact. */
bool owner_is_exact(const owned_tag *tag);

/* Takes note of the highest active bytes. */
void owner_note_peak(owner *o, int tag);

/* ---- What must be answered ---- */

/* Statuses of a request for bytes on each device: it fits, it does not, or either. */
uint32_t owner_may_fit(owner *o, const uint64_t *bytes);

/* A set of tags as bits. */
bool in_set(unsigned set, int tag);

/* ---- Looking ---- */

/* The allocation at an address of it; fails the run if there is none. */
rvl_allocation owner_find(owner *o, rvl_addr addr);

/* Compares every content that can be read and is known. */
void owner_check_contents(owner *o);

/* ---- Changes ---- */

void owner_paused(owner *o, unsigned set, bool discard);
void owner_resumed(owner *o, unsigned set, bool no_restore);
/* A resume in order has failed: what had arrived by then stays. */
void owner_arrived(owner *o, unsigned set, bool no_restore);

#endif
