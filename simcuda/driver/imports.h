/* SPDX-License-Identifier: MIT */
/* Replaces a function that a loaded library imports, for this library only. */
#ifndef RVL_SIMCUDA_IMPORTS_H
#define RVL_SIMCUDA_IMPORTS_H

#include <stdbool.h>
#include <stdint.h>

/* library: its file name, without a folder. false: it is not loaded, or does not import the
 * function. */
bool rvli_imports_replace(const char *library, const char *name, uintptr_t function);

#endif
