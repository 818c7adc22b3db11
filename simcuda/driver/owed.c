/* SPDX-License-Identifier: MIT */
#include "simcuda/driver/owed.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "simcuda/driver/stream.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static __thread CUstream launched_on;
static atomic_bool any;     /* something was owed once: programs without NCCL take no lock */
static rvli_debts all;      /* of all streams and devices */
static rvli_debts blocking; /* of the streams with which the legacy stream synchronizes */

void rvli_owed_forget(void)
{
    pthread_mutex_init(&mutex, NULL);
    atomic_store(&any, false);
    all = blocking = (rvli_debts){0}; /* the parent's, as are those of its streams */
}

/* ---- With the lock held ---- */

static bool is_same(const rvli_owed *a, const rvli_owed *b)
{
    return a->meeting == b->meeting && a->from == b->from && a->to == b->to &&
           a->giver == b->giver && a->rank == b->rank && a->device == b->device;
}

static void add(rvli_debts *to, const rvli_owed *what)
{
    for (size_t i = 0; i < to->count; i++) {
        if (!is_same(&to->each[i], what))
            continue;
        if (to->each[i].sequence < what->sequence)
            to->each[i] = *what;
        return;
    }
    if (to->count == to->room) {
        size_t room = 2 * to->room + 4;
        rvli_owed *more = realloc(to->each, room * sizeof *more);
        if (more == NULL)
            return;
        to->each = more;
        to->room = room;
    }
    to->each[to->count++] = *what;
}

/* Removes what has been settled, unless a later operation is owed by now. */
static void remove_settled(rvli_debts *from, const rvli_owed *what)
{
    size_t kept = 0;
    for (size_t i = 0; i < from->count; i++)
        if (!is_same(&from->each[i], what) || from->each[i].sequence > what->sequence)
            from->each[kept++] = from->each[i];
    from->count = kept;
}

/* Adds the debts of a device. device below 0: of all devices. */
static void add_all(rvli_debts *to, const rvli_debts *from, int device)
{
    for (size_t i = 0; i < from->count; i++)
        if (device < 0 || from->each[i].device == device)
            add(to, &from->each[i]);
}

/* ---- The legacy stream: it and all blocking streams wait for each other ---- */

static bool is_blocking(CUstream stream)
{
    return !rvli_stream_is_legacy(stream) &&
           !(rvli_stream_of(stream)->flags & CU_STREAM_NON_BLOCKING);
}

/* Here, there is one legacy stream. On a card, each device has its own. */
static int device_of(CUstream stream)
{
    int device = rvli_stream_of(stream)->device;
    if (rvli_stream_is_legacy(stream))
        (void)rvli_current_device(&device);
    return device;
}

/* What a stream waits for in addition to its own debts. NULL: nothing. */
static rvli_debts *owed_beside(CUstream stream)
{
    if (rvli_stream_is_legacy(stream))
        return &blocking;
    return is_blocking(stream) ? &rvli_stream_of(NULL)->owed : NULL;
}

/* ---- Without the lock held ---- */

void rvli_owed_add(CUstream stream, const rvli_owed *what)
{
    pthread_mutex_lock(&mutex);
    atomic_store(&any, true);
    add(&rvli_stream_of(stream)->owed, what);
    if (is_blocking(stream))
        add(&blocking, what);
    add(&all, what);
    pthread_mutex_unlock(&mutex);
}

CUstream rvli_owed_launched_on(void)
{
    return launched_on;
}

void rvli_owed_set_launched_on(CUstream stream)
{
    launched_on = stream;
}

void rvli_owed_record(CUevent event, CUstream stream)
{
    if (!atomic_load(&any))
        return;
    const rvli_debts *beside = owed_beside(stream);
    int device = device_of(stream);
    pthread_mutex_lock(&mutex);
    event->owed.count = 0;
    add_all(&event->owed, &rvli_stream_of(stream)->owed,
            rvli_stream_is_legacy(stream) ? device : -1);
    if (beside != NULL)
        add_all(&event->owed, beside, device);
    pthread_mutex_unlock(&mutex);
}

void rvli_owed_depend(CUstream stream, CUevent event)
{
    if (!atomic_load(&any))
        return;
    pthread_mutex_lock(&mutex);
    add_all(&rvli_stream_of(stream)->owed, &event->owed, -1);
    if (is_blocking(stream))
        add_all(&blocking, &event->owed, -1);
    pthread_mutex_unlock(&mutex);
}

/* Removes operations that are complete. With wait, that is all of them, unless one never
 * completes. */
static rvli_owed_end settle_each(rvli_debts *of, rvli_debts *now, bool wait)
{
    size_t come = 0;
    rvli_owed_end end = RVLI_OWED_COME;
    for (size_t i = 0; i < now->count && end == RVLI_OWED_COME; i++) {
        end = now->each[i].have_come(&now->each[i], wait);
        come += end == RVLI_OWED_COME;
    }
    pthread_mutex_lock(&mutex);
    for (size_t i = 0; i < come; i++) {
        remove_settled(of, &now->each[i]);
        remove_settled(&all, &now->each[i]);
    }
    pthread_mutex_unlock(&mutex);
    return end;
}

/* device -1: all devices. Does not wait for a debt that another thread has settled meanwhile. */
static rvli_owed_end settle(rvli_debts *of, int device, bool wait)
{
    rvli_debts now = {0};
    if (!atomic_load(&any))
        return RVLI_OWED_COME;
    pthread_mutex_lock(&mutex);
    add_all(&now, of, device);
    pthread_mutex_unlock(&mutex);
    rvli_owed_end end = settle_each(of, &now, wait);
    free(now.each);
    return end;
}

static rvli_owed_end settle_stream(CUstream stream, bool wait)
{
    rvli_debts *beside = owed_beside(stream);
    int device = device_of(stream);
    rvli_owed_end end =
        settle(&rvli_stream_of(stream)->owed, rvli_stream_is_legacy(stream) ? device : -1, wait);
    return end != RVLI_OWED_COME || beside == NULL ? end : settle(beside, device, wait);
}

static CUresult result_of(rvli_owed_end end)
{
    return end == RVLI_OWED_NEVER ? CUDA_ERROR_LAUNCH_TIMEOUT : CUDA_SUCCESS;
}

CUresult rvli_owed_settle_stream(CUstream stream)
{
    return result_of(settle_stream(stream, true));
}

CUresult rvli_owed_settle_event(CUevent event)
{
    return result_of(settle(&event->owed, -1, true));
}

CUresult rvli_owed_settle_device(int device)
{
    return result_of(settle(&all, device, true));
}

bool rvli_owed_stream_is_done(CUstream stream)
{
    return settle_stream(stream, false) == RVLI_OWED_COME;
}

bool rvli_owed_event_is_done(CUevent event)
{
    return settle(&event->owed, -1, false) == RVLI_OWED_COME;
}

void rvli_owed_drop(rvli_debts *of)
{
    pthread_mutex_lock(&mutex);
    free(of->each);
    *of = (rvli_debts){0};
    pthread_mutex_unlock(&mutex);
}
