/* SPDX-License-Identifier: MIT */
/*
 * Memory of other processes that is mapped here. hooks/export/export.h is the exporter's side.
 *
 * A handle is opened once for each device, and further openings are counted. When the exporter
 * pauses, a thread of the library waits for the device and unmaps. From then on the addresses
 * fault. They stay reserved until the program closes them, so nothing else is mapped there.
 */
#ifndef RVL_HOOKS_IPC_IMPORT_H
#define RVL_HOOKS_IPC_IMPORT_H

#include "hooks/export/wire.h"
#include "reveille/reveille.h"

/*
 * Maps the memory of a handle for a device, or counts one more opening. RVL_ERR_NOT_FOUND: the
 * handle is from before a pause, its memory was freed, or its process is gone; RVL_ERR_STATE:
 * paused now; RVL_ERR_TIMEOUT: its process does not reply; RVL_ERR_IO; or the driver's error.
 */
rvl_status rvli_ipc_import(const rvli_ipc_handle *handle, const rvli_ipc_name *name, int device,
                           rvl_addr *addr_out);

/*
 * Closes one opening. The last close waits for the device and unmaps. Returns false if there is no
 * import at this address. *status_out: RVL_ERR_BUSY during a capture, or the driver's error; then
 * nothing has changed.
 */
bool rvli_ipc_release(rvl_addr addr, rvl_status *status_out);

#endif
