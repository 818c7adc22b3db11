/* SPDX-License-Identifier: MIT */
/*
 * Finds libreveille for a hook library: the one already loaded in the process, or else the one near
 * the hook library's own file.
 */
#ifndef RVL_HOOKS_SHIM_LIBRARY_H
#define RVL_HOOKS_SHIM_LIBRARY_H

#include <stdbool.h>

/* "preload" or "torch": defined by each hook library. */
extern const char *const rvli_shim_mode;

/* Finds libreveille, once. Ends the process with a message if it is missing. */
void rvli_library_need(void);

/* Whether an address is in libreveille. */
bool rvli_library_contains(const void *address);

#endif
