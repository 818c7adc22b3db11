/* SPDX-License-Identifier: MIT */
/*
 * The backend ops table: the mechanism that drives devices.
 *
 * Policy, rounding, accounting, states and the order of calls live in core, so that simulated and
 * real runs execute the same code. A backend never calls back into core. It may use base/.
 *
 * Rules for every op:
 *  - Returns RVL_OK, or fills the thread's error record (base/error.h: message, native code) and
 *    returns its status. A failed op has changed nothing and written no output.
 *  - Thread-safe against every other op of the same backend instance.
 *  - Sizes are multiples of the device's granularity, except those of host buffers and copies.
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

/* A piece of physical memory, identified by the backend. 0 is none. */
typedef uint64_t rvli_handle;

/* Properties of a block, fixed when it is created. */
#define RVLI_BLOCK_EXPORTABLE 1u
#define RVLI_BLOCK_RDMA 2u /* GPUDirect RDMA reaches it; RVL_ERR_NOT_SUPPORTED if it cannot */

typedef struct rvli_device_facts {
    char name[64];
    int ordinal; /* the driver's number of the device */
    uint64_t capacity_bytes;
    uint64_t granularity_bytes; /* a power of two */
    bool overcommit;            /* create succeeds beyond capacity */
    bool host_accounted;        /* host buffers are only counted and have no bytes */
    bool digests;               /* computes digests; otherwise the op returns
                                   RVL_ERR_NOT_SUPPORTED */
    bool rdma;                  /* creates blocks of RVLI_BLOCK_RDMA; otherwise create refuses
                                   them */
    bool host_ahead;            /* makes host memory in advance when told how much backups will
                                   need */
    rvl_cost_model cost;        /* expected costs of calls and copies */
    rvl_cost_waits waits;       /* waits on top of those costs */
} rvli_device_facts;

/* The state of a process, as the driver reports it. */
typedef enum rvli_process_state {
    RVLI_PROCESS_RUNNING,
    RVLI_PROCESS_LOCKED,
    RVLI_PROCESS_AWAY, /* off its devices */
    RVLI_PROCESS_LOST, /* off its devices, and cannot be restored */
} rvli_process_state;

/* Host memory of host_alloc. rvl_host_memory describes the fields. */
typedef struct rvli_host_facts {
    uint64_t used_bytes;
    uint64_t pinned_bytes;
    uint64_t pageable_bytes;
    uint64_t staged_copy_bytes;
    uint64_t registering_refused;
    bool registers; /* new memory is registered with the driver */
} rvli_host_facts;

