/* SPDX-License-Identifier: MIT */
/*
 * Errors of files, from the errno of a failed call.
 */
#ifndef RVL_CORE_BACKUP_DISK_PROBLEM_H
#define RVL_CORE_BACKUP_DISK_PROBLEM_H

#include "reveille/status.h"

/* Returns RVL_ERR_DISK_FULL if space, a quota or a size limit ran out, RVL_ERR_IO otherwise. */
rvl_status rvli_disk_status(int number);

/* Fills the error record with message, the step op, and the number and name of the errno. */
rvl_status rvli_disk_error(rvl_status status, const char *op, int number, const char *message);

/* Like rvli_disk_error(), for a path: "what PATH why: remedy", cut to fit. */
rvl_status rvli_disk_error_at(rvl_status status, const char *op, int number, const char *what,
                              const char *path, const char *why);

#endif
