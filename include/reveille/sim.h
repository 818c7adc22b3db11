/* SPDX-License-Identifier: MIT */
/*
 * Simulated devices: profiles of real GPUs, and the options of the "sim" backend.
 */
#ifndef REVEILLE_SIM_H
#define REVEILLE_SIM_H

#include <stdbool.h>

#include "reveille/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * The cost of a driver call or a copy. A call takes call_ns + bytes * fs_per_byte / 10^6 ns (fs =
 * femtoseconds). Zero: no cost. Sources: reference measurements on an H200, see
 * backends/sim/profiles.c.
 */
typedef struct rvl_cost {
    uint32_t call_ns;
    uint32_t fs_per_byte;
} rvl_cost;

/*
 * X(field): the operations that have a cost.
 * reclaim: charged to the next create or release after blocks were released, for the bytes of those
 * blocks. It does not include the clearing that the driver does in between.
 * host_alloc: charged for bytes that were never in use before, because host memory is made once and
 * kept. Making it runs in parallel with the copy to it.
 * digest: queued with the copies, out or in.
 * disk_write, disk_read: all devices share one disk, which runs in parallel with everything else.
 */
#define RVL_COST_MAP(X)                                                                            \
    X(reserve)                                                                                     \
    X(release_range)                                                                               \
    X(create)                                                                                      \
    X(release)                                                                                     \
    X(reclaim)                                                                                     \
    X(map)                                                                                         \
    X(set_access)                                                                                  \
    X(unmap)                                                                                       \
    X(fill)                                                                                        \
    X(host_alloc)                                                                                  \
    X(host_free)                                                                                   \
    X(copy_to_host)                                                                                \
    X(copy_to_device)                                                                              \
    X(digest)                                                                                      \
    X(disk_write)                                                                                  \
    X(disk_read)

typedef struct rvl_cost_model {
#define RVL_COST_FIELD(field) rvl_cost field;
    RVL_COST_MAP(RVL_COST_FIELD)
#undef RVL_COST_FIELD
} rvl_cost_model;

/*
 * X(field): waits that come on top of the costs. Zero: not known, and there is no wait.
 * host_first: once in a process, when host memory is first made.
 * host_start: whenever the making of host memory starts from idle. If it is set, memory is made in
 * chunks of RVL_HOST_CHUNK_BYTES, and a copy waits for its own chunk.
 * clear: the rate at which the driver clears released memory, in the background. A create that
 * needs memory that is not cleared yet waits for it, and reclaim is charged for what is cleared by
 * then.
 * idle_clearing, unmap_clearing, release_clearing: how much longer waiting for an idle device, an
 * unmap and a release take while the driver clears.
 */
#define RVL_COST_WAITS_MAP(X)                                                                      \
    X(host_first)                                                                                  \
    X(host_start)                                                                                  \
    X(clear)                                                                                       \
    X(idle_clearing)                                                                               \
    X(unmap_clearing)                                                                              \
    X(release_clearing)

/* Host memory is made in whole chunks. */
#define RVL_HOST_CHUNK_BYTES (UINT64_C(64) << 20)

typedef struct rvl_cost_waits {
#define RVL_COST_WAITS_FIELD(field) rvl_cost field;
    RVL_COST_WAITS_MAP(RVL_COST_WAITS_FIELD)
#undef RVL_COST_WAITS_FIELD
} rvl_cost_waits;

/*
 * X(field): device memory that the driver takes for itself, in bytes. 0: not known.
 * context: for a process's context.
 * first_kernel: for the first kernel that it starts.
 * streams: for its first 34 streams, which is how many PyTorch makes with its first.
 * graph: for a captured graph.
 * first_backup: once, with the first backup in host memory.
 * per_pinned_gib: for each GiB of pinned host memory.
 */
#define RVL_DRIVER_USE_MAP(X)                                                                      \
    X(context)                                                                                     \
    X(first_kernel)                                                                                \
    X(streams)                                                                                     \
    X(graph)                                                                                       \
    X(first_backup)                                                                                \
    X(per_pinned_gib)

