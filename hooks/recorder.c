/* SPDX-License-Identifier: MIT */
/*
 * The recorder of a process. One lock guards everything here and orders the lines; under it nothing
 * is called that could come back. Lines lie in the writer's buffer until it is full, a stage is
 * marked, or a second has passed: a thread that does nothing else sees to that, and to samples.
 */
#include "hooks/recorder.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/addrmap.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/pool.h"
#include "base/text.h"
#include "hooks/message.h"
#include "hooks/recorder_file.h"
#include "hooks/settings.h"
#include "hooks/usage.h"
#include "traceio/format.h"

#define FLUSH_NS UINT64_C(1000000000)
#define NS_PER_S UINT64_C(1000000000)
#define KEEPER_STACK_BYTES ((size_t)512 * 1024)
#define KEEPER_TRIES 3
#define CONTEXT_CAUSE "cuda_context:" /* and the process: causes are the same over all files */
/* A tag of no name is memory of a region all the same, and is paused with all. */
#define NAMELESS_TAG "\"\""

/* A stage or step that was marked before there was a file. */
typedef struct mark {
    uint64_t time_ns;
    uint32_t thread;
    rvl_event_kind kind;
    const char *name; /* interned */
} mark;

typedef struct used_tag {
    struct used_tag *next;
    const char *name;   /* interned */
    uint64_t paused_by; /* number of the pause that has told it; 0: some of it may be active */
} used_tag;

_Atomic bool rvli_recorder_is_on;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t watch_once = PTHREAD_ONCE_INIT;
static char pattern[PATH_MAX];
static char process_name[RVLI_TRACE_NAME_BYTES_MAX + 1];
static uint64_t period_ns;

/* What a child by fork begins anew; guarded by the lock. */
static struct {
    rvl_trace_writer *writer; /* NULL: there is no file yet */
    pid_t process;
    uint64_t start_ns;
    uint64_t last_id;
    uint64_t events;
    rvli_addrmap known[RVLI_RECORDED_SPACES]; /* of rvli_recorded */
    rvli_pool memory;                         /* of them */
    used_tag *tags;
    uint64_t pauses;
    mark *marks;
    size_t mark_count, mark_capacity;
    uint64_t sampled;                        /* bit d: the program has used device d */
    uint64_t context_bytes[RVL_MAX_DEVICES]; /* as told */
} now;

static _Atomic uint64_t contexts_begun; /* bit d */

static _Atomic(const rvli_recorder_calls *) joined;

static const rvli_recorder_calls *joined_to(void)
{
    return atomic_load_explicit(&joined, memory_order_acquire);
}

static pthread_once_t exit_once = PTHREAD_ONCE_INIT;
static _Atomic bool ending;       /* libraries that tell what is in use may be gone */
static _Atomic bool keeper_reads; /* and one thread may be in them just now */

static bool read_use(int device, uint64_t *used_bytes_out)
{
    return !atomic_load(&ending) && rvli_usage_read(device, used_bytes_out);
}

static _Thread_local uint32_t thread_of_caller __attribute__((tls_model("initial-exec")));

static uint32_t thread_number(void)
{
    if (thread_of_caller == 0)
        thread_of_caller = (uint32_t)gettid();
    return thread_of_caller;
}

/* ---- Writing, with the lock held ---- */

/* Once: whatever comes after it is not recorded. */
static void give_up(void)
{
    rvli_say_error("recording");
    atomic_store(&rvli_recorder_is_on, false);
    if (now.writer != NULL)
        rvli_trace_writer_abandon(now.writer);
    now.writer = NULL;
}

static void write_at(rvl_trace_event *event, uint64_t time_ns, uint32_t thread)
{
    if (now.writer == NULL)
        return;
    event->process = process_name;
    event->time_ns = time_ns - now.start_ns;
    event->thread = thread;
    now.events++;
    if (rvl_trace_writer_event(now.writer, event) == RVL_ERR_IO)
        give_up();
}

