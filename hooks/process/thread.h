/* SPDX-License-Identifier: MIT */
#ifndef RVL_HOOKS_PROCESS_THREAD_H
#define RVL_HOOKS_PROCESS_THREAD_H

#include "reveille/status.h"

/*
 * Starts a detached thread with all signals blocked: signals are for the program's threads. Returns
 * RVL_ERR_HOST_OOM with the message `refused` if it could not be started. `refused` must be static.
 */
rvl_status rvli_start_thread(void *(*run)(void *), void *user, const char *refused);

#endif
