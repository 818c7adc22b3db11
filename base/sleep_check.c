/* SPDX-License-Identifier: MIT */
#include "base/sleep_check.h"

#include <stdatomic.h>
#include <stddef.h>

static _Atomic(rvli_sleep_check_fn) asked;

void rvli_sleep_check_set(rvli_sleep_check_fn check)
{
    atomic_store(&asked, check);
}

rvl_status rvli_sleep_check(void)
{
    rvli_sleep_check_fn check = atomic_load(&asked);
    return check != NULL ? check() : RVL_OK;
}
