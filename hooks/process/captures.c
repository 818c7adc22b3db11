/* SPDX-License-Identifier: MIT */
#include "hooks/process/captures.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/error.h"
#include "base/thread_id.h"
#include "hooks/process/driver.h"

typedef struct capture {
    struct capture *next;
    const void *stream;
    pid_t thread; /* that began the capture */
    int mode;     /* CUstreamCaptureMode */
} capture;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static capture *captures; /* guarded by lock */
static _Atomic unsigned count;

static void lock_captures(void)
{
    pthread_mutex_lock(&lock);
}

static void unlock_captures(void)
{
    pthread_mutex_unlock(&lock);
}

__attribute__((constructor)) static void watch_forks(void)
{
    pthread_atfork(lock_captures, unlock_captures, unlock_captures);
}

static const void *own_stream(void)
{
    return (const void *)CU_STREAM_PER_THREAD;
}

const void *rvli_capture_stream(const void *stream, bool per_thread)
{
    return per_thread && stream == NULL ? own_stream() : stream;
}

/* All threads use the same handle for their own default stream. With the lock held. */
static capture **find(const void *stream)
{
    capture **at = &captures;
    pid_t self = rvli_thread_id();
    while (*at != NULL &&
           ((*at)->stream != stream || (stream == own_stream() && (*at)->thread != self)))
        at = &(*at)->next;
    return at;
}

void rvli_capture_begin(const void *stream, int mode)
{
    if (stream == NULL) /* the legacy default stream, which cannot be captured */
        return;
    lock_captures();
    capture *one = *find(stream);
    if (one == NULL && (one = malloc(sizeof *one)) != NULL) {
        one->next = captures;
        captures = one;
        atomic_fetch_add(&count, 1);
    }
    if (one != NULL)
        *one = (capture){one->next, stream, rvli_thread_id(), mode};
    unlock_captures();
}

static bool is_known(const void *stream)
{
    lock_captures();
    bool known = *find(stream) != NULL;
    unlock_captures();
    return known;
}

/*
 * A call to end a capture can fail and still end it: driver 580 does so on the wrong thread. So ask
 * the driver.
 */
static bool goes_on(const void *stream)
{
    rvl_error before = *rvli_error_get();
    CUstreamCaptureStatus state = CU_STREAM_CAPTURE_STATUS_NONE;
    const rvli_driver_calls *driver = rvli_driver();
    if (driver == NULL ||
        driver->cuStreamIsCapturing((CUstream)(uintptr_t)stream, &state) != CUDA_SUCCESS)
        state = CU_STREAM_CAPTURE_STATUS_NONE;
    rvli_error_set(&before);
    return state != CU_STREAM_CAPTURE_STATUS_NONE;
}

void rvli_capture_end(int error, const void *stream)
{
    if (!rvli_capture_running() || (error != CUDA_SUCCESS && is_known(stream) && goes_on(stream)))
        return;
    lock_captures();
    capture **at = find(stream), *gone = *at;
    if (gone != NULL) {
        *at = gone->next;
        atomic_fetch_sub(&count, 1);
    }
    unlock_captures();
    free(gone);
}

bool rvli_capture_running(void)
{
    return atomic_load(&count) > 0;
}

/* The capture mode of this thread. */
static CUstreamCaptureMode mode_of_thread(const rvli_driver_calls *driver)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED, ignored;
    if (driver->cuThreadExchangeStreamCaptureMode(&mode) != CUDA_SUCCESS)
        return CU_STREAM_CAPTURE_MODE_GLOBAL;
    ignored = mode;
    (void)driver->cuThreadExchangeStreamCaptureMode(&ignored);
    return mode;
}

/* Follows the rules of cudaThreadExchangeStreamCaptureMode(). */
bool rvli_capture_forbids_frees(void)
{
    bool forbidden = false;
    pid_t self = rvli_thread_id();
    const rvli_driver_calls *driver = rvli_capture_running() ? rvli_driver() : NULL;
    if (driver == NULL)
        return false;
    CUstreamCaptureMode mode = mode_of_thread(driver);
    lock_captures();
    for (const capture *each = captures; each != NULL && !forbidden; each = each->next)
        forbidden = each->thread == self ? each->mode != CU_STREAM_CAPTURE_MODE_RELAXED
                                         : each->mode == CU_STREAM_CAPTURE_MODE_GLOBAL &&
                                               mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
    unlock_captures();
    return forbidden && mode != CU_STREAM_CAPTURE_MODE_RELAXED;
}
