/* SPDX-License-Identifier: MIT */
/*
 * What the files of the recorder share. Each keeps its own part of what a child by fork begins
 * again: recorder_lines.c the file and what is written to it, recorder_memory.c allocations and
 * tags, recorder_marks.c stages and steps, recorder_devices.c what is in use, recorder_growth.c
 * what the driver takes. recorder_keeper.c is the thread beside them; recorder.c begins and ends it
 * all.
 *
 * One lock guards everything and orders the lines; under it nothing is called that could come back.
 */
#ifndef RVL_HOOKS_RECORD_INTERNAL_H
#define RVL_HOOKS_RECORD_INTERNAL_H

#include <pthread.h>
#include <sys/types.h>

#include "hooks/record/recorder.h"
#include "reveille/listen.h"
#include "reveille/trace.h"

extern pthread_mutex_t rvli_record_lock;

/* ---- recorder.c ---- */

/* Nothing is recorded any more. */
void rvli_record_switch_off(void);

/* Takes the lock and answers true if there is a file to write to. */
bool rvli_record_enter(void);

/* From now on the last sample is taken when the process ends. */
void rvli_record_watch_exit(void);

/* ---- recorder_listener.c ---- */

/* What it hears of contexts in which no regions allocate: the hooks tell of those themselves. */
extern const rvl_listener rvli_record_listener;

/* ---- recorder_lines.c, with the lock held ---- */

/* Where the files go and what the process is called in them. As rvli_recorder_start(). */
rvl_status rvli_record_name_file(const char *given, const char *name);

void rvli_record_begin_lines(void);
void rvli_record_forget_lines(void);

/* Opens the file and writes its header. false: it cannot be, and the recording is over. */
bool rvli_record_open_file(void);
bool rvli_record_has_file(void);

/* The file is the caller's, to be closed; NULL: there is none. */
rvl_trace_writer *rvli_record_take_file(void);

/* The one that began the lines. */
pid_t rvli_record_process(void);

/* Writes a line of this moment and thread, or of others; without a file it is left out. */
void rvli_record_write(rvl_trace_event *event);
void rvli_record_write_at(rvl_trace_event *event, uint64_t time_ns, uint32_t thread);
void rvli_record_flush(void);

/* How many lines have been written. */
uint64_t rvli_record_events(void);

/* The number of the calling thread, which needs no lock; in a child by fork it is another. */
uint32_t rvli_record_thread(void);
void rvli_record_forget_thread(void);

/* ---- recorder_memory.c, with the lock held ---- */

void rvli_record_begin_memory(void);
void rvli_record_forget_memory(void);
void rvli_record_free_all(void);

/* What has addresses on a device, except for memory of regions. */
void rvli_record_free_addresses(int device);

/* ---- recorder_marks.c, with the lock held ---- */

void rvli_record_begin_marks(void);
void rvli_record_forget_marks(void);

/* Whether there are marks from before the file; and writes them. */
bool rvli_record_marks_wait(void);
void rvli_record_write_marks(void);

/* ---- recorder_devices.c, with the lock held where not said otherwise ---- */

void rvli_record_begin_devices(void);

/* Without the lock. false: nobody says. */
bool rvli_record_read_use(int device, uint64_t *used_bytes_out);

/* Without the lock. From then on nothing is read, since the one that says it may be gone. */
void rvli_record_stop_reading(void);
bool rvli_record_may_read(void);

/* Without the lock. While the process sleeps nothing is read, either. */
void rvli_record_set_asleep(bool sleeps);

bool rvli_record_knows_device(int device);

/* Notes that the program uses a device. The first sample says what was in use before. */
void rvli_record_use_device(int device);

/* Bit d: the program has used device d. */
uint64_t rvli_record_devices_used(void);

/* Writes what is in use on one device, or on all that the program has used. */
void rvli_record_sample(int device, uint64_t used_bytes);
void rvli_record_sample_all(void);

/* ---- recorder_growth.c, with the lock held ---- */

/* NCCL has so much more, or less, on a device. */
void rvli_record_nccl(int device, int64_t change_bytes);

void rvli_record_begin_growth(void);

/* Without the lock. Whether a device has a context already, as far as it is known. */
bool rvli_record_has_context(int device);

/* Without the lock. A device has a context now, and had so many bytes in use before. */
void rvli_record_context_begun(int device, uint64_t before_bytes);

/* The driver has nothing for itself any more. */
void rvli_record_end_growth(void);

/* ---- recorder_keeper.c ---- */

void rvli_record_set_period(uint64_t ns);
void rvli_record_begin_keeper(void);

/* Without the thread lines are written when the buffer is full, at stages and at the end. */
void rvli_record_start_keeper(void);

/* Waits, not forever, until the thread does not read what is in use. */
void rvli_record_await_keeper(void);

#endif
