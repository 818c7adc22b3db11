/* SPDX-License-Identifier: MIT */
/* The backends of this build, by name; core finds them here and knows none of them. */
#ifndef RVL_BACKENDS_REGISTRY_H
#define RVL_BACKENDS_REGISTRY_H

#include "core/backend.h"

/* Ends with NULL. */
extern const rvli_backend_ops *const rvli_backends[];

#endif
