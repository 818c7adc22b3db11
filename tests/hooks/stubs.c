/* SPDX-License-Identifier: MIT */
#include "stubs.h"

CUresult stub_result;

CUresult stub_alloc(CUdeviceptr *out)
{
    *out = 0x1000;
    return stub_result;
}

CUresult stub_pitch(CUdeviceptr *out, size_t *pitch)
{
    *out = 0x2000;
    *pitch = 512;
    return stub_result;
}

CUresult stub_any(void)
{
    return stub_result;
}

CUresult stub_get(const char *name, void **out, int version, cuuint64_t flags)
{
    (void)name;
    (void)version;
    (void)flags;
    *out = STUB_FOUND;
    return stub_result;
}
