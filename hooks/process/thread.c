/* SPDX-License-Identifier: MIT */
#include "hooks/process/thread.h"

#include <pthread.h>
#include <signal.h>

#include "base/error.h"

rvl_status rvli_start_thread(void *(*run)(void *), void *user, const char *refused)
{
    pthread_attr_t attributes;
    pthread_t thread;
    sigset_t all, before;
    sigfillset(&all);
    if (pthread_attr_init(&attributes) != 0)
        return rvli_error(RVL_ERR_HOST_OOM, "no host memory for a thread");
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&thread, &attributes, run, user);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return error == 0 ? RVL_OK : rvli_error(RVL_ERR_HOST_OOM, refused);
}
