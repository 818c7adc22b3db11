/* SPDX-License-Identifier: MIT */
/*
 * Errors of files, told from the errno of the call that failed.
 */
#ifndef RVL_CORE_BACKUP_DISK_PROBLEM_H
#define RVL_CORE_BACKUP_DISK_PROBLEM_H

#include "reveille/status.h"

/* RVL_ERR_DISK_FULL where space, a quota or a limit of size ran out, RVL_ERR_IO otherwise. */
rvl_status rvli_disk_status(int number);

/* Fills the error record with message, the step op, and the number and name of the errno. */
rvl_status rvli_disk_error(rvl_status status, const char *op, int number, const char *message);

/* The same, of something at path: "what PATH why: remedy", cut to fit. */
rvl_status rvli_disk_error_at(rvl_status status, const char *op, int number, const char *what,
                              const char *path, const char *why);

#endif
