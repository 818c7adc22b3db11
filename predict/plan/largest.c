/* SPDX-License-Identifier: MIT */
/*
 * Finds the largest number that fits.
 *
 * Every question is a replay, so few are asked. The last answer may estimate the largest number,
 * and this guess is tried first. It may be wrong. After GUESSES questions the rest is found by
 * bisection, so there are never many more questions than bisection alone would ask.
 */
#include "predict/plan/plan_internal.h"

#define GUESSES 6u

rvl_status rvli_largest(rvli_fits_fn fits, void *user, uint64_t low, uint64_t high, uint64_t guess,
                        uint64_t *largest_out)
{
    for (unsigned asked = 0; low < high; asked++) {
        bool answer;
        uint64_t number = low + (high - low + 1) / 2;
        if (asked < GUESSES && guess <= high)
            number = guess > low ? guess : low + 1;
        else if (asked < GUESSES && guess != UINT64_MAX)
            number = high;
        guess = UINT64_MAX;
        rvl_status status = fits(user, number, &answer, &guess);
        if (status != RVL_OK)
            return status;
        if (answer)
            low = number;
        else
            high = number - 1;
    }
    *largest_out = low;
    return RVL_OK;
}
