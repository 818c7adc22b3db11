/* SPDX-License-Identifier: MIT */
/*
 * The functions of the CUDA driver that the preload library stands in front of, when the program
 * looks them up.
 */
#ifndef RVL_HOOKS_PRELOAD_DRIVER_CALLS_H
#define RVL_HOOKS_PRELOAD_DRIVER_CALLS_H

#include <stdbool.h>

/* The call of an exported name ("cuMemAlloc_v2"); -1: there is none of ours. */
int rvli_driver_call_of(const char *symbol);

/* Our function in front of one that dlsym() found; found itself if it is NULL, or ours. */
void *rvli_driver_front_at(int call, void *found);

/*
 * Our function in front of one that cuGetProcAddress() found by name ("cuMemAlloc"), CUDA version
 * and stream flavour; found itself if there is none.
 */
void *rvli_driver_front_of(const char *name, int version, bool per_thread, void *found);

#endif
