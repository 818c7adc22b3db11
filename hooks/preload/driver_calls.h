/* SPDX-License-Identifier: MIT */
/*
 * The functions of the CUDA driver that the preload library intercepts when the program looks them
 * up.
 */
#ifndef RVL_HOOKS_PRELOAD_DRIVER_CALLS_H
#define RVL_HOOKS_PRELOAD_DRIVER_CALLS_H

#include <stdbool.h>

/* The call with an exported name ("cuMemAlloc_v2"); -1 if it is not intercepted. */
int rvli_driver_call_of(const char *symbol);

/*
 * Returns our wrapper of a function that dlsym() found, or `found` if it is NULL or ours, or if the
 * call is not intercepted now.
 */
void *rvli_driver_front_at(int call, void *found);

/*
 * Returns our wrapper of a function that cuGetProcAddress() found by name ("cuMemAlloc"), CUDA
 * version and stream flavour, or `found` if there is none.
 */
void *rvli_driver_front_of(const char *name, int version, bool per_thread, void *found);

#endif
