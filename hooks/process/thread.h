/* SPDX-License-Identifier: MIT */
#ifndef RVL_HOOKS_PROCESS_THREAD_H
#define RVL_HOOKS_PROCESS_THREAD_H

#include "reveille/status.h"

/*
 * Starts a thread that nobody joins. Signals are the program's: the thread gets none.
 * RVL_ERR_HOST_OOM with the message `refused`, which is static: it could not be started.
 */
rvl_status rvli_start_thread(void *(*run)(void *), void *user, const char *refused);

#endif
