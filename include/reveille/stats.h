/* SPDX-License-Identifier: MIT */
/*
 * Marks and statistics: the holders of memory, at any time and at the peak.
 *
 * The ledger knows at every instant the physical bytes in use on each device, by process and tag.
 * It also counts external bytes: device memory in use that no allocation explains. A stage begins
 * at its mark and lasts until the next mark. The time before the first mark is a stage named
 * "start", which is listed only if memory was in use in it. The second stage of a name is "name#2".
 */
#ifndef REVEILLE_STATS_H
#define REVEILLE_STATS_H

#include "reveille/memory.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Begins a stage, on every device of the context. name: 1 to 255 bytes. If the devices are real and
 * the preload library records this process (docs/record.md), the recording has the stage, too.
 * Returns RVL_OK, RVL_ERR_INVALID (the name is not 1 to 255 bytes long), RVL_ERR_HOST_OOM or
 * RVL_ERR_FORKED. Thread-safe. Since 0.1.
 */
RVL_API rvl_status rvl_stage(rvl_context *context, const char *name);

/*
 * Begins a step: one round of the run, numbered from 1. Returns RVL_OK, RVL_ERR_INVALID or
 * RVL_ERR_FORKED. Thread-safe. Since 0.1.
 */
RVL_API rvl_status rvl_step(rvl_context *context);

/*
 * Sets the external bytes of a cause on a device. 0 removes the cause. On a simulated device they
 * take room. cause: 1 to 255 bytes. Returns RVL_OK, RVL_ERR_INVALID (`cause` is not 1 to 255 bytes
 * long), RVL_ERR_NO_DEVICE, RVL_ERR_DEVICE_OOM (the device is simulated and does not overcommit),
 * RVL_ERR_HOST_OOM, RVL_ERR_STATE or RVL_ERR_FORKED. Thread-safe. Since 0.1.
 */
RVL_API rvl_status rvl_external_set(rvl_context *context, int device, const char *cause,
                                    uint64_t bytes);

/*
 * The first request on an overcommitted device that a real device would have refused. Part of
 * rvl_device_stats, so this struct never grows.
 */
typedef struct rvl_oom {
    bool happened;
    bool external; /* for external bytes; tag is then 0, and process has no meaning */
    uint8_t reserved[2];
    uint32_t stage;    /* index of the stage in which it happened */
    const char *cause; /* of external bytes; NULL otherwise. Lives as long as the context */
    rvl_process process;
    rvl_tag tag;
    uint64_t requested_bytes; /* by the whole call: a resume of several blocks requests their sum */
    uint64_t free_bytes;      /* before the call */
} rvl_oom;

/* X(field): the counters of a device, all uint64_t. New ones come last. */
#define RVL_DEVICE_COUNTER_MAP(X)                                                                  \
    X(capacity_bytes)    /* physical memory of the device */                                       \
    X(used_bytes)        /* allocated, imported and external; see prepared_bytes */                \
    X(external_bytes)    /* only external */                                                       \
    X(kept_bytes)        /* part of used: released blocks kept for hand-over */                    \
    X(stranded_bytes)    /* part of used: blocks the backend refused to release */                 \
    X(peak_bytes)        /* highest used_bytes so far */                                           \
    X(host_backup_bytes) /* host memory that backups hold now */                                   \
    X(host_peak_bytes)   /* highest host_backup_bytes so far */                                    \
    X(disk_backup_bytes) /* file space that backups hold now */                                    \
    X(disk_peak_bytes)   /* highest disk_backup_bytes so far */                                    \
    X(allocation_count)  /* live allocations, paused ones included */                              \
    X(alloc_calls)       /* successful rvl_alloc() */                                              \
    X(free_calls)        /* successful rvl_free() */                                               \
    X(pauses)            /* allocations paused, counting each time */                              \
    X(resumes)           /* allocations resumed, counting each time */                             \
    X(backup_out_bytes)  /* copied from the device to backups */                                   \
    X(backup_in_bytes)   /* copied back */                                                         \
    X(transition_ns)     /* context clock spent in transitions that moved something here */        \
    X(imported_bytes)    /* part of used: memory of other processes imported here */               \
    X(filled_in_bytes)   /* filled by callers instead: rvl_transition_fill() */                    \
    X(prepared_bytes)    /* made by prepared resumes: part of used once they commit */

