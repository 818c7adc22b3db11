/* SPDX-License-Identifier: MIT */
#include "core/transition/order.h"

#include <stdlib.h>

#include "base/error.h"

static void add(rvli_transition *transition, size_t *count, rvli_move_item *item)
{
    if (item == NULL || item->ordered)
        return;
    item->ordered = true;
    transition->order[(*count)++] = item;
}

rvl_status rvli_order_make(rvli_transition *transition, const rvl_addr *addrs, size_t count)
{
    rvl_context *context = transition->context;
    rvl_status status = RVL_OK;
    size_t ordered = 0;
    if (count == 0 || transition->item_count == 0)
        return RVL_OK; /* ids rise, so order by id is order of allocation */
    transition->order = malloc(transition->item_count * sizeof(rvli_move_item *));
    if (transition->order == NULL)
        return rvli_error(RVL_ERR_HOST_OOM, "no host memory for the order of a resume");
    for (size_t i = 0; i < count && status == RVL_OK; i++) {
        rvli_allocation *found = NULL;
        status = rvli_index_containing(&context->by_addr, addrs[i], &found);
        if (found != NULL)
            add(transition, &ordered, rvli_transition_item(transition, rvli_mover(found)->id));
    }
    for (size_t i = 0; i < transition->item_count; i++)
        add(transition, &ordered, &transition->items[i]);
    return status;
}
