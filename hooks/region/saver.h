/* SPDX-License-Identifier: MIT */
/*
 * Memory of regions for both hook libraries, over the public API.
 *
 * Each device has its own context, opened when a region first allocates there: a process that sees
 * eight cards and uses one must not use memory of the other seven. Allocations with a disk backup
 * have a separate context for each directory, since a context has one directory, and the program
 * may change it. In addition to the contexts, a table has each allocation of a region: whether an
 * address is ours, the kind of its backup, the address of a retained backup, and the name of its
 * file.
 */
#ifndef RVL_HOOKS_REGION_SAVER_H
#define RVL_HOOKS_REGION_SAVER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "hooks/process/settings.h"
#include "reveille/reveille.h"

/* The number of live allocations. Zero: no address is ours. */
extern _Atomic uint64_t rvli_saver_live;

/* Whether new allocations are exportable, if the driver supports that. */
extern _Atomic bool rvli_saver_exportable;

/*
 * Finds the context and the first address of the allocation that contains an address. Returns false
 * if it is not ours.
 */
bool rvli_saver_find(rvl_addr addr, rvl_context **context_out, rvl_addr *begin_out);

/*
 * Allocates on a device by the thread's settings. RVL_ERR_DEVICE_OOM: no memory, or less than the
 * margin would stay free; otherwise as rvl_context_open() and rvl_alloc().
 */
rvl_status rvli_saver_alloc(int device, uint64_t size_bytes, const rvli_thread_settings *settings,
                            rvl_addr *addr_out);

/*
 * Waits for the device and frees the allocation that begins at addr. RVL_ERR_NOT_FOUND, without an
 * error record: it is not ours; RVL_ERR_BUSY during a capture that forbids it; otherwise as
 * rvl_free(). During other captures no device can be synchronized, so the memory stays allocated
 * until rvli_saver_free_deferred().
 */
rvl_status rvli_saver_free(rvl_addr addr);

/* Call after a capture: frees memory that could not be freed during it. */
void rvli_saver_free_deferred(void);

/*
 * Pauses or resumes a tag (NULL: all tags) on every device. RVL_ERR_NOT_FOUND: no allocation of a
 * region ever had the tag; RVL_ERR_BUSY during a capture; a pause also as rvli_ipc_suspend();
 * otherwise as rvl_pause() and rvl_resume(). Each context is its own transaction. A resume that
 * would not fit in all contexts moves nothing.
 */
rvl_status rvli_saver_pause(const char *tag);
rvl_status rvli_saver_resume(const char *tag);

/* The host backup of the bytes at an address, also a retained one; NULL: none. */
const uint8_t *rvli_saver_backup(rvl_addr addr, uint64_t bytes);

void rvli_saver_set_margin(uint64_t bytes);
void rvli_saver_set_retain(bool on);
bool rvli_saver_get_retain(void);

/*
 * Sets the directory for disk backups of new allocations, and creates it if it is missing.
 * RVL_ERR_INVALID: an empty path; RVL_ERR_HOST_OOM.
 */
rvl_status rvli_saver_set_directory(const char *path);

/* The context of a device for allocations without a disk backup, opened if needed. */
rvl_status rvli_saver_context(int device, rvl_context **context_out);

/* Whether a context is one of regions. */
bool rvli_saver_owns(const rvl_context *context);

/* The contexts of regions in the order of opening. RVL_ERR_NOT_FOUND past the last. */
rvl_status rvli_saver_context_at(size_t index, int *device_out, rvl_context **context_out);

/* The value of cudaError_t that is closest to the status and the thread's error record. */
int rvli_saver_cuda_error(rvl_status status);

/*
 * Prints a line for each device of regions on stderr: its driver, its free memory, and the holders
 * of the rest.
 */
void rvli_saver_say_state(void);

#endif
