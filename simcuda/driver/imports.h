/* SPDX-License-Identifier: MIT */
/* Functions that a loaded library imports, replaced for this library alone. */
#ifndef RVL_SIMCUDA_IMPORTS_H
#define RVL_SIMCUDA_IMPORTS_H

#include <stdbool.h>
#include <stdint.h>

/* library: the name of its file, without a folder. false: it is not loaded, or does not import it.
 */
bool rvli_imports_replace(const char *library, const char *name, uintptr_t function);

#endif
