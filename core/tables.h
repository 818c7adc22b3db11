/* SPDX-License-Identifier: MIT */
/*
 * The core's data model: context, devices, processes, tags, allocations, blocks.
 *
 * One mutex for each context guards the tables and the ledger. It is never held across a backend
 * call that can block, a copy, or a user callback. A thread that works on an allocation without the
 * lock marks it first (by a moving state, or by taking it out of the tables), and all other threads
 * wait on `moved`.
 *
 * Processes and tags are added and never removed while the context is open, so pointers to them
 * stay valid without the lock.
 */
#ifndef RVL_CORE_TABLES_H
#define RVL_CORE_TABLES_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/hash.h"

#include "base/clearing.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "base/pool.h"
#include "core/backend.h"
#include "core/index.h"
#include "core/learn_ops.h"
#include "core/ledger.h"
#include "core/recorder.h"
#include "core/state.h"
#include "reveille/guard.h"
#include "reveille/memory.h"
#include "reveille/stats.h"

typedef struct rvli_process {
    uint32_t number;
    char *name;
    UT_hash_handle hh; /* by name */
} rvli_process;

typedef struct rvli_allocation rvli_allocation;
typedef struct rvli_block rvli_block;
typedef struct rvli_carrier rvli_carrier;
typedef struct rvli_backup rvli_backup;

/* The key of a tag: names belong to processes. name is followed by the name's bytes. */
typedef struct rvli_tag_key {
    uint32_t process;
    char name[256];
} rvli_tag_key;

/* The callbacks from a tag's options. */
typedef struct rvli_tag_callbacks {
    rvl_before_unmap_fn before_unmap;
    rvl_after_map_fn after_map;
    void *user;
} rvli_tag_callbacks;

typedef struct rvli_tag {
    rvl_tag number;
    rvli_process *process;
    rvli_tag_key *key;
    uint64_t block_bytes;            /* 0: one block for each allocation */
    _Atomic uint64_t coalesce_bytes; /* size of the carriers of small allocations; 0: none */
    _Atomic bool retain_backups;     /* keep backups after the resume, for the next pause */
    _Atomic bool poison;             /* fill memory that is resumed without its content */
    rvli_tag_callbacks callbacks;    /* read by rvli_tag_get_callbacks() */
    bool moving;                     /* claimed by a transition */
    bool prepared;                   /* claimed by a transition that waits for commit or abort */
    rvli_allocation *allocations;    /* doubly linked, newest first; without riders and imports */
    rvli_carrier *carriers;          /* carriers with room, doubly linked */
    rvli_holder **holders;           /* by device; NULL: nothing was ever allocated there */
    UT_hash_handle hh;               /* by key */
} rvli_tag;

/*
 * One piece of physical memory and its mapping. The blocks of an allocation are linked in order of
 * address. The allocation points to the first.
 */
struct rvli_block {
    rvli_handle handle;
    uint64_t addr; /* where it is mapped, or will be */
    uint64_t size;
    rvli_block *next; /* in the same allocation, or in another list */
    uint8_t device;
    uint8_t properties; /* RVLI_BLOCK_* */
    bool mapped;
    bool handed_over; /* came from the kept blocks, to which the ledger counts it until the
                         commit */
};

/* The kind of an allocation's record. */
typedef enum rvli_kind {
    RVLI_KIND_ALONE = 0, /* an allocation with separate memory */
    RVLI_KIND_RIDER,     /* an allocation in the memory of a carrier */
    RVLI_KIND_CARRIER,   /* memory that riders share; not visible to callers as an allocation */
    RVLI_KIND_IMPORT     /* an allocation in another process's memory: core/context/share.c */
} rvli_kind;

struct rvli_allocation {
    uint64_t addr;
    uint64_t size;
    uint64_t id;
    rvli_tag *tag;
    rvli_block *blocks;  /* NULL while it has no memory */
    rvli_backup *backup; /* NULL: none */
    uint64_t access_mask;
    union {
        struct {
            rvli_allocation *next, *previous; /* in the same tag */
        };
        rvli_carrier *carrier; /* of a rider: the carrier has its memory, backup and state */
    };
    uint32_t pending_slot; /* in the index by address */
    uint8_t device;
    uint8_t state;  /* rvl_state */
    uint8_t policy; /* rvl_backup */
    uint8_t flags;  /* RVL_ALLOC_* */
    uint8_t kind;   /* rvli_kind */
    bool freeing;   /* a thread is freeing it: treat it as freed */
    bool slept;     /* a sleep has paused it */
};

