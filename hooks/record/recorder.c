/* SPDX-License-Identifier: MIT */
/*
 * The life of the recorder: it starts, forks with the process, opens a file when there is something
 * to write, and ends with the process or before. The other files of this folder write the lines.
 */
#include "hooks/record/internal.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "hooks/process/message.h"
#include "hooks/record/usage.h"
#include "trace/format.h"

static _Atomic bool is_on;
pthread_mutex_t rvli_record_lock = PTHREAD_MUTEX_INITIALIZER;

static pthread_once_t watch_once = PTHREAD_ONCE_INIT;
static pthread_once_t exit_once = PTHREAD_ONCE_INIT;

bool rvli_recorder_on(void)
{
    return atomic_load_explicit(&is_on, memory_order_relaxed);
}

void rvli_record_switch_off(void)
{
    atomic_store(&is_on, false);
}

/* ---- Beginning ---- */

static void begin(void)
{
    rvli_record_begin_lines();
    rvli_record_begin_memory();
    rvli_record_begin_marks();
    rvli_record_begin_devices();
    rvli_record_begin_growth();
    rvli_record_begin_keeper();
}

static void forget(void)
{
    rvli_record_forget_memory();
    rvli_record_forget_marks();
    rvli_record_forget_lines();
}

static void before_fork(void)
{
    pthread_mutex_lock(&rvli_record_lock);
}

static void after_fork(void)
{
    pthread_mutex_unlock(&rvli_record_lock);
}

/* The child opens its own file once it has something to write. */
static void in_child(void)
{
    rvli_record_forget_thread();
    if (rvli_recorder_on()) {
        forget();
        begin();
    }
    pthread_mutex_unlock(&rvli_record_lock);
}

static void watch_forks(void)
{
    pthread_atfork(before_fork, after_fork, in_child);
}

rvl_status rvli_recorder_start(const rvli_recorder_options *options)
{
    const char *name = options->name != NULL ? options->name : program_invocation_short_name;
    size_t length = strlen(name);
    if (length == 0 || length > RVLI_TRACE_NAME_BYTES_MAX)
        return rvli_error(RVL_ERR_INVALID, "the name of the process must have 1 to 255 bytes");
    pthread_once(&watch_once, watch_forks);
    pthread_mutex_lock(&rvli_record_lock);
    rvl_status status = rvli_record_name_file(options->pattern, name);
    if (status == RVL_OK)
        status = rvl_listener_set(&rvli_record_listener);
    if (status == RVL_OK) {
        rvli_record_set_period(options->period_ns);
        begin();
        atomic_store(&is_on, true);
    }
    pthread_mutex_unlock(&rvli_record_lock);
    return status;
}

/* ---- The file ---- */

/* With the lock held, after rvli_usage_load(). */
static void need_file(void)
{
    if (rvli_record_has_file() || !rvli_recorder_on() || !rvli_record_open_file())
        return;
    rvli_record_watch_exit();
    rvli_record_write_marks();
    rvli_record_flush(); /* so that the file has a whole header */
    rvli_record_start_keeper();
}

bool rvli_record_enter(void)
{
    if (rvli_usage_load() != RVL_OK) {
        if (atomic_exchange(&is_on, false))
            rvli_say_error("recording");
        return false;
    }
    pthread_mutex_lock(&rvli_record_lock);
    need_file();
    if (rvli_record_has_file())
        return true;
    pthread_mutex_unlock(&rvli_record_lock);
    return false;
}

/* ---- The end ---- */

/* Opens the file if marks are waiting: the process has used no device. */
static void open_for_marks(void)
{
    pthread_mutex_lock(&rvli_record_lock);
    bool waiting = !rvli_record_has_file() && rvli_record_marks_wait();
    pthread_mutex_unlock(&rvli_record_lock);
    if (waiting && rvli_usage_load() == RVL_OK && rvli_record_enter())
        pthread_mutex_unlock(&rvli_record_lock);
}

/*
 * Takes the last sample before any library's destructors run: those of the libraries that report
 * use may run before ours. The file stays open, since the program's destructors may still free
 * memory.
 */
static void at_exit(void)
{
    if (!rvli_recorder_on())
        return;
    open_for_marks();
    pthread_mutex_lock(&rvli_record_lock);
    if (rvli_record_has_file() && rvli_record_process() == getpid())
        rvli_record_sample_all();
    rvli_record_stop_reading();
    pthread_mutex_unlock(&rvli_record_lock);
    rvli_record_await_keeper();
}

static void add_exit_handler(void)
{
    (void)atexit(at_exit); /* if it fails, only the last sample is missing */
}

void rvli_record_watch_exit(void)
{
    pthread_once(&exit_once, add_exit_handler);
}

/* With the lock held. */
static void finish(void)
{
    if (rvli_record_process() != getpid()) /* a child by vfork(), in the parent's memory */
        return;
    if (rvli_record_has_file()) {
        rvli_record_sample_all();
        rvli_record_free_all(); /* process exit frees its memory and contexts */
        rvli_record_end_growth();
    }
    rvl_trace_writer *writer = rvli_record_take_file();
    atomic_store(&is_on, false);
    if (rvl_trace_writer_close(writer) != RVL_OK)
        rvli_say_error("recording");
    forget();
}

void rvli_recorder_close(void)
{
    if (!rvli_recorder_on())
        return;
    if (rvli_record_may_read())
        open_for_marks();
    pthread_mutex_lock(&rvli_record_lock);
    finish();
    pthread_mutex_unlock(&rvli_record_lock);
}

bool rvli_recorder_try_close(void)
{
    if (!rvli_recorder_on())
        return true;
    if (pthread_mutex_trylock(&rvli_record_lock) != 0)
        return false;
    finish();
    pthread_mutex_unlock(&rvli_record_lock);
    return true;
}

/* exit() calls this. For _exit(), the preload library closes the recording. */
__attribute__((destructor)) static void close_at_end(void)
{
    rvli_recorder_close();
}
