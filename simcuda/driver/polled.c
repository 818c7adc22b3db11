/* SPDX-License-Identifier: MIT */
#include "simcuda/driver/polled.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#include "simcuda/driver/client.h"
#include "simcuda/driver/stream.h"

#define WATCHDOG "pt_nccl_watchdg" /* PyTorch's name for the thread */
#define NAME_BYTES 16
#define LOOK_MOST_S 2    /* the watchdog polls every 0.1 s */
#define BEHIND_MOST_S 60 /* if other ranks are behind */
#define HIDE_MOST_S 60   /* PyTorch aborts a job when a collective takes ten minutes */

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t looked = PTHREAD_COND_INITIALIZER;
static atomic_bool on, watched; /* watched: by a watchdog thread */
static uint64_t recorded;       /* number of events hidden so far */
static uint64_t shown;          /* events up to this number are shown */
static uint64_t ended;          /* events up to this number are of no interest any more */
static uint64_t hidden;         /* number of later events hidden and not polled yet */

static uint64_t now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec;
}

static bool is_watchdog(void)
{
    static __thread enum { UNKNOWN, WATCHES, OTHER } kind;
    char name[NAME_BYTES];
    if (kind == UNKNOWN)
        kind = pthread_getname_np(pthread_self(), name, sizeof name) == 0 &&
                       strcmp(name, WATCHDOG) == 0
                   ? WATCHES
                   : OTHER;
    return kind == WATCHES;
}

/* With the lock held. */
static void unhide(CUevent event)
{
    bool counts = event->polled.number > ended;
    event->polled.number = 0;
    if (counts && --hidden == 0)
        pthread_cond_broadcast(&looked);
}

/* With the lock held. false: the watchdog has not polled within this time. */
static bool wait_for_look(time_t most_s)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += most_s;
    while (hidden > 0)
        if (pthread_cond_timedwait(&looked, &mutex, &until) != 0)
            return false;
    return true;
}

void rvli_polled_begin(void)
{
    pthread_mutex_lock(&mutex);
    if (!atomic_exchange(&on, true))
        shown = recorded;
    pthread_mutex_unlock(&mutex);
}

void rvli_polled_end(void)
{
    pthread_mutex_lock(&mutex);
    atomic_store(&on, false);
    shown = UINT64_MAX;
    ended = recorded; /* a watchdog that has ended never polls its events */
    atomic_store(&watched, false);
    hidden = 0;
    pthread_cond_broadcast(&looked);
    pthread_mutex_unlock(&mutex);
}

int rvli_polled_show(void)
{
    if (!atomic_load(&on))
        return 0;
    pthread_mutex_lock(&mutex);
    int count = (int)hidden;
    shown = recorded;
    bool seen = wait_for_look(LOOK_MOST_S) ||
                (atomic_load(&watched) && wait_for_look(BEHIND_MOST_S - LOOK_MOST_S));
    pthread_mutex_unlock(&mutex);
    if (!seen)
        rvli_polled_end();
    return count;
}

void rvli_polled_note(const char *what)
{
    rvli_client_note(RVLI_WIRE_RACE, 0, what);
}

void rvli_polled_collective(CUstream stream)
{
    if (atomic_load(&on) && !rvli_stream_is_legacy(stream))
        rvli_stream_of(stream)->collective = true;
}

void rvli_polled_record(CUevent event, CUstream stream)
{
    CUstream on_stream = rvli_stream_of(stream);
    if (!on_stream->collective && event->polled.number == 0)
        return;
    pthread_mutex_lock(&mutex);
    unhide(event);
    if (on_stream->collective) {
        on_stream->collective = false;
        event->polled.number = ++recorded;
        event->polled.since_s = now_s();
        hidden++;
    }
    pthread_mutex_unlock(&mutex);
}

void rvli_polled_drop(CUevent event)
{
    if (event->polled.number == 0)
        return;
    pthread_mutex_lock(&mutex);
    unhide(event);
    pthread_mutex_unlock(&mutex);
}

bool rvli_polled_hides(CUevent event)
{
    if (event->polled.number == 0 || !is_watchdog())
        return false;
    atomic_store(&watched, true);
    pthread_mutex_lock(&mutex);
    bool hides = event->polled.number > shown && now_s() - event->polled.since_s < HIDE_MOST_S;
    if (!hides)
        unhide(event);
    pthread_mutex_unlock(&mutex);
    return hides;
}

void rvli_polled_forget(void)
{
    pthread_mutex_init(&mutex, NULL);
    pthread_cond_init(&looked, NULL);
    atomic_store(&on, false);
    atomic_store(&watched, false);
    recorded = shown = ended = hidden = 0;
}
