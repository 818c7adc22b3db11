/* SPDX-License-Identifier: MIT */
/* Which hook libraries are in this process: reveille/hooks.h answers it. */
#ifndef RVL_HOOKS_LIBRARY_HOOKS_H
#define RVL_HOOKS_LIBRARY_HOOKS_H

/* A hook library of this mode is there from now on. Static string. */
void rvli_hooks_attach(const char *mode);

#endif
