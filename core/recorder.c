/* SPDX-License-Identifier: MIT */
#include "core/recorder.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/options.h"
#include "base/thread_id.h"
#include "core/tables.h"
#include "reveille/record.h"
#include "trace/format.h"

/* ---- Events ---- */

/* Returns the kernel's id of the calling thread. Each thread asks the kernel once. */
static uint32_t thread_number(void)
{
    static _Thread_local uint32_t number __attribute__((tls_model("initial-exec")));
    if (number == 0)
        number = (uint32_t)rvli_thread_id();
    return number;
}

/* Declares processes before their first event. The writer may run out of memory for a name. */
static rvl_status declare_processes(rvl_context *context)
{
    rvli_recorder *recorder = &context->recorder;
    rvl_status status = RVL_OK;
    while (status == RVL_OK && recorder->declared_processes < context->process_count) {
        uint32_t number = recorder->declared_processes;
        uint64_t pid = number == 0 ? (uint64_t)getpid() : 0;
        status =
            rvl_trace_writer_add_process(recorder->writer, context->processes[number]->name, pid);
        recorder->declared_processes += status == RVL_OK;
    }
    return status;
}

/* A failure is remembered, and stop reports it. */
static void write_event(rvl_context *context, rvl_trace_event *event)
{
    rvl_error cause = *rvli_error_get();
    rvli_recorder *recorder = &context->recorder;
    rvl_status status = declare_processes(context);
    event->time_ns = rvli_clock_now(&context->clock) - recorder->start_ns;
    event->thread = thread_number();
    if (status == RVL_OK)
        status = rvl_trace_writer_add_event(recorder->writer, event, sizeof *event);
    if (recorder->failed == RVL_OK)
        recorder->failed = status;
    rvli_error_set(&cause);
}

static const char *name_of(const rvli_tag *tag)
{
    return tag->key->name[0] != '\0' ? tag->key->name : NULL;
}

/* ---- Allocations ---- */

static void write_alloc(rvl_context *context, const rvli_allocation *allocation, uint64_t id)
{
    uint32_t flags = allocation->flags & ~RVL_ALLOC_PAUSED;
    rvl_state state = (rvl_state)rvli_mover(allocation)->state;
    if (state != RVL_STATE_ACTIVE && state != RVL_STATE_PAUSING)
        flags |= RVL_ALLOC_PAUSED;
    write_event(context,
                &(rvl_trace_event){
                    .kind = RVL_EVENT_ALLOC,
                    .process = allocation->tag->process->name,
                    .id = id,
                    .device = allocation->device,
                    .bytes = allocation->size,
                    .tag = name_of(allocation->tag),
                    .backup = (rvl_backup)allocation->policy,
                    .flags = flags,
                    .access_mask = allocation->access_mask & ~(UINT64_C(1) << allocation->device),
                });
}

/*
 * Returns whether a transition of its tag, which does not include it, has still to write its line.
 */
static bool is_late(const rvli_allocation *allocation)
{
    uint8_t state = rvli_mover(allocation)->state;
    return allocation->tag->moving && state != RVL_STATE_PAUSING && state != RVL_STATE_RESUMING;
}

void rvli_record_alloc(rvl_context *context, const rvli_allocation *allocation)
{
    rvli_recorder *recorder = &context->recorder;
    rvli_error_before before;
    if (!is_late(allocation)) {
        write_alloc(context, allocation, allocation->id);
        return;
    }
    rvli_error_keep(&before);
    rvl_status status = rvli_intmap_insert(&recorder->late, allocation->addr, 0);
    if (status == RVL_OK)
        recorder->owed++;
    else if (recorder->failed == RVL_OK)
        recorder->failed = status;
    rvli_error_put_back(&before);
}

void rvli_record_late(rvl_context *context, bool all)
{
    rvli_recorder *recorder = &context->recorder;
    for (size_t i = 0; recorder->owed > 0 && i < recorder->late.capacity; i++) {
        rvli_intmap_slot *slot = &recorder->late.slots[i];
        if (slot->key == 0 || slot->value != 0)
            continue;
        const rvli_allocation *allocation = rvli_index_get(&context->by_addr, slot->key);
        if (allocation->tag->moving && !all)
            continue;
        slot->value = ++context->last_id;
        recorder->owed--;
        write_alloc(context, allocation, slot->value);
    }
}

void rvli_record_free(rvl_context *context, const rvli_allocation *allocation)
{
    rvli_recorder *recorder = &context->recorder;
    uint64_t id = allocation->id;
    if (rvli_intmap_remove(&recorder->late, allocation->addr, &id) && id == 0) {
        recorder->owed--; /* the file does not have it yet, and never will */
        return;
    }
    write_event(context, &(rvl_trace_event){
                             .kind = RVL_EVENT_FREE,
                             .process = allocation->tag->process->name,
                             .id = id,
                         });
}

