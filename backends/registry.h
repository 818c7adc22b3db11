/* SPDX-License-Identifier: MIT */
/*
 * The backends of this build, by name, for rvl_context_open(). The core does not know the backends.
 */
#ifndef RVL_BACKENDS_REGISTRY_H
#define RVL_BACKENDS_REGISTRY_H

#include "core/backend.h"

/* The ops table of a backend; NULL if this build does not have it. */
const rvli_backend_ops *rvli_backend_find(const char *name);

#endif
