/* SPDX-License-Identifier: MIT */
/*
 * Processes, tags and allocations.
 *
 * An allocation is one address range with a tag, a device, an access list and a backup policy. A
 * tag groups the allocations of one process that are paused and resumed together. A context that
 * replays a trace holds several processes; in production there is one, number 0.
 */
#ifndef REVEILLE_MEMORY_H
#define REVEILLE_MEMORY_H

#include <stdbool.h>

#include "reveille/context.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A device address. Never dereferenced by the library. */
typedef uint64_t rvl_addr;

/* Number of a process within a context; 0 is the context's own. */
typedef uint32_t rvl_process;

/* Number of a tag within a context, unique over all its processes; 0 is none. */
typedef uint32_t rvl_tag;

/* What keeps the content while an allocation is paused. */
typedef enum rvl_backup {
    RVL_BACKUP_NONE = 0, /* the content is lost */
    RVL_BACKUP_HOST,     /* in host memory */
    RVL_BACKUP_DISK      /* in a file without a name, in the disk_directory of the context */
} rvl_backup;

/* X(name, text): the states of an allocation. Legal moves: core/state.c. */
#define RVL_STATE_MAP(X)                                                                           \
    X(ACTIVE, "active")                                                                            \
    X(PAUSING, "pausing")                                                                          \
    X(PAUSED, "paused")                                                                            \
    X(RESUMING, "resuming")                                                                        \
    X(LOST, "lost")

typedef enum rvl_state {
#define RVL_STATE_ENUM(name, text) RVL_STATE_##name,
    RVL_STATE_MAP(RVL_STATE_ENUM)
#undef RVL_STATE_ENUM
} rvl_state;

/*
 * "active", "pausing", "paused", "resuming", "lost", or "?". Static string. Thread-safe. Since 0.1.
 */
RVL_API const char *rvl_state_text(rvl_state state);

/*
 * Adds a process to the context, or finds it if the name already exists. Returns RVL_OK,
 * RVL_ERR_INVALID, RVL_ERR_HOST_OOM, RVL_ERR_STATE or RVL_ERR_FORKED. Thread-safe. Since 0.1.
 */
RVL_API rvl_status rvl_process_define(rvl_context *context, const char *name,
                                      rvl_process *process_out);

/*
 * Called before the allocations of a tag lose their physical memory (to deregister NCCL buffers,
 * RDMA regions, peer mappings). If it does not return RVL_OK, it vetoes the pause, which then
 * returns RVL_ERR_VETOED and changes nothing. Runs on the thread that pauses, with no lock held. It
 * may read statistics. It may not allocate, free or start a transition (those return
 * RVL_ERR_STATE).
 */
typedef rvl_status (*rvl_before_unmap_fn)(void *user, rvl_tag tag);

/* Called after the allocations of a tag have their memory again. Same rules, but it cannot veto. */
typedef void (*rvl_after_map_fn)(void *user, rvl_tag tag);

/* Flags of a tag's options. */
#define RVL_TAG_RETAIN_BACKUPS                                                                     \
    1u /* backups outlive the resume: the next pause copies only what has                          \
          changed, where the device computes digests, and needs no new                             \
          memory. The host bytes stay in use */
#define RVL_TAG_POISON                                                                             \
    2u /* fill memory that is resumed without its content with bytes of 0xFF, so that stale use    \
          shows: NaN in each type of floating point, -1 in integers. It is filled on the device    \
          before the resume returns */

typedef struct rvl_tag_options {
    size_t struct_size;
    uint64_t flags;       /* RVL_TAG_* */
    rvl_process process;  /* the process that the tag belongs to */
    uint32_t reserved;    /* 0 */
    uint64_t block_bytes; /* the largest block of physical memory, a multiple of the granularity; 0:
                             one block for each allocation */
    uint64_t coalesce_bytes; /* allocations of at most half this size share blocks of this size, a
                                multiple of the granularity and at most 64 of it; 0: none do */
    rvl_before_unmap_fn before_unmap; /* called before memory is released, and may refuse; NULL:
                                         none */
    rvl_after_map_fn after_map;       /* called when memory is mapped again; NULL: none */
    void *callback_user;              /* the first argument of both */
} rvl_tag_options;

