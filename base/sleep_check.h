/* SPDX-License-Identifier: MIT */
/*
 * A check before the process sleeps. It lets layers outside the core refuse for reasons that the
 * core cannot know, without either including the other. Thread-safe.
 */
#ifndef RVL_BASE_SLEEP_CHECK_H
#define RVL_BASE_SLEEP_CHECK_H

#include "reveille/status.h"

/* Returns RVL_OK if the process may sleep. Otherwise fills the record. */
typedef rvl_status (*rvli_sleep_check_fn)(void);

/* Sets the check. Replaces the previous one. */
void rvli_sleep_check_set(rvli_sleep_check_fn check);

/* Runs the check. RVL_OK if there is none. */
rvl_status rvli_sleep_check(void);

#endif
