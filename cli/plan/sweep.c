/* SPDX-License-Identifier: MIT */
/*
 * All cases on all cores: a thread takes the next one that nobody has. A case that was taken is
 * finished, so that those that an interrupt leaves are the first of them. Results lie by number, so
 * that they do not depend on which thread worked them out.
 */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#include "interrupt.h"
#include "plan/plan.h"
#include "progress.h"

#define THREADS_MAX 1024

typedef struct work {
    const plan_subject *subject;
    plan_outcome *outcomes;
    size_t count;
    atomic_size_t next;
    atomic_size_t done;
} work;

static void *run_cases(void *user)
{
    work *shared = user;
    for (;;) {
        if (interrupt_came())
            return NULL;
        size_t number = atomic_fetch_add(&shared->next, 1);
        if (number >= shared->count)
            return NULL;
        plan_case_run(shared->subject, number, &shared->outcomes[number], NULL);
        size_t done = atomic_fetch_add(&shared->done, 1) + 1;
        progress_report(done, shared->count, done);
    }
}

/* Cores of this process. */
static uint32_t core_count(void)
{
    cpu_set_t cores;
    return sched_getaffinity(0, sizeof cores, &cores) == 0 ? (uint32_t)CPU_COUNT(&cores) : 1;
}

void plan_sweep(const plan_subject *subject, const plan_arguments *arguments,
                plan_outcome *outcomes)
{
    work shared = {.subject = subject, .outcomes = outcomes, .count = plan_case_count(arguments)};
    pthread_t threads[THREADS_MAX];
    uint32_t wanted = arguments->threads > 0 ? arguments->threads : core_count();
    uint32_t started = 0;
    atomic_init(&shared.next, 0);
    atomic_init(&shared.done, 0);
    interrupt_watch();
    progress_begin("plan", "cases");
    /* This thread works too; those that cannot be started are done without. */
    while (started + 1 < wanted && started < THREADS_MAX && started + 1 < shared.count &&
           pthread_create(&threads[started], NULL, run_cases, &shared) == 0)
        started++;
    run_cases(&shared);
    for (uint32_t i = 0; i < started; i++)
        pthread_join(threads[i], NULL);
    progress_end();
    interrupt_unwatch();
}

/* ---- Which one ---- */

size_t plan_done(const plan_outcome *outcomes, size_t count)
{
    size_t done = 0;
    for (size_t i = 0; i < count; i++)
        done += outcomes[i].state != PLAN_LEFT_OUT;
    return done;
}

uint64_t plan_missing(const plan_outcome *outcome)
{
    return outcome->peak_bytes > outcome->capacity_bytes
               ? outcome->peak_bytes - outcome->capacity_bytes
               : 0;
}

/* Fewest GPUs, then smallest of them, then most of what was asked for, then least waiting. */
static bool is_cheaper(const plan_outcome *a, const plan_outcome *b)
{
    if (a->gpus != b->gpus)
        return a->gpus < b->gpus;
    if (a->capacity_bytes != b->capacity_bytes)
        return a->capacity_bytes < b->capacity_bytes;
    if (a->largest_bytes != b->largest_bytes)
        return a->largest_bytes > b->largest_bytes;
    return a->transition_ns < b->transition_ns;
}

size_t plan_cheapest(const plan_outcome *outcomes, size_t count)
{
    size_t best = SIZE_MAX;
    for (size_t i = 0; i < count; i++) {
        if (outcomes[i].state == PLAN_FITS &&
            (best == SIZE_MAX || is_cheaper(&outcomes[i], &outcomes[best])))
            best = i;
    }
    return best;
}

/* The one that does not fit, or allows least. Those that any size fits have UINT64_MAX. */
size_t plan_binding(const plan_outcome *outcomes, size_t count)
{
    size_t binding = 0;
    for (size_t i = 0; i < count; i++) {
        if (outcomes[i].state == PLAN_DOES_NOT_FIT || outcomes[i].state == PLAN_TIGHT)
            return i;
        if (outcomes[i].largest_bytes < outcomes[binding].largest_bytes)
            binding = i;
    }
    return binding;
}

/* One with weights that are too large by themselves has no peak, and is nearer than nothing. */
static bool is_nearer(const plan_outcome *a, const plan_outcome *b)
{
    bool known[] = {a->stage[0] != '\0', b->stage[0] != '\0'};
    if (known[0] != known[1])
        return known[0];
    if (plan_is_in_bounds(a) != plan_is_in_bounds(b))
        return plan_is_in_bounds(a);
    if (plan_missing(a) != plan_missing(b))
        return plan_missing(a) < plan_missing(b);
    return is_cheaper(a, b);
}

size_t plan_nearest(const plan_outcome *outcomes, size_t count)
{
    size_t best = SIZE_MAX;
    for (size_t i = 0; i < count; i++) {
        if ((outcomes[i].state == PLAN_DOES_NOT_FIT || outcomes[i].state == PLAN_TIGHT) &&
            (best == SIZE_MAX || is_nearer(&outcomes[i], &outcomes[best])))
            best = i;
    }
    return best;
}
