/* SPDX-License-Identifier: MIT */
/*
 * The core's data model: context, devices, processes, tags, allocations, blocks.
 *
 * One mutex a context guards the tables and the ledger. It is never held across a backend call that
 * can block, a copy, or a user callback: who works on an allocation without the lock has marked
 * it first (a moving state, or taken it out of the tables), and everybody else waits on `moved`.
 *
 * Processes and tags are added and never removed while the context is open, so that a pointer to
 * one stays good without the lock.
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

/* Of a tag, as its options give them. */
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
    _Atomic bool retain_backups;     /* after the resume, for the next pause */
    _Atomic bool poison;             /* what comes back without its content is filled */
    rvli_tag_callbacks callbacks;    /* read by rvli_tag_get_callbacks() */
    bool moving;                     /* claimed by a transition */
    bool prepared;                   /* and that one waits for commit or abort */
    rvli_allocation *allocations;    /* doubly linked, newest first; without riders and imports */
    rvli_carrier *carriers;          /* those with room, doubly linked */
    rvli_holder **holders;           /* by device; NULL: nothing was ever allocated there */
    UT_hash_handle hh;               /* by key */
} rvli_tag;

/*
 * One piece of physical memory and where it is mapped. The blocks of an allocation follow each
 * other in order of address: the allocation knows the first and how many.
 */
struct rvli_block {
    rvli_handle handle;
    uint64_t addr; /* where it is, or is to be, mapped */
    uint64_t size;
    rvli_block *next; /* next of the same allocation, or of a list it is on */
    uint8_t device;
    uint8_t properties; /* RVLI_BLOCK_* */
    bool mapped;
    bool handed_over; /* came from the kept blocks: the ledger has it there until the commit */
};

/* What an allocation's record stands for. */
typedef enum rvli_kind {
    RVLI_KIND_ALONE = 0, /* an allocation with memory of its own */
    RVLI_KIND_RIDER,     /* an allocation in the memory of a carrier */
    RVLI_KIND_CARRIER,   /* memory that riders share; no allocation that a caller knows */
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
            rvli_allocation *next, *previous; /* of the same tag */
        };
        rvli_carrier *carrier; /* of a rider: it has the memory, the backup and the state */
    };
    uint32_t pending_slot; /* of the index by address */
    uint8_t device;
    uint8_t state;  /* rvl_state */
    uint8_t policy; /* rvl_backup */
    uint8_t flags;  /* RVL_ALLOC_* */
    uint8_t kind;   /* rvli_kind */
    bool freeing;   /* somebody is freeing it: as good as gone */
    bool slept;     /* a sleep has paused it */
};

/* Memory shared by small allocations of a tag: core/memory/coalesce.h. */
struct rvli_carrier {
    rvli_allocation as; /* what transitions move; first, so that one can be cast to the other */
    uint64_t taken;     /* bit g: granule g belongs to a rider */
    uint32_t riders;
    bool open;                     /* listed as one with room */
    rvli_carrier *next, *previous; /* of the same tag, with room */
};

/* The record that has an allocation's memory, backup and state. */
static inline rvli_allocation *rvli_mover(const rvli_allocation *allocation)
{
    return allocation->kind == RVLI_KIND_RIDER ? &allocation->carrier->as
                                               : (rvli_allocation *)allocation;
}

/* How many allocations move when this one does. */
static inline uint32_t rvli_weight(const rvli_allocation *allocation)
{
    return allocation->kind == RVLI_KIND_CARRIER ? ((const rvli_carrier *)allocation)->riders : 1;
}

/* Host memory that a device's backups have, and the most so far: core/backup/host_buffer.h. */
typedef struct rvli_host_count {
    _Atomic uint64_t bytes;
    _Atomic uint64_t most_bytes;
    _Atomic uint64_t wanted_bytes; /* of all allocations that have their backups there */
    _Atomic uint64_t asked_chunks; /* as the backend was last told ahead */
} rvli_host_count;

typedef struct rvli_device {
    rvli_device_facts facts;
    rvli_ledger ledger;
    rvli_host_count host;
    rvli_block *kept;           /* released blocks kept for hand-over */
    uint64_t kept_bytes;        /* on that list */
    rvli_clearing clearing;     /* of what was released, as the costs of the driver say */
    uint64_t free_bytes;        /* as a forecast last read it */
    rvli_block *stranded;       /* blocks the backend refused to release; tried again at close */
    _Atomic bool overcommitted; /* copy of ledger.oom.happened for rvl_device_overcommitted() */
} rvli_device;

/* Of a context, while its process sleeps: core/sleep/sleep.c. */
typedef enum rvli_sleep_state {
    RVLI_AWAKE,
    RVLI_SLEEP_MOVING, /* on its way off the devices, or back */
    RVLI_ASLEEP,
    RVLI_SLEEP_LOST, /* the driver cannot bring the process back */
} rvli_sleep_state;

typedef struct rvli_sleep {
    _Atomic int state;   /* rvli_sleep_state */
    _Atomic bool moving; /* of a simulated context: a thread is about its sleep */
    rvl_tag *tags;       /* that the sleep has paused: the wake resumes them */
    size_t tag_count;
    uint64_t *held_bytes; /* by device: what the driver took off it, and needs again */
} rvli_sleep;

/* Tags by number without the lock: chunks are published once and never move. */
#define RVLI_TAG_CHUNK 256u
#define RVLI_TAG_CHUNKS 4096u

