/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "adversary.h"
#include "random.h"

#define PLACES 64
#define TICK_US 1000

static _Atomic(pid_t) threads[PLACES];        /* 0: nobody */
static const caller *_Atomic callers[PLACES]; /* for a report */
static _Atomic bool ends;
static pthread_t sender;
static uint64_t sender_random;

static void on_signal(int number)
{
    int before = errno;
    (void)number;
    counts->signals++;
    errno = before;
}

static void handle(int number)
{
    struct sigaction action = {.sa_handler = on_signal};
    sigemptyset(&action.sa_mask);
    if (sigaction(number, &action, NULL) != 0)
        calls_give_up("sigaction");
}

static uint64_t now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec;
}

/* Whether the program still gets on. */
static void watch(uint64_t *calls, uint64_t *since_s)
{
    uint64_t total = calls_total();
    if (total != *calls) {
        *calls = total;
        *since_s = now_s();
    } else if (now_s() - *since_s > DEADLINE_S) {
        for (int i = 0; i < PLACES; i++) {
            const caller *each = callers[i];
            if (each != NULL)
                fprintf(stderr, "stress: --seed %llu, thread %d, step %llu hangs in %s(%s)\n",
                        (unsigned long long)each->seed, each->thread,
                        (unsigned long long)each->step, each->function, each->arguments);
        }
        abort();
    }
}

static void *send(void *unused)
{
    uint64_t calls = 0, since_s = now_s();
    (void)unused;
    while (!ends) {
        struct timespec pause = {.tv_nsec = (long)random_below(&sender_random, 2 * TICK_US) * 1000};
        nanosleep(&pause, NULL);
        pid_t thread = threads[random_below(&sender_random, PLACES)];
        if (thread != 0)
            syscall(SYS_tgkill, getpid(), thread, SIGUSR1);
        watch(&calls, &since_s);
    }
    return NULL;
}

void adversary_start(uint64_t seed)
{
    sigset_t all, before;
    const struct itimerval often = {{0, 3 * TICK_US}, {0, 3 * TICK_US}};
    handle(SIGUSR1);
    handle(SIGALRM);
    sender_random = seed;
    ends = false;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* the sender hears nothing */
    if (pthread_create(&sender, NULL, send, NULL) != 0)
        calls_give_up("a thread cannot be started");
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    setitimer(ITIMER_REAL, &often, NULL);
}

void adversary_stop(void)
{
    const struct itimerval never = {{0, 0}, {0, 0}};
    setitimer(ITIMER_REAL, &never, NULL);
    ends = true;
    pthread_join(sender, NULL);
}

int adversary_enter(const caller *by)
{
    pid_t nobody = 0;
    for (int i = 0; i < PLACES; i++, nobody = 0)
        if (atomic_compare_exchange_strong(&threads[i], &nobody, (pid_t)syscall(SYS_gettid))) {
            callers[i] = by;
            return i;
        }
    calls_give_up("too many threads");
    return -1;
}

void adversary_leave(int place)
{
    callers[place] = NULL;
    threads[place] = 0;
}

void adversary_forget(void)
{
    for (int i = 0; i < PLACES; i++) {
        callers[i] = NULL;
        threads[i] = 0;
    }
}

int wait_for_child(int child)
{
    uint64_t begin_s = now_s();
    int status = 0;
    while (now_s() - begin_s <= DEADLINE_S) {
        pid_t found = waitpid(child, &status, WNOHANG);
        if (found == child)
            return status;
        if (found < 0 && errno != EINTR)
            calls_give_up("waitpid");
        nanosleep(&(struct timespec){.tv_nsec = TICK_US * 1000}, NULL);
    }
    fprintf(stderr, "stress: process %d does not end within %d s\n", child, DEADLINE_S);
    kill(child, SIGKILL); /* it would keep this program's output open */
    abort();
}
