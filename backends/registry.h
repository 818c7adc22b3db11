/* SPDX-License-Identifier: MIT */
/* The backends of this build, by name. rvl_context_open() looks here; core knows none of them. */
#ifndef RVL_BACKENDS_REGISTRY_H
#define RVL_BACKENDS_REGISTRY_H

#include "core/backend.h"

/* The table of a name, NULL if this build has none. */
const rvli_backend_ops *rvli_backend_find(const char *name);

#endif
