/* SPDX-License-Identifier: MIT */
/* The ops table: names, checks, and stubs for missing ops. */
#include "core/backend.h"

#include <string.h>

#include "base/error.h"

const char *rvli_op_name(rvli_op op)
{
    static const char *const names[RVLI_OP_COUNT] = {
#define OP_NAME(name, parameters, arguments) [RVLI_OP_##name] = #name,
        RVLI_BACKEND_ALL_OPS_MAP(OP_NAME)
#undef OP_NAME
    };
    return (unsigned)op < RVLI_OP_COUNT ? names[op] : "?";
}

/* ---- Stubs of the optional groups ---- */

static rvl_status cannot(void *self, ...)
{
    (void)self;
    return rvli_error(RVL_ERR_NOT_SUPPORTED, "the backend cannot do this");
}

static rvl_status need_not(void *self, ...)
{
    (void)self;
    return RVL_OK;
}

#define STUB(name, parameters, arguments)                                                          \
    static rvl_status stub_##name parameters                                                       \
    {                                                                                              \
        return cannot arguments;                                                                   \
    }
#define HINT_STUB(name, parameters, arguments)                                                     \
    static rvl_status stub_##name parameters                                                       \
    {                                                                                              \
        return need_not arguments;                                                                 \
    }
RVLI_BACKEND_EXTERNAL_MAP(STUB)
RVLI_BACKEND_DIGEST_MAP(STUB)
RVLI_BACKEND_PREFETCH_MAP(HINT_STUB)
RVLI_BACKEND_HOST_MAP(STUB)
RVLI_BACKEND_SHARE_MAP(STUB)
RVLI_BACKEND_PROCESS_MAP(STUB)
#undef STUB
#undef HINT_STUB

/* ---- Copying and checking ---- */

static bool has_required(const rvli_backend_ops *ops)
{
    bool all = ops->open != NULL && ops->close != NULL && ops->device_facts != NULL;
#define HAS_OP(name, parameters, arguments) all = all && ops->name != NULL;
    RVLI_BACKEND_OP_MAP(HAS_OP)
#undef HAS_OP
    return all;
}

/* Fills groups that are missing completely. Returns false if a group is incomplete. */
static bool fill_groups(rvli_backend_ops *ops)
{
    if ((ops->export_block == NULL) != (ops->import_block == NULL))
        return false;
    unsigned count = 0, all = 0;
#define COUNT_OP(name, parameters, arguments) count += ops->name != NULL, all++;
    RVLI_BACKEND_PROCESS_MAP(COUNT_OP)
#undef COUNT_OP
    if (count != 0 && count != all)
        return false;
#define FILL_OP(name, parameters, arguments)                                                       \
    if (ops->name == NULL)                                                                         \
        ops->name = stub_##name;
    RVLI_BACKEND_EXTERNAL_MAP(FILL_OP)
    RVLI_BACKEND_DIGEST_MAP(FILL_OP)
    RVLI_BACKEND_PREFETCH_MAP(FILL_OP)
    RVLI_BACKEND_HOST_MAP(FILL_OP)
    RVLI_BACKEND_SHARE_MAP(FILL_OP)
    RVLI_BACKEND_PROCESS_MAP(FILL_OP)
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
