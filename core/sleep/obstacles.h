/* SPDX-License-Identifier: MIT */
/* What forbids the process to sleep, as those say who know (rvl_sleep_forbid()). */
#ifndef RVL_CORE_SLEEP_OBSTACLES_H
#define RVL_CORE_SLEEP_OBSTACLES_H

#include "core/backend.h"

/* What is asked before each sleep from now on, beside what was said. It fills the record. */
typedef rvl_status (*rvli_obstacle_fn)(void);
void rvli_obstacles_ask(rvli_obstacle_fn ask);

/* Its answer; then RVL_ERR_BUSY, with the newest reason and how many there are. */
rvl_status rvli_obstacles_check(void);

/* Whether a context may be opened now: a driver that sleeps would not answer. RVL_ERR_STATE. */
rvl_status rvli_sleep_check_open(const rvli_backend_ops *ops);

#endif
