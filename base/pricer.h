/* SPDX-License-Identifier: MIT */
/*
 * What the calls and copies of one device cost on a virtual clock.
 *
 * A call holds the caller up for its price. A copy is queued on one of two engines, one a
 * direction, and runs beside the caller; waiting for it moves the clock to its end. Host memory is
 * made once and kept, by an engine of its own: a copy into it runs beside that, and cannot end
 * before the memory is there. The first block that is created pays for what was released before.
 *
 * The simulated device and the dry run of a transition both use it, so they agree on every price.
 * Not thread-safe: the caller has the lock of the device.
 */
#ifndef RVL_BASE_PRICER_H
#define RVL_BASE_PRICER_H

#include "base/clock.h"
#include "base/cost.h"

typedef struct rvli_pricer {
    rvl_cost_model cost;
    rvli_clock *clock;
    int lane;                  /* of the clock */
    uint64_t released_bytes;   /* since a block was last created */
    uint64_t host_bytes;       /* in buffers now */
    uint64_t host_made_bytes;  /* the most so far */
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

static inline void rvli_price_create(rvli_pricer *pricer, uint64_t bytes)
{
    rvli_price_call(pricer, pricer->cost.reclaim, pricer->released_bytes);
    rvli_price_call(pricer, pricer->cost.create, bytes);
    pricer->released_bytes = 0;
}

static inline void rvli_price_release(rvli_pricer *pricer, uint64_t bytes)
{
    pricer->released_bytes += bytes;
    rvli_price_call(pricer, pricer->cost.release, bytes);
}

/* Queues a copy, a fill or a digest on the engine of a direction. */
void rvli_price_copy(rvli_pricer *pricer, rvli_direction direction, rvl_cost cost, uint64_t bytes);

/* A copy into host memory ends no sooner than the memory has been made. */
void rvli_price_copy_to_host(rvli_pricer *pricer, uint64_t bytes);

/* Host memory for a backup. It is made beside what goes on, if there were never so many bytes. */
void rvli_price_host_alloc(rvli_pricer *pricer, uint64_t bytes);
void rvli_price_host_free(rvli_pricer *pricer, uint64_t bytes);

/* When everything that was queued so far will have ended. */
static inline uint64_t rvli_price_queued_end_ns(const rvli_pricer *pricer)
{
    return pricer->out_end_ns > pricer->in_end_ns ? pricer->out_end_ns : pricer->in_end_ns;
}

#endif
