/* SPDX-License-Identifier: MIT */
/*
 * The recorder: writes what a context does as a trace (docs/trace-format.md).
 */
#ifndef REVEILLE_RECORD_H
#define REVEILLE_RECORD_H

#include "reveille/context.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Starts recording to a new file at path, in the place of an older one; what is allocated already
 * is written first. A failure leaves the older one. A free is recorded before the driver call, an
 * allocation after it, in a tag that moves after the move. At each stage mark the true use of each
 * device is sampled, unless other threads change memory all the while. Lines are buffered and
 * written when the buffer is full, at each mark, and at stop; a killed process leaves a file that
 * `reveille replay --partial` reads. Returns RVL_OK; RVL_ERR_INVALID (path NULL, or ends in .zst:
 * compress it afterwards); RVL_ERR_STATE (already recording); RVL_ERR_IO; RVL_ERR_HOST_OOM;
 * RVL_ERR_FORKED. Thread-safe. Since 0.1.
 */
RVL_API rvl_status rvl_record_start(rvl_context *context, const char *path);

/*
 * Writes the end record and closes the file. Returns RVL_OK; RVL_ERR_STATE (not recording);
 * RVL_ERR_IO if any line could not be written (the file then lacks its end record); RVL_ERR_FORKED.
 * Thread-safe. Since 0.1.
 */
RVL_API rvl_status rvl_record_stop(rvl_context *context);

#ifdef __cplusplus
}
#endif
#endif
