/* SPDX-License-Identifier: MIT */
/*
 * Host memory of backups and of what carries them to a disk, counted: backends keep what was once
 * made, so that only what goes beyond the most so far takes long (base/pricer.h). A forecast
 * begins from these counts. They also hold what a transition made that was given up later, of
 * which the ledger never hears.
 */
#ifndef RVL_CORE_BACKUP_HOST_BUFFER_H
#define RVL_CORE_BACKUP_HOST_BUFFER_H

#include "core/tables.h"

/* Contiguous memory that a device copies from and to. RVL_ERR_HOST_OOM, or the driver's answer. */
rvl_status rvli_host_buffer_make(rvl_context *context, int device, uint64_t size, void **host_out);

/* On failure the memory is lost to this process, and stays counted. */
rvl_status rvli_host_buffer_give_back(rvl_context *context, int device, void *host, uint64_t size);

/*
 * Tells the backend what the backups of a device will want, once that has grown or shrunk by enough
 * to matter. What is made ahead, the first pause need not wait for. Never fails: a pause makes what
 * is missing. Not with the lock held.
 */
void rvli_host_buffer_ahead(rvl_context *context, int device);

#endif