typedef struct rvl_device_stats {
    size_t struct_size;
    uint32_t peak_stage; /* index of the stage in which peak_bytes was reached */
    uint32_t reserved;
    rvl_oom oom;
#define RVL_DEVICE_COUNTER_FIELD(field) uint64_t field;
    RVL_DEVICE_COUNTER_MAP(RVL_DEVICE_COUNTER_FIELD)
#undef RVL_DEVICE_COUNTER_FIELD
} rvl_device_stats;

/*
 * Statistics of a device. Returns RVL_OK, RVL_ERR_INVALID, RVL_ERR_NO_DEVICE or RVL_ERR_FORKED.
 * Thread-safe; the numbers are of one instant. Since 0.1.
 */
RVL_API rvl_status rvl_device_get_stats(rvl_context *context, int device,
                                        rvl_device_stats *stats_out);

/*
 * Bytes free and in total as the device reports them, counting every process. For a simulated
 * device, from its capacity. Returns RVL_OK, RVL_ERR_INVALID, RVL_ERR_NO_DEVICE,
 * RVL_ERR_DEVICE_LOST or RVL_ERR_FORKED. Thread-safe. Since 0.1.
 */
RVL_API rvl_status rvl_device_get_memory(rvl_context *context, int device, uint64_t *free_bytes_out,
                                         uint64_t *total_bytes_out);

/* Enough room for the text of rvl_device_get_summary(), if tags have short names. */
#define RVL_SUMMARY_BYTES 512

/*
 * Writes a sentence about a device, to print with an error: version of the library, name and number
 * of the device, bytes in total and free, and which tags of this context hold memory there, largest
 * first. "Reveille 0.1.0, device 0 (NVIDIA H200): 139.8 GiB, 61.5 GiB free; held here: kv_cache
 * 94.2 GiB paused, weights 30.7 GiB; by all else 47.6 GiB". It is cut to text_bytes, including the
 * NUL. Allocates no memory. The error record is unchanged unless this call fails. Returns as
 * rvl_device_get_memory(); RVL_ERR_INVALID (there is no room for the text). Thread-safe. Since 0.1.
 */
RVL_API rvl_status rvl_device_get_summary(rvl_context *context, int device, char *text_out,
                                          size_t text_bytes);

/*
 * Host memory for backups. All contexts of a process on real devices share one pool: the numbers
 * are for all of them, and restart from 0 when the last closes. Each simulated context has its own
 * pool, which is always pinned.
 */
typedef struct rvl_host_memory {
    size_t struct_size;
    uint64_t used_bytes;          /* in use by backups */
    uint64_t pinned_bytes;        /* registered with the driver, used or kept for the next pause */
    uint64_t pageable_bytes;      /* likewise, but not registered: the driver refused, or it was not
                                     requested */
    uint64_t staged_copy_bytes;   /* copied from and to pageable memory through pinned buffers */
    uint64_t registering_refused; /* times the driver refused to register memory */
    uint64_t store_bytes;         /* of this context's backups in a store; not part of used_bytes */
    uint64_t store_found_bytes;   /* part of store_bytes that was already in the store, perhaps from
                                     other processes */
} rvl_host_memory;

/*
 * Statistics of host memory. If registering_refused is above 0, copies take processor time, and may
 * be slower than the link; raise the limit of locked memory. Returns RVL_OK, RVL_ERR_INVALID,
 * RVL_ERR_NOT_SUPPORTED (the backend does not report its host memory) or RVL_ERR_FORKED.
 * Thread-safe; the numbers are of one instant. Since 0.1.
 */
RVL_API rvl_status rvl_host_get_memory(rvl_context *context, rvl_host_memory *memory_out);

