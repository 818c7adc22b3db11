/* SPDX-License-Identifier: MIT */
/*
 * The facts of communicators: their memory, whether they are suspended, and whether this version of
 * NCCL can suspend them. NCCL is asked each time, so suspensions by the program itself are seen.
 */
#ifndef RVL_HOOKS_NCCL_FACTS_H
#define RVL_HOOKS_NCCL_FACTS_H

#include "hooks/nccl/known.h"

/* Fills in the facts of one communicator. RVL_ERR_STATE: NCCL failed. */
rvl_status rvli_nccl_describe(const rvli_nccl *nccl, const rvli_known *known,
                              rvl_communicator *into);

/*
 * RVL_ERR_NOT_SUPPORTED: this NCCL cannot suspend. The message has the bytes that the communicators
 * keep.
 */
rvl_status rvli_nccl_require(const rvli_nccl *nccl, const rvli_known *known, size_t count);

/* As rvl_communicator_forecast(), for these communicators. */
rvl_status rvli_nccl_forecast(const rvli_nccl *nccl, rvl_transition_kind kind,
                              const rvli_known *known, size_t count, rvl_forecast *forecast_out);

#endif
