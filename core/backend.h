/* SPDX-License-Identifier: MIT */
/*
 * The backend ops table: what drives devices. Mechanism only.
 *
 * Policy, rounding, accounting, states and the order of calls live in core, so that simulated and
 * real runs execute the same code. A backend never calls back into core; it may use base/.
 *
 * Rules forevery op:
 *  - Returns RVL_OK, or fills the thread's error record (base/error.h: message, native code) and
 *    returns its status. A failed op has changed nothing and written no output.
 *  - Thread-safe against every other op of the same backend instance.
 *  - Sizes are multiples of the device's granularity, except of host buffers and copies.
 *  - Leaves the calling thread's state (current CUDA context) as it found it.
 */
#ifndef RVL_CORE_BACKEND_H
#define RVL_CORE_BACKEND_H

#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/digest.h"
#include "base/secret_digest.h"
#include "reveille/sim.h"
#include "reveille/status.h"

#define RVLI_BACKEND_VERSION 2u

/* A piece of physical memory, named by the backend. 0 is none. */
typedef uint64_t rvli_handle;

/* Properties of a block, fixed when it is created. */
#define RVLI_BLOCK_EXPORTABLE 1u
#define RVLI_BLOCK_RDMA 2u /* GPUDirect RDMA reaches it; RVL_ERR_NOT_SUPPORTED if it cannot */

typedef struct rvli_device_facts {
    char name[64];
    int ordinal; /* the driver's number of it */
    uint64_t capacity_bytes;
    uint64_t granularity_bytes; /* a power of two */
    bool overcommit;            /* create goes on past capacity */
    bool host_accounted;        /* host buffers are numbers without bytes behind them */
    bool digests;               /* computes digests; else the op answers RVL_ERR_NOT_SUPPORTED */
    bool rdma;                  /* creates blocks of RVLI_BLOCK_RDMA; else create refuses them */
    bool host_ahead;            /* makes host memory ahead if it is told what will be wanted */
    rvl_cost_model cost;        /* what calls and copies are expected to cost */
    rvl_cost_waits waits;       /* and what is waited for on top */
} rvli_device_facts;

/* Where a process is, as its driver says. */
typedef enum rvli_process_state {
    RVLI_PROCESS_RUNNING,
    RVLI_PROCESS_LOCKED,
    RVLI_PROCESS_AWAY, /* off its devices */
    RVLI_PROCESS_LOST, /* and can never come back */
} rvli_process_state;

/* Host memory of host_alloc; rvl_host_memory says what each field is. */
typedef struct rvli_host_facts {
    uint64_t used_bytes;
    uint64_t pinned_bytes;
    uint64_t pageable_bytes;
    uint64_t staged_copy_bytes;
    uint64_t registering_refused;
    bool registers; /* what is made from now on, with the driver */
} rvli_host_facts;

/*
 * X(name, parameters, arguments) of the required ops: how an op is declared, and how a decorator
 * hands its call on. One list, so that the table, its stubs and the decorators cannot drift apart.
 *
 * reserve        An address range, without memory. Aligned to the granularity.
 * release_range  Gives a whole reserved range back; nothing may be mapped in it.
 * create         A block of physical memory of size bytes. Content undefined.
 *                RVL_ERR_DEVICE_OOM if there is no room.
 * release        Gives a block back. It must not be mapped.
 * map            Maps the whole block at addr, inside a reserved range, offset zero. Not accessible
 *                until set_access. A block may be mapped at several places.
 * set_access     Makes whole neighbouring mappings [addr, addr + size) readable and writable for
 *                exactly the devices of the mask.
 * unmap          Unmaps whole neighbouring mappings [addr, addr + size).
 * memory_info    Free and total physical bytes of a device, every process counted.
 * fill           Queues filling mapped memory with a byte, as a copy is queued.
 * host_alloc     Host memory that copies at link speed, aligned to pages. Not zeroed.
 * host_free      Gives it back.
 * copy_to_host   Queues a copy; host memory from host_alloc or any. Both memories are the copy's
 *                until it was waited for: another copy of them may overtake it, a fill may not.
 * copy_to_device Likewise.
 * record_event   An event that has passed when every copy and fill queued so far on the device has
 *                ended.
 * wait_event     Waits for an event and frees it, also when it reports that a copy failed.
 * wait_user      Waits for an event of the caller's (CUevent).
 * synchronize    Waits until the device is idle.
 * is_capturing   Whether a stream of the caller's (CUstream) is being captured. Disturbs nothing.
 */