/*
 * Returns idle host memory of the pool to the system until at most keep_bytes of it remain, and
 * waits until that is done. Memory that backups use stays. The next pause has to make it again,
 * which is slow (rvl_cuda_options.host_keep). A simulated device keeps no idle memory. Returns
 * RVL_OK, RVL_ERR_INVALID, RVL_ERR_NOT_SUPPORTED (the backend keeps no host memory) or
 * RVL_ERR_FORKED. Thread-safe. Since 0.1.
 */
RVL_API rvl_status rvl_host_trim(rvl_context *context, uint64_t keep_bytes);

/*
 * Returns whether the device was ever asked for more than it has: rvl_device_stats.oom.happened,
 * for callers that check after every event. Lock-free. False for NULL, or if there is no such
 * device. Since 0.1.
 */
RVL_API bool rvl_device_overcommitted(const rvl_context *context, int device);

typedef struct rvl_tag_stats {
    size_t struct_size;
    uint64_t active_bytes;      /* physical bytes held now */
    uint64_t paused_bytes;      /* addresses without memory, including lost ones */
    uint64_t peak_bytes;        /* highest active_bytes so far */
    uint64_t host_backup_bytes; /* host memory its backups hold now */
    uint64_t allocation_count;
    uint64_t pauses; /* allocations paused, counting each time */
    uint64_t resumes;
} rvl_tag_stats;

/*
 * Statistics of a tag, on one device, or on all with device = -1. (peak_bytes with -1 is the sum of
 * the devices' peaks.) Returns RVL_OK, RVL_ERR_INVALID, RVL_ERR_NO_DEVICE or RVL_ERR_FORKED.
 * Thread-safe. Since 0.1.
 */
RVL_API rvl_status rvl_tag_get_stats(rvl_context *context, rvl_tag tag, int device,
                                     rvl_tag_stats *stats_out);

typedef struct rvl_stage_stats {
    size_t struct_size;
    const char *name; /* "rollout", "rollout#2"; lives as long as the context */
    const char *mark; /* the name it was marked with: "rollout" */
    uint32_t step;    /* number of the step it began in, 0: before the first */
    uint32_t reserved;
    uint64_t peak_bytes;         /* highest use within the stage, including what was in use at its
                                    start */
    uint64_t end_bytes;          /* use at its end, or now if it is the current one */
    uint64_t free_at_peak_bytes; /* capacity less peak, 0 where it does not fit */
    uint64_t host_bytes;         /* highest host memory held by backups within the stage */
    uint64_t transition_ns;      /* context clock spent in transitions within the stage */
} rvl_stage_stats;

/*
 * Number of stages so far, the current one included. Never 0 for an open context: index 0 is
 * "start". 0 for NULL. Thread-safe. Since 0.1.
 */
RVL_API uint32_t rvl_stage_count(rvl_context *context);

/*
 * Statistics of one stage on one device. Returns RVL_OK, RVL_ERR_INVALID, RVL_ERR_NO_DEVICE,
 * RVL_ERR_NOT_FOUND (there is no such stage) or RVL_ERR_FORKED. Thread-safe. Since 0.1.
 */
RVL_API rvl_status rvl_stage_get_stats(rvl_context *context, uint32_t stage, int device,
                                       rvl_stage_stats *stats_out);

/* A holder at the peak of a stage. Strings live as long as the context. */
typedef struct rvl_holder {
    const char *process; /* NULL: external */
    const char *tag;     /* NULL: untagged; for external bytes, their cause */
    uint64_t bytes;
} rvl_holder;

/*
 * Writes up to capacity holders at the stage's peak to holders_out, largest first (ties: process,
 * then tag, by name, external last), and their full number to *count_out. holder_size:
 * sizeof(rvl_holder). Their bytes sum to the stage's peak_bytes. Returns as rvl_stage_get_stats();
 * RVL_ERR_INVALID (holder_size is not a size of rvl_holder); RVL_ERR_HOST_OOM. Thread-safe. Since
 * 0.1.
 */
RVL_API rvl_status rvl_stage_get_holders(rvl_context *context, uint32_t stage, int device,
                                         rvl_holder *holders_out, size_t holder_size,
                                         size_t capacity, size_t *count_out);

#ifdef __cplusplus
}
#endif
#endif
