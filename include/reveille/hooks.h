/* SPDX-License-Identifier: MIT */
/*
 * What programs ask of the hooks beside torch_memory_saver's C interface (docs/hooks.md). The
 * functions are in libreveille where it was built with the CUDA backend. Link it, or look them up
 * by dlsym(RTLD_DEFAULT, ...) once a hook library is loaded.
 */
#ifndef REVEILLE_HOOKS_H
#define REVEILLE_HOOKS_H

#include "reveille/context.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Whether the values of the environment's variables are understood (docs/hooks.md). If not, the
 * preload library has ended the process at its start. The torch library ends it at the first call
 * that needs them: call this one before. Returns RVL_OK or RVL_ERR_INVALID (a variable is not
 * understood. The message names it). Thread-safe. Since 0.1.
 */
RVL_API rvl_status rvl_hooks_check_settings(void);

/*
 * The context in which regions allocate on a CUDA device of a number, opened if needed; in it the
 * device has the number 0. It belongs to the library and is never closed. Allocations with a disk
 * backup lie in others. rvl_pause() and rvl_resume() of it are refused (RVL_ERR_BUSY) while a
 * stream is captured, ask processes that import the memory, and are recorded, as those below.
 * Returns as rvl_context_open(); RVL_ERR_INVALID (a variable of the environment is not understood.
 * The message names it). Thread-safe. Since 0.1.
 */
RVL_API rvl_status rvl_hooks_get_context(int device, rvl_context **context_out);

/*
 * The context of an index, in the order in which they were opened: one for each device, and one
 * more for each device and directory of disk backups. None is opened. *device_out: the device's
 * number in CUDA. Returns RVL_OK, RVL_ERR_INVALID or RVL_ERR_NOT_FOUND (the index is past the
 * last). Thread-safe. Since 0.1.
 */
RVL_API rvl_status rvl_hooks_get_context_at(size_t index, int *device_out,
                                            rvl_context **context_out);

/*
 * As tms_pause(), but a failure is returned and does not end the process. tag: NULL or "" for all.
 * Each context is a transaction of its own. The tag "nccl" means the communicators, if any is named
 * (reveille/communicator.h): all ranks have to call it, and what can fail on one of them keeps the
 * others waiting. Returns as rvl_pause(); RVL_ERR_NOT_FOUND (no allocation of a region ever had the
 * tag); RVL_ERR_BUSY (a stream is captured, here or in a process that imported the memory);
 * RVL_ERR_TIMEOUT (a process that imported the memory does not release it within
 * RVL_IPC_TIMEOUT_MS). Thread-safe. Since 0.1.
 */
RVL_API rvl_status rvl_hooks_pause(const char *tag);

/*
 * As tms_resume(), and otherwise as above. A resume that would not fit in all contexts moves none.
 * Returns as rvl_resume(); RVL_ERR_NOT_FOUND (no allocation of a region ever had the tag);
 * RVL_ERR_BUSY (a stream is captured, here or in a process that imported the memory);
 * RVL_ERR_TIMEOUT (a process that imported the memory does not release it within
 * RVL_IPC_TIMEOUT_MS). Thread-safe. Since 0.1.
 */
RVL_API rvl_status rvl_hooks_resume(const char *tag);

/*
 * Marks, for the trace that the preload library records (docs/record.md): a stage of the run
 * begins; a step of it ends. Without recording nothing happens. name: 1 to 255 bytes. Returns
 * RVL_OK; RVL_ERR_INVALID; RVL_ERR_HOST_OOM; RVL_ERR_IO (the trace cannot be written). Thread-safe.
 * Since 0.1.
 */
RVL_API rvl_status rvl_hooks_stage(const char *name);
RVL_API rvl_status rvl_hooks_step(void);

/*
 * A stage that is a range: it begins, and ends where its number is left. Ranges nest and overlap,
 * also over the marks of rvl_hooks_stage(). number: from 1 to 2^32 - 1, and not of a range that is
 * open. A number that is not open is passed over. name: as above. Returns as rvl_hooks_stage().
 * Since 0.1.
 */
RVL_API rvl_status rvl_hooks_begin(uint64_t number, const char *name);
RVL_API rvl_status rvl_hooks_end(uint64_t number);

/*
 * What NCCL has allocated for itself on a CUDA device of a number and still holds, as the preload
 * library records it (nccl:PID, docs/record.md). It tells what a version of NCCL keeps that cannot
 * say so itself. Returns RVL_OK; RVL_ERR_NOT_FOUND (the process is not recorded, or has not used
 * the device); RVL_ERR_INVALID. Thread-safe. Since 0.1.
 */
RVL_API rvl_status rvl_hooks_get_nccl_bytes(int device, uint64_t *bytes_out);

/* "preload" or "torch". Static string. Since 0.1. */
RVL_API const char *rvl_hooks_mode(void);

#ifdef __cplusplus
}
#endif
#endif
