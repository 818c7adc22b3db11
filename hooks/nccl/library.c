/* SPDX-License-Identifier: MIT */
#include "hooks/nccl/library.h"

#include <dlfcn.h>
#include <stddef.h>
#include <string.h>

#include "base/error.h"
#include "base/text.h"
#include "reveille/communicator.h"

#define LIBRARY "libnccl.so.2"
#define SINCE 22907      /* 2.29.7, the first with ncclCommSuspend */
#define SUSPEND_MEMORY 1 /* its flags */
#define INVALID_USAGE 5  /* ncclInvalidUsage */

static const struct {
    const char *name;
    size_t offset;
} functions[] = {
#define ENTRY(name, parameters) {#name, offsetof(rvli_nccl, name)},
    RVLI_NCCL_MAP(ENTRY)
#undef ENTRY
        {"ncclGetLastError", offsetof(rvli_nccl, ncclGetLastError)},
};

static const char *const results[] = {
    "ncclSuccess",         "ncclUnhandledCudaError", "ncclSystemError", "ncclInternalError",
    "ncclInvalidArgument", "ncclInvalidUsage",       "ncclRemoteError", "ncclInProgress",
};

static bool find_in(void *library, rvli_nccl *nccl)
{
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        void *function = dlsym(library, functions[i].name);
        memcpy((char *)nccl + functions[i].offset, &function, sizeof function);
    }
    return nccl->ncclGetVersion != NULL && nccl->ncclCommCuDevice != NULL &&
           nccl->ncclCommUserRank != NULL && nccl->ncclCommCount != NULL;
}

rvl_status rvli_nccl_find(rvli_nccl *nccl_out)
{
    bool found = find_in(RTLD_DEFAULT, nccl_out);
    if (!found) {
        void *library = dlopen(LIBRARY, RTLD_NOLOAD | RTLD_LAZY);
        if (library != NULL) {
            found = find_in(library, nccl_out);
            dlclose(library); /* stays loaded: communicators hold it */
        }
    }
    if (!found)
        return rvli_error(RVL_ERR_STATE,
                          "this process has not loaded " LIBRARY ": make the communicator first");
    return rvli_nccl_check(nccl_out, "ncclGetVersion",
                           nccl_out->ncclGetVersion(&nccl_out->version));
}

bool rvli_nccl_can_suspend(const rvli_nccl *nccl)
{
    return nccl->version >= SINCE && nccl->ncclCommSuspend != NULL &&
           nccl->ncclCommResume != NULL && nccl->ncclCommMemStats != NULL;
}

rvl_status rvli_nccl_check(const rvli_nccl *nccl, const char *function, int result)
{
    if (result == 0)
        return RVL_OK;
    char message[sizeof(((rvl_error *)NULL)->message)];
    const char *name = result > 0 && (size_t)result < sizeof results / sizeof *results
                           ? results[result]
                           : "an unknown ncclResult_t";
    const char *why = nccl->ncclGetLastError != NULL ? nccl->ncclGetLastError(NULL) : NULL;
    rvli_text text = rvli_text_begin(message, sizeof message);
    rvli_text_add(&text, function);
    rvli_text_add(&text, " answers ");
    rvli_text_add(&text, name);
    if (result == INVALID_USAGE)
        rvli_text_add(&text, "; NCCL refuses communicators that share memory (splitShare), and all "
                             "if NCCL_DISABLE_MEM_MANAGER is set");
    if (why != NULL && why[0] != '\0') {
        rvli_text_add(&text, ": ");
        rvli_text_add(&text, why);
    }
    rvli_error(RVL_ERR_STATE, message);
    rvli_error_op(function);
    rvli_error_tag(RVL_COMMUNICATOR_TAG);
    rvli_error_native(result, name);
    return RVL_ERR_STATE;
}

rvl_status rvli_nccl_stat(const rvli_nccl *nccl, void *comm, rvli_nccl_stat_kind kind,
                          uint64_t *value_out)
{
    return rvli_nccl_check(nccl, "ncclCommMemStats",
                           nccl->ncclCommMemStats(comm, (int)kind, value_out));
}

const char *rvli_nccl_move_name(rvl_transition_kind kind)
{
    return kind == RVL_TRANSITION_PAUSE ? "ncclCommSuspend" : "ncclCommResume";
}

rvl_status rvli_nccl_move(const rvli_nccl *nccl, rvl_transition_kind kind, void *comm)
{
    int result = kind == RVL_TRANSITION_PAUSE ? nccl->ncclCommSuspend(comm, SUSPEND_MEMORY)
                                              : nccl->ncclCommResume(comm);
    return rvli_nccl_check(nccl, rvli_nccl_move_name(kind), result);
}
