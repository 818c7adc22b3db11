/* SPDX-License-Identifier: MIT */
/*
 * The functions of the CUDA driver that the preload library stands in front of, when the program
 * looks them up.
 */
#ifndef RVL_HOOKS_PRELOAD_DRIVER_CALLS_H
#define RVL_HOOKS_PRELOAD_DRIVER_CALLS_H

#include <stdbool.h>

/*
 * Our function in front of one that dlsym() found by an exported name ("cuMemAlloc_v2"); NULL if
 * there is none.
 */
void *rvli_driver_front(const char *symbol, void *found);
bool rvli_driver_has_front(const char *symbol);

/*
 * Our function in front of one that cuGetProcAddress() found by name ("cuMemAlloc"), CUDA version
 * and stream flavour; found itself if there is none.
 */
void *rvli_driver_front_of(const char *name, int version, bool per_thread, void *found);

#endif
