/* SPDX-License-Identifier: MIT */
/*
 * libreveille, as a hook library finds it: the one that the process has already, else the one that
 * lies where the hook library's own file does.
 */
#ifndef RVL_HOOKS_SHIM_LIBRARY_H
#define RVL_HOOKS_SHIM_LIBRARY_H

#include <stdbool.h>

/* "preload" or "torch": each hook library has its own. */
extern const char *const rvli_shim_mode;

/* Finds it, unless it has been found. Ends the process, with a line that says why, if it is not
 * there. */
void rvli_library_need(void);

/* Whether an address lies in libreveille. */
bool rvli_library_contains(const void *address);

#endif