/* Memory shared by small allocations of a tag: core/memory/coalesce.h. */
struct rvli_carrier {
    rvli_allocation as; /* what transitions move; first, so that the two can be cast to each
                           other */
    uint64_t taken;     /* bit g: granule g belongs to a rider */
    uint32_t riders;
    bool open;                     /* in the list of carriers with room */
    rvli_carrier *next, *previous; /* in that list of the same tag */
};

/* Returns the record with an allocation's memory, backup and state. */
static inline rvli_allocation *rvli_mover(const rvli_allocation *allocation)
{
    return allocation->kind == RVLI_KIND_RIDER ? &allocation->carrier->as
                                               : (rvli_allocation *)allocation;
}

/* Returns how many allocations move with this record. */
static inline uint32_t rvli_weight(const rvli_allocation *allocation)
{
    return allocation->kind == RVLI_KIND_CARRIER ? ((const rvli_carrier *)allocation)->riders : 1;
}

/* Host memory of a device's backups, and its peak: core/backup/host_buffer.h. */
typedef struct rvli_host_count {
    _Atomic uint64_t bytes;
    _Atomic uint64_t most_bytes;
    _Atomic uint64_t wanted_bytes; /* size of all allocations with backups there */
    _Atomic uint64_t asked_chunks; /* the last request to the backend to make memory ahead */
} rvli_host_count;

typedef struct rvli_device {
    rvli_device_facts facts;
    rvli_ledger ledger;
    rvli_host_count host;
    rvli_block *kept;           /* released blocks kept for hand-over */
    uint64_t kept_bytes;        /* sum of that list */
    rvli_clearing clearing;     /* of released memory, by the driver's costs */
    uint64_t free_bytes;        /* as last read by a forecast */
    rvli_block *stranded;       /* blocks the backend refused to release; tried again at close */
    _Atomic bool overcommitted; /* copy of ledger.oom.happened for rvl_device_overcommitted() */
} rvli_device;

/* The sleep state of a context: core/sleep/sleep.c. */
typedef enum rvli_sleep_state {
    RVLI_AWAKE,
    RVLI_SLEEP_MOVING, /* going to sleep, or waking up */
    RVLI_ASLEEP,
    RVLI_SLEEP_LOST, /* the driver cannot bring the process back */
} rvli_sleep_state;

typedef struct rvli_sleep {
    _Atomic int state;   /* an rvli_sleep_state */
    _Atomic bool moving; /* of a simulated context: a thread is putting it to sleep or waking it */
    rvl_tag *tags;       /* paused by the sleep: the wake resumes them */
    size_t tag_count;
    uint64_t *held_bytes; /* by device: bytes that the driver took off it, and needs again */
} rvli_sleep;

/* Tags by number, without the lock: chunks are published once and never move. */
#define RVLI_TAG_CHUNK 256u
#define RVLI_TAG_CHUNKS 4096u

struct rvl_context {
    rvli_backend_ops ops;
    void *self;            /* the backend's instance */
    rvli_learner *learner; /* on real devices; belongs to self. NULL: none */
    rvli_clock clock;
    uint64_t fork_generation; /* of the process that opened it */
    rvli_sleep sleep;
    rvl_guard guard;        /* guarded by the lock */
    rvl_context *next_real; /* in the list of contexts on real devices: core/listener.h */

    rvl_log_fn log;
    void *log_user;
    uint64_t keep_bytes;             /* budget of kept blocks, for all devices */
    uint64_t kept_bytes;             /* used part of that budget: kept blocks, and those taken from
                                        the list and not committed yet */
    bool verify;                     /* compare restored content with its digests */
    char *disk_directory;            /* for disk backups; NULL: none */
    struct rvli_store_client *store; /* for host backups; NULL: they use this process's memory */
    bool store_overflow;             /* backups that the store has no room for go to disk */
    struct rvli_disk_remover *disk_remover; /* NULL: there is no directory */

    pthread_mutex_t lock;
    pthread_cond_t moved; /* signalled when a transition ends */

    rvli_index by_addr;
    rvli_pool allocation_pool;
    rvli_pool carrier_pool;
    rvli_pool block_pool;
    uint64_t last_id;
    uint32_t prepared; /* transitions that wait for commit or abort */
    uint32_t wakes;    /* resumes that were started and not finished */
    uint32_t changing; /* allocations, frees and transitions in progress */
    uint64_t changes;  /* all that ever began */

