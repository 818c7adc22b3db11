/* SPDX-License-Identifier: MIT */
/* Marks of stages and steps. Marks made before there is a file are kept until then. */
#include "hooks/record/internal.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/grow.h"
#include "hooks/process/settings.h"

/* A stage or step marked before there is a file. */
typedef struct mark {
    uint64_t time_ns;
    uint32_t thread;
    rvl_event_kind kind;
    uint64_t id;
    const char *name; /* interned */
} mark;

static mark *marks;
static size_t mark_count, mark_capacity;

void rvli_record_begin_marks(void)
{
    marks = NULL;
    mark_count = mark_capacity = 0;
}

void rvli_record_forget_marks(void)
{
    free(marks);
    rvli_record_begin_marks();
}

bool rvli_record_marks_wait(void)
{
    return mark_count > 0;
}

void rvli_record_write_marks(void)
{
    for (size_t i = 0; i < mark_count; i++) {
        const mark *each = &marks[i];
        rvli_record_write_at(
            &(rvl_trace_event){.kind = each->kind, .id = each->id, .name = each->name},
            each->time_ns, each->thread);
    }
    rvli_record_forget_marks();
}

static rvl_status keep_mark(rvl_event_kind kind, uint64_t id, const char *name)
{
    rvli_record_watch_exit();
    if (!RVLI_ROOM(marks, mark_count, mark_capacity, 16))
        return rvli_error(RVL_ERR_HOST_OOM, "no host memory for a mark");
    marks[mark_count++] = (mark){rvli_monotonic_ns(), rvli_record_thread(), kind, id, name};
    return RVL_OK;
}

static rvl_status write_mark(rvl_event_kind kind, uint64_t id, const char *name)
{
    if (!rvli_record_has_file())
        return keep_mark(kind, id, name);
    if (kind != RVL_EVENT_STEP)
        rvli_record_sample_all(); /* the state at the end of the previous stage */
    rvli_record_write(&(rvl_trace_event){.kind = kind, .id = id, .name = name});
    if (kind != RVL_EVENT_STEP)
        rvli_record_flush();
    return rvli_recorder_on() ? RVL_OK : RVL_ERR_IO;
}

static rvl_status put_mark(rvl_event_kind kind, uint64_t id, const char *name)
{
    if (!rvli_recorder_on())
        return RVL_OK;
    const char *kept = name != NULL ? rvli_intern(name) : NULL;
    if (name != NULL && kept == NULL)
        return rvli_error(RVL_ERR_HOST_OOM, "no host memory for the name of a stage");
    pthread_mutex_lock(&rvli_record_lock);
    rvl_status status = rvli_recorder_on() ? write_mark(kind, id, kept) : RVL_OK;
    pthread_mutex_unlock(&rvli_record_lock);
    return status;
}

rvl_status rvli_recorder_stage(const char *name)
{
    return put_mark(RVL_EVENT_STAGE, 0, name);
}

/* Unlike a mark, does not wait for a file: a process that sleeps has used a device. */
static void write_verb(rvl_event_kind kind, bool skips)
{
    if (!rvli_recorder_on() || !rvli_record_enter())
        return;
    rvli_record_write(&(rvl_trace_event){.kind = kind, .skip_content = skips});
    rvli_record_flush();
    pthread_mutex_unlock(&rvli_record_lock);
}

void rvli_recorder_sleep(bool discard)
{
    write_verb(RVL_EVENT_SLEEP, discard);
    rvli_record_set_asleep(true);
    rvli_record_await_keeper();
    pthread_mutex_lock(&rvli_record_lock); /* wait for readers that hold the lock */
    pthread_mutex_unlock(&rvli_record_lock);
}

void rvli_recorder_wake(bool paused)
{
    rvli_record_set_asleep(false);
    write_verb(RVL_EVENT_WAKE, paused);
}

rvl_status rvli_recorder_step(void)
{
    return put_mark(RVL_EVENT_STEP, 0, NULL);
}

rvl_status rvli_recorder_enter(uint64_t id, const char *name)
{
    return put_mark(RVL_EVENT_ENTER, id, name);
}

rvl_status rvli_recorder_leave(uint64_t id)
{
    return put_mark(RVL_EVENT_LEAVE, id, NULL);
}
