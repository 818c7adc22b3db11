/* SPDX-License-Identifier: MIT */
/*
 * The hooks' functions beyond torch_memory_saver's C interface (docs/hooks.md). They are in
 * libreveille if it was built with the CUDA backend. Link it, or look them up by
 * dlsym(RTLD_DEFAULT, ...) once a hook library is loaded.
 */
#ifndef REVEILLE_HOOKS_H
#define REVEILLE_HOOKS_H

#include "reveille/context.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Checks the values of the environment's variables (docs/hooks.md). If one is not understood, the
 * preload library has already ended the process at its start. The torch library ends it at the
 * first call that needs them: call this one first. Returns RVL_OK or RVL_ERR_INVALID (a variable is
 * not understood. The message names it). Thread-safe. Since 0.1.
 */
RVL_API rvl_status rvl_hooks_check_settings(void);

/*
 * The context in which regions allocate on a CUDA device, opened if needed. In that context the
 * device has the number 0. The context belongs to the library and is never closed. Allocations with
 * a disk backup are in other contexts. Its rvl_pause() and rvl_resume() behave like
 * rvl_hooks_pause() and rvl_hooks_resume(): they are refused (RVL_ERR_BUSY) while a stream is
 * captured, ask processes that import the memory, and are recorded. Returns as rvl_context_open();
 * RVL_ERR_INVALID (a variable of the environment is not understood. The message names it).
 * Thread-safe. Since 0.1.
 */
RVL_API rvl_status rvl_hooks_get_context(int device, rvl_context **context_out);

/*
 * The context at an index, in the order in which they were opened: one for each device, and one
 * more for each device and directory of disk backups. Opens none. *device_out: the device's number
 * in CUDA. Returns RVL_OK, RVL_ERR_INVALID or RVL_ERR_NOT_FOUND (the index is past the last).
 * Thread-safe. Since 0.1.
 */
RVL_API rvl_status rvl_hooks_get_context_at(size_t index, int *device_out,
                                            rvl_context **context_out);

/*
 * As tms_pause(), but returns a failure instead of ending the process. tag: NULL or "" for all.
 * Each context is a separate transaction. The tag "nccl" means the communicators, if any was added
 * (reveille/communicator.h). Then all ranks have to call this function, and a failure on one of
 * them keeps the others waiting. Returns as rvl_pause(); RVL_ERR_NOT_FOUND (no allocation of a
 * region ever had the tag); RVL_ERR_BUSY (a stream is captured, here or in a process that imported
 * the memory); RVL_ERR_TIMEOUT (a process that imported the memory does not release it within
 * RVL_IPC_TIMEOUT_MS). Thread-safe. Since 0.1.
 */
RVL_API rvl_status rvl_hooks_pause(const char *tag);

/*
 * As tms_resume(), and otherwise like rvl_hooks_pause(). A resume that would not fit in all
 * contexts moves none. Returns as rvl_resume(); RVL_ERR_NOT_FOUND (no allocation of a region ever
 * had the tag); RVL_ERR_BUSY (a stream is captured, here or in a process that imported the memory);
 * RVL_ERR_TIMEOUT (a process that imported the memory does not release it within
 * RVL_IPC_TIMEOUT_MS). Thread-safe. Since 0.1.
 */
RVL_API rvl_status rvl_hooks_resume(const char *tag);

/*
 * Marks the begin of a stage of the run, or the end of a step, in the trace that the preload
 * library records (docs/record.md). Does nothing while nothing is recorded. name: 1 to 255 bytes.
 * Returns RVL_OK; RVL_ERR_INVALID; RVL_ERR_HOST_OOM; RVL_ERR_IO (the trace cannot be written).
 * Thread-safe. Since 0.1.
 */
RVL_API rvl_status rvl_hooks_stage(const char *name);
RVL_API rvl_status rvl_hooks_step(void);

/*
 * A stage that is a range: rvl_hooks_begin() begins it, and rvl_hooks_end() with its number ends
 * it. Ranges may nest and overlap, also with stages of rvl_hooks_stage(). number: from 1 to 2^32 -
 * 1, and not that of an open range. Ending a number that is not open does nothing. name: as in
 * rvl_hooks_stage(). Returns as rvl_hooks_stage(). Since 0.1.
 */
RVL_API rvl_status rvl_hooks_begin(uint64_t number, const char *name);
RVL_API rvl_status rvl_hooks_end(uint64_t number);

/*
 * Bytes that NCCL has allocated for itself on a CUDA device and still holds, as the preload library
 * records them (nccl:PID, docs/record.md). Use it for a version of NCCL that cannot report this
 * itself. Returns RVL_OK; RVL_ERR_NOT_FOUND (the process is not recorded, or has not used the
 * device); RVL_ERR_INVALID. Thread-safe. Since 0.1.
 */
RVL_API rvl_status rvl_hooks_get_nccl_bytes(int device, uint64_t *bytes_out);

/* Returns "preload" or "torch". Static string. Since 0.1. */
RVL_API const char *rvl_hooks_mode(void);

#ifdef __cplusplus
}
#endif
#endif
