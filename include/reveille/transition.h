/* SPDX-License-Identifier: MIT */
/*
 * Pause, resume, and the forecast of both.
 *
 * A transition is a transaction over all allocations of the tags it names. It succeeds as a whole,
 * or it returns an error with the step, the tag and the bytes, and leaves states, content and
 * counters unchanged. Only if undoing fails too (device lost, another process took the memory) does
 * it leave allocations LOST: they keep their address and their backup, and a later resume may
 * restore them.
 *
 * tags: array of tag numbers. tag_count 0 means every allocation of options->process, including
 * untagged ones. Transitions on overlapping sets wait for each other.
 */
#ifndef REVEILLE_TRANSITION_H
#define REVEILLE_TRANSITION_H

#include "reveille/memory.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * A pause or resume. As passed to a guard (reveille/guard.h), it is valid until the guard's
 * function returns. A prepared one is valid until it is committed or aborted.
 */
typedef struct rvl_transition rvl_transition;

/* Flags of a pause. */
#define RVL_PAUSE_DISCARD 1u /* skip the backup: the content is about to be overwritten */

typedef struct rvl_pause_options {
    size_t struct_size;
    uint64_t flags;      /* RVL_PAUSE_* */
    rvl_process process; /* the process to pause when tag_count is 0 */
    uint32_t reserved;   /* 0 */
    void *const *events; /* wait only for these (CUevent); NULL: wait until every device in the
                            access lists is idle */
    size_t event_count;
    void *const *streams; /* fail with RVL_ERR_BUSY if one of these (CUstream) is captured */
    size_t stream_count;
} rvl_pause_options;

/*
 * Releases the physical memory of the tags' active allocations and keeps their addresses. When it
 * returns RVL_OK the memory is free for other processes. Allocations that are paused or lost are
 * unchanged. Returns RVL_OK; RVL_ERR_INVALID (an argument is wrong, or a tag is unknown);
 * RVL_ERR_VERSION; RVL_ERR_BUSY; RVL_ERR_VETOED; RVL_ERR_HOST_OOM; RVL_ERR_DISK_FULL; RVL_ERR_IO
 * (the backup cannot be written); RVL_ERR_DEVICE_LOST; RVL_ERR_STATE; RVL_ERR_FORKED. Allocates no
 * device memory. Thread-safe. Since 0.1.
 */
RVL_API rvl_status rvl_pause(rvl_context *context, const rvl_tag *tags, size_t tag_count,
                             const rvl_pause_options *options);

/* Flags of a resume. */
#define RVL_RESUME_NO_RESTORE                                                                      \
    1u /* skip the restore and drop the backup: the content comes from                             \
          elsewhere */
#define RVL_RESUME_BY_PIECES                                                                       \
    2u /* only for rvl_resume_prepare(), with part_count: it does not wait for your part.          \
          rvl_transition_load_next() restores it piece by piece (reveille/parts.h) */

/* Memory that has arrived, for rvl_resume_start() (reveille/wake.h). */
typedef struct rvl_arrival {
    size_t struct_size;
    rvl_addr addr;       /* first address */
    uint64_t size_bytes; /* allocations that share memory arrive together */
    uint64_t time_ns;    /* on the clock of the context */
    rvl_tag tag;
    int device;
} rvl_arrival;

/*
 * Called for each arrival, in order, on a thread of the library and with no lock held. The memory
 * is usable when it is called. It may read statistics and may not change anything (RVL_ERR_STATE).
 */
typedef void (*rvl_arrived_fn)(void *user, const rvl_arrival *arrival);

typedef struct rvl_resume_options {
    size_t struct_size;
    uint64_t flags;       /* RVL_RESUME_* */
    rvl_process process;  /* the process to resume when tag_count is 0 */
    uint32_t reserved;    /* 0 */
    uint64_t timeout_ns;  /* how long to wait for another process to free memory; 0: do not wait */
    void *const *streams; /* fail with RVL_ERR_BUSY if one of these (CUstream) is captured */
    size_t stream_count;
    const rvl_addr *order; /* restore these first: an address within each allocation, in the order
                              of first use. Addresses of allocations that are not resumed are
                              ignored; allocations without an address follow in the order in which
                              they were made */
    size_t order_count;
    rvl_arrived_fn arrived; /* called for each arrival, only for rvl_resume_start(); NULL: not
                               called */
    void *arrived_user;
    uint32_t part_index; /* the part to restore here, only for rvl_resume_prepare()
                            (reveille/parts.h) */
    uint32_t part_count; /* the number of parts; 0 or 1: everything is restored here */
} rvl_resume_options;

