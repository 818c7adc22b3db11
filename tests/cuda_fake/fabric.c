/* SPDX-License-Identifier: MIT */
/*
 * Handles of a fabric (NVLink between nodes). Cards say that they have them where a later call
 * fails: FAKE_CUDA_FABRIC is "works", or the step that fails, "create", "export" or "import".
 * Without it a card says that it has none. An export names a handle of this process alone.
 */
#include <stdlib.h>
#include <string.h>

#include "internal.h"

/* CUDA 12.3's; older headers lack it. */
#define FABRIC ((CUmemAllocationHandleType)8)

typedef struct exported {
    char magic[16];
    CUmemGenericAllocationHandle handle;
    char rest[40]; /* a fabric handle has 64 bytes */
} exported;

static const char magic[16] = "reveille-fabric";

static bool fails_at(const char *step)
{
    const char *set = getenv("FAKE_CUDA_FABRIC");
    return set == NULL || strcmp(set, step) == 0;
}

bool fake_fabric_is_claimed(void)
{
    return getenv("FAKE_CUDA_FABRIC") != NULL;
}

bool fake_fabric_creates(const CUmemAllocationProp *prop)
{
    return prop->requestedHandleTypes == FABRIC && !fails_at("create");
}

CUresult fake_fabric_export(const fake_block *block, CUmemGenericAllocationHandle handle,
                            void *bytes_out)
{
    if (!block->fabric)
        return CUDA_ERROR_INVALID_VALUE;
    if (fails_at("export"))
        return CUDA_ERROR_NOT_SUPPORTED;
    exported made = {.handle = handle};
    memcpy(made.magic, magic, sizeof magic);
    memcpy(bytes_out, &made, sizeof made);
    return CUDA_SUCCESS;
}

CUresult fake_fabric_import(const void *bytes, CUmemGenericAllocationHandle *handle_out)
{
    exported from;
    memcpy(&from, bytes, sizeof from);
    fake_block *block =
        memcmp(from.magic, magic, sizeof magic) == 0 ? fake_block_of(from.handle) : NULL;
    if (block == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    return fails_at("import") ? CUDA_ERROR_NOT_PERMITTED : fake_block_name(block, handle_out);
}