/* ---- Transitions and marks ---- */

void rvli_record_transition(rvl_context *context, const rvli_tag *tag, rvl_event_kind kind,
                            bool skip_content)
{
    write_event(context, &(rvl_trace_event){
                             .kind = kind,
                             .process = tag->process->name,
                             .tag = name_of(tag),
                             .skip_content = skip_content,
                         });
}

void rvli_record_stage(rvl_context *context, const char *name, const uint64_t *used_bytes)
{
    const char *process = context->processes[0]->name;
    write_event(context, &(rvl_trace_event){
                             .kind = RVL_EVENT_STAGE,
                             .process = process,
                             .name = name,
                         });
    for (int device = 0; device < context->device_count; device++)
        if (used_bytes[device] != RVLI_USE_UNKNOWN)
            write_event(context, &(rvl_trace_event){
                                     .kind = RVL_EVENT_SAMPLE,
                                     .process = process,
                                     .device = (uint32_t)device,
                                     .bytes = used_bytes[device],
                                 });
    rvl_trace_writer_flush(context->recorder.writer);
}

void rvli_record_step(rvl_context *context)
{
    write_event(context, &(rvl_trace_event){
                             .kind = RVL_EVENT_STEP,
                             .process = context->processes[0]->name,
                         });
}

void rvli_record_external(rvl_context *context, int device, const char *cause, uint64_t bytes)
{
    write_event(context, &(rvl_trace_event){
                             .kind = RVL_EVENT_EXTERNAL,
                             .process = context->processes[0]->name,
                             .device = (uint32_t)device,
                             .bytes = bytes,
                             .name = cause,
                         });
}

/* ---- Marks of processes ---- */

static bool is_named(rvl_event_kind kind)
{
    return kind == RVL_EVENT_STAGE || kind == RVL_EVENT_ENTER || kind == RVL_EVENT_FAIL;
}

static bool is_range(rvl_event_kind kind)
{
    return kind == RVL_EVENT_ENTER || kind == RVL_EVENT_LEAVE;
}

static bool is_mark(const rvl_mark *mark)
{
    size_t length = mark->name != NULL ? strnlen(mark->name, RVLI_TRACE_NAME_BYTES_MAX + 1) : 0;
    bool named = length > 0 && length <= RVLI_TRACE_NAME_BYTES_MAX;
    return (mark->kind == RVL_EVENT_STAGE && named) ||
           (mark->kind == RVL_EVENT_FAIL && (named || mark->name == NULL)) ||
           (mark->kind == RVL_EVENT_ENTER && named && mark->id > 0) ||
           mark->kind == RVL_EVENT_LEAVE || mark->kind == RVL_EVENT_SLEEP ||
           mark->kind == RVL_EVENT_WAKE;
}

rvl_status rvl_record_mark(rvl_context *context, const rvl_mark *user_mark)
{
    rvl_mark mark;
    rvl_status status = rvli_context_check(context);
    if (status == RVL_OK)
        status = rvli_options_read(&mark, sizeof mark, user_mark);
    if (status == RVL_OK && !is_mark(&mark))
        status = rvli_error(RVL_ERR_INVALID, "no mark: a stage or a range has a name of 1 to 255 "
                                             "bytes, and a range an id from 1");
    if (status != RVL_OK)
        return status;
    rvli_lock(context);
    if (mark.process >= context->process_count)
        status = rvli_error(RVL_ERR_INVALID, "no such process: rvl_process_define() makes one");
    else if (rvli_recording(&context->recorder))
        write_event(context, &(rvl_trace_event){.kind = mark.kind,
                                                .process = context->processes[mark.process]->name,
                                                .id = is_range(mark.kind) ? mark.id : 0,
                                                .name = is_named(mark.kind) ? mark.name : NULL,
                                                .skip_content = mark.skip_content != 0});
    rvli_unlock(context);
    return status;
}

/* ---- Refusals, and the end ---- */

void rvli_record_refusal(rvl_context *context, const rvli_tag *tag, int device,
                         uint64_t requested_bytes, uint64_t free_bytes)
{
    write_event(context, &(rvl_trace_event){
                             .kind = RVL_EVENT_REFUSE,
                             .process = tag->process->name,
                             .device = (uint32_t)device,
                             .bytes = requested_bytes,
                             .free_bytes = free_bytes,
                             .tag = name_of(tag),
                         });
}

