/* SPDX-License-Identifier: MIT */
#ifndef RVL_TESTS_HOOKS_PLUGIN_H
#define RVL_TESTS_HOOKS_PLUGIN_H

#include <stddef.h>

#include "cudart_fake.h"

CUDART_API int plugin_malloc(void **pointer, size_t size);
CUDART_API int plugin_free(void *pointer);
CUDART_API int plugin_version(void);

/* Two libraries have it; the first finds the second's by RTLD_NEXT, and adds 1 to its answer. */
CUDART_API int cuda_chain(void);

#endif
