/* SPDX-License-Identifier: MIT */
#ifndef RVL_HOOKS_NCCL_MOVE_H
#define RVL_HOOKS_NCCL_MOVE_H

#include "reveille/guard.h"

/* Makes a whole move, without agreement with other ranks: what rvl_hooks_pause("nccl") does. */
rvl_status rvli_communicators_move(rvl_transition_kind kind);

#endif
