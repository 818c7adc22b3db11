/* SPDX-License-Identifier: MIT */
/* The hook libraries of this process, for reveille/hooks.h. */
#ifndef RVL_HOOKS_LIBRARY_HOOKS_H
#define RVL_HOOKS_LIBRARY_HOOKS_H

/* Registers a hook library of this mode. The string must be static. */
void rvli_hooks_attach(const char *mode);

#endif
