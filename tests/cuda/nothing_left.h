/* SPDX-License-Identifier: MIT */
/* What tests on the fake driver ask at their end. */
#ifndef RVL_TESTS_NOTHING_LEFT_H
#define RVL_TESTS_NOTHING_LEFT_H

#include "fake.h"
#include "tests/support/support.h"

/* Resets the fake driver; fails the test if anything was still there in it. */
static inline void check_nothing_left(void)
{
    const fake_live nothing = {0};
    fake_live left = fake_reset();
    assert_memory_equal(&left, &nothing, sizeof nothing);
}

#endif
