/* SPDX-License-Identifier: MIT */
/*
 * The lines of the recorder and the file that they are written to. Lines stay in the writer's
 * buffer until it is full or flushed. If the file cannot be written, recording ends with one
 * message.
 */
#include "hooks/record/internal.h"

#include <limits.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/thread_id.h"
#include "hooks/process/message.h"
#include "hooks/record/file.h"
#include "trace/format.h"

static char pattern[PATH_MAX];
static char process_name[RVLI_TRACE_NAME_BYTES_MAX + 1];
static rvl_trace_writer *writer; /* NULL: no file yet */
static pid_t process;
static uint64_t start_ns;
static uint64_t events;
static _Thread_local uint32_t thread_of_caller __attribute__((tls_model("initial-exec")));

uint32_t rvli_record_thread(void)
{
    if (thread_of_caller == 0)
        thread_of_caller = (uint32_t)rvli_thread_id();
    return thread_of_caller;
}

void rvli_record_forget_thread(void)
{
    thread_of_caller = 0;
}

/* ---- The file ---- */

rvl_status rvli_record_name_file(const char *given, const char *name)
{
    rvl_status status = rvli_record_file_pattern(given, pattern);
    if (status == RVL_OK)
        status = rvli_record_file_check(pattern);
    if (status == RVL_OK)
        memcpy(process_name, name, strlen(name) + 1);
    return status;
}

void rvli_record_begin_lines(void)
{
    writer = NULL;
    process = getpid();
    start_ns = rvli_monotonic_ns();
    events = 0;
}

void rvli_record_forget_lines(void)
{
    rvl_trace_writer_discard(writer); /* the parent writes the buffered lines */
    writer = NULL;
}

/* Ends recording with a message. */
static void give_up(void)
{
    rvli_say_error("recording");
    rvli_record_switch_off();
    rvli_record_forget_lines();
}

bool rvli_record_has_file(void)
{
    return writer != NULL;
}

pid_t rvli_record_process(void)
{
    return process;
}

bool rvli_record_open_file(void)
{
    if (rvli_record_file_open(pattern, start_ns, &writer) != RVL_OK) {
        writer = NULL;
        give_up();
    } else if (rvl_trace_writer_add_process(writer, process_name, (uint64_t)process) != RVL_OK) {
        give_up();
    }
    return writer != NULL;
}

rvl_trace_writer *rvli_record_take_file(void)
{
    rvl_trace_writer *taken = writer;
    writer = NULL;
    return taken;
}

/* ---- Lines ---- */

uint64_t rvli_record_events(void)
{
    return events;
}

void rvli_record_write_at(rvl_trace_event *event, uint64_t time_ns, uint32_t thread)
{
    if (writer == NULL)
        return;
    event->process = process_name;
    event->time_ns = time_ns - start_ns;
    event->thread = thread;
    events++;
    if (rvl_trace_writer_add_event(writer, event, sizeof *event) == RVL_ERR_IO)
        give_up();
}

void rvli_record_write(rvl_trace_event *event)
{
    rvli_record_write_at(event, rvli_monotonic_ns(), rvli_record_thread());
}

void rvli_record_flush(void)
{
    if (writer != NULL && rvl_trace_writer_flush(writer) != RVL_OK)
        give_up();
}
