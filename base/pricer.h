/* SPDX-License-Identifier: MIT */
/*
 * What the calls and copies of one device cost on a virtual clock.
 *
 * A call holds the caller up for its price. A copy is queued on one of two engines, one a
 * direction, and runs beside the caller; waiting for it moves the clock to its end.
 *
 * Host memory is made once and kept, by an engine of its own, in chunks and in the order in which
 * it is asked for. Copies come to it in the same order, and each waits for its chunk. Where the
 * next buffer is only asked for then, making begins from rest again, and each time that costs
 * host_start.
 *
 * The driver clears what is released beside everything, on one more engine. The next create or
 * release pays for the blocks that have been cleared by then (reclaim): both take them back first.
 * A create also waits if it needs memory that is not cleared yet. Other calls take longer
 * meanwhile.
 *
 * The simulated device and the dry run of a transition both use it, so they agree on every price.
 * Not thread-safe: the caller has the lock of the device.
 */
#ifndef RVL_BASE_PRICER_H
#define RVL_BASE_PRICER_H

#include "base/clearing.h"
#include "base/clock.h"
#include "base/cost.h"

typedef struct rvli_pricer {
    rvl_cost_model cost;
    rvl_cost_waits waits;
    rvli_clock *clock;
    int lane;                  /* of the clock */
    rvli_clearing clearing;    /* what was released, and not paid for */
    uint64_t host_bytes;       /* in buffers now */
    uint64_t host_made_bytes;  /* the most so far */
    uint64_t host_empty_bytes; /* of them: no copy has come to them yet */
    uint64_t host_made_end_ns; /* when what was asked for will have been made */
    uint64_t out_end_ns;       /* when the copies to the host will have ended */
    uint64_t in_end_ns;        /* when the copies to the device will have ended */
} rvli_pricer;

typedef enum rvli_direction { RVLI_OUT, RVLI_IN } rvli_direction;

/* Lets the price of a call pass. */
static inline void rvli_price_call(rvli_pricer *pricer, rvl_cost cost, uint64_t bytes)
{
    rvli_clock_add(pricer->clock, pricer->lane, rvli_cost_ns(cost, bytes));
}

/* The same for one that takes longer while the driver clears. */
void rvli_price_clearing(rvli_pricer *pricer, rvl_cost cost, rvl_cost longer, uint64_t bytes);

static inline void rvli_price_unmap(rvli_pricer *pricer, uint64_t bytes)
{
    rvli_price_clearing(pricer, pricer->cost.unmap, pricer->waits.unmap_clearing, bytes);
}

/* free_bytes: what the device had free before, cleared or not. */
void rvli_price_create(rvli_pricer *pricer, uint64_t bytes, uint64_t free_bytes);
void rvli_price_release(rvli_pricer *pricer, uint64_t bytes);

/* Queues a copy, a fill or a digest on the engine of a direction. */
void rvli_price_copy(rvli_pricer *pricer, rvli_direction direction, rvl_cost cost, uint64_t bytes);

/* A copy into host memory ends no sooner than the memory has been made. */
void rvli_price_copy_to_host(rvli_pricer *pricer, uint64_t bytes);

/* Host memory for a backup. It is made beside what goes on, if there were never so many bytes. */
void rvli_price_host_alloc(rvli_pricer *pricer, uint64_t bytes);
/* The same, ahead of the buffers: no caller is held up. */
void rvli_price_host_ahead(rvli_pricer *pricer, uint64_t bytes);
void rvli_price_host_free(rvli_pricer *pricer, uint64_t bytes);

/* When everything that was queued so far will have ended. */
static inline uint64_t rvli_price_queued_end_ns(const rvli_pricer *pricer)
{
    return pricer->out_end_ns > pricer->in_end_ns ? pricer->out_end_ns : pricer->in_end_ns;
}

/* Waits for that, as a caller does who wants the device idle. */
void rvli_price_synchronize(rvli_pricer *pricer);

#endif
