/* SPDX-License-Identifier: MIT */
#include "core/moving.h"

#include <stdlib.h>

static int compare_id(const void *id, const void *item)
{
    uint64_t a = *(const uint64_t *)id, b = ((const rvli_move_item *)item)->id;
    return (a > b) - (a < b);
}

rvli_move_item *rvli_transition_item(const rvli_transition *transition, uint64_t allocation_id)
{
    return bsearch(&allocation_id, transition->items, transition->item_count,
                   sizeof *transition->items, compare_id);
}
