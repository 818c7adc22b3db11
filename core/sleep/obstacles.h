/* SPDX-License-Identifier: MIT */
/* Reasons that forbid the process to sleep (rvl_sleep_forbid()). */
#ifndef RVL_CORE_SLEEP_OBSTACLES_H
#define RVL_CORE_SLEEP_OBSTACLES_H

#include "core/backend.h"

/*
 * Runs the check of base/sleep_check.h first. Then returns RVL_ERR_BUSY, with the newest reason and
 * the number of reasons, if there are any.
 */
rvl_status rvli_obstacles_check(void);

/*
 * Checks whether a context may be opened now: a sleeping driver would not respond. RVL_ERR_STATE.
 */
rvl_status rvli_sleep_check_open(const rvli_backend_ops *ops);

#endif