#define RVLI_BACKEND_OP_MAP(X)                                                                     \
    X(reserve, (void *self, int device, uint64_t size, uint64_t *addr_out),                        \
      (self, device, size, addr_out))                                                              \
    X(release_range, (void *self, int device, uint64_t addr, uint64_t size),                       \
      (self, device, addr, size))                                                                  \
    X(create,                                                                                      \
      (void *self, int device, uint64_t size, uint32_t properties, rvli_handle *block_out),        \
      (self, device, size, properties, block_out))                                                 \
    X(release, (void *self, int device, rvli_handle block, uint64_t size),                         \
      (self, device, block, size))                                                                 \
    X(map, (void *self, int device, uint64_t addr, uint64_t size, rvli_handle block),              \
      (self, device, addr, size, block))                                                           \
    X(set_access, (void *self, int device, uint64_t addr, uint64_t size, uint64_t device_mask),    \
      (self, device, addr, size, device_mask))                                                     \
    X(unmap, (void *self, int device, uint64_t addr, uint64_t size), (self, device, addr, size))   \
    X(memory_info, (void *self, int device, uint64_t *free_out, uint64_t *total_out),              \
      (self, device, free_out, total_out))                                                         \
    X(fill, (void *self, int device, uint64_t addr, uint64_t size, uint8_t byte),                  \
      (self, device, addr, size, byte))                                                            \
    X(host_alloc, (void *self, int device, uint64_t size, void **host_out),                        \
      (self, device, size, host_out))                                                              \
    X(host_free, (void *self, int device, void *host, uint64_t size), (self, device, host, size))  \
    X(copy_to_host, (void *self, int device, void *host, uint64_t addr, uint64_t size),            \
      (self, device, host, addr, size))                                                            \
    X(copy_to_device, (void *self, int device, uint64_t addr, const void *host, uint64_t size),    \
      (self, device, addr, host, size))                                                            \
    X(record_event, (void *self, int device, uint64_t *event_out), (self, device, event_out))      \
    X(wait_event, (void *self, int device, uint64_t event), (self, device, event))                 \
    X(wait_user, (void *self, void *event), (self, event))                                         \
    X(synchronize, (void *self, int device), (self, device))                                       \
    X(is_capturing, (void *self, void *stream, bool *capturing_out), (self, stream, capturing_out))

/*
 * Optional ops, in groups that are there as a whole or not at all; stubs answer
 * RVL_ERR_NOT_SUPPORTED.
 *
 * Group "external" (simulated devices): memory that something else uses.
 *   external_set  From now on `bytes` of the device are taken by others, in all.
 * Group "digest":
 *   digest        Queues computing the digests of the granules of [addr, addr + size): those of
 *                 base/secret_digest.h, or those of base/digest.h if secret is NULL. arriving:
 *                 after what was queued to the device so far (copy_to_device, fill). digests_out
 *                 may be any host memory: it is written by the time that waiting for an event
 *                 recorded afterwards, or synchronize, has answered; until then it must stay, and
 *                 the content as it is. Where that answer is a failure, what it holds is undefined.
 * Group "prefetch" (a hint: without it the answer is RVL_OK):
 *   prefetch      Something is about to be done with addr: brings into the caches what the backend
 *                 will look at, `depth` pointers away. addr may be anything.
 * Group "host":
 *   host_memory   What host_alloc has made, and how it is copied.
 *   host_trim     Gives idle host memory back to the system, as long as more than keep bytes are
 *                 made.
 *   host_ahead    Backups of the device will want so many bytes in all: begins to make in the
 *                 background what is not there. A wish: RVL_OK also where nothing is made.
 *                 *coming_out: how many of the bytes are there, or are being made.
 * Group "share" (exportable blocks between processes):
 *   export_block  A file descriptor that names the block; the caller closes it.
 *   import_block  The block that a file descriptor names; released like any other.
 * Group "process" (the whole process off its devices, and back). Between the lock and the unlock no
 * op of another group may be called: it would wait, or fail.
 *   process_check       What forbids it, found without trying. RVL_ERR_NOT_SUPPORTED: the driver
 *                       cannot do this, or nobody says what process_room asks; RVL_ERR_BUSY: events
 *                       of another process are open here.
 *   process_state       Where the process is. RVL_ERR_NOT_SUPPORTED: the driver cannot do this.
 *   process_lock        Waits until the devices are idle, and holds up every later call of the
 *                       process. RVL_ERR_TIMEOUT after timeout_ms (0: waits forever).
 *   process_checkpoint  Moves what the process has on its devices to host memory. It is locked
 *                       before, and off its devices after that.
 *   process_restore     Moves it back. Where there is no room the process is lost: see
 *                       process_room first.
 *   process_unlock      Calls go on.
 *   process_room        Free bytes of a device, all processes counted, in every state of this one.
 */
