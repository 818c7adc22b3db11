/* SPDX-License-Identifier: MIT */
/*
 * What both hook libraries do with memory, over the public API.
 *
 * A context a device, opened when a region first allocates there: a process that sees eight cards
 * and uses one must not take memory of the other seven. Allocations with a disk backup have one for
 * themselves, since a context has one directory, and that may change. Beside what the context
 * knows, a table has each allocation of a region: whether an address is ours, what the backup is
 * made of, where one that was retained lies, and the name of its file.
 */
#ifndef RVL_HOOKS_REGION_SAVER_H
#define RVL_HOOKS_REGION_SAVER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "hooks/process/settings.h"
#include "reveille/reveille.h"

/* Allocations that exist. Zero: no address is ours. */
extern _Atomic uint64_t rvli_saver_live;

/* Whether what is allocated from now on is exportable, where the driver can do that. */
extern _Atomic bool rvli_saver_exportable;

/* The context and first address of the allocation that contains an address; false: none of ours. */
bool rvli_saver_find(rvl_addr addr, rvl_context **context_out, rvl_addr *begin_out);

/*
 * Allocates on a device by the thread's settings. RVL_ERR_DEVICE_OOM also where it would leave less
 * than the margin free; else as rvl_context_open() and rvl_alloc().
 */
rvl_status rvli_saver_alloc(int device, uint64_t size_bytes, const rvli_thread_settings *settings,
                            rvl_addr *addr_out);

/*
 * Waits for the device and frees the allocation that begins at addr. RVL_ERR_NOT_FOUND,
 * without a record: it is not ours; RVL_ERR_BUSY while a capture runs that forbids it; else as
 * rvl_free(). While another capture runs no device can be waited for, so that its memory stays
 * until rvli_saver_free_deferred().
 */
rvl_status rvli_saver_free(rvl_addr addr);

/* After the end of a capture: frees what could not be freed meanwhile. */
void rvli_saver_free_deferred(void);

/*
 * Pauses or resumes a tag on every device; NULL: all. RVL_ERR_NOT_FOUND: no allocation of a region
 * ever had it; RVL_ERR_BUSY while a capture runs; a pause also as rvli_ipc_suspend(); else as
 * rvl_pause() and rvl_resume(). Each context is a transaction of its own; a resume that would not
 * fit in all of them moves none.
 */
rvl_status rvli_saver_pause(const char *tag);
rvl_status rvli_saver_resume(const char *tag);

/* Where the host backup of bytes at an address lies, retained ones included; NULL: none. */
const uint8_t *rvli_saver_backup(rvl_addr addr, uint64_t bytes);

void rvli_saver_set_margin(uint64_t bytes);
void rvli_saver_set_retain(bool on);
bool rvli_saver_get_retain(void);

/*
 * Where files of disk backups are made, for allocations from now on; it is made if it is missing.
 * RVL_ERR_INVALID: an empty path; RVL_ERR_HOST_OOM.
 */
rvl_status rvli_saver_set_directory(const char *path);

/* The context of a device for allocations without a disk backup, opened if needed. */
rvl_status rvli_saver_context(int device, rvl_context **context_out);

/* Whether a context is one of them. */
bool rvli_saver_owns(const rvl_context *context);

/* The contexts that were opened, in that order. RVL_ERR_NOT_FOUND past the last. */
rvl_status rvli_saver_context_at(size_t index, int *device_out, rvl_context **context_out);

/* The value of cudaError_t that says most of a status and the thread's error record. */
int rvli_saver_cuda_error(rvl_status status);

/* A line on stderr for each device that regions use: its driver, what is free, who holds the rest.
 */
void rvli_saver_say_state(void);

#endif
