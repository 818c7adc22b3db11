/* SPDX-License-Identifier: MIT */
/*
 * Memory of other processes that is mapped here (hooks/export/export.h is the other side).
 *
 * A handle is opened once for each device and counted from then on. When the exporter pauses, a
 * thread of the library waits for the device and unmaps; from then on the addresses fault, and stay
 * reserved until the program closes them, so that nothing else can come to lie there.
 */
#ifndef RVL_HOOKS_IPC_IMPORT_H
#define RVL_HOOKS_IPC_IMPORT_H

#include "hooks/export/wire.h"
#include "reveille/reveille.h"

/*
 * Maps what a handle names for a device, or counts one more opening. RVL_ERR_NOT_FOUND: the handle
 * is from before a pause, or freed, or its process is gone; RVL_ERR_STATE: paused now;
 * RVL_ERR_TIMEOUT: its process does not answer; RVL_ERR_IO; else as the driver has it.
 */
rvl_status rvli_ipc_import(const rvli_ipc_handle *handle, const rvli_ipc_name *name, int device,
                           rvl_addr *addr_out);

/*
 * Takes one opening back; with the last one waits for the device and unmaps. false: there is no
 * import at this address. *status_out: RVL_ERR_BUSY while a capture runs, else the driver's; then
 * it is as it was.
 */
bool rvli_ipc_release(rvl_addr addr, rvl_status *status_out);

#endif
