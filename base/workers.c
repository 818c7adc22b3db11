/* SPDX-License-Identifier: MIT */
#include "base/workers.h"

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>

#include "base/error.h"

struct rvli_workers {
    pthread_mutex_t lock;
    pthread_cond_t queued;
    rvli_job *first;
    rvli_job **end; /* where the next job is linked */
    bool stop;
    void (*begin)(void *user);
    void *user;
    pthread_cond_t begun;
    unsigned begun_count;
    unsigned count;
    pthread_t threads[];
};

/* Returns NULL if there will be no more jobs. */
static rvli_job *next_job(rvli_workers *workers)
{
    pthread_mutex_lock(&workers->lock);
    while (workers->first == NULL && !workers->stop)
        pthread_cond_wait(&workers->queued, &workers->lock);
    rvli_job *job = workers->first;
    if (job != NULL) {
        workers->first = job->next;
        if (workers->first == NULL)
            workers->end = &workers->first;
    }
    pthread_mutex_unlock(&workers->lock);
    return job;
}

static void *work(void *argument)
{
    rvli_workers *workers = argument;
    if (workers->begin != NULL)
        workers->begin(workers->user);
    pthread_mutex_lock(&workers->lock);
    workers->begun_count++;
    pthread_cond_signal(&workers->begun);
    pthread_mutex_unlock(&workers->lock);
    for (rvli_job *job = next_job(workers); job != NULL; job = next_job(workers))
        job->run(job);
    return NULL;
}

/* Blocks all signals on our threads: they belong to the program. */
static int start_thread(rvli_workers *workers, pthread_t *thread_out)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int number = pthread_create(thread_out, NULL, work, workers);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return number;
}

static void await_begun(rvli_workers *workers)
{
    pthread_mutex_lock(&workers->lock);
    while (workers->begun_count < workers->count)
        pthread_cond_wait(&workers->begun, &workers->lock);
    pthread_mutex_unlock(&workers->lock);
}

rvl_status rvli_workers_start(unsigned count, void (*begin)(void *user), void *user,
                              rvli_workers **workers_out)
{
    rvli_workers *workers = calloc(1, sizeof *workers + count * sizeof workers->threads[0]);
    if (workers == NULL)
        return rvli_error(RVL_ERR_HOST_OOM, "no host memory for threads");
    pthread_mutex_init(&workers->lock, NULL);
    pthread_cond_init(&workers->queued, NULL);
    pthread_cond_init(&workers->begun, NULL);
    workers->end = &workers->first;
    workers->begin = begin;
    workers->user = user;
    while (workers->count < count && start_thread(workers, &workers->threads[workers->count]) == 0)
        workers->count++;
    if (workers->count == 0) {
        rvli_workers_stop(workers);
        return rvli_error(RVL_ERR_HOST_OOM, "no thread could be started (see ulimit -u)");
    }
    await_begun(workers);
    *workers_out = workers;
    return RVL_OK;
}

void rvli_workers_stop(rvli_workers *workers)
{
    pthread_mutex_lock(&workers->lock);
    workers->stop = true;
    pthread_cond_broadcast(&workers->queued);
    pthread_mutex_unlock(&workers->lock);
    for (unsigned i = 0; i < workers->count; i++)
        pthread_join(workers->threads[i], NULL);
    pthread_cond_destroy(&workers->begun);
    pthread_cond_destroy(&workers->queued);
    pthread_mutex_destroy(&workers->lock);
    free(workers);
}

void rvli_workers_queue(rvli_workers *workers, rvli_job *job)
{
    pthread_mutex_lock(&workers->lock);
    job->next = NULL;
    *workers->end = job;
    workers->end = &job->next;
    pthread_cond_signal(&workers->queued);
    pthread_mutex_unlock(&workers->lock);
}
