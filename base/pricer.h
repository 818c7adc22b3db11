/* SPDX-License-Identifier: MIT */
/*
 * The cost of the calls and copies of one device on a virtual clock.
 *
 * A call blocks the caller for its price. A copy is queued on the engine of its direction and runs
 * in the background; waiting for it moves the clock to its end.
 *
 * Host memory is made once and kept. Another engine makes it, in chunks and in the order of the
 * requests. Copies reach it in the same order, and each waits for its chunk. If the next buffer is
 * only requested after the engine has gone idle, the engine has to start again, and each start
 * costs host_start.
 *
 * The driver clears released memory in the background, on one more engine. The next create or
 * release pays for the blocks that are cleared by then (reclaim), because both reclaim them first.
 * A create also waits if it needs memory that is not cleared yet. Other calls take longer while the
 * driver clears.
 *
 * The simulated device and the forecast of a transition both use this, so they agree on every
 * price. Not thread-safe: the caller holds the lock of the device.
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
    int lane;                  /* of this device, in the clock */
    rvli_clearing clearing;    /* released blocks that are not paid for yet */
    uint64_t host_bytes;       /* in buffers now */
    uint64_t host_made_bytes;  /* the peak of host_bytes, or more if requested ahead */
    uint64_t host_empty_bytes; /* part of host_made_bytes that no copy has reached yet */
    uint64_t host_made_end_ns; /* when all requested host memory will be made */
    uint64_t out_end_ns;       /* when the queued copies to the host will end */
    uint64_t in_end_ns;        /* when the queued copies to the device will end */
} rvli_pricer;

typedef enum rvli_direction { RVLI_OUT, RVLI_IN } rvli_direction;

/* Adds the price of a call to the clock. */
static inline void rvli_price_call(rvli_pricer *pricer, rvl_cost cost, uint64_t bytes)
{
    rvli_clock_add(pricer->clock, pricer->lane, rvli_cost_ns(cost, bytes));
}

/* Like rvli_price_call(), plus `longer` if the driver is clearing. */
void rvli_price_clearing(rvli_pricer *pricer, rvl_cost cost, rvl_cost longer, uint64_t bytes);

static inline void rvli_price_unmap(rvli_pricer *pricer, uint64_t bytes)
{
    rvli_price_clearing(pricer, pricer->cost.unmap, pricer->waits.unmap_clearing, bytes);
}

/* free_bytes: free on the device before the call, cleared or not. */
void rvli_price_create(rvli_pricer *pricer, uint64_t bytes, uint64_t free_bytes);
void rvli_price_release(rvli_pricer *pricer, uint64_t bytes);

/* Queues a copy, a fill or a digest on the engine of a direction. */
void rvli_price_copy(rvli_pricer *pricer, rvli_direction direction, rvl_cost cost, uint64_t bytes);

/* Queues a copy into host memory. It ends no sooner than that memory has been made. */
void rvli_price_copy_to_host(rvli_pricer *pricer, uint64_t bytes);

/*
 * Allocates host memory for a backup. Bytes beyond the most ever requested are made in the
 * background.
 */
void rvli_price_host_alloc(rvli_pricer *pricer, uint64_t bytes);
/* Requests host memory ahead of the buffers. Does not block the caller. */
void rvli_price_host_ahead(rvli_pricer *pricer, uint64_t bytes);
void rvli_price_host_free(rvli_pricer *pricer, uint64_t bytes);

/* Returns when everything queued so far will end. */
static inline uint64_t rvli_price_queued_end_ns(const rvli_pricer *pricer)
{
    return pricer->out_end_ns > pricer->in_end_ns ? pricer->out_end_ns : pricer->in_end_ns;
}

/* Waits for everything queued so far. */
void rvli_price_synchronize(rvli_pricer *pricer);

#endif
