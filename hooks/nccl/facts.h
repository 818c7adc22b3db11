/* SPDX-License-Identifier: MIT */
/*
 * What NCCL says of communicators: their memory, whether they are suspended, and whether this
 * version can suspend them. It is asked each time, so a program that suspends by itself is
 * understood.
 */
#ifndef RVL_HOOKS_NCCL_FACTS_H
#define RVL_HOOKS_NCCL_FACTS_H

#include "hooks/nccl/known.h"

/* What NCCL says of one. RVL_ERR_STATE: NCCL failed. */
rvl_status rvli_nccl_describe(const rvli_nccl *nccl, const rvli_known *known,
                              rvl_communicator *into);

/* RVL_OK, or RVL_ERR_NOT_SUPPORTED with what these communicators keep. */
rvl_status rvli_nccl_require(const rvli_nccl *nccl, const rvli_known *known, size_t count);

/* What rvl_communicator_forecast() says, of these. */
rvl_status rvli_nccl_forecast(const rvli_nccl *nccl, rvl_transition_kind kind,
                              const rvli_known *known, size_t count, rvl_forecast *forecast_out);

#endif
