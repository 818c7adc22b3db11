/* SPDX-License-Identifier: MIT */
/* The version, results, and groups of calls. */
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "simcuda/nccl/comm.h"

#define TEXT_BYTES 512
#define VERSION_VARIABLE "REVEILLE_NCCL_VERSION" /* such as 2.28.9 */
#define ESTIMATE_MAGIC 0x74685283u

static __thread char last[TEXT_BYTES];

/* ---- Results ---- */

rvli_nccl_result rvli_nccl_fail(rvli_nccl_result result, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(last, sizeof last, format, arguments);
    va_end(arguments);
    return result;
}

rvli_nccl_result rvli_nccl_driven(CUresult result)
{
    const char *text = NULL;
    if (result == CUDA_SUCCESS)
        return RVLI_NCCL_SUCCESS;
    (void)cuGetErrorString(result, &text);
    return rvli_nccl_fail(RVLI_NCCL_CUDA_ERROR, "Cuda failure %d '%s'", (int)result,
                          text != NULL ? text : "unknown error");
}

/* "2.28.9" is 22809. An invalid version is ignored. */
static int asked_version(void)
{
    unsigned major, minor, patch;
    const char *text = getenv(VERSION_VARIABLE);
    if (text == NULL || sscanf(text, "%3u.%3u.%2u", &major, &minor, &patch) != 3)
        return RVLI_NCCL_VERSION;
    return (int)(major * 10000 + minor * 100 + patch);
}

rvli_nccl_result ncclGetVersion(int *version)
{
    if (version == NULL)
        return rvli_nccl_fail(RVLI_NCCL_INVALID_ARGUMENT, "ncclGetVersion: version is NULL");
    *version = asked_version();
    return RVLI_NCCL_SUCCESS;
}

const char *ncclGetErrorString(rvli_nccl_result result)
{
    switch (result) {
    case RVLI_NCCL_SUCCESS:
        return "no error";
    case RVLI_NCCL_CUDA_ERROR:
        return "unhandled cuda error (run with NCCL_DEBUG=INFO for details)";
    case RVLI_NCCL_SYSTEM_ERROR:
        return "unhandled system error (run with NCCL_DEBUG=INFO for details)";
    case RVLI_NCCL_INTERNAL_ERROR:
        return "internal error - please report this issue to the NCCL developers";
    case RVLI_NCCL_INVALID_ARGUMENT:
        return "invalid argument (run with NCCL_DEBUG=WARN for details)";
    case RVLI_NCCL_INVALID_USAGE:
        return "invalid usage (run with NCCL_DEBUG=WARN for details)";
    case RVLI_NCCL_REMOTE_ERROR:
        return "remote process exited or there was a network error";
    case RVLI_NCCL_IN_PROGRESS:
        return "NCCL operation in progress";
    }
    return "unknown result code";
}

/* The last error of this thread, for any communicator. NCCL keeps one for the process. */
const char *ncclGetLastError(rvli_comm *comm)
{
    (void)comm;
    return last;
}

void ncclResetDebugInit(void)
{
}

/* ---- Groups: what a thread begins in a group completes when the group ends ---- */

typedef struct job {
    struct job *next;
    rvli_nccl_result (*begin)(void *);
    rvli_nccl_result (*end)(void *);
    void *what;
} job;

static atomic_uint_fast64_t groups;
static __thread unsigned depth;
static __thread uint64_t number;
static __thread job *jobs;

bool rvli_group_is_open(void)
{
    return depth > 0;
}

uint64_t rvli_group_number(void)
{
    return depth > 0 ? number : 0;
}

rvli_nccl_result rvli_group_add(rvli_nccl_result (*begin)(void *), rvli_nccl_result (*end)(void *),
                                void *what)
{
    job *made = malloc(sizeof *made), **link = &jobs;
    if (made == NULL)
        return rvli_nccl_fail(RVLI_NCCL_SYSTEM_ERROR, "out of host memory");
    *made = (job){NULL, begin, end, what};
    while (*link != NULL)
        link = &(*link)->next;
    *link = made;
    return RVLI_NCCL_SUCCESS;
}

rvli_nccl_result ncclGroupStart(void)
{
    if (depth++ == 0)
        number = atomic_fetch_add(&groups, 1) + 1;
    return RVLI_NCCL_SUCCESS;
}

/* Begins all jobs before it waits for the first, since ranks of one thread wait for each other. */
rvli_nccl_result ncclGroupEnd(void)
{
    rvli_nccl_result result = RVLI_NCCL_SUCCESS;
    if (depth == 0)
        return rvli_nccl_fail(RVLI_NCCL_INVALID_USAGE,
                              "ncclGroupEnd: not in a group call: ncclGroupStart comes first");
    if (--depth > 0)
        return RVLI_NCCL_SUCCESS;
    job *mine = jobs;
    jobs = NULL;
    for (job *each = mine; each != NULL && result == RVLI_NCCL_SUCCESS; each = each->next)
        result = each->begin(each->what);
    while (mine != NULL) {
        job *each = mine;
        rvli_nccl_result ended = each->end(each->what);
        result = result == RVLI_NCCL_SUCCESS ? ended : result;
        mine = each->next;
        free(each);
    }
    return result;
}

/* No time is known, so the estimate stays as it is, which NCCL calls undefined. */
rvli_nccl_result ncclGroupSimulateEnd(rvli_nccl_estimate *estimate)
{
    if (estimate != NULL && estimate->magic != ESTIMATE_MAGIC)
        return rvli_nccl_fail(RVLI_NCCL_INVALID_ARGUMENT,
                              "ncclGroupSimulateEnd: begin with NCCL_SIM_INFO_INITIALIZER");
    return ncclGroupEnd();
}

RVLI_NCCL_ALSO(ncclGetVersion)
RVLI_NCCL_ALSO(ncclGetErrorString)
RVLI_NCCL_ALSO(ncclGetLastError)
RVLI_NCCL_ALSO(ncclResetDebugInit)
RVLI_NCCL_ALSO(ncclGroupStart)
RVLI_NCCL_ALSO(ncclGroupEnd)
RVLI_NCCL_ALSO(ncclGroupSimulateEnd)
