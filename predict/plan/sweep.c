/* SPDX-License-Identifier: MIT */
/*
 * Runs all cases on all cores. A thread takes the next free case. A case that was taken is
 * finished, so only the last cases can be left out.
 */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#include "base/error.h"
#include "base/options.h"
#include "predict/plan/plan_internal.h"

#define THREADS_MAX 1024

typedef struct work {
    rvl_plan_sweep_options options;
    atomic_size_t next;
} work;

static void run_case(const rvl_plan_sweep_options *o, size_t number)
{
    rvl_model_options step = {.struct_size = sizeof step};
    rvl_replay_options replay = {.struct_size = sizeof replay};
    rvl_plan_case planned = {.struct_size = sizeof planned, .step = &step, .replay = &replay};
    rvl_plan_result result = {.struct_size = sizeof result};
    rvl_status status = o->begin(o->user, number, &planned);
    if (status == RVL_OK)
        status = rvl_plan_run(&planned, &result, NULL);
    if (status != RVL_OK && result.state == RVL_PLAN_LEFT_OUT)
        rvli_case_refuse(status, &result);
    o->end(o->user, number, &planned, &result);
}

static void *run_cases(void *user)
{
    work *shared = user;
    const rvl_plan_sweep_options *o = &shared->options;
    for (;;) {
        if (o->stops != NULL && o->stops(o->user))
            return NULL;
        size_t number = atomic_fetch_add(&shared->next, 1);
        if (number >= o->case_count)
            return NULL;
        run_case(o, number);
    }
}

/* Returns the number of cores that this process may use. */
static uint32_t core_count(void)
{
    cpu_set_t cores;
    return sched_getaffinity(0, sizeof cores, &cores) == 0 ? (uint32_t)CPU_COUNT(&cores) : 1;
}

rvl_status rvl_plan_sweep(const rvl_plan_sweep_options *options)
{
    work shared;
    pthread_t threads[THREADS_MAX];
    uint32_t started = 0;
    if (options == NULL)
        return rvli_error(RVL_ERR_INVALID, "the options are NULL");
    rvl_status status = rvli_options_read(&shared.options, sizeof shared.options, options);
    if (status == RVL_OK)
        status = rvli_flags_check(0, 0, shared.options.reserved);
    if (status != RVL_OK)
        return status;
    if (shared.options.begin == NULL || shared.options.end == NULL)
        return rvli_error(
            RVL_ERR_INVALID,
            "a sweep begins and ends its cases by functions of the caller: one is NULL");
    const rvl_error before = *rvli_error_get();
    atomic_init(&shared.next, 0);
    uint32_t wanted = shared.options.thread_count > 0 ? shared.options.thread_count : core_count();
    /* This thread works too. If a thread cannot be started, the others do its work. */
    while (started + 1 < wanted && started < THREADS_MAX &&
           started + 1 < shared.options.case_count &&
           pthread_create(&threads[started], NULL, run_cases, &shared) == 0)
        started++;
    run_cases(&shared);
    for (uint32_t i = 0; i < started; i++)
        pthread_join(threads[i], NULL);
    rvli_error_set(&before); /* the caller's functions and refused cases changed it */
    return RVL_OK;
}

/* ---- Comparing results ---- */

/* Returns a negative number if a is less. */
static int compare(uint64_t a, uint64_t b)
{
    return (a > b) - (a < b);
}

/*
 * Prefers fewer GPUs, then smaller ones, then the larger size of the tag, then less time in
 * transitions.
 */
static int compare_costs(const rvl_plan_result *a, const rvl_plan_result *b)
{
    const int steps[] = {
        compare(a->gpu_count, b->gpu_count), compare(a->capacity_bytes, b->capacity_bytes),
        compare(b->largest_bytes, a->largest_bytes), compare(a->transition_ns, b->transition_ns)};
    size_t i = 0;
    while (i + 1 < sizeof steps / sizeof steps[0] && steps[i] == 0)
        i++;
    return steps[i];
}

static uint64_t missing_bytes(const rvl_plan_result *of)
{
    return of->peak_bytes > of->capacity_bytes ? of->peak_bytes - of->capacity_bytes : 0;
}

/*
 * Returns the rank of a result. If the weights alone are too large, there is no peak. Such a case
 * still ranks before one that is impossible.
 */
static int rank_of(const rvl_plan_result *result)
{
    switch (result->state) {
    case RVL_PLAN_FITS:
        return 0;
    case RVL_PLAN_TIGHT:
        return 1;
    case RVL_PLAN_DOES_NOT_FIT:
        return result->stage[0] != '\0' ? 2 : 3;
    default:
        return 4;
    }
}

int rvl_plan_result_compare(const rvl_plan_result *a, const rvl_plan_result *b)
{
    if (a == NULL || b == NULL)
        return 0;
    if (rank_of(a) != rank_of(b))
        return rank_of(a) - rank_of(b);
    if (rank_of(a) == 4)
        return 0;
    int nearer = rank_of(a) == 0 ? 0 : compare(missing_bytes(a), missing_bytes(b));
    return nearer != 0 ? nearer : compare_costs(a, b);
}
