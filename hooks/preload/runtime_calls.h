/* SPDX-License-Identifier: MIT */
/* The functions of the CUDA runtime that the preload library intercepts. */
#ifndef RVL_HOOKS_PRELOAD_RUNTIME_CALLS_H
#define RVL_HOOKS_PRELOAD_RUNTIME_CALLS_H

#include "hooks/shim/runtime.h"
#include "reveille/status.h"

#define RVLI_RUNTIME_DECLARE(name, parameters) RVL_API int name parameters;
RVLI_RUNTIME_FRONT_MAP(RVLI_RUNTIME_DECLARE)
#undef RVLI_RUNTIME_DECLARE

/* Our wrapper of a slot's function; NULL if there is none. */
void *rvli_runtime_front(rvli_runtime_slot slot);

#endif