#define RVLI_BACKEND_EXTERNAL_MAP(X)                                                               \
    X(external_set, (void *self, int device, uint64_t bytes), (self, device, bytes))
#define RVLI_BACKEND_DIGEST_MAP(X)                                                                 \
    X(digest,                                                                                      \
      (void *self, int device, uint64_t addr, uint64_t size, bool arriving,                        \
       const rvli_secret *secret, rvli_digest *digests_out),                                       \
      (self, device, addr, size, arriving, secret, digests_out))
#define RVLI_BACKEND_PREFETCH_MAP(X)                                                               \
    X(prefetch, (void *self, uint64_t addr, int depth), (self, addr, depth))
#define RVLI_BACKEND_HOST_MAP(X)                                                                   \
    X(host_memory, (void *self, rvli_host_facts *facts_out), (self, facts_out))                    \
    X(host_trim, (void *self, uint64_t keep), (self, keep))                                        \
    X(host_ahead, (void *self, int device, uint64_t bytes, uint64_t *coming_out),                  \
      (self, device, bytes, coming_out))
#define RVLI_BACKEND_SHARE_MAP(X)                                                                  \
    X(export_block, (void *self, int device, rvli_handle block, int *fd_out),                      \
      (self, device, block, fd_out))                                                               \
    X(import_block, (void *self, int device, int fd, uint64_t size, rvli_handle *block_out),       \
      (self, device, fd, size, block_out))
#define RVLI_BACKEND_PROCESS_MAP(X)                                                                \
    X(process_check, (void *self), (self))                                                         \
    X(process_state, (void *self, rvli_process_state *state_out), (self, state_out))               \
    X(process_lock, (void *self, uint32_t timeout_ms), (self, timeout_ms))                         \
    X(process_checkpoint, (void *self), (self))                                                    \
    X(process_restore, (void *self), (self))                                                       \
    X(process_unlock, (void *self), (self))                                                        \
    X(process_room, (void *self, int device, uint64_t *free_out), (self, device, free_out))

#define RVLI_BACKEND_ALL_OPS_MAP(X)                                                                \
    RVLI_BACKEND_OP_MAP(X)                                                                         \
    RVLI_BACKEND_EXTERNAL_MAP(X)                                                                   \
    RVLI_BACKEND_DIGEST_MAP(X)                                                                     \
    RVLI_BACKEND_PREFETCH_MAP(X)                                                                   \
    RVLI_BACKEND_HOST_MAP(X)                                                                       \
    RVLI_BACKEND_SHARE_MAP(X)                                                                      \
    RVLI_BACKEND_PROCESS_MAP(X)

typedef enum rvli_op {
#define RVLI_OP_ENUM(name, parameters, arguments) RVLI_OP_##name,
    RVLI_BACKEND_ALL_OPS_MAP(RVLI_OP_ENUM)
#undef RVLI_OP_ENUM
        RVLI_OP_COUNT
} rvli_op;

typedef struct rvli_backend_ops {
    uint32_t size;    /* sizeof(rvli_backend_ops) as the backend that filled the table knows it */
    uint32_t version; /* RVLI_BACKEND_VERSION */
    const char *name; /* "sim", "cuda" */
    bool simulated;   /* nothing that it does happens to a device */

    /*
     * open: starts an instance. options are the caller's backend_options (NULL: defaults); clock
     * belongs to the context and outlives the instance; *device_count_out: 1 to RVL_MAX_DEVICES.
     * close: ends it; host memory and what else is its own is given back. Cannot fail. Blocks and
     *        ranges are given back before by those who hold them: a driver may not know them all.
     * device_facts: constant while the instance is open.
     */
    rvl_status (*open)(const void *options, rvli_clock *clock, void **self_out,
                       int *device_count_out);
    void (*close)(void *self);
    rvl_status (*device_facts)(void *self, int device, rvli_device_facts *facts_out);

#define RVLI_OP_POINTER(name, parameters, arguments) rvl_status(*name) parameters;
    RVLI_BACKEND_ALL_OPS_MAP(RVLI_OP_POINTER)
#undef RVLI_OP_POINTER
} rvli_backend_ops;

/* "create" and so on; "?" for what is no op. */
const char *rvli_op_name(rvli_op op);

/*
 * Copies a table, checks it (version, required ops, whole groups) and fills what is missing with
 * stubs that answer RVL_ERR_NOT_SUPPORTED, so that nobody tests for NULL. RVL_ERR_VERSION or
 * RVL_ERR_INVALID if it cannot be used.
 */
rvl_status rvli_backend_ops_copy(rvli_backend_ops *ops_out, const rvli_backend_ops *ops);

#endif
