/* SPDX-License-Identifier: MIT */
/*
 * Counted host memory for backups and for staging buffers of the disk. Backends keep memory that
 * was once made, so only bytes beyond the peak take long (base/pricer.h). A forecast starts from
 * these counts. They include memory of transitions that were abandoned later, which never reaches
 * the ledger.
 */
#ifndef RVL_CORE_BACKUP_HOST_BUFFER_H
#define RVL_CORE_BACKUP_HOST_BUFFER_H

#include "core/tables.h"

/*
 * Makes contiguous memory that a device copies from and to. RVL_ERR_HOST_OOM, or the driver's
 * error.
 */
rvl_status rvli_host_buffer_make(rvl_context *context, int device, uint64_t size, void **host_out);

/* Frees it. On failure the memory is lost to this process, and stays counted. */
rvl_status rvli_host_buffer_give_back(rvl_context *context, int device, void *host, uint64_t size);

/*
 * Tells the backend how much the backups of a device will need, once that has changed enough to
 * matter. The first pause need not wait for memory that was made ahead. Never fails: a pause makes
 * what is missing. The lock must not be held.
 */
void rvli_host_buffer_ahead(rvl_context *context, int device);

#endif