static void write_now(rvl_trace_event *event)
{
    write_at(event, rvli_monotonic_ns(), thread_number());
}

static void write_sample(int device, uint64_t used_bytes)
{
    write_now(&(rvl_trace_event){.kind = RVL_EVENT_SAMPLE,
                                 .device = rvli_usage_device_at(device)->place,
                                 .bytes = used_bytes});
}

static void write_external(int device, uint64_t bytes)
{
    char cause[sizeof CONTEXT_CAUSE + 20];
    rvli_text text = rvli_text_begin(cause, sizeof cause);
    rvli_text_add(&text, CONTEXT_CAUSE);
    rvli_text_add_u64(&text, (uint64_t)now.process);
    now.context_bytes[device] = bytes;
    write_now(&(rvl_trace_event){.kind = RVL_EVENT_EXTERNAL,
                                 .device = rvli_usage_device_at(device)->place,
                                 .bytes = bytes,
                                 .name = cause});
}

/* Of every device that the program has used. */
static void sample_all(void)
{
    uint64_t used_bytes;
    for (uint64_t left = now.sampled; left != 0; left &= left - 1) {
        int device = __builtin_ctzll(left);
        if (read_use(device, &used_bytes))
            write_sample(device, used_bytes);
    }
}

static void flush(void)
{
    if (now.writer != NULL && rvl_trace_writer_flush(now.writer) != RVL_OK)
        give_up();
}

static void write_marks(void)
{
    for (size_t i = 0; i < now.mark_count; i++) {
        const mark *each = &now.marks[i];
        write_at(&(rvl_trace_event){.kind = each->kind, .name = each->name}, each->time_ns,
                 each->thread);
    }
    free(now.marks);
    now.marks = NULL;
    now.mark_count = now.mark_capacity = 0;
}

/* ---- The thread that keeps the file up to date ---- */

static void keep_samples(void)
{
    uint64_t used_bytes[RVL_MAX_DEVICES];
    for (int tries = 0; tries < KEEPER_TRIES; tries++) {
        pthread_mutex_lock(&lock);
        uint64_t events = now.events, devices = now.sampled, read = 0;
        pthread_mutex_unlock(&lock);
        atomic_store(&keeper_reads, true);
        for (uint64_t left = devices; left != 0; left &= left - 1) {
            int device = __builtin_ctzll(left);
            if (read_use(device, &used_bytes[device]))
                read |= UINT64_C(1) << device;
        }
        atomic_store(&keeper_reads, false);
        pthread_mutex_lock(&lock);
        bool still = events == now.events; /* else it was read before what has been written since */
        for (uint64_t left = still ? read : 0; left != 0; left &= left - 1)
            write_sample(__builtin_ctzll(left), used_bytes[__builtin_ctzll(left)]);
        pthread_mutex_unlock(&lock);
        if (still)
            return;
    }
}

static void *keep(void *unused)
{
    uint64_t next_flush_ns = rvli_monotonic_ns() + FLUSH_NS;
    uint64_t next_sample_ns = period_ns > 0 ? rvli_monotonic_ns() + period_ns : UINT64_MAX;
    while (rvli_recorder_on()) {
        uint64_t next_ns = next_flush_ns < next_sample_ns ? next_flush_ns : next_sample_ns;
        const struct timespec until = {(time_t)(next_ns / NS_PER_S), (long)(next_ns % NS_PER_S)};
        clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
        if (rvli_monotonic_ns() >= next_sample_ns) {
            keep_samples();
            next_sample_ns = rvli_monotonic_ns() + period_ns;
        }
        if (rvli_monotonic_ns() < next_flush_ns)
            continue;
        pthread_mutex_lock(&lock);
        flush();
        pthread_mutex_unlock(&lock);
        next_flush_ns = rvli_monotonic_ns() + FLUSH_NS;
    }
    return unused;
}