static rvl_status check_refusal(const rvl_context *context, const rvl_refusal *refusal)
{
    if (refusal->requested_bytes == 0 || refusal->requested_bytes > (uint64_t)INT64_MAX ||
        refusal->free_bytes > (uint64_t)INT64_MAX || (refusal->tag != NULL && !*refusal->tag) ||
        (refusal->where != NULL && !*refusal->where))
        return rvli_error(RVL_ERR_INVALID, "a refusal of 0 bytes, of 2^63 or more, or with an "
                                           "empty text");
    rvl_status status = rvli_flags_check(refusal->flags, RVL_REFUSE_BY_ALLOCATOR, 0);
    if (status == RVL_OK && refusal->device != RVL_NO_DEVICE)
        status = rvli_device_check(context, refusal->device);
    return status;
}

rvl_status rvl_record_refuse(rvl_context *context, const rvl_refusal *user_refusal)
{
    rvl_refusal refusal;
    rvl_status status = rvli_context_check(context);
    if (status == RVL_OK)
        status = rvli_options_read(&refusal, sizeof refusal, user_refusal);
    if (status == RVL_OK)
        status = check_refusal(context, &refusal);
    if (status != RVL_OK)
        return status;
    rvli_lock(context);
    if (refusal.process >= context->process_count)
        status = rvli_error(RVL_ERR_INVALID, "no such process");
    else if (rvli_recording(&context->recorder))
        write_event(context,
                    &(rvl_trace_event){
                        .kind = RVL_EVENT_REFUSE,
                        .process = context->processes[refusal.process]->name,
                        .device = refusal.device == RVL_NO_DEVICE ? RVL_TRACE_HOST
                                                                  : (uint32_t)refusal.device,
                        .bytes = refusal.requested_bytes,
                        .free_bytes = refusal.free_bytes,
                        .tag = refusal.tag,
                        .name = refusal.where,
                        .flags = refusal.flags,
                    });
    rvli_unlock(context);
    return status;
}

rvl_status rvl_record_end(rvl_context *context, uint32_t exit_status, uint32_t flags,
                          uint64_t missed, const char *waits)
{
    rvl_status status = rvli_context_check(context);
    bool signal = flags == RVL_ENDED_BY_SIGNAL;
    if (status == RVL_OK)
        status = rvli_flags_check(flags, RVL_ENDED_BY_SIGNAL, 0);
    if (status == RVL_OK && missed > (uint64_t)INT64_MAX)
        status = rvli_error(RVL_ERR_INVALID, "2^63 or more processes are missing");
    if (status == RVL_OK && (exit_status > (signal ? RVLI_TRACE_SIGNAL_MAX : RVLI_TRACE_EXIT_MAX) ||
                             (signal && exit_status == 0)))
        status = rvli_error(RVL_ERR_INVALID, "an exit status is 0 to 255, a signal 1 to 64");
    if (status == RVL_OK && waits != NULL &&
        (waits[0] == '\0' || strlen(waits) > RVLI_TRACE_NAME_BYTES_MAX))
        status = rvli_error(RVL_ERR_INVALID,
                            "the text that says what is waited for must have 1 to 255 bytes");
    if (status != RVL_OK)
        return status;
    rvli_lock(context);
    if (rvli_recording(&context->recorder))
        write_event(context, &(rvl_trace_event){.kind = RVL_EVENT_ENDED,
                                                .bytes = missed,
                                                .process = context->processes[0]->name,
                                                .name = waits,
                                                .exit_status = exit_status,
                                                .flags = flags});
    rvli_unlock(context);
    return RVL_OK;
}

/* ---- Start and stop ---- */

#define BOOT_ID_BYTES 37

/* Reads the kernel's id of this boot. Returns false if it cannot be read. */
static bool read_boot_id(char boot_id[BOOT_ID_BYTES])
{
    int file = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return false;
    ssize_t length = read(file, boot_id, BOOT_ID_BYTES - 1);
    close(file);
    boot_id[length > 0 ? length : 0] = '\0';
    return length == BOOT_ID_BYTES - 1;
}

/* Stores the clocks at time 0 of the trace. Virtual time has no relation to other clocks. */
static void place_clock(rvl_context *context, rvl_trace_header *header, char *boot_id)
{
    struct timespec wall;
    if (context->clock.virtual_time)
        return;
    if (read_boot_id(boot_id))
        header->boot_id = boot_id;
    clock_gettime(CLOCK_REALTIME, &wall);
    header->mono_ns = context->recorder.start_ns;
    header->wall_ns = (uint64_t)wall.tv_sec * 1000000000u + (uint64_t)wall.tv_nsec;
}

static void describe_devices(const rvl_context *context, rvl_trace_device *devices)
{
    for (int device = 0; device < context->device_count; device++) {
        const rvli_device_facts *facts = &context->devices[device].facts;
        devices[device] = (rvl_trace_device){
            .index = (uint32_t)device,
            .profile = facts->name[0] != '\0' ? facts->name : NULL,
            .capacity_bytes = facts->capacity_bytes,
            .granularity_bytes = facts->granularity_bytes,
        };
    }
}

