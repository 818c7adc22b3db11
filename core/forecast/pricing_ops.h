/* SPDX-License-Identifier: MIT */
/*
 * An ops table that does nothing and lets the price of everything pass on a virtual clock.
 *
 * A context that is opened on it takes the place of another, the model, for as long as a dry run
 * lasts: it has the model's devices, their prices, and what the price of a call depends on (what
 * was released last, how much host memory was made). There is always room.
 */
#ifndef RVL_CORE_FORECAST_PRICING_OPS_H
#define RVL_CORE_FORECAST_PRICING_OPS_H

#include "core/tables.h"

/* backend_options: the model, an rvl_context. Reads it at open, with its lock held by the caller.
 */
extern const rvli_backend_ops rvli_pricing_ops;

#endif