struct rvl_context {
    rvli_backend_ops ops;
    void *self;            /* the backend's instance */
    rvli_learner *learner; /* of real devices; belongs to self. NULL: none */
    rvli_clock clock;
    uint64_t fork_generation; /* that of the process that opened it */
    rvli_sleep sleep;
    rvl_guard guard;        /* guarded by the lock */
    rvl_context *next_real; /* of all contexts on real devices: core/listener.h */

    rvl_log_fn log;
    void *log_user;
    uint64_t keep_bytes;             /* budget of kept blocks, all devices */
    uint64_t kept_bytes;             /* what has a place in it: kept, or taken and nobody's yet */
    bool verify;                     /* content is compared with its digests when it comes back */
    char *disk_directory;            /* of backups; NULL: none */
    struct rvli_store_client *store; /* where host backups go; NULL: into own memory */
    bool store_overflow;             /* what that has no room for goes to disk */
    struct rvli_disk_remover *disk_remover; /* NULL: without a directory */

    pthread_mutex_t lock;
    pthread_cond_t moved; /* a transition has ended */

    rvli_index by_addr;
    rvli_pool allocation_pool;
    rvli_pool carrier_pool;
    rvli_pool block_pool;
    uint64_t last_id;
    uint32_t prepared; /* transitions that wait for commit or abort */
    uint32_t wakes;    /* resumes that were started and not finished */
    uint32_t changing; /* allocations, frees and transitions that go on */
    uint64_t changes;  /* that ever began */

    rvli_process *processes_by_name;
    rvli_process **processes; /* by number */
    uint32_t process_count;

    rvli_tag *tags_by_key;
    _Atomic(rvli_tag **) tag_chunks[RVLI_TAG_CHUNKS];
    _Atomic uint32_t tag_count; /* numbers run from 1 to tag_count */

    int device_count;
    rvli_device *devices;

    rvli_stage *stages; /* the last is the current one */
    uint32_t stage_count;
    uint32_t stage_capacity;
    rvli_mark *marks; /* distinct stage names, to number repetitions */
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
 * Around what changes the memory of a device: what the device says in between is of no instant that
 * the ledger has. With the lock held.
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

/* Wakes those who wait for an allocation to settle. With the lock held. */
static inline void rvli_announce_moved(rvl_context *context)
{
    if (!RVLI_ONE_THREAD)
        pthread_cond_broadcast(&context->moved);
}

/* ---- entry.c: whether a call may go on ---- */

/* What a context that is opened now must find in every later call. */
uint64_t rvli_fork_generation(void);

/*
 * Whether a public call may go on: context given, not inherited through a fork. Else fills the
 * error record and returns its status.
 */
rvl_status rvli_context_check(const rvl_context *context);

/* Until the second: the calling thread's calls go on although the process sleeps. */
void rvli_sleeper_enter(void);
void rvli_sleeper_leave(void);

/* As rvli_context_check(), and not from within a callback: for calls that change something. */
rvl_status rvli_context_check_change(const rvl_context *context);

/* Device number in range, or RVL_ERR_NO_DEVICE with the record filled. */
rvl_status rvli_device_check(const rvl_context *context, int device);

/* Marks that the calling thread is inside, or has left, a user callback. */
void rvli_callback_enter(void);
void rvli_callback_leave(void);
bool rvli_in_callback(void);

/* Says one line to the context's log, if it has one. Never with the lock held. */
void rvli_log(const rvl_context *context, rvl_log_level level, const char *message);

/* ---- tables.c: processes and tags; allocations by address ---- */

/* Adds or finds. The lock is taken inside. */
rvl_status rvli_process_add(rvl_context *context, const char *name, rvli_process **process_out);
rvl_status rvli_tag_add(rvl_context *context, rvl_process process, const char *name,
                        rvli_tag **tag_out);

/* Those it has now: another thread may give it others. The lock is taken inside. */
rvli_tag_callbacks rvli_tag_get_callbacks(rvl_context *context, const rvli_tag *tag);
/* The tag of a name, NULL if the process has none. The lock is taken inside. */
rvli_tag *rvli_tag_lookup(rvl_context *context, rvl_process process, const char *name);
/* Makes what counts a tag's bytes on a device, before the first allocation there. With the lock
 * held. RVL_ERR_HOST_OOM. */
rvl_status rvli_tag_reach(rvli_tag *tag, int device);
/* The tag of a number, NULL if none. Lock-free. */
rvli_tag *rvli_tag_get(const rvl_context *context, rvl_tag number);
/* The process of a number, NULL if none. With the lock held. */
rvli_process *rvli_process_get(const rvl_context *context, rvl_process number);
/* Frees all processes and tags, at close. */
void rvli_tables_destroy(rvl_context *context);

/* Links or unlinks an allocation with its tag. With the lock held. */
void rvli_tag_link(rvli_allocation *allocation);
void rvli_tag_unlink(rvli_allocation *allocation);

/* Whether a policy's backups on a device lie in the store of the node. */
bool rvli_backup_is_shared(const rvl_context *context, int device, rvl_backup policy);

/* Moves an allocation; the move must be legal. With the lock held. */
void rvli_allocation_move(rvli_allocation *allocation, rvli_move move);
/* Moves it to LOST. With the lock held. */
void rvli_allocation_lose(rvli_allocation *allocation);

#endif