static int compare_ids(const void *left, const void *right)
{
    uint64_t a = (*(rvli_allocation *const *)left)->id;
    uint64_t b = (*(rvli_allocation *const *)right)->id;
    return (a > b) - (a < b);
}

/* Writes the existing allocations, oldest first, because ids must rise. */
static rvl_status write_existing(rvl_context *context)
{
    size_t count = 0;
    uint64_t from = 0;
    rvli_allocation *each = NULL;
    rvli_allocation **existing =
        malloc((rvli_index_count(&context->by_addr) + 1) * sizeof(rvli_allocation *));
    rvl_status status = RVL_OK;
    if (existing == NULL)
        return rvli_error(RVL_ERR_HOST_OOM, "no host memory for the list of allocations");
    for (;;) {
        status = rvli_index_next(&context->by_addr, from, &each);
        if (status != RVL_OK || each == NULL)
            break;
        if (!each->freeing && each->kind != RVLI_KIND_IMPORT)
            existing[count++] = each;
        from = each->addr + 1;
    }
    qsort(existing, count, sizeof(rvli_allocation *), compare_ids);
    for (size_t i = 0; i < count && status == RVL_OK; i++)
        rvli_record_alloc(context, existing[i]);
    free(existing);
    return status;
}

/*
 * Writes the header and the existing allocations. Then the file appears. On failure it undoes
 * everything. With the lock held.
 */
static rvl_status start(rvl_context *context, const char *path, const rvl_trace_header *header)
{
    rvli_recorder *recorder = &context->recorder;
    rvl_status status = rvl_trace_writer_open_draft(path, header, &recorder->writer);
    if (status != RVL_OK) {
        recorder->writer = NULL;
        return status;
    }
    status = declare_processes(context);
    if (status == RVL_OK)
        status = write_existing(context);
    if (status == RVL_OK)
        status = rvli_trace_writer_publish(recorder->writer);
    if (status != RVL_OK) {
        rvl_trace_writer_discard(recorder->writer);
        recorder->writer = NULL;
        rvli_intmap_destroy(&recorder->late);
    }
    return status;
}

rvl_status rvl_record_start(rvl_context *context, const char *path)
{
    char boot_id[BOOT_ID_BYTES];
    rvl_trace_device devices[RVL_MAX_DEVICES];
    rvl_trace_header header = {.struct_size = sizeof header,
                               .devices = devices,
                               .device_size = sizeof *devices,
                               .minor = RVLI_TRACE_MINOR_FAIL,
                               .flags = RVL_TRACE_RECORDS_REFUSALS};
    rvl_status status = rvli_context_check_change(context);
    if (status == RVL_OK && path == NULL)
        status = rvli_error(RVL_ERR_INVALID, "the path of the trace is NULL");
    size_t length = status == RVL_OK ? strlen(path) : 0;
    if (status == RVL_OK && length >= 4 && strcmp(path + length - 4, ".zst") == 0)
        status = rvli_error(RVL_ERR_INVALID,
                            "recording writes plain text: name it .rvt and compress it afterwards");
    if (status != RVL_OK)
        return status;

    rvli_lock(context);
    if (rvli_recording(&context->recorder)) {
        status = rvli_error(RVL_ERR_STATE, "already recording: rvl_record_stop() first");
    } else {
        context->recorder = (rvli_recorder){.start_ns = rvli_clock_now(&context->clock)};
        place_clock(context, &header, boot_id);
        describe_devices(context, devices);
        header.device_count = (size_t)context->device_count;
        status = start(context, path, &header);
    }
    rvli_unlock(context);
    return status;
}

/* Closes the file without its end record: a line is missing although the writer did not fail. */
static rvl_status end_short(rvl_trace_writer *writer)
{
    (void)rvl_trace_writer_flush(writer);
    rvl_trace_writer_discard(writer);
    return rvli_error(RVL_ERR_IO, "there was no host memory for all lines of the recording: the "
                                  "file ends without its end record");
}

rvl_status rvl_record_stop(rvl_context *context)
{
    rvl_status status = rvli_context_check_change(context);
    if (status != RVL_OK)
        return status;
    rvli_lock(context);
    rvl_trace_writer *writer = context->recorder.writer;
    rvli_record_late(context, true);
    rvli_intmap_destroy(&context->recorder.late);
    bool missing = context->recorder.failed == RVL_ERR_HOST_OOM;
    context->recorder.writer = NULL;
    rvli_unlock(context);
    if (writer == NULL)
        return rvli_error(RVL_ERR_STATE, "not recording: rvl_record_start() first");
    return missing ? end_short(writer) : rvl_trace_writer_close(writer);
}
