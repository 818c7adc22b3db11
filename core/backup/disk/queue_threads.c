/* SPDX-License-Identifier: MIT */
/* A queue that uses a few threads, which block in pread and pwrite. */
#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>

#include "base/error.h"
#include "core/backup/disk/engine.h"

#define THREADS 4u

typedef struct threads_queue {
    rvli_disk_queue queue;
    rvli_workers *workers;
    pthread_mutex_t lock;
    pthread_cond_t ended;
    unsigned in_flight;
} threads_queue;

static threads_queue *threads_of(rvli_disk_queue *queue)
{
    return (threads_queue *)queue;
}

static void run_job(rvli_job *job)
{
    rvli_disk_request *request =
        (rvli_disk_request *)((char *)job - offsetof(rvli_disk_request, job));
    threads_queue *threads = threads_of(request->queue);
    rvli_disk_request_run(request);
    pthread_mutex_lock(&threads->lock);
    request->done = true;
    threads->in_flight--;
    pthread_cond_signal(&threads->ended);
    pthread_mutex_unlock(&threads->lock);
}

static void begin(rvli_disk_queue *queue, rvli_disk_request *request)
{
    threads_queue *threads = threads_of(queue);
    request->job.run = run_job;
    pthread_mutex_lock(&threads->lock);
    threads->in_flight++;
    pthread_mutex_unlock(&threads->lock);
    rvli_workers_queue(threads->workers, &request->job);
}

static void wait_request(rvli_disk_queue *queue, rvli_disk_request *request)
{
    threads_queue *threads = threads_of(queue);
    pthread_mutex_lock(&threads->lock);
    while (!request->done)
        pthread_cond_wait(&threads->ended, &threads->lock);
    pthread_mutex_unlock(&threads->lock);
}

static void settle(rvli_disk_queue *queue, unsigned most)
{
    threads_queue *threads = threads_of(queue);
    pthread_mutex_lock(&threads->lock);
    while (threads->in_flight > most)
        pthread_cond_wait(&threads->ended, &threads->lock);
    pthread_mutex_unlock(&threads->lock);
}

static void free_queue(threads_queue *threads)
{
    pthread_cond_destroy(&threads->ended);
    pthread_mutex_destroy(&threads->lock);
    free(threads);
}

static void close_queue(rvli_disk_queue *queue)
{
    rvli_workers_stop(threads_of(queue)->workers);
    free_queue(threads_of(queue));
}

static const rvli_disk_engine_ops ops = {
    .name = "threads",
    .begin = begin,
    .wait = wait_request,
    .settle = settle,
    .close = close_queue,
};

rvl_status rvli_disk_threads_open(unsigned depth, rvli_disk_queue **queue_out)
{
    threads_queue *threads = calloc(1, sizeof *threads);
    if (threads == NULL)
        return rvli_error(RVL_ERR_HOST_OOM, "no host memory for a disk queue");
    threads->queue = (rvli_disk_queue){.ops = &ops, .depth = depth};
    pthread_mutex_init(&threads->lock, NULL);
    pthread_cond_init(&threads->ended, NULL);
    rvl_status status =
        rvli_workers_start(depth < THREADS ? depth : THREADS, NULL, NULL, &threads->workers);
    if (status != RVL_OK) {
        free_queue(threads);
        return status;
    }
    *queue_out = &threads->queue;
    return RVL_OK;
}