typedef struct rvl_driver_use {
#define RVL_DRIVER_USE_FIELD(field) uint64_t field##_bytes;
    RVL_DRIVER_USE_MAP(RVL_DRIVER_USE_FIELD)
#undef RVL_DRIVER_USE_FIELD
} rvl_driver_use;

/* Flags of a profile. */
#define RVL_PROFILE_NO_RDMA 1u /* GPUDirect RDMA does not reach its memory */
#define RVL_PROFILE_MEASURED                                                                       \
    2u /* its costs were measured on such a card; otherwise they are the                           \
          H200's */

/* A kind of GPU. */
typedef struct rvl_profile {
    size_t struct_size;
    const char *name;           /* "h200"; NULL: given only by numbers */
    const char *description;    /* "NVIDIA H200 SXM, 141 GB HBM3e" */
    const char *source;         /* where capacity_bytes comes from */
    uint64_t capacity_bytes;    /* what cuMemGetInfo reports as total; an upper bound if there is a
                                   doubt */
    uint64_t granularity_bytes; /* of physical memory: a power of two */
    uint32_t flags;             /* RVL_PROFILE_* */
    uint32_t reserved;          /* 0 */
    rvl_cost_model cost;
    rvl_driver_use driver;         /* frozen: later fields come after capacity_doubt_bytes */
    uint64_t capacity_doubt_bytes; /* programs may get this much less than capacity_bytes; 0: they
                                      get all of capacity_bytes */
    rvl_cost_waits waits;          /* frozen, too */
} rvl_profile;

/* Number of built-in profiles. Thread-safe. Since 0.1. */
RVL_API size_t rvl_profile_count(void);

/*
 * The built-in profile at an index, in the order of the table. Its strings are static. Returns
 * RVL_OK, RVL_ERR_INVALID or RVL_ERR_NOT_FOUND (there is no profile of that index). Thread-safe.
 * Since 0.1.
 */
RVL_API rvl_status rvl_profile_get(size_t index, rvl_profile *profile_out);

/*
 * The built-in profile of a name, ignoring letter case. If the text is a size ("80GiB",
 * "85017493504"), a profile of that capacity with name NULL and h200's granularity and costs.
 * Returns RVL_OK; RVL_ERR_INVALID (a size is below 1 MiB, since its unit is missing);
 * RVL_ERR_NOT_FOUND (there is no profile of that name). Thread-safe. Since 0.1.
 */
RVL_API rvl_status rvl_profile_find(const char *text, rvl_profile *profile_out);

/*
 * Reads a size: digits, optionally with a fraction, optionally followed by B, KiB, MiB, GiB or TiB
 * (powers of two; K, M, G, T mean the same) or by KB, MB, GB or TB (powers of ten). Ignores letter
 * case. Uses six digits of a fraction and rounds down to whole bytes. Returns RVL_OK or
 * RVL_ERR_INVALID (the text is not a size, or the size is 0, or 2^63 or more). Thread-safe. Since
 * 0.1.
 */
RVL_API rvl_status rvl_size_parse(const char *text, uint64_t *bytes_out);

typedef enum rvl_sim_memory {
    RVL_SIM_BACKED = 0, /* real bytes back every address; touching paused memory faults */
    RVL_SIM_ACCOUNTED   /* numbers only: terabytes cost nothing; addresses must not be touched */
} rvl_sim_memory;

/* Flags of a simulation. */
#define RVL_SIM_OVERCOMMIT                                                                         \
    1u /* continue past capacity, and record the first request that would have                     \
          failed (rvl_device_stats.oom) */

#define RVL_SIM_HOST_AHEAD 2u /* as RVL_CUDA_HOST_AHEAD does on real devices */

typedef struct rvl_sim_options {
    size_t struct_size;
    uint64_t flags;                    /* RVL_SIM_* */
    const rvl_profile *const *devices; /* NULL: one "h200" */
    size_t device_count;
    rvl_sim_memory memory;
    int poison; /* byte that fresh memory is filled with, 1 to 255; 0: 0xA5.
                   Backed memory only */
} rvl_sim_options;

#ifdef __cplusplus
}
#endif
#endif
