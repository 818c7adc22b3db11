/* SPDX-License-Identifier: MIT */
/* Stand for functions of the driver, in a library, since a program's own are never stood in for. */
#ifndef RVL_TESTS_HOOKS_STUBS_H
#define RVL_TESTS_HOOKS_STUBS_H

#include <cuda.h>

#define STUB_API __attribute__((visibility("default")))
#define STUB_FOUND ((void *)0x10)

/* What they answer. */
extern STUB_API CUresult stub_result;

STUB_API CUresult stub_alloc(CUdeviceptr *out);
STUB_API CUresult stub_pitch(CUdeviceptr *out, size_t *pitch);
STUB_API CUresult stub_any(void);
/* Finds STUB_FOUND, whatever the name. */
STUB_API CUresult stub_get(const char *name, void **out, int version, cuuint64_t flags);

#endif
