/* SPDX-License-Identifier: MIT */
/*
 * Status codes, the per-thread error record, and the export macro.
 *
 * Every call that can fail returns an rvl_status. The numbers are stable: they are never reused and
 * never renumbered. The details of a failure are in a fixed-size record of the calling thread,
 * which rvl_last_error() copies. Reading and writing it allocates nothing.
 */
#ifndef REVEILLE_STATUS_H
#define REVEILLE_STATUS_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define RVL_API __attribute__((visibility("default")))
#else
#define RVL_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/*
 * The only list of statuses: X(name, value, text). The comment of a function lists after "Returns"
 * the statuses that it returns, with reasons in parentheses. RVL_ERR_INVALID also means that an
 * argument is NULL and must not be. Where a comment has no reason, these apply:
 *
 * RVL_ERR_INVALID (an argument is NULL, or has a value that it cannot have)
 * RVL_ERR_STATE (called from a callback, which may only read statistics)
 * RVL_ERR_BUSY (a stream is captured, or a move of a tag is prepared)
 * RVL_ERR_TIMEOUT (it took longer than allowed)
 * RVL_ERR_NOT_SUPPORTED (the device or its driver cannot do this)
 * RVL_ERR_DEVICE_OOM (the device has no room)
 * RVL_ERR_HOST_OOM (there is no host memory for the library's own data)
 * RVL_ERR_DISK_FULL (there is no space for the backup)
 * RVL_ERR_IO (a file cannot be read or written)
 * RVL_ERR_NO_BACKEND (this build has no backend of that name)
 * RVL_ERR_NO_DRIVER (there is no driver, or it cannot be started)
 * RVL_ERR_DRIVER_TOO_OLD (the driver lacks a function that the library needs)
 * RVL_ERR_NO_DEVICE (there is no device of this number)
 * RVL_ERR_DEVICE_LOST (the device no longer responds)
 * RVL_ERR_DIGEST_MISMATCH (the restored content differs from the backup, which is kept)
 * RVL_ERR_CORRUPT_TRACE (a line or an event of a trace is wrong)
 * RVL_ERR_VERSION (a struct sets a field that this library does not know: the program was built for
 * a newer one)
 * RVL_ERR_NOT_FOUND (nothing has that name or number)
 * RVL_ERR_VETOED (a callback has refused)
 * RVL_ERR_FORKED (the context was opened before a fork, and this is the child. Open one here)
 */
#define RVL_STATUS_MAP(X)                                                                          \
    X(OK, 0, "success")                                                                            \
    X(ERR_INVALID, -1, "invalid argument")                                                         \
    X(ERR_STATE, -2, "not possible in this state")                                                 \
    X(ERR_BUSY, -3, "busy: a capture is running, or a move is prepared")                           \
    X(ERR_TIMEOUT, -4, "timed out")                                                                \
    X(ERR_NOT_SUPPORTED, -5, "not supported")                                                      \
    X(ERR_DEVICE_OOM, -6, "out of device memory")                                                  \
    X(ERR_HOST_OOM, -7, "out of host memory")                                                      \
    X(ERR_DISK_FULL, -8, "disk full")                                                              \
    X(ERR_IO, -9, "input/output error")                                                            \
    X(ERR_NO_BACKEND, -10, "no such backend in this build")                                        \
    X(ERR_NO_DRIVER, -11, "no GPU driver")                                                         \
    X(ERR_DRIVER_TOO_OLD, -12, "GPU driver too old")                                               \
    X(ERR_NO_DEVICE, -13, "no such device")                                                        \
    X(ERR_DEVICE_LOST, -14, "device lost")                                                         \
    X(ERR_DIGEST_MISMATCH, -15, "restored content differs from what was backed up")                \
    X(ERR_CORRUPT_TRACE, -16, "corrupt trace")                                                     \
    X(ERR_VERSION, -17, "version not understood")                                                  \
    X(ERR_NOT_FOUND, -18, "not found")                                                             \
    X(ERR_VETOED, -19, "refused by a callback")                                                    \
    X(ERR_FORKED, -20, "context belongs to the parent process")

typedef enum rvl_status {
#define RVL_STATUS_ENUM(name, value, text) RVL_##name = (value),
    RVL_STATUS_MAP(RVL_STATUS_ENUM)
#undef RVL_STATUS_ENUM
} rvl_status;

/* The value of `device` in an error record that concerns no device. */
#define RVL_NO_DEVICE (-1)

/*
 * Details of the last failed call of this thread, in any of the libraries. Strings are
 * NUL-terminated and cut to fit. Functions that read files set the place of the error: file, line,
 * column, key.
 */
typedef struct rvl_error {
    size_t struct_size; /* set by the caller: sizeof(rvl_error) */
    rvl_status status;  /* the status that was returned; RVL_OK: no call of this thread has failed
                           yet */
    int native_code;    /* the backend's own number (CUresult, errno); 0: none */
    int device;         /* the driver's number of the device (CUDA ordinal), not the context's;
                           RVL_NO_DEVICE: none */
    uint32_t line;      /* a line of the file, from 1; 0: none, or the file as a whole */
    uint64_t requested_bytes; /* the requested size; 0: no size was requested */
    uint64_t free_bytes;      /* free on the device at that time; 0: unknown */
    char op[24];              /* the step that failed, such as "create", "map" or "copy_to_host" */
    char tag[48];             /* the tag concerned; "": none */
    char native_name[40];     /* the backend's own name of native_code; "": none */
    char message[256];        /* a sentence: cause, then remedy where there is one */
    char key[64];      /* a key of a model's config, or the name of a setting of a step; "": none */
    char file[1024];   /* the file concerned; only the end of a name that is too long; "": none */
    uint32_t column;   /* a column of the line, from 1, in bytes; 0: unknown */
    uint32_t reserved; /* 0 */
} rvl_error;

/*
 * The name of a status as written in C ("RVL_ERR_DEVICE_OOM"), or "RVL_ERR_?" for an unknown value.
 * The string is static. Thread-safe. Since 0.1.
 */
RVL_API const char *rvl_status_name(rvl_status status);

/*
 * Returns a short English phrase for a status ("out of device memory"), or "unknown status". The
 * string is static. Thread-safe. Since 0.1.
 */
RVL_API const char *rvl_status_text(rvl_status status);

/*
 * Copies the calling thread's error record to *error_out; error_out->struct_size must be set. The
 * record describes the last failed call of this thread; successful calls leave it unchanged.
 * Returns RVL_OK or RVL_ERR_INVALID (error_out is NULL, or its struct_size is too small to hold a
 * status). Allocates nothing. Thread-safe. Since 0.1.
 */
RVL_API rvl_status rvl_last_error(rvl_error *error_out);

/*
 * Frees a string that a function of either library has returned to the caller (*json_out). NULL is
 * fine. Thread-safe. Since 0.1.
 */
RVL_API void rvl_string_free(char *string);

#ifdef __cplusplus
}
#endif
#endif
