/* SPDX-License-Identifier: MIT */
/*
 * Shared by the files of the recorder. Each file resets its own state in a forked child: lines.c
 * has the output file and its lines, memory.c allocations and tags, marks.c stages and steps,
 * devices.c the memory in use, growth.c the memory that the driver allocates. flush_thread.c has
 * the background thread. recorder.c starts and ends all of them.
 *
 * One lock guards everything and orders the lines. Nothing that could call back into the recorder
 * is called with it held.
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

/* Ends recording. */
void rvli_record_switch_off(void);

/* Returns true with the lock taken if there is a file to write to. Opens the file if needed. */
bool rvli_record_enter(void);

/* Arranges for the last sample to be taken at exit. */
void rvli_record_watch_exit(void);

/* ---- library/listener.c ---- */

/* Records contexts without regions. The hooks record the contexts of regions themselves. */
extern const rvl_listener rvli_record_listener;

/* ---- lines.c, with the lock held ---- */

/*
 * Sets the path of the files and the name of the process in them. Errors as rvli_recorder_start().
 */
rvl_status rvli_record_name_file(const char *given, const char *name);

void rvli_record_begin_lines(void);
void rvli_record_forget_lines(void);

/* Opens the file and writes its header. On failure, returns false and ends recording. */
bool rvli_record_open_file(void);
bool rvli_record_has_file(void);

/* Hands the file to the caller, who closes it; NULL if there is none. */
rvl_trace_writer *rvli_record_take_file(void);

/* The process that started this recording. */
pid_t rvli_record_process(void);

/*
 * Writes a line with the current time and thread, or with those given. Does nothing without a file.
 */
void rvli_record_write(rvl_trace_event *event);
void rvli_record_write_at(rvl_trace_event *event, uint64_t time_ns, uint32_t thread);
void rvli_record_flush(void);

/* The number of lines written. */
uint64_t rvli_record_events(void);

/* The id of the calling thread. Needs no lock. It changes in a forked child. */
uint32_t rvli_record_thread(void);
void rvli_record_forget_thread(void);

/* ---- memory.c, with the lock held ---- */

void rvli_record_begin_memory(void);
void rvli_record_forget_memory(void);
void rvli_record_free_all(void);

/* Records everything with an address on the device as freed, except for memory of regions. */
void rvli_record_free_addresses(int device);

/* ---- marks.c, with the lock held ---- */

void rvli_record_begin_marks(void);
void rvli_record_forget_marks(void);

/* Whether marks from before the file are waiting, and writes them. */
bool rvli_record_marks_wait(void);
void rvli_record_write_marks(void);

/* ---- devices.c, with the lock held unless stated otherwise ---- */

void rvli_record_begin_devices(void);

/* Without the lock. Returns false if the use is unknown. */
bool rvli_record_read_use(int device, uint64_t *used_bytes_out);

/* Without the lock. Stops reading for good: the library that reports use may be gone. */
void rvli_record_stop_reading(void);
bool rvli_record_may_read(void);

/* Without the lock. Nothing is read while the process sleeps. */
void rvli_record_set_asleep(bool sleeps);

bool rvli_record_knows_device(int device);

/* Notes that the program uses a device. Its first sample has the memory in use until now. */
void rvli_record_use_device(int device);

/* Bit d: the program has used device d. */
uint64_t rvli_record_devices_used(void);

/* Writes the memory in use on one device, or on all that the program has used. */
void rvli_record_sample(int device, uint64_t used_bytes);
void rvli_record_sample_all(void);

/* ---- growth.c, with the lock held ---- */

/* NCCL's memory on a device has changed by change_bytes. */
void rvli_record_nccl(int device, int64_t change_bytes);

void rvli_record_begin_growth(void);

/* Without the lock. Whether the device is known to have a context. */
bool rvli_record_has_context(int device);

/* Without the lock. The device has a context now; before_bytes were in use before. */
void rvli_record_context_begun(int device, uint64_t before_bytes);

/* Records that the driver's own memory is freed. */
void rvli_record_end_growth(void);

/* ---- flush_thread.c ---- */

void rvli_record_set_period(uint64_t ns);
void rvli_record_begin_keeper(void);

/*
 * If the thread cannot be started, lines are written when the buffer is full, at stages and at the
 * end.
 */
void rvli_record_start_keeper(void);

/* Waits for up to 100 ms until the thread is not reading the memory in use. */
void rvli_record_await_keeper(void);

#endif
