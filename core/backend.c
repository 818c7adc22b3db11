/* SPDX-License-Identifier: MIT */
/* The ops table: names, checks, stubs for what a backend lacks, and the built-in backends. */
#include "core/backend.h"

#include <string.h>

#include "backends/registry.h"
#include "base/error.h"

const char *rvli_op_name(rvli_op op)
{
    static const char *const names[RVLI_OP_COUNT] = {
#define OP_NAME(name, parameters) [RVLI_OP_##name] = #name,
        RVLI_BACKEND_ALL_OPS_MAP(OP_NAME)
#undef OP_NAME
    };
    return (unsigned)op < RVLI_OP_COUNT ? names[op] : "?";
}

/* ---- Stubs of the optional groups ---- */

static rvl_status not_supported(void)
{
    return rvli_error(RVL_ERR_NOT_SUPPORTED, "the backend cannot do this");
}

static rvl_status stub_external_set(void *self, int device, uint64_t bytes)
{
    (void)self, (void)device, (void)bytes;
    return not_supported();
}

static rvl_status stub_digest(void *self, int device, uint64_t addr, uint64_t size, bool arriving,
                              rvli_digest *digests_out)
{
    (void)self, (void)device, (void)addr, (void)size, (void)arriving, (void)digests_out;
    return not_supported();
}

static rvl_status stub_prefetch(void *self, uint64_t addr, int depth)
{
    (void)self, (void)addr, (void)depth;
    return RVL_OK;
}

static rvl_status stub_host_memory(void *self, rvli_host_facts *facts_out)
{
    (void)self, (void)facts_out;
    return not_supported();
}

static rvl_status stub_export_block(void *self, int device, rvli_handle block, int *fd_out)
{
    (void)self, (void)device, (void)block, (void)fd_out;
    return not_supported();
}

static rvl_status stub_import_block(void *self, int device, int fd, uint64_t size,
                                    rvli_handle *block_out)
{
    (void)self, (void)device, (void)fd, (void)size, (void)block_out;
    return not_supported();
}

/* ---- Copying and checking ---- */

static bool has_required(const rvli_backend_ops *ops)
{
    bool all = ops->open != NULL && ops->close != NULL && ops->device_facts != NULL;
#define HAS_OP(name, parameters) all = all && ops->name != NULL;
    RVLI_BACKEND_OP_MAP(HAS_OP)
#undef HAS_OP
    return all;
}

/* Fills the groups that are missing as a whole; false if one is there in part. */
static bool fill_groups(rvli_backend_ops *ops)
{
    if ((ops->export_block == NULL) != (ops->import_block == NULL))
        return false;
#define FILL_OP(name, parameters)                                                                  \
    if (ops->name == NULL)                                                                         \
        ops->name = stub_##name;
    RVLI_BACKEND_EXTERNAL_MAP(FILL_OP)
    RVLI_BACKEND_DIGEST_MAP(FILL_OP)
    RVLI_BACKEND_PREFETCH_MAP(FILL_OP)
    RVLI_BACKEND_HOST_MAP(FILL_OP)
    RVLI_BACKEND_SHARE_MAP(FILL_OP)
#undef FILL_OP
    return true;
}

rvl_status rvli_backend_ops_copy(rvli_backend_ops *ops_out, const rvli_backend_ops *ops)
{
    rvli_backend_ops copy = {0};
    if (ops->version != RVLI_BACKEND_VERSION || ops->size < offsetof(rvli_backend_ops, reserve) ||
        ops->size > sizeof copy)
        return rvli_error(RVL_ERR_VERSION, "the backend was built for another ops table");
    memcpy(&copy, ops, ops->size);
    if (!has_required(&copy))
        return rvli_error(RVL_ERR_INVALID, "the backend lacks an op that every backend must have");
    if (!fill_groups(&copy))
        return rvli_error(RVL_ERR_INVALID, "the backend has a group of ops in part only");
    copy.size = sizeof copy;
    *ops_out = copy;
    return RVL_OK;
}

const rvli_backend_ops *rvli_backend_find(const char *name)
{
    for (const rvli_backend_ops *const *each = rvli_backends; *each != NULL; each++)
        if (strcmp((*each)->name, name) == 0)
            return *each;
    return NULL;
}
