/* SPDX-License-Identifier: MIT */
#include "hooks/captures.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

#include "base/intmap.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static rvli_intmap streams; /* guarded by lock */
static _Atomic uint64_t count;

static void lock_streams(void)
{
    pthread_mutex_lock(&lock);
}

static void unlock_streams(void)
{
    pthread_mutex_unlock(&lock);
}

__attribute__((constructor)) static void watch_forks(void)
{
    pthread_atfork(lock_streams, unlock_streams, unlock_streams);
}

void rvli_capture_begin(const void *stream)
{
    if (stream == NULL) /* the one that cannot be captured */
        return;
    lock_streams();
    if (!rvli_intmap_get(&streams, (uintptr_t)stream, NULL))
        (void)rvli_intmap_insert(&streams, (uintptr_t)stream, 1);
    atomic_store(&count, streams.count);
    unlock_streams();
}

void rvli_capture_end(const void *stream)
{
    if (!rvli_capture_running())
        return;
    lock_streams();
    rvli_intmap_remove(&streams, (uintptr_t)stream, NULL);
    atomic_store(&count, streams.count);
    unlock_streams();
}

bool rvli_capture_running(void)
{
    return atomic_load(&count) > 0;
}