/*
 * X(name, parameters, arguments) of the required ops: how an op is declared, and how a decorator
 * forwards its call. One list keeps the table, its stubs and the decorators consistent.
 *
 * reserve        Reserves an address range, without memory. Aligned to the granularity.
 * release_range  Releases a whole reserved range. Nothing may be mapped in it.
 * create         Creates a block of physical memory of size bytes. Content undefined.
 *                RVL_ERR_DEVICE_OOM if there is no room.
 * release        Releases a block. It must not be mapped.
 * map            Maps the whole block at addr, inside a reserved range, offset zero. Not accessible
 *                until set_access. A block may be mapped at several places.
 * set_access     Makes whole neighbouring mappings [addr, addr + size) readable and writable for
 *                exactly the devices of the mask.
 * unmap          Unmaps whole neighbouring mappings [addr, addr + size).
 * memory_info    Free and total physical bytes of a device, counting every process.
 * fill           Queues filling mapped memory with a byte, as a copy is queued.
 * host_alloc     Allocates host memory that copies at link speed, aligned to pages. Not zeroed.
 * host_free      Frees it.
 * copy_to_host   Queues a copy, to host memory from host_alloc or elsewhere. Both memories belong
 * to the copy until you have waited for it. Another copy of them may overtake it. A fill may not.
 * copy_to_device Likewise.
 * record_event   Records an event that passes when every copy and fill queued so far on the device
 *                has ended.
 * wait_event     Waits for an event and frees it, also when it reports that a copy failed.
 * wait_user      Waits for an event of the caller (CUevent).
 * synchronize    Waits until the device is idle.
 * is_capturing   Whether a stream of the caller (CUstream) is being captured. Does not disturb the
 *                capture.
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
 * Optional ops, in groups. A backend provides a whole group or none of it; stubs return
 * RVL_ERR_NOT_SUPPORTED.
 *
 * Group "external" (simulated devices): memory with other users.
 *   external_set  Sets the total bytes of the device that others use.
 * Group "digest":
 *   digest        Queues computing the digests of the granules of [addr, addr + size): those of
 *                 base/secret_digest.h, or those of base/digest.h if secret is NULL. arriving:
 *                 compute them after the work queued to the device so far (copy_to_device, fill).
 *                 digests_out may be any host memory. It is written when waiting for an event
 *                 recorded afterwards, or synchronize, has returned. Until then the memory must
 * stay valid and the content unchanged. If that wait fails, the digests are undefined. Group
 * "prefetch" (a hint; without it the result is RVL_OK): prefetch      addr is about to be used:
 * brings into the caches what the backend will read, `depth` pointers away. addr may be anything.
 * Group "host":
 *   host_memory   What host_alloc has made, and how it is copied.
 *   host_trim     Returns idle host memory to the system while more than keep bytes are made.
 *   host_ahead    Backups of the device will need this many bytes in total: begins to make the
 *                 missing bytes in the background. Only a hint: RVL_OK also if nothing is made.
 *                 *coming_out: how many of the bytes exist or are being made.
 * Group "share" (exportable blocks between processes):
 *   export_block  Makes a file descriptor for the block. The caller closes it.
 *   import_block  Makes a block from a file descriptor. It is released like any other.
 * Group "process" (the whole process off its devices, and back). Between the lock and the unlock,
 * ops of other groups must not be called: they would wait, or fail.
 *   process_check       Finds obstacles without trying. RVL_ERR_NOT_SUPPORTED: the driver cannot do
 *                       this, or there is no source for process_room; RVL_ERR_BUSY: events of
 * another process are open here. process_state       The state of the process.
 * RVL_ERR_NOT_SUPPORTED: the driver cannot do this. process_lock        Waits until the devices are
 * idle, and blocks every later call of the process. RVL_ERR_TIMEOUT after timeout_ms (0: waits
 * forever). process_checkpoint  Moves the process's device memory to host memory. The process must
 * be locked; afterwards it is off its devices. process_restore     Moves the memory back. If there
 * is no room the process is lost: call process_room first. process_unlock      Unblocks calls.
 *   process_room        Free bytes of a device, counting all processes, in every state of this one.
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
    uint32_t size;    /* sizeof(rvli_backend_ops) in the backend that filled the table */
    uint32_t version; /* RVLI_BACKEND_VERSION */
    const char *name; /* "sim", "cuda" */
    bool simulated;   /* it does not touch a real device */

    /* open: starts an instance. options are the caller's backend_options (NULL: defaults). clock
       belongs to the context and outlives the instance. *device_count_out: 1 to RVL_MAX_DEVICES.
       close: ends the instance and frees host memory and everything else it owns. Cannot fail. The
       holders of blocks and ranges release them before, because a driver may not know them all.
       device_facts: constant while the instance is open. */
    rvl_status (*open)(const void *options, rvli_clock *clock, void **self_out,
                       int *device_count_out);
    void (*close)(void *self);
    rvl_status (*device_facts)(void *self, int device, rvli_device_facts *facts_out);

#define RVLI_OP_POINTER(name, parameters, arguments) rvl_status(*name) parameters;
    RVLI_BACKEND_ALL_OPS_MAP(RVLI_OP_POINTER)
#undef RVLI_OP_POINTER
} rvli_backend_ops;

/* Returns "create" and so on, or "?" for an unknown op. */
const char *rvli_op_name(rvli_op op);

/*
 * Copies a table, checks it (version, required ops, whole groups) and fills missing ops with stubs
 * that return RVL_ERR_NOT_SUPPORTED, so that callers need not test for NULL. RVL_ERR_VERSION or
 * RVL_ERR_INVALID if the table cannot be used.
 */
rvl_status rvli_backend_ops_copy(rvli_backend_ops *ops_out, const rvli_backend_ops *ops);

#endif
