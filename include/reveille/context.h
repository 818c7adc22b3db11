/* SPDX-License-Identifier: MIT */
/*
 * Contexts and devices.
 *
 * A context owns everything else: one backend, its devices, tags, allocations, statistics and
 * clock. Several contexts may live in one process. All calls on a context may be made from any
 * thread. After fork, the child's calls on an inherited context return RVL_ERR_FORKED.
 *
 * Option and result structs begin with struct_size, which the caller sets to sizeof the struct.
 * Fields that a caller does not know keep their default. Zero is every option's default. Fields and
 * flags that this version of the library does not know must be 0, and so must reserved fields: if
 * not, the call returns RVL_ERR_VERSION. Structs in arrays have no struct_size: you pass their size
 * once, next to the array, such as the holder_size of rvl_stage_get_holders() (docs/api.md).
 */
#ifndef REVEILLE_CONTEXT_H
#define REVEILLE_CONTEXT_H

#include <stdbool.h>

#include "reveille/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct rvl_context rvl_context;

/* Highest number of devices in one context: access lists are stored as a bit mask. */
#define RVL_MAX_DEVICES 64

typedef enum rvl_log_level {
    RVL_LOG_ERROR = 0,
    RVL_LOG_WARN,
    RVL_LOG_INFO,
    RVL_LOG_DEBUG
} rvl_log_level;

/*
 * Receives one line of text, without a newline. Called on any thread, with no lock held. It must
 * not start a transition. The library itself never prints.
 */
typedef void (*rvl_log_fn)(void *user, rvl_log_level level, const char *message);

/* Flags of a context's options. */
#define RVL_CONTEXT_LOG_OPS 1u /* log every backend call at RVL_LOG_DEBUG */
#define RVL_CONTEXT_NO_VERIFY                                                                      \
    2u /* do not compare restored content with digests of what was backed                          \
          up, where the device computes them (1 to 2 % of the time) */
#define RVL_CONTEXT_DISK_TMPFS                                                                     \
    4u /* allow disk_directory to be on tmpfs; backups there use host                              \
          memory */
#define RVL_CONTEXT_STORE_OVERFLOW                                                                 \
    8u /* host backups that the store at store_path has no room for go to                          \
          disk_directory */

typedef struct rvl_context_options {
    size_t struct_size;
    uint64_t flags;              /* RVL_CONTEXT_* */
    const void *backend_options; /* for "sim" an rvl_sim_options, for "cuda" an rvl_cuda_options;
                                    NULL: the backend's defaults */
    const char *process_name;    /* the name of process 0 in statistics and traces; NULL: "self" */
    rvl_log_fn log;              /* receives lines of text; NULL: nothing is logged */
    void *log_user;
    uint64_t keep_bytes; /* released blocks up to this many bytes are kept for the next request of
                            the same size and properties; 0: none are */
    const char *disk_directory; /* the folder for files of disk backups; NULL: none */
    const char *store_path; /* the path of a store (rvl_store_open()) for host backups: content that
                               processes have in common is kept once; NULL: each context has its own
                               host memory */
} rvl_context_options;

/*
 * Opens a context on the backend of the given name ("sim", "cuda"). Returns RVL_OK; RVL_ERR_INVALID
 * (an option is wrong, or disk_directory is on tmpfs); RVL_ERR_VERSION; RVL_ERR_HOST_OOM;
 * RVL_ERR_IO (disk_directory cannot be used, or no store answers at store_path);
 * RVL_ERR_NO_BACKEND; RVL_ERR_NO_DRIVER; RVL_ERR_DRIVER_TOO_OLD; RVL_ERR_NO_DEVICE (there is no
 * such device, or none at all); or the driver's error. options may be NULL and need not outlive the
 * call. *context_out is owned by the caller, who closes it with rvl_context_close(). Thread-safe.
 * Since 0.1.
 */
RVL_API rvl_status rvl_context_open(const char *backend, const rvl_context_options *options,
                                    rvl_context **context_out);

/*
 * Closes a context: stops its recorder, frees every remaining allocation with its physical memory,
 * backup and address range, and frees the context. Continues after errors. live_out: the number of
 * remaining allocations; may be NULL. Returns RVL_OK (also for NULL); RVL_ERR_IO (the last lines of
 * a recording could not be written); RVL_ERR_STATE; RVL_ERR_BUSY (a transition is prepared, or a
 * started resume is not finished); RVL_ERR_FORKED; or the driver's error. After RVL_ERR_STATE,
 * RVL_ERR_BUSY and RVL_ERR_FORKED the context is unchanged. Otherwise it is freed. No other call on
 * the context may be running. Since 0.1.
 */
RVL_API rvl_status rvl_context_close(rvl_context *context, uint64_t *live_out);

typedef struct rvl_device_info {
    size_t struct_size;
    char name[64];              /* "NVIDIA H200", or the simulated profile's name */
    uint64_t capacity_bytes;    /* physical memory of the device */
    uint64_t granularity_bytes; /* sizes are rounded up to a multiple of this */
    bool simulated;
    bool overcommit; /* simulated, and accepts requests beyond its capacity */
    bool rdma;       /* supports RVL_ALLOC_RDMA */
    uint8_t reserved[5];
} rvl_device_info;

/*
 * Number of devices in the context. They are numbered from 0. Never 0 for an open context, 0 for
 * NULL. Thread-safe. Since 0.1.
 */
RVL_API int rvl_device_count(const rvl_context *context);

/*
 * Facts about one device. Returns RVL_OK, RVL_ERR_INVALID, RVL_ERR_NO_DEVICE or RVL_ERR_FORKED.
 * Thread-safe. Since 0.1.
 */
RVL_API rvl_status rvl_device_get_info(const rvl_context *context, int device,
                                       rvl_device_info *info_out);

/*
 * Waits until a device has finished all work of this process. Call it before you free memory that
 * work may still use. On a simulated device the clock advances. Fails while a stream is captured,
 * because CUDA then allows no wait. Returns RVL_OK; RVL_ERR_INVALID; RVL_ERR_NO_DEVICE;
 * RVL_ERR_FORKED; RVL_ERR_DEVICE_LOST; or the driver's error. Thread-safe. Since 0.1.
 */
RVL_API rvl_status rvl_device_synchronize(rvl_context *context, int device);

/*
 * The context's clock in nanoseconds. On a real device it is monotonic time. On a simulated device
 * it starts at 0 and advances only by what the profile's cost model charges for calls and copies. 0
 * for NULL. Thread-safe. Since 0.1.
 */
RVL_API uint64_t rvl_clock_ns(const rvl_context *context);

#ifdef __cplusplus
}
#endif
#endif
