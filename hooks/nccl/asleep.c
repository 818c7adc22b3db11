/* SPDX-License-Identifier: MIT */
#include "hooks/nccl/asleep.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cuda.h>
#include <linux/limits.h>

#include "base/error.h"
#include "base/options.h"
#include "base/sleep_check.h"
#include "base/text.h"
#include "hooks/nccl/facts.h"
#include "reveille/cuda.h"

#define MAPS "/proc/self/maps"
#define MAPPED_BY_DRIVER "/dev/nvidia"

/* ---- Shared host memory ---- */

/* X(entry point, CUDA version of its signature) */
#define CALLS_MAP(X)                                                                               \
    X(cuMemRetainAllocationHandle, 11000)                                                          \
    X(cuMemGetAllocationPropertiesFromHandle, 10020)                                               \
    X(cuMemRelease, 10020)

typedef struct handle_calls {
#define CALL(name, version) __typeof__(&name) name;
    CALLS_MAP(CALL)
#undef CALL
} handle_calls;

static bool find_calls(handle_calls *calls)
{
    void *entry = NULL;
#define FIND(name, version)                                                                        \
    if (rvl_cuda_get_entry(#name, version, &entry) != RVL_OK)                                      \
        return false;                                                                              \
    memcpy(&calls->name, &entry, sizeof entry);
    CALLS_MAP(FIND)
#undef FIND
    return true;
}

/*
 * Whether the mapping is shared host memory, made by any process. Mappings of other kinds have no
 * allocation handle.
 */
static bool is_shared_host_memory(const handle_calls *calls, uintptr_t address)
{
    CUmemGenericAllocationHandle handle = 0;
    CUmemAllocationProp properties = {0};
    if (calls->cuMemRetainAllocationHandle(&handle, (void *)address) != CUDA_SUCCESS)
        return false;
    bool known = calls->cuMemGetAllocationPropertiesFromHandle(&properties, handle) == CUDA_SUCCESS;
    (void)calls->cuMemRelease(handle);
    /* Values above that of a device are kinds of host memory. */
    return known && properties.requestedHandleTypes != CU_MEM_HANDLE_TYPE_NONE &&
           properties.location.type > CU_MEM_LOCATION_TYPE_DEVICE;
}

/* Whether this process maps host memory that the driver has made shareable. */
static bool shares_host_memory(void)
{
    char line[PATH_MAX + 128];
    handle_calls calls;
    bool found = false;
    FILE *maps = find_calls(&calls) ? fopen(MAPS, "re") : NULL;
    while (maps != NULL && !found && fgets(line, sizeof line, maps) != NULL) {
        const char *path = strchr(line, '/');
        if (path != NULL && strncmp(path, MAPPED_BY_DRIVER, sizeof MAPPED_BY_DRIVER - 1) == 0)
            found = is_shared_host_memory(&calls, (uintptr_t)strtoull(line, NULL, 16));
    }
    if (maps != NULL)
        fclose(maps);
    return found;
}

/* ---- The rule ---- */

/* The facts about communicators that decide. */
typedef struct tally {
    unsigned paused, active; /* communicators with more than one rank */
    bool can_pause;          /* whether this NCCL can */
} tally;

static void count(tally *sum, const rvl_communicator *each)
{
    sum->paused += each->rank_count != 1 && each->state == RVL_STATE_PAUSED;
    sum->active += each->rank_count != 1 && each->state != RVL_STATE_PAUSED;
    sum->can_pause = sum->can_pause || each->can_pause;
}

static rvl_status refuse(const char *message)
{
    rvli_error(RVL_ERR_NOT_SUPPORTED, message);
    rvli_error_tag(RVL_COMMUNICATOR_TAG);
    return RVL_ERR_NOT_SUPPORTED;
}

static rvl_status refuse_active(const tally *sum)
{
    char message[sizeof(((rvl_error *)NULL)->message)];
    rvli_text text = rvli_text_begin(message, sizeof message);
    rvli_text_add_u64(&text, sum->active);
    rvli_text_add(&text, sum->active > 1 ? " communicators of NCCL connect"
                                         : " communicator of NCCL connects");
    rvli_text_add(&text, " this process with others, and no process with their memory open comes "
                         "back: ");
    rvli_text_add(&text, sum->can_pause
                             ? "pause them on all ranks (in Python by group=, or pause(\"nccl\")), "
                               "or destroy them first"
                             : "destroy them first; with NCCL 2.29.7 and later they can be paused");
    return refuse(message);
}

static rvl_status judge(const tally *sum)
{
    if (sum->active > 0)
        return refuse_active(sum);
    rvli_error_before before;
    rvli_error_keep(&before);
    bool shared = sum->paused > 0 && shares_host_memory();
    rvli_error_put_back(&before);
    return shared ? refuse("NCCL shares host memory of the driver with other ranks, which stays "
                           "open while its communicators are paused, and no process with that "
                           "comes back: set NCCL_CUMEM_HOST_ENABLE=0 for all ranks, or destroy the "
                           "communicators first")
                  : RVL_OK;
}

rvl_status rvl_communicator_check_sleep(const rvl_communicator *communicators, size_t count_given)
{
    tally sum = {0};
    const char *at = (const char *)communicators;
    if (communicators == NULL && count_given > 0)
        return rvli_error(RVL_ERR_INVALID, "communicators is NULL");
    for (size_t i = 0; i < count_given; i++) {
        rvl_communicator each;
        rvl_status status = rvli_options_read(&each, sizeof each, at);
        if (status != RVL_OK)
            return status;
        count(&sum, &each);
        at += communicators->struct_size;
    }
    return judge(&sum);
}

/* ---- Named communicators ---- */

static rvl_status check_named(void)
{
    rvli_nccl nccl;
    rvli_known *known = NULL;
    size_t known_count = 0;
    tally sum = {0};
    rvl_status status = rvli_known_list(&known, &known_count);
    if (status == RVL_OK && known_count > 0)
        status = rvli_nccl_find(&nccl);
    for (size_t i = 0; status == RVL_OK && i < known_count; i++) {
        rvl_communicator each;
        status = rvli_nccl_describe(&nccl, &known[i], &each);
        if (status == RVL_OK)
            count(&sum, &each);
    }
    rvli_known_free(known, known_count);
    return status == RVL_OK ? judge(&sum) : status;
}

void rvli_nccl_watch_sleep(void)
{
    rvli_sleep_check_set(check_named);
}
