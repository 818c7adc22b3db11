/* SPDX-License-Identifier: MIT */
/*
 * An ops table that does nothing and charges the price of everything to a virtual clock.
 *
 * A context on it replaces another, the model, during a forecast. It has the model's devices, their
 * prices, and the state that prices depend on (what was released last, how much host memory was
 * made). There is always room.
 */
#ifndef RVL_CORE_FORECAST_PRICING_OPS_H
#define RVL_CORE_FORECAST_PRICING_OPS_H

#include "core/tables.h"

/* backend_options: the model, an rvl_context. open reads it while the caller holds its lock. */
extern const rvli_backend_ops rvli_pricing_ops;

#endif
