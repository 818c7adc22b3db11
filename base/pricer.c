/* SPDX-License-Identifier: MIT */
#include "base/pricer.h"

static uint64_t later(uint64_t a_ns, uint64_t b_ns)
{
    return a_ns > b_ns ? a_ns : b_ns;
}

static uint64_t lesser(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint64_t now_of(const rvli_pricer *pricer)
{
    return rvli_clock_now(pricer->clock);
}

/* Queues work after what the engine already has, and no sooner than now. */
static void queue(const rvli_pricer *pricer, uint64_t *end_ns, uint64_t cost_ns)
{
    *end_ns = later(*end_ns, now_of(pricer)) + cost_ns;
}

/* ---- Clearing ---- */

static bool is_clearing(const rvli_pricer *pricer)
{
    return pricer->clearing.end_ns > now_of(pricer);
}

void rvli_price_clearing(rvli_pricer *pricer, rvl_cost cost, rvl_cost longer, uint64_t bytes)
{
    if (is_clearing(pricer))
        rvli_price_call(pricer, longer, bytes);
    rvli_price_call(pricer, cost, bytes);
}

/* Waits until `bytes` of the free memory are cleared, or everything that was released. */
static void wait_for_cleared(rvli_pricer *pricer, uint64_t bytes, uint64_t free_bytes)
{
    uint64_t may_stay = free_bytes > bytes ? free_bytes - bytes : 0;
    rvli_clock_wait_until(pricer->clock, rvli_clearing_down_to(&pricer->clearing, may_stay));
}

/* Pays for reclaiming the blocks that were cleared since the last time. */
static void pay_cleared(rvli_pricer *pricer)
{
    uint64_t bytes = rvli_clearing_take(&pricer->clearing, now_of(pricer));
    rvli_price_call(pricer, pricer->cost.reclaim, bytes);
}

void rvli_price_create(rvli_pricer *pricer, uint64_t bytes, uint64_t free_bytes)
{
    wait_for_cleared(pricer, bytes, free_bytes);
    pay_cleared(pricer);
    rvli_price_call(pricer, pricer->cost.create, bytes);
    (void)rvli_clearing_take(&pricer->clearing, now_of(pricer)); /* cleared during the create: too
                                                                    little to pay for */
}

void rvli_price_release(rvli_pricer *pricer, uint64_t bytes)
{
    pay_cleared(pricer);
    rvli_price_clearing(pricer, pricer->cost.release, pricer->waits.release_clearing, bytes);
    rvli_clearing_add(&pricer->clearing, pricer->waits.clear, bytes, now_of(pricer));
}

/* ---- Copies ---- */

void rvli_price_copy(rvli_pricer *pricer, rvli_direction direction, rvl_cost cost, uint64_t bytes)
{
    queue(pricer, direction == RVLI_OUT ? &pricer->out_end_ns : &pricer->in_end_ns,
          rvli_cost_ns(cost, bytes));
}

void rvli_price_synchronize(rvli_pricer *pricer)
{
    rvli_price_clearing(pricer, (rvl_cost){0}, pricer->waits.idle_clearing, 0);
    rvli_clock_wait_until(pricer->clock, rvli_price_queued_end_ns(pricer));
}

/* ---- Host memory ---- */

static bool knows_chunks(const rvli_pricer *pricer)
{
    return pricer->waits.host_start.call_ns > 0;
}

/* Returns the bytes that must be made for this many bytes of buffers: whole chunks. */
static uint64_t made_for(const rvli_pricer *pricer, uint64_t bytes)
{
    uint64_t chunk = knows_chunks(pricer) ? RVL_HOST_CHUNK_BYTES : 1;
    return bytes + (chunk - bytes % chunk) % chunk;
}

/*
 * Returns when the memory for the copies so far will be made: all of it, except for the part that
 * later copies will fill.
 */
static uint64_t made_so_far_end_ns(const rvli_pricer *pricer)
{
    const rvl_cost making = {.fs_per_byte = pricer->cost.host_alloc.fs_per_byte};
    uint64_t filled = pricer->host_made_bytes - pricer->host_empty_bytes;
    uint64_t behind = made_for(pricer, pricer->host_made_bytes) - made_for(pricer, filled);
    uint64_t behind_ns = rvli_cost_ns(making, behind);
    return pricer->host_made_end_ns - lesser(behind_ns, pricer->host_made_end_ns);
}

void rvli_price_copy_to_host(rvli_pricer *pricer, uint64_t bytes)
{
    rvli_price_copy(pricer, RVLI_OUT, pricer->cost.copy_to_host, bytes);
    pricer->host_empty_bytes -= lesser(bytes, pricer->host_empty_bytes);
    uint64_t made_ns = made_so_far_end_ns(pricer);
    pricer->out_end_ns = later(pricer->out_end_ns, made_ns);
    if (knows_chunks(pricer))
        rvli_clock_wait_until(pricer->clock, made_ns);
}

/* Requests host memory until this many bytes are made. */
static void make_up_to(rvli_pricer *pricer, uint64_t bytes)
{
    rvl_cost making = {.fs_per_byte = pricer->cost.host_alloc.fs_per_byte};
    if (bytes <= pricer->host_made_bytes)
        return;
    uint64_t before = made_for(pricer, pricer->host_made_bytes);
    uint64_t more = made_for(pricer, bytes) - before;
    if (before == 0)
        making.call_ns += pricer->waits.host_first.call_ns;
    if (more > 0 && pricer->host_made_end_ns <= now_of(pricer))
        making.call_ns += pricer->waits.host_start.call_ns;
    pricer->host_empty_bytes += bytes - pricer->host_made_bytes;
    pricer->host_made_bytes = bytes;
    if (more > 0)
        queue(pricer, &pricer->host_made_end_ns, rvli_cost_ns(making, more));
}

void rvli_price_host_alloc(rvli_pricer *pricer, uint64_t bytes)
{
    rvli_price_call(pricer, (rvl_cost){.call_ns = pricer->cost.host_alloc.call_ns}, 0);
    pricer->host_bytes += bytes;
    make_up_to(pricer, pricer->host_bytes);
}

void rvli_price_host_ahead(rvli_pricer *pricer, uint64_t bytes)
{
    make_up_to(pricer, bytes);
}

void rvli_price_host_free(rvli_pricer *pricer, uint64_t bytes)
{
    pricer->host_bytes -= bytes;
    rvli_price_call(pricer, pricer->cost.host_free, bytes);
}