/*
 * Gives the tags' paused (or lost) allocations physical memory again, at their old addresses and
 * for every device of their access lists, and restores their backups. Without a backup the content
 * is undefined. Active allocations are unchanged. Returns RVL_OK; RVL_ERR_INVALID (an argument is
 * wrong, or a tag is unknown); RVL_ERR_VERSION; RVL_ERR_BUSY; RVL_ERR_DEVICE_OOM; RVL_ERR_TIMEOUT
 * (there was no room before the timeout passed); RVL_ERR_HOST_OOM; RVL_ERR_DIGEST_MISMATCH;
 * RVL_ERR_IO (the backup cannot be read, and is kept); RVL_ERR_DEVICE_LOST; RVL_ERR_STATE;
 * RVL_ERR_FORKED. Thread-safe. Since 0.1.
 */
RVL_API rvl_status rvl_resume(rvl_context *context, const rvl_tag *tags, size_t tag_count,
                              const rvl_resume_options *options);

/*
 * A pause or a resume in two phases, so that several processes move together or not at all. A
 * prepared transition has done everything that can fail: callbacks have agreed, content is saved or
 * restored, memory is unmapped or mapped. Until you commit or abort it, its allocations are PAUSING
 * or RESUMING, and their memory can be neither used nor freed. Other calls that move its tags, free
 * its allocations or close the context return RVL_ERR_BUSY.
 *
 * The arguments are those of rvl_pause(). The prepared transition is stored in *transition_out.
 * After an error everything is unchanged and there is no handle. Returns as rvl_pause().
 * Thread-safe. Since 0.1.
 */
RVL_API rvl_status rvl_pause_prepare(rvl_context *context, const rvl_tag *tags, size_t tag_count,
                                     const rvl_pause_options *options,
                                     rvl_transition **transition_out);

/*
 * Prepares a resume, with the arguments of rvl_resume(). Otherwise like rvl_pause_prepare().
 * Returns as rvl_resume(); RVL_ERR_INVALID (part_index is not below part_count, or that is above
 * RVL_PARTS_MAX). Thread-safe. Since 0.1.
 */
RVL_API rvl_status rvl_resume_prepare(rvl_context *context, const rvl_tag *tags, size_t tag_count,
                                      const rvl_resume_options *options,
                                      rvl_transition **transition_out);

/*
 * Commits a prepared transition and frees the handle. May be called on any thread. It cannot fail:
 * memory that the device refuses to release is counted as stranded. Returns RVL_OK,
 * RVL_ERR_INVALID, RVL_ERR_STATE (called from a callback, or a resume in parts has open pieces) or
 * RVL_ERR_FORKED. After an error the handle is unchanged. Since 0.1.
 */
RVL_API rvl_status rvl_transition_commit(rvl_transition *transition);

/*
 * Restores the state before a prepared transition and frees the handle. May be called on any
 * thread. If the device refuses, allocations are LOST and keep their backup. Returns RVL_OK;
 * RVL_ERR_INVALID; RVL_ERR_STATE; RVL_ERR_FORKED; or the driver's error. After the first three
 * errors the handle is unchanged. Since 0.1.
 */
RVL_API rvl_status rvl_transition_abort(rvl_transition *transition);

/* The result of a forecast: for the device with the least room, except where noted. */
typedef struct rvl_forecast {
    size_t struct_size;
    int device; /* the device with the least room */
    bool fits;  /* on every device */
    uint8_t reserved[3];
    uint64_t needed_bytes;     /* physical bytes that it must create (resume) or will release
                                  (pause) */
    uint64_t free_bytes;       /* free on it now, including blocks kept for hand-over */
    uint64_t host_bytes;       /* host bytes that the backups will take (pause) or release (resume),
                                  on all devices */
    uint64_t disk_bytes;       /* file space, likewise */
    uint64_t allocation_count; /* allocations that would move, on all devices */
    uint64_t time_ns;          /* predicted duration of the call */
} rvl_forecast;

/*
 * Forecasts rvl_pause() with these arguments. Changes nothing; another thread or process may change
 * the outcome. Returns RVL_OK (also if it does not fit); RVL_ERR_INVALID (an argument is wrong, or
 * a tag is unknown); RVL_ERR_VERSION; RVL_ERR_BUSY; RVL_ERR_HOST_OOM; RVL_ERR_STATE;
 * RVL_ERR_FORKED. Thread-safe. Since 0.1.
 */
RVL_API rvl_status rvl_pause_forecast(rvl_context *context, const rvl_tag *tags, size_t tag_count,
                                      const rvl_pause_options *options, rvl_forecast *forecast_out);

/*
 * Forecasts rvl_resume() with these arguments, including their order. Returns as
 * rvl_pause_forecast(). Thread-safe. Since 0.1.
 */
RVL_API rvl_status rvl_resume_forecast(rvl_context *context, const rvl_tag *tags, size_t tag_count,
                                       const rvl_resume_options *options,
                                       rvl_forecast *forecast_out);

#ifdef __cplusplus
}
#endif
#endif