    rvli_process *processes_by_name;
    rvli_process **processes; /* by number */
    uint32_t process_count;

    rvli_tag *tags_by_key;
    _Atomic(rvli_tag **) tag_chunks[RVLI_TAG_CHUNKS];
    _Atomic uint32_t tag_count; /* the highest number; they start at 1 */

    int device_count;
    rvli_device *devices;

    rvli_stage *stages; /* the last is the current one */
    uint32_t stage_count;
    uint32_t stage_capacity;
    rvli_mark *marks; /* distinct stage names, to number their stages */
    uint32_t step;

    rvli_recorder recorder;
};

static inline void rvli_lock(rvl_context *context)
{
    rvli_mutex_lock(&context->lock);
}

static inline void rvli_unlock(rvl_context *context)
{
    rvli_mutex_unlock(&context->lock);
}

/*
 * Call these around a change of a device's memory. What the device reports in between matches no
 * instant of the ledger. With the lock held.
 */
static inline void rvli_change_begin(rvl_context *context)
{
    context->changing++;
    context->changes++;
}

static inline void rvli_change_end(rvl_context *context)
{
    context->changing--;
}

/* Wakes threads that wait for an allocation to settle. With the lock held. */
static inline void rvli_announce_moved(rvl_context *context)
{
    if (!RVLI_ONE_THREAD)
        pthread_cond_broadcast(&context->moved);
}

/* ---- entry.c: checks at the start of every call ---- */

/* Returns the number that a new context stores, to detect a fork in later calls. */
uint64_t rvli_fork_generation(void);

/*
 * Checks that a public call may proceed: the context is not NULL, and not inherited through a fork.
 * Otherwise fills the error record and returns its status.
 */
rvl_status rvli_context_check(const rvl_context *context);

/* Between the two, calls of this thread are allowed although the process sleeps. */
void rvli_sleeper_enter(void);
void rvli_sleeper_leave(void);

/* Like rvli_context_check(), and refuses calls from a callback: for calls that change something. */
rvl_status rvli_context_check_change(const rvl_context *context);

/*
 * Checks that a device number is in range. Otherwise returns RVL_ERR_NO_DEVICE with the record
 * filled.
 */
rvl_status rvli_device_check(const rvl_context *context, int device);

/* Marks that the calling thread is inside, or has left, a user callback. */
void rvli_callback_enter(void);
void rvli_callback_leave(void);
bool rvli_in_callback(void);

/* Writes one line to the context's log, if it has one. Never with the lock held. */
void rvli_log(const rvl_context *context, rvl_log_level level, const char *message);

/* ---- tables.c: processes and tags; allocations by address ---- */

/* Adds or finds a process or tag. Takes the lock. */
rvl_status rvli_process_add(rvl_context *context, const char *name, rvli_process **process_out);
rvl_status rvli_tag_add(rvl_context *context, rvl_process process, const char *name,
                        rvli_tag **tag_out);

/* Returns the present callbacks: another thread may change them. Takes the lock. */
rvli_tag_callbacks rvli_tag_get_callbacks(rvl_context *context, const rvli_tag *tag);
/* Returns the tag of a name, or NULL if the process has none. Takes the lock. */
rvli_tag *rvli_tag_lookup(rvl_context *context, rvl_process process, const char *name);
/*
 * Makes the holder of a tag on a device, before the first allocation there. With the lock held.
 * RVL_ERR_HOST_OOM.
 */
rvl_status rvli_tag_reach(rvli_tag *tag, int device);
/* Returns the tag of a number, or NULL. Lock-free. */
rvli_tag *rvli_tag_get(const rvl_context *context, rvl_tag number);
/* Returns the process of a number, or NULL. With the lock held. */
rvli_process *rvli_process_get(const rvl_context *context, rvl_process number);
/* Frees all processes and tags, at close. */
void rvli_tables_destroy(rvl_context *context);

/* Links or unlinks an allocation with its tag. With the lock held. */
void rvli_tag_link(rvli_allocation *allocation);
void rvli_tag_unlink(rvli_allocation *allocation);

/* Returns whether backups of a policy on a device are in the node's store. */
bool rvli_backup_is_shared(const rvl_context *context, int device, rvl_backup policy);

/* Changes the state of an allocation. The move must be legal. With the lock held. */
void rvli_allocation_move(rvli_allocation *allocation, rvli_move move);
/* Changes the state to LOST. With the lock held. */
void rvli_allocation_lose(rvli_allocation *allocation);

#endif
