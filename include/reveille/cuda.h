/* SPDX-License-Identifier: MIT */
/*
 * Options of the "cuda" backend. No header of the CUDA Toolkit is needed.
 */
#ifndef REVEILLE_CUDA_H
#define REVEILLE_CUDA_H

#include <stdbool.h>

#include "reveille/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * What to do with a backup's pinned host memory after the resume. Making pinned memory is an order
 * of magnitude slower than copying into it (H200 host: 2.9 GB/s by cuMemHostAlloc against 55 GB/s),
 * so it is kept unless the host needs it.
 */
typedef enum rvl_host_keep {
    RVL_HOST_KEEP_ALL = 0, /* keep all for the next pause, until the last context closes */
    RVL_HOST_KEEP_BYTES,   /* keep at most host_keep_bytes; the rest is returned to the system */
    RVL_HOST_KEEP_NONE     /* return all to the system, in the background */
} rvl_host_keep;

/*
 * Flags of rvl_cuda_options.
 *
 * With RVL_CUDA_HOST_AHEAD, host memory for backups is made in the background when allocations with
 * RVL_BACKUP_HOST are made, so that the first pause need not wait for it. It is no more than
 * host_keep keeps, and an eighth of the host's memory, or of the cgroup's limit, stays free. The
 * pause makes what could not be made ahead. rvl_host_trim() frees what no backup uses.
 *
 * With RVL_CUDA_HOST_PAGEABLE, host memory for backups is not registered with the driver. Up to 12
 * threads copy it, through 8 MiB of pinned memory each. That is as fast as the link if there are as
 * many cores. It makes rvl_sleep() and rvl_wake_up() faster, because the driver goes over all
 * registered memory. The contexts of a process share their host memory: it is registered while one
 * of them does not set this flag.
 */
#define RVL_CUDA_HOST_AHEAD 1u
#define RVL_CUDA_HOST_PAGEABLE 2u

typedef struct rvl_cuda_options {
    size_t struct_size;
    const int *devices; /* CUDA ordinals; NULL: all devices that the driver shows */
    size_t device_count;
    rvl_host_keep host_keep;
    uint32_t reserved;        /* 0 */
    uint64_t host_keep_bytes; /* with RVL_HOST_KEEP_BYTES */
    uint64_t flags;           /* RVL_CUDA_* */
} rvl_cuda_options;

/*
 * Finds an entry point of the CUDA driver by its name without a version: "cuCtxGetDevice". It uses
 * the same driver as this library, opened and started if needed. RVL_CUDA_LIBRARY names another.
 * cuda_version: the version of CUDA with the signature you call it by, 12000 for 12.0. For code
 * that must use the same driver and must not link it. Not in a build without the CUDA backend.
 * Returns RVL_OK; RVL_ERR_INVALID; RVL_ERR_NOT_FOUND (the driver has no function of that name and
 * version); RVL_ERR_NO_DRIVER; RVL_ERR_DRIVER_TOO_OLD; RVL_ERR_NO_DEVICE (the driver finds no
 * device). *entry_out is valid until the process ends. Thread-safe. Since 0.1.
 */
RVL_API rvl_status rvl_cuda_get_entry(const char *name, int cuda_version, void **entry_out);

#ifdef __cplusplus
}
#endif
#endif
