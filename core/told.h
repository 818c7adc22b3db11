/* SPDX-License-Identifier: MIT */
/*
 * Marks of contexts on real devices, told to the hook library that records this process, if there
 * is one (docs/record.md): found by its name, since it need not be there.
 */
#ifndef RVL_CORE_TOLD_H
#define RVL_CORE_TOLD_H

#include "reveille/status.h"

/* What failed there has been said there, and is no failure of the context. Thread-safe. */
void rvli_tell_stage(const char *name);
void rvli_tell_step(void);

/* For a hook library, whose contexts have a function of their own for this: nobody is told. */
void rvli_tell_nobody(void);

#endif
