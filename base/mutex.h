/* SPDX-License-Identifier: MIT */
/*
 * A mutex that costs nothing while the process has one thread.
 *
 * The C library knows whether a second thread ever existed. The answer cannot change while a mutex
 * is held, unless a thread is started or joined under it. None is: no lock here is ever held across
 * foreign code.
 */
#ifndef RVL_BASE_MUTEX_H
#define RVL_BASE_MUTEX_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

#if defined(__GLIBC__) && !__GLIBC_PREREQ(2, 32)
/*
 * Built for a C library that may lack this variable. The weak symbol resolves if a newer one runs.
 */
extern char __libc_single_threaded __attribute__((weak));
#define RVLI_ONE_THREAD (&__libc_single_threaded != NULL && __libc_single_threaded != 0)
#elif defined(__has_include)
#if __has_include(<sys/single_threaded.h>)
#include <sys/single_threaded.h>
#define RVLI_ONE_THREAD (__libc_single_threaded != 0)
#endif
#endif
#ifndef RVLI_ONE_THREAD
#define RVLI_ONE_THREAD false
#endif

static inline void rvli_mutex_lock(pthread_mutex_t *mutex)
{
    if (!RVLI_ONE_THREAD)
        pthread_mutex_lock(mutex);
}

static inline void rvli_mutex_unlock(pthread_mutex_t *mutex)
{
    if (!RVLI_ONE_THREAD)
        pthread_mutex_unlock(mutex);
}

#endif
