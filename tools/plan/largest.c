/* SPDX-License-Identifier: MIT */
/* The largest number that fits. */
#include "plan/plan.h"

rvl_status plan_largest(plan_fits_fn fits, void *user, uint64_t low, uint64_t high,
                        uint64_t *largest_out)
{
    while (low < high) {
        bool answer;
        uint64_t middle = low + (high - low + 1) / 2;
        rvl_status status = fits(user, middle, &answer);
        if (status != RVL_OK)
            return status;
        if (answer)
            low = middle;
        else
            high = middle - 1;
    }
    *largest_out = low;
    return RVL_OK;
}
