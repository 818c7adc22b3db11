/* SPDX-License-Identifier: MIT */
#include "progress.h"

#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "command.h"
#include "options.h"

#define FIRST_MS 2000 /* no line for work that ends sooner */
#define REDRAW_MS 200
#define PLAIN_MS 10000
#define BAR_WIDTH 20
#define MS_PER_SECOND 1000L
#define NS_PER_MS 1000000L

static option_when wanted;

static struct {
    const char *what;
    const char *unit;
    atomic_uint_fast64_t done, total, counted;
    struct timespec began;
    bool terminal;
    bool running;
    bool drawn;
    bool over; /* guarded by lock */
    pthread_mutex_t lock;
    pthread_cond_t ended;
    pthread_t thread;
} now = {.lock = PTHREAD_MUTEX_INITIALIZER};

int progress_set(const command_spec *command, const option_spec *option, char *value,
                 void *arguments)
{
    (void)arguments;
    return options_set_when(command, option, value, &wanted);
}

bool progress_wanted(bool terminal)
{
    return wanted == WHEN_ALWAYS || (wanted == WHEN_AUTO && terminal);
}

static uint64_t elapsed_ms(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)(time.tv_sec - now.began.tv_sec) * MS_PER_SECOND +
           (uint64_t)((time.tv_nsec - now.began.tv_nsec) / NS_PER_MS);
}

/* Formats "[###       ]  17 %  1203 cases, 12 s, about 60 s left". */
static void write_line(char *text, size_t size)
{
    uint64_t total = atomic_load(&now.total), done = atomic_load(&now.done);
    uint64_t counted = atomic_load(&now.counted), ms = elapsed_ms();
    done = done < total ? done : total;
    double part = total > 0 ? (double)done / (double)total : 0;
    size_t length = 0;
    if (now.terminal && total > 0)
        length += (size_t)snprintf(text, size, "[%-*.*s] ", BAR_WIDTH, (int)(part * BAR_WIDTH),
                                   "####################");
    if (total > 0)
        length += (size_t)snprintf(text + length, size - length, "%3d %%  ", (int)(part * 100));
    if (counted > 0 && now.unit != NULL)
        length +=
            (size_t)snprintf(text + length, size - length, "%" PRIu64 " %s, ", counted, now.unit);
    length += (size_t)snprintf(text + length, size - length, "%" PRIu64 " s", ms / MS_PER_SECOND);
    if (done > 0 && done < total && ms >= FIRST_MS)
        snprintf(text + length, size - length, ", about %.0f s left",
                 (double)ms / MS_PER_SECOND * (1 - part) / part);
}

static void tell(void)
{
    char line[160];
    write_line(line, sizeof line);
    if (now.terminal)
        fprintf(stderr, "\r%s: %s\x1b[K", now.what, line);
    else
        fprintf(stderr, "%s: %s\n", now.what, line);
    fflush(stderr);
    now.drawn = true;
}

static void add_ms(struct timespec *time, long ms)
{
    time->tv_sec += ms / MS_PER_SECOND;
    time->tv_nsec += ms % MS_PER_SECOND * NS_PER_MS;
    if (time->tv_nsec >= MS_PER_SECOND * NS_PER_MS) {
        time->tv_sec++;
        time->tv_nsec -= MS_PER_SECOND * NS_PER_MS;
    }
}

static void *keep_telling(void *unused)
{
    (void)unused;
    struct timespec next = now.began;
    add_ms(&next, wanted == WHEN_ALWAYS && now.terminal ? 0 : (now.terminal ? FIRST_MS : PLAIN_MS));
    pthread_mutex_lock(&now.lock);
    while (!now.over) {
        if (pthread_cond_timedwait(&now.ended, &now.lock, &next) == 0 || now.over)
            continue;
        tell();
        add_ms(&next, now.terminal ? REDRAW_MS : PLAIN_MS);
    }
    pthread_mutex_unlock(&now.lock);
    return NULL;
}

/* Blocks all signals in the new thread. */
static bool start_thread(void)
{
    sigset_t all, before;
    pthread_condattr_t clock;
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&now.ended, &clock);
    pthread_condattr_destroy(&clock);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    bool started = pthread_create(&now.thread, NULL, keep_telling, NULL) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return started;
}

void progress_begin(const char *what, const char *unit)
{
    now.what = what;
    now.unit = unit;
    now.drawn = now.over = false;
    now.terminal = isatty(STDERR_FILENO) == 1;
    atomic_store(&now.done, 0);
    atomic_store(&now.total, 0);
    atomic_store(&now.counted, 0);
    clock_gettime(CLOCK_MONOTONIC, &now.began);
    now.running = progress_wanted(now.terminal) && start_thread();
}

void progress_report(uint64_t done, uint64_t total, uint64_t counted)
{
    atomic_store(&now.total, total);
    atomic_store(&now.done, done);
    atomic_store(&now.counted, counted);
}

/* With --progress=always prints a last line, even for very short work. */
void progress_end(void)
{
    if (!now.running)
        return;
    pthread_mutex_lock(&now.lock);
    now.over = true;
    pthread_cond_signal(&now.ended);
    pthread_mutex_unlock(&now.lock);
    pthread_join(now.thread, NULL);
    pthread_cond_destroy(&now.ended);
    now.running = false;
    if (wanted == WHEN_ALWAYS)
        tell();
    if (now.drawn && now.terminal)
        fputs("\r\x1b[K", stderr);
}
