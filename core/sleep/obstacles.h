/* SPDX-License-Identifier: MIT */
/* What forbids the process to sleep, as those say who know (rvl_sleep_forbid()). */
#ifndef RVL_CORE_SLEEP_OBSTACLES_H
#define RVL_CORE_SLEEP_OBSTACLES_H

#include "core/backend.h"

/* The answer of base/sleep_check.h; then RVL_ERR_BUSY, with the newest reason and how many there
 * are. */
rvl_status rvli_obstacles_check(void);

/* Whether a context may be opened now: a driver that sleeps would not answer. RVL_ERR_STATE. */
rvl_status rvli_sleep_check_open(const rvli_backend_ops *ops);

#endif
