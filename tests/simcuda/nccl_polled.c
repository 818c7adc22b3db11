/* SPDX-License-Identifier: MIT */
#include "tests/simcuda/nccl_polled.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cuda_runtime_api.h>

#define ELEMENTS 4
#define POLL_US 1000

typedef struct watch {
    cudaEvent_t event;
    bool once; /* else until it is complete */
    cudaError_t seen;
    atomic_int looks;
} watch;

static void *poll(void *user)
{
    watch *of = user;
    (void)pthread_setname_np(pthread_self(), "pt_nccl_watchdg");
    for (;;) {
        of->seen = cudaEventQuery(of->event);
        atomic_fetch_add(&of->looks, 1);
        if (of->once || of->seen == cudaSuccess)
            return NULL;
        usleep(POLL_US);
    }
}

static void say_seen(cudaError_t seen)
{
    printf("%c ", seen == cudaSuccess ? 'd' : seen == cudaErrorNotReady ? 'h' : '?');
}

static void say_watchdog(cudaEvent_t event)
{
    watch of = {.event = event, .once = true};
    pthread_t thread;
    if (pthread_create(&thread, NULL, poll, &of) != 0 || pthread_join(thread, NULL) != 0)
        exit(7);
    say_seen(of.seen);
}

static void *in_driver(const char *name)
{
    void *found = dlsym(dlopen("libcuda.so.1", RTLD_NOW), name);
    if (found == NULL)
        exit(7);
    return found;
}

/* The watchdog polls repeatedly during rvli_polled_show(). */
static void say_shown(cudaEvent_t event)
{
    int (*show)(void) = (int (*)(void))(uintptr_t)in_driver("rvli_polled_show");
    watch of = {.event = event};
    pthread_t thread;
    if (pthread_create(&thread, NULL, poll, &of) != 0)
        exit(7);
    while (atomic_load(&of.looks) < 3)
        usleep(POLL_US);
    say_seen(of.seen);
    printf("%d ", show());
    pthread_join(thread, NULL);
    say_seen(of.seen);
}

void nccl_polled(rvli_comm *comm, void *(*find)(const char *name))
{
    __typeof__(ncclAllReduce) *reduce =
        (__typeof__(ncclAllReduce) *)(uintptr_t)find("ncclAllReduce");
    void (*begin)(void) = (void (*)(void))(uintptr_t)in_driver("rvli_polled_begin");
    void (*end)(void) = (void (*)(void))(uintptr_t)in_driver("rvli_polled_end");
    cudaStream_t own, other;
    cudaEvent_t events[5];
    float *place;
    if (cudaMalloc((void **)&place, ELEMENTS * sizeof *place) != cudaSuccess ||
        cudaStreamCreateWithFlags(&own, cudaStreamNonBlocking) != cudaSuccess ||
        cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking) != cudaSuccess)
        exit(7);
    for (size_t i = 0; i < sizeof events / sizeof *events; i++) {
        if (i == 1)
            begin();
        reduce(place, place, ELEMENTS, RVLI_NCCL_FLOAT32, 0, comm, own);
        if (cudaEventCreateWithFlags(&events[i], cudaEventDisableTiming) != cudaSuccess ||
            cudaEventRecord(events[i], own) != cudaSuccess)
            exit(7);
    }
    cudaStreamSynchronize(own);
    say_watchdog(events[0]);
    say_seen(cudaEventQuery(events[1]));
    say_watchdog(events[1]);
    cudaStreamWaitEvent(other, events[2], 0);
    say_watchdog(events[2]);
    cudaEventRecord(events[3], own); /* after no collective of its own any more */
    cudaEventDestroy(events[4]);
    say_shown(events[1]);
    reduce(place, place, ELEMENTS, RVLI_NCCL_FLOAT32, 0, comm, own);
    cudaEventRecord(events[0], own);
    cudaStreamSynchronize(own);
    say_watchdog(events[0]);
    say_watchdog(events[3]);
    end();
    say_watchdog(events[0]);
    begin(); /* again, beside an event that nobody has polled: nothing waits for it */
    reduce(place, place, ELEMENTS, RVLI_NCCL_FLOAT32, 0, comm, own);
    cudaEventRecord(events[1], own);
    end();
    begin();
    int (*show)(void) = (int (*)(void))(uintptr_t)in_driver("rvli_polled_show");
    printf("%d ", show());
    reduce(place, place, ELEMENTS, RVLI_NCCL_FLOAT32, 0, comm, own);
    cudaEventRecord(events[1], own); /* what is hidden now counts, and not what it marked before */
    say_shown(events[1]);
    end();
    printf("\n");
    fflush(stdout);
}