/* Without it lines are written when the buffer is full, at stages and at the end. */
static void start_keeper(void)
{
    pthread_t thread;
    pthread_attr_t attributes;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* signals are the program's */
    if (pthread_attr_init(&attributes) == 0) {
        pthread_attr_setstacksize(&attributes, KEEPER_STACK_BYTES);
        pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
        if (pthread_create(&thread, &attributes, keep, NULL) == 0)
            pthread_setname_np(thread, "reveille-record");
        pthread_attr_destroy(&attributes);
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

/* ---- Beginning ---- */

static void begin(void)
{
    memset(&now, 0, sizeof now);
    for (int space = 0; space < RVLI_RECORDED_SPACES; space++)
        rvli_addrmap_init(&now.known[space]);
    rvli_pool_init(&now.memory, sizeof(rvli_recorded));
    now.process = getpid();
    now.start_ns = rvli_monotonic_ns();
    atomic_store(&contexts_begun, 0);
    atomic_store(&keeper_reads, false);
}

static void forget(void)
{
    for (int space = 0; space < RVLI_RECORDED_SPACES; space++)
        rvli_addrmap_destroy(&now.known[space]);
    rvli_pool_destroy(&now.memory);
    free(now.marks);
    now.marks = NULL;
    now.mark_count = now.mark_capacity = 0;
    while (now.tags != NULL) {
        used_tag *gone = now.tags;
        now.tags = gone->next;
        free(gone);
    }
    if (now.writer != NULL)
        rvli_trace_writer_abandon(now.writer);
    now.writer = NULL;
}

static void before_fork(void)
{
    pthread_mutex_lock(&lock);
}

static void after_fork(void)
{
    pthread_mutex_unlock(&lock);
}

/* The child has a file of its own, once it has something to write. */
static void in_child(void)
{
    thread_of_caller = 0;
    if (rvli_recorder_on()) {
        forget();
        begin();
    }
    pthread_mutex_unlock(&lock);
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
        return rvli_error(RVL_ERR_INVALID, "the name of the process has not 1 to 255 bytes");
    pthread_once(&watch_once, watch_forks);
    pthread_mutex_lock(&lock);
    rvl_status status = rvli_record_file_pattern(options->pattern, pattern);
    if (status == RVL_OK)
        status = rvli_record_file_check(pattern);
    if (status == RVL_OK) {
        memcpy(process_name, name, length + 1);
        period_ns = options->period_ns;
        begin();
        atomic_store(&rvli_recorder_is_on, true);
    }
    pthread_mutex_unlock(&lock);
    return status;
}

static void watch_exit(void);

/* With the lock held, and what devices are known. */
static void need_file(void)
{
    if (now.writer != NULL || !rvli_recorder_on())
        return;
    if (rvli_record_file_open(pattern, now.start_ns, &now.writer) != RVL_OK) {
        now.writer = NULL;
        give_up();
        return;
    }
    if (rvl_trace_writer_process(now.writer, process_name, (uint64_t)now.process) != RVL_OK) {
        give_up();
        return;
    }
    pthread_once(&exit_once, watch_exit);
    write_marks();
    flush(); /* there is a whole header from now on */
    start_keeper();
}

/* Takes the lock and answers true if there is a file to write to. */
static bool enter(void)
{
    if (rvli_usage_load() != RVL_OK) {
        if (atomic_exchange(&rvli_recorder_is_on, false))
            rvli_say_error("recording");
        return false;
    }
    pthread_mutex_lock(&lock);
    need_file();
    if (now.writer != NULL)
        return true;
    pthread_mutex_unlock(&lock);
    return false;
}

/* The first sample says what was in use beside what has been written. */
static void use_device(int device)
{
    uint64_t bit = UINT64_C(1) << device, used_bytes;
    if (now.sampled & bit)
        return;
    now.sampled |= bit;
    if (read_use(device, &used_bytes))
        write_sample(device, used_bytes);
}

/* ---- Memory ---- */

static bool good_device(int device)
{
    return device >= 0 && device < rvli_usage_count();
}

static bool note_tag(const char *name)
{
    used_tag *tag = now.tags;
    while (tag != NULL && tag->name != name && strcmp(tag->name, name) != 0)
        tag = tag->next;
    if (tag == NULL) {
        tag = malloc(sizeof *tag);
        if (tag == NULL)
            return false;
        *tag = (used_tag){.next = now.tags, .name = name};
        now.tags = tag;
    }
    tag->paused_by = 0;
    return true;
}

static void write_free(uint64_t id)
{
    write_now(&(rvl_trace_event){.kind = RVL_EVENT_FREE, .id = id});
}

static rvli_recorded *forget_key(rvli_recorded_space space, uint64_t key)
{
    rvli_recorded *gone = rvli_addrmap_remove(&now.known[space], key);
    if (gone != NULL)
        write_free(gone->id);
    return gone;
}

/* Without host memory it is left out, and its bytes stay unexplained. */
static void write_alloc(rvli_recorded_space space, uint64_t key, rvli_recorded *kept)
{
    const char *tag = kept->tag;
    if (tag != NULL && tag[0] == '\0')
        tag = NAMELESS_TAG;
    if ((tag != NULL && !note_tag(tag)) ||
        rvli_addrmap_insert(&now.known[space], key, kept) != RVL_OK) {
        rvli_pool_put(&now.memory, kept);
        return;
    }
    kept->id = ++now.last_id;
    write_now(&(rvl_trace_event){.kind = RVL_EVENT_ALLOC,
                                 .id = kept->id,
                                 .device = rvli_usage_device_at(kept->device)->place,
                                 .bytes = kept->size_bytes,
                                 .tag = tag,
                                 .backup = kept->backup});
}

void rvli_recorder_alloc(rvli_recorded_space space, uint64_t key, const rvli_recorded *what)
{
    const rvli_recorder_calls *other = joined_to();
    if (other != NULL) {
        other->alloc(space, key, what);
        return;
    }
    if (!rvli_recorder_on() || what->size_bytes == 0 || !enter())
        return;
    int device = what->device >= 0 ? what->device : rvli_usage_current();
    /* One that is still there was freed by a way that nobody has seen. */
    rvli_recorded *stale = forget_key(space, key);
    if (stale != NULL)
        rvli_pool_put(&now.memory, stale);
    rvli_recorded *kept = good_device(device) ? rvli_pool_get(&now.memory) : NULL;
    if (kept != NULL) {
        *kept = *what;
        kept->device = device;
        write_alloc(space, key, kept);
        use_device(device);
    }
    pthread_mutex_unlock(&lock);
}

bool rvli_recorder_free(rvli_recorded_space space, uint64_t key, rvli_recorded *was_out)
{
    const rvli_recorder_calls *other = joined_to();
    if (other != NULL)
        return other->free(space, key, was_out);
    if (!rvli_recorder_on())
        return false;
    pthread_mutex_lock(&lock);
    rvli_recorded *gone = now.writer != NULL ? forget_key(space, key) : NULL;
    if (gone != NULL) {
        if (was_out != NULL)
            *was_out = *gone;
        rvli_pool_put(&now.memory, gone);
    }
    pthread_mutex_unlock(&lock);
    return gone != NULL;
}

static void write_transition(rvl_event_kind kind, used_tag *tag, uint64_t paused_by)
{
    write_now(&(rvl_trace_event){.kind = kind, .tag = tag->name});
    tag->paused_by = paused_by;
}

uint64_t rvli_recorder_pause(const char *tag)
{
    const rvli_recorder_calls *other = joined_to();
    if (other != NULL)
        return other->pause(tag);
    if (!rvli_recorder_on())
        return 0;
    pthread_mutex_lock(&lock);
    uint64_t pause = ++now.pauses;
    for (used_tag *each = now.tags; each != NULL; each = each->next)
        if (each->paused_by == 0 && (tag == NULL || strcmp(each->name, tag) == 0))
            write_transition(RVL_EVENT_PAUSE, each, pause);
    pthread_mutex_unlock(&lock);
    return pause;
}

void rvli_recorder_pause_failed(uint64_t pause)
{
    const rvli_recorder_calls *other = joined_to();
    if (other != NULL) {
        other->pause_failed(pause);
        return;
    }
    if (!rvli_recorder_on() || pause == 0)
        return;
    pthread_mutex_lock(&lock);
    for (used_tag *each = now.tags; each != NULL; each = each->next)
        if (each->paused_by == pause)
            write_transition(RVL_EVENT_RESUME, each, 0);
    pthread_mutex_unlock(&lock);
}

void rvli_recorder_resume(const char *tag)
{
    const rvli_recorder_calls *other = joined_to();
    if (other != NULL) {
        other->resume(tag);
        return;
    }
    if (!rvli_recorder_on())
        return;
    pthread_mutex_lock(&lock);
    for (used_tag *each = now.tags; each != NULL; each = each->next)
        if (tag == NULL || strcmp(each->name, tag) == 0)
            write_transition(RVL_EVENT_RESUME, each, 0);
    pthread_mutex_unlock(&lock);
}

/* ---- Contexts ---- */

uint64_t rvli_recorder_context_begin(int device)
{
    uint64_t used_bytes;
    const rvli_recorder_calls *other = joined_to();
    if (other != NULL)
        return other->context_begin(device);
    if (!rvli_recorder_on() || rvli_usage_load() != RVL_OK || !good_device(device) ||
        !rvli_usage_device_at(device)->always ||
        (atomic_fetch_or(&contexts_begun, UINT64_C(1) << device) >> device & 1) ||
        !read_use(device, &used_bytes))
        return RVLI_RECORDER_UNMEASURED;
    return used_bytes;
}

void rvli_recorder_context_end(int device, uint64_t before_bytes)
{
    uint64_t used_bytes;
    const rvli_recorder_calls *other = joined_to();
    if (other != NULL) {
        other->context_end(device, before_bytes);
        return;
    }
    if (before_bytes == RVLI_RECORDER_UNMEASURED || !read_use(device, &used_bytes) ||
        used_bytes <= before_bytes || !enter())
        return;
    write_external(device, used_bytes - before_bytes);
    use_device(device);
    pthread_mutex_unlock(&lock);
}

/* ---- Marks ---- */

static rvl_status keep_mark(rvl_event_kind kind, const char *name)
{
    pthread_once(&exit_once, watch_exit);
    if (now.mark_count == now.mark_capacity) {
        size_t capacity = now.mark_capacity > 0 ? now.mark_capacity * 2 : 16;
        mark *marks = realloc(now.marks, capacity * sizeof *marks);
        if (marks == NULL)
            return rvli_error(RVL_ERR_HOST_OOM, "no host memory for a mark");
        now.marks = marks;
        now.mark_capacity = capacity;
    }
    now.marks[now.mark_count++] = (mark){rvli_monotonic_ns(), thread_number(), kind, name};
    return RVL_OK;
}

static rvl_status write_mark(rvl_event_kind kind, const char *name)
{
    if (now.writer == NULL)
        return keep_mark(kind, name);
    if (kind == RVL_EVENT_STAGE)
        sample_all(); /* how the stage before it has ended */
    write_now(&(rvl_trace_event){.kind = kind, .name = name});
    if (kind == RVL_EVENT_STAGE)
        flush();
    return rvli_recorder_on() ? RVL_OK : RVL_ERR_IO;
}

static rvl_status put_mark(rvl_event_kind kind, const char *name)
{
    if (!rvli_recorder_on())
        return RVL_OK;
    const char *kept = name != NULL ? rvli_intern(name) : NULL;
    if (name != NULL && kept == NULL)
        return rvli_error(RVL_ERR_HOST_OOM, "no host memory for the name of a stage");
    pthread_mutex_lock(&lock);
    rvl_status status = rvli_recorder_on() ? write_mark(kind, kept) : RVL_OK;
    pthread_mutex_unlock(&lock);
    return status;
}

rvl_status rvli_recorder_stage(const char *name)
{
    const rvli_recorder_calls *other = joined_to();
    if (other != NULL)
        return other->stage(name);
    return put_mark(RVL_EVENT_STAGE, name);
}

rvl_status rvli_recorder_step(void)
{
    const rvli_recorder_calls *other = joined_to();
    if (other != NULL)
        return other->step();
    return put_mark(RVL_EVENT_STEP, NULL);
}

/* ---- Two libraries ---- */

const rvli_recorder_calls *rvli_recorder_own_calls(void)
{
    static const rvli_recorder_calls calls = {
        .struct_size = sizeof calls,
        .alloc = rvli_recorder_alloc,
        .free = rvli_recorder_free,
        .pause = rvli_recorder_pause,
        .pause_failed = rvli_recorder_pause_failed,
        .resume = rvli_recorder_resume,
        .context_begin = rvli_recorder_context_begin,
        .context_end = rvli_recorder_context_end,
        .stage = rvli_recorder_stage,
        .step = rvli_recorder_step,
    };
    return &calls;
}

void rvli_recorder_join(const rvli_recorder_calls *other)
{
    if (other == NULL || other->struct_size != sizeof *other)
        return;
    atomic_store(&joined, other);
    atomic_store(&rvli_recorder_is_on, true);
}

/* ---- The end ---- */

/* The process takes its memory and its contexts with it. */
static void free_all(void)
{
    for (int space = 0; space < RVLI_RECORDED_SPACES; space++) {
        uint64_t at = 0;
        const rvli_recorded *each;
        while ((each = rvli_addrmap_ceil(&now.known[space], at, &at)) != NULL) {
            write_free(each->id);
            at++;
        }
    }
    for (int device = 0; device < (int)RVL_MAX_DEVICES; device++)
        if (now.context_bytes[device] > 0)
            write_external(device, 0);
}

/* Marks of a process that has used no device. */
static void open_for_marks(void)
{
    pthread_mutex_lock(&lock);
    bool waiting = now.writer == NULL && now.mark_count > 0;
    pthread_mutex_unlock(&lock);
    if (waiting && rvli_usage_load() == RVL_OK && enter())
        pthread_mutex_unlock(&lock);
}

/*
 * What has to be asked of other libraries is asked before the destructors of any have run, which
 * may come before ours. The program's own may still free memory: so the file goes on.
 */
static void at_exit(void)
{
    const struct timespec while_it_reads = {0, 1000000};
    if (!rvli_recorder_on() || joined_to() != NULL)
        return;
    open_for_marks();
    pthread_mutex_lock(&lock);
    if (now.writer != NULL && now.process == getpid())
        sample_all();
    atomic_store(&ending, true);
    pthread_mutex_unlock(&lock);
    for (int i = 0; i < 100 && atomic_load(&keeper_reads); i++)
        nanosleep(&while_it_reads, NULL);
}

static void watch_exit(void)
{
    (void)atexit(at_exit); /* without it the last sample is missing */
}

/* With the lock held. */
static void finish(void)
{
    if (now.process != getpid()) /* by vfork(), with the parent's memory */
        return;
    if (now.writer != NULL) {
        sample_all();
        free_all();
    }
    rvl_trace_writer *writer = now.writer;
    now.writer = NULL;
    atomic_store(&rvli_recorder_is_on, false);
    if (rvl_trace_writer_close(writer) != RVL_OK)
        rvli_say_error("recording");
    forget();
}

void rvli_recorder_close(void)
{
    if (!rvli_recorder_on() || joined_to() != NULL)
        return;
    if (!atomic_load(&ending))
        open_for_marks();
    pthread_mutex_lock(&lock);
    finish();
    pthread_mutex_unlock(&lock);
}

bool rvli_recorder_try_close(void)
{
    if (!rvli_recorder_on() || joined_to() != NULL)
        return true;
    if (pthread_mutex_trylock(&lock) != 0)
        return false;
    finish();
    pthread_mutex_unlock(&lock);
    return true;
}
