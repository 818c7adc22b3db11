/* SPDX-License-Identifier: MIT */
#include "base/pricer.h"

/* Runs after what the engine does already, and not before now. */
static void queue(const rvli_pricer *pricer, uint64_t *end_ns, uint64_t cost_ns)
{
    uint64_t now_ns = rvli_clock_now(pricer->clock);
    *end_ns = (*end_ns > now_ns ? *end_ns : now_ns) + cost_ns;
}

void rvli_price_copy(rvli_pricer *pricer, rvli_direction direction, rvl_cost cost, uint64_t bytes)
{
    queue(pricer, direction == RVLI_OUT ? &pricer->out_end_ns : &pricer->in_end_ns,
          rvli_cost_ns(cost, bytes));
}

void rvli_price_copy_to_host(rvli_pricer *pricer, uint64_t bytes)
{
    rvli_price_copy(pricer, RVLI_OUT, pricer->cost.copy_to_host, bytes);
    if (pricer->out_end_ns < pricer->host_made_end_ns)
        pricer->out_end_ns = pricer->host_made_end_ns;
}

void rvli_price_host_alloc(rvli_pricer *pricer, uint64_t bytes)
{
    rvl_cost cost = pricer->cost.host_alloc;
    rvl_cost making = {.fs_per_byte = cost.fs_per_byte};
    rvli_price_call(pricer, (rvl_cost){.call_ns = cost.call_ns}, 0);
    pricer->host_bytes += bytes;
    if (pricer->host_bytes <= pricer->host_made_bytes)
        return;
    queue(pricer, &pricer->host_made_end_ns,
          rvli_cost_ns(making, pricer->host_bytes - pricer->host_made_bytes));
    pricer->host_made_bytes = pricer->host_bytes;
}

void rvli_price_host_free(rvli_pricer *pricer, uint64_t bytes)
{
    pricer->host_bytes -= bytes;
    rvli_price_call(pricer, pricer->cost.host_free, bytes);
}