/*
 * Adds a tag, or finds it and, if options is not NULL, replaces its options. name: at most 255
 * bytes; "" is the group of the process's untagged allocations, so that they can be paused by
 * number. A tag is also added, with default options, when an allocation first names it.
 *
 * With coalesce_bytes, allocations of at most half that size share blocks with others of the same
 * tag, device, backup policy, flags and access list. So pausing and resuming thousands of them
 * takes the calls of a few. A shared block is released with its last allocation. So a tag may hold
 * one block more than its allocations need, and freed parts of blocks that others still share.
 * Exportable and born-paused allocations never share. If there is no room for a shared block, an
 * allocation gets a separate block.
 *
 * Returns RVL_OK, RVL_ERR_INVALID, RVL_ERR_VERSION, RVL_ERR_HOST_OOM, RVL_ERR_STATE or
 * RVL_ERR_FORKED. Thread-safe. Since 0.1.
 */
RVL_API rvl_status rvl_tag_define(rvl_context *context, const char *name,
                                  const rvl_tag_options *options, rvl_tag *tag_out);

/*
 * Finds a tag of a process by name. Returns RVL_OK, RVL_ERR_INVALID, RVL_ERR_FORKED or
 * RVL_ERR_NOT_FOUND (the process has no tag of that name). Thread-safe. Since 0.1.
 */
RVL_API rvl_status rvl_tag_find(rvl_context *context, rvl_process process, const char *name,
                                rvl_tag *tag_out);

/*
 * Name of a tag, "" for one that does not exist. Lives as long as the context. Thread-safe.
 * Since 0.1.
 */
RVL_API const char *rvl_tag_name(rvl_context *context, rvl_tag tag);

/*
 * Sets RVL_TAG_RETAIN_BACKUPS of one tag and keeps its other options. It takes effect at the tag's
 * next pause or resume. Returns RVL_OK; RVL_ERR_INVALID (there is no tag of this number);
 * RVL_ERR_STATE; RVL_ERR_FORKED. Thread-safe. Since 0.1.
 */
RVL_API rvl_status rvl_tag_set_retain_backups(rvl_context *context, rvl_tag tag, bool retain);

/* Flags of an allocation. */
#define RVL_ALLOC_EXPORTABLE 1u /* other processes may import its blocks; never shared */
#define RVL_ALLOC_RDMA 2u       /* GPUDirect RDMA must reach its memory; refused if it cannot */
#define RVL_ALLOC_PAUSED 4u     /* born paused: an address now, memory at its first resume */
#define RVL_ALLOC_IMPORTED                                                                         \
    8u /* only in results: memory of another process (reveille/share.h)                            \
        */

typedef struct rvl_alloc_options {
    size_t struct_size;
    uint64_t flags;      /* RVL_ALLOC_* */
    const char *tag;     /* the name of its tag; NULL or "": untagged, unless tag_id is given */
    rvl_tag tag_id;      /* the number of its tag, instead of the name; the tag's process applies */
    rvl_process process; /* the process of an untagged allocation, or of a tag given by name */
    int device;          /* the device that owns the memory */
    rvl_backup backup;   /* where its content is kept while it is paused */
    const int *access;   /* further devices that must reach it; need not outlive the call */
    size_t access_count;
} rvl_alloc_options;

/*
 * Reserves an address range of size_bytes, rounded up to the device's granularity, backs it with
 * physical memory and makes it accessible. The content is undefined. Returns RVL_OK;
 * RVL_ERR_INVALID (the size is 0 or beyond 2^63 - granularity, the tag or process is unknown, or a
 * disk backup has no disk_directory); RVL_ERR_VERSION; RVL_ERR_NO_DEVICE; RVL_ERR_DEVICE_OOM;
 * RVL_ERR_HOST_OOM; RVL_ERR_NOT_SUPPORTED (the device or its driver cannot honour a flag);
 * RVL_ERR_STATE; RVL_ERR_FORKED; RVL_ERR_DEVICE_LOST. On failure nothing has changed. Never waits
 * for the device and never synchronizes, so it is safe while a stream is captured. The caller frees
 * *addr_out with rvl_free(). Thread-safe. Since 0.1.
 */
