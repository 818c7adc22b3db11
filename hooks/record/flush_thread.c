/* SPDX-License-Identifier: MIT */
/*
 * The thread that keeps the file up to date while the program does nothing that is recorded. It
 * flushes every second, and samples with the period that was requested.
 */
#include "hooks/record/internal.h"

#include <signal.h>
#include <time.h>

#include "base/clock.h"

#define FLUSH_NS UINT64_C(1000000000)
#define NS_PER_S UINT64_C(1000000000)
#define STACK_BYTES ((size_t)512 * 1024)
#define TRIES 3

static uint64_t period_ns;
static _Atomic bool reads; /* it is reading the memory in use now */

void rvli_record_set_period(uint64_t ns)
{
    period_ns = ns;
}

void rvli_record_begin_keeper(void)
{
    atomic_store(&reads, false);
}

void rvli_record_await_keeper(void)
{
    const struct timespec while_it_reads = {0, 1000000};
    for (int i = 0; i < 100 && atomic_load(&reads); i++)
        nanosleep(&while_it_reads, NULL);
}

static void keep_samples(void)
{
    uint64_t used_bytes[RVL_MAX_DEVICES];
    for (int tries = 0; tries < TRIES; tries++) {
        pthread_mutex_lock(&rvli_record_lock);
        uint64_t events = rvli_record_events(), devices = rvli_record_devices_used(), read = 0;
        pthread_mutex_unlock(&rvli_record_lock);
        atomic_store(&reads, true);
        for (uint64_t left = devices; left != 0; left &= left - 1) {
            int device = __builtin_ctzll(left);
            if (rvli_record_read_use(device, &used_bytes[device]))
                read |= UINT64_C(1) << device;
        }
        atomic_store(&reads, false);
        pthread_mutex_lock(&rvli_record_lock);
        /* If lines were written meanwhile, the values are too old to follow them: read again. */
        bool still = events == rvli_record_events();
        for (uint64_t left = still ? read : 0; left != 0; left &= left - 1)
            rvli_record_sample(__builtin_ctzll(left), used_bytes[__builtin_ctzll(left)]);
        pthread_mutex_unlock(&rvli_record_lock);
        if (still)
            return;
    }
}

static void *keep(void *unused)
{
    uint64_t next_flush_ns = rvli_monotonic_ns() + FLUSH_NS;
    uint64_t next_sample_ns = period_ns > 0 ? rvli_monotonic_ns() + period_ns : UINT64_MAX;
    while (rvli_recorder_on()) {
        uint64_t next_ns = next_flush_ns < next_sample_ns ? next_flush_ns : next_sample_ns;
        const struct timespec until = {(time_t)(next_ns / NS_PER_S), (long)(next_ns % NS_PER_S)};
        clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
        if (rvli_monotonic_ns() >= next_sample_ns) {
            keep_samples();
            next_sample_ns = rvli_monotonic_ns() + period_ns;
        }
        if (rvli_monotonic_ns() < next_flush_ns)
            continue;
        pthread_mutex_lock(&rvli_record_lock);
        rvli_record_flush();
        pthread_mutex_unlock(&rvli_record_lock);
        next_flush_ns = rvli_monotonic_ns() + FLUSH_NS;
    }
    return unused;
}

void rvli_record_start_keeper(void)
{
    pthread_t thread;
    pthread_attr_t attributes;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* signals are for the program's threads */
    if (pthread_attr_init(&attributes) == 0) {
        pthread_attr_setstacksize(&attributes, STACK_BYTES);
        pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
        if (pthread_create(&thread, &attributes, keep, NULL) == 0)
            pthread_setname_np(thread, "reveille-record");
        pthread_attr_destroy(&attributes);
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}
