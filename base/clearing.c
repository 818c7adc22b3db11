/* SPDX-License-Identifier: MIT */
#include "base/clearing.h"

#include "base/cost.h"

static uint32_t place(const rvli_clearing *it, uint32_t number)
{
    return (it->first + number) % RVLI_CLEARING_MAX;
}

/* Returns whether a new block is merged into the last one. */
static bool joins(const rvli_clearing *it, uint64_t bytes)
{
    if (it->count == 0)
        return false;
    return it->count == RVLI_CLEARING_MAX ||
           it->blocks[place(it, it->count - 1)].bytes + bytes <= RVLI_CLEARING_JOINED_BYTES;
}

void rvli_clearing_add(rvli_clearing *it, rvl_cost clear, uint64_t bytes, uint64_t now_ns)
{
    if (it->end_ns < now_ns)
        it->end_ns = now_ns;
    it->end_ns += rvli_cost_ns(clear, bytes);
    if (!joins(it, bytes))
        it->blocks[place(it, it->count++)].bytes = 0;
    uint32_t last = place(it, it->count - 1);
    it->blocks[last].bytes += bytes;
    it->blocks[last].end_ns = it->end_ns;
}

uint64_t rvli_clearing_take(rvli_clearing *it, uint64_t now_ns)
{
    uint64_t bytes = 0;
    for (; it->count > 0 && it->blocks[it->first].end_ns <= now_ns; it->count--) {
        bytes += it->blocks[it->first].bytes;
        it->first = place(it, 1);
    }
    return bytes;
}

uint64_t rvli_clearing_down_to(const rvli_clearing *it, uint64_t bytes)
{
    uint64_t left = 0;
    for (uint32_t i = it->count; i > 0; i--) {
        uint32_t at = place(it, i - 1);
        left += it->blocks[at].bytes;
        if (left > bytes)
            return it->blocks[at].end_ns;
    }
    return 0;
}

rvli_clearing rvli_clearing_from(const rvli_clearing *it, uint64_t now_ns)
{
    rvli_clearing copy = *it;
    copy.end_ns = it->end_ns > now_ns ? it->end_ns - now_ns : 0;
    for (uint32_t i = 0; i < it->count; i++) {
        uint64_t *end_ns = &copy.blocks[place(it, i)].end_ns;
        *end_ns = *end_ns > now_ns ? *end_ns - now_ns : 0;
    }
    return copy;
}