RVL_API rvl_status rvl_alloc(rvl_context *context, uint64_t size_bytes,
                             const rvl_alloc_options *options, rvl_addr *addr_out);

/*
 * Frees the allocation that begins at addr, in any state. Waits for a transition that moves it.
 * Does not wait for work that still uses the memory: the caller has to do that. Returns RVL_OK;
 * RVL_ERR_INVALID (no allocation begins at `addr`, or it is already freed); RVL_ERR_STATE (called
 * from a callback, except for imported memory); RVL_ERR_BUSY (the allocation is part of a prepared
 * transition); RVL_ERR_FORKED; or the driver's error. After an error the allocation is unchanged.
 * Thread-safe. Since 0.1.
 */
RVL_API rvl_status rvl_free(rvl_context *context, rvl_addr addr);

typedef struct rvl_allocation {
    size_t struct_size;
    rvl_addr addr;       /* first address */
    uint64_t size_bytes; /* rounded up to the granularity */
    uint64_t id;         /* number within the context, from 1, never reused */
    rvl_tag tag;         /* untagged allocations form a group named "" */
    rvl_process process;
    int device;
    rvl_backup backup;
    rvl_state state;
    uint32_t flags;        /* the RVL_ALLOC_* that it was made with, or RVL_ALLOC_IMPORTED */
    uint64_t access_mask;  /* bit d: device d may reach it */
    uint64_t backup_bytes; /* host bytes that its backup holds now */
} rvl_allocation;

/*
 * Describes the allocation that contains addr, interior addresses included. Returns RVL_OK,
 * RVL_ERR_INVALID, RVL_ERR_NOT_FOUND (no allocation contains `addr`) or RVL_ERR_FORKED.
 * Thread-safe. Since 0.1.
 */
RVL_API rvl_status rvl_allocation_find(rvl_context *context, rvl_addr addr,
                                       rvl_allocation *allocation_out);

/*
 * Iterates in order of address: describes the first allocation that begins at or above from. Start
 * with 0 and continue with addr + 1. Allocations made or freed meanwhile may or may not be seen.
 * Returns RVL_OK, RVL_ERR_INVALID, RVL_ERR_NOT_FOUND (there are no more) or RVL_ERR_FORKED.
 * Thread-safe. Since 0.1.
 */
RVL_API rvl_status rvl_allocation_next(rvl_context *context, rvl_addr from,
                                       rvl_allocation *allocation_out);

/*
 * Finds the host backup of addr, which may be an interior address. *host_out points to the byte
 * that backs addr, and *size_out bytes follow in the same allocation. Valid until the allocation is
 * resumed or freed. Returns RVL_OK; RVL_ERR_NOT_FOUND (`addr` is in no allocation, or there is no
 * such backup now); RVL_ERR_NOT_SUPPORTED (the device is simulated with accounted memory, so there
 * are no bytes); RVL_ERR_INVALID; RVL_ERR_FORKED. Thread-safe. Since 0.1.
 */
RVL_API rvl_status rvl_backup_find(rvl_context *context, rvl_addr addr, const void **host_out,
                                   uint64_t *size_out);

/*
 * Finds the disk backup of addr: *size_out bytes of the same allocation, from *offset_out on in the
 * file *fd_out. The file has no name and belongs to the context: read it with pread() and do not
 * close it. It was opened with O_DIRECT if the file system allows that. Valid until the allocation
 * is resumed or freed. Returns as rvl_backup_find(). Thread-safe. Since 0.1.
 */
RVL_API rvl_status rvl_backup_find_file(rvl_context *context, rvl_addr addr, int *fd_out,
                                        uint64_t *offset_out, uint64_t *size_out);

#ifdef __cplusplus
}
#endif
#endif
