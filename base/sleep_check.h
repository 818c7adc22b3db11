/* SPDX-License-Identifier: MIT */
/*
 * A question that is asked before the process sleeps. Rooms beside the core know what the core
 * cannot, and neither includes the other. Thread-safe.
 */
#ifndef RVL_BASE_SLEEP_CHECK_H
#define RVL_BASE_SLEEP_CHECK_H

#include "reveille/status.h"

/* RVL_OK: it may sleep. Else it fills the record. */
typedef rvl_status (*rvli_sleep_check_fn)(void);

/* What is asked from now on. */
void rvli_sleep_check_set(rvli_sleep_check_fn check);

/* Its answer; RVL_OK where there is none. */
rvl_status rvli_sleep_check(void);

#endif
