/* SPDX-License-Identifier: MIT */
/*
 * The CUDA backend's parts by themselves: arena, workers, what host memory is left, pinned memory.
 *
 * Linked with --wrap for what these parts ask of the C library, so that each request can be
 * refused, and so that the kernel's files say what the test wants.
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "backends/cuda/arena.h"
#include "backends/cuda/hostmem.h"
#include "backends/cuda/numa.h"
#include "backends/cuda/pinned.h"
#include "base/workers.h"
#include "fake.h"
#include "gpu.h"
#include "nothing_left.h"

#define CHUNK (64 * MIB)
#define PIECES_OF_CHUNK 8 /* that are brought in one by one */

/* ---- What is refused ---- */

/* The linker wants them visible: shared libraries name the same functions. */
#define WRAP __attribute__((visibility("default")))

static bool refuse_calloc, refuse_aligned_alloc, refuse_mmap;
static unsigned threads_refused_from; /* nth thread from now on, 0: none */

void *__real_calloc(size_t count, size_t size);
WRAP void *__wrap_calloc(size_t count, size_t size);
void *__wrap_calloc(size_t count, size_t size)
{
    return refuse_calloc ? NULL : __real_calloc(count, size);
}

void *__real_aligned_alloc(size_t alignment, size_t size);
WRAP void *__wrap_aligned_alloc(size_t alignment, size_t size);
void *__wrap_aligned_alloc(size_t alignment, size_t size)
{
    return refuse_aligned_alloc ? NULL : __real_aligned_alloc(alignment, size);
}

static bool refuse_next_insert;
static unsigned inserts;

rvl_status __real_rvli_addrmap_insert(rvli_addrmap *map, uint64_t key, void *value);
WRAP rvl_status __wrap_rvli_addrmap_insert(rvli_addrmap *map, uint64_t key, void *value);
rvl_status __wrap_rvli_addrmap_insert(rvli_addrmap *map, uint64_t key, void *value)
{
    bool refuse = refuse_next_insert;
    refuse_next_insert = false;
    inserts++;
    return refuse ? RVL_ERR_HOST_OOM : __real_rvli_addrmap_insert(map, key, value);
}

void *__real_mmap(void *at, size_t size, int protection, int flags, int file, off_t offset);
WRAP void *__wrap_mmap(void *at, size_t size, int protection, int flags, int file, off_t offset);
void *__wrap_mmap(void *at, size_t size, int protection, int flags, int file, off_t offset)
{
    return refuse_mmap ? MAP_FAILED : __real_mmap(at, size, protection, flags, file, offset);
}

typedef void *(*thread_start)(void *argument);
int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, thread_start start,
                          void *argument);
WRAP int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes,
                               thread_start start, void *argument);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, thread_start start,
                          void *argument)
{
    if (threads_refused_from == 1)
        return EAGAIN;
    threads_refused_from -= threads_refused_from > 0;
    return __real_pthread_create(thread, attributes, start, argument);
}

/* ---- A gate that threads wait at ---- */

typedef struct gate {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool shut;
    unsigned arrived; /* threads that have come to it since it was shut */
} gate;

#define GATE_OPEN                                                                                  \
    {                                                                                              \
        .lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER                     \
    }

static void gate_set(gate *g, bool shut)
{
    pthread_mutex_lock(&g->lock);
    g->shut = shut;
    if (shut)
        g->arrived = 0;
    pthread_cond_broadcast(&g->changed);
    pthread_mutex_unlock(&g->lock);
}

static void gate_pass(gate *g)
{
    pthread_mutex_lock(&g->lock);
    g->arrived++;
    pthread_cond_broadcast(&g->changed);
    while (g->shut)
        pthread_cond_wait(&g->changed, &g->lock);
    pthread_mutex_unlock(&g->lock);
}

static void gate_await(gate *g, unsigned count)
{
    pthread_mutex_lock(&g->lock);
    while (g->arrived < count)
        pthread_cond_wait(&g->changed, &g->lock);
    pthread_mutex_unlock(&g->lock);
}

/* ---- Pages, and their way back ---- */

static _Atomic int populate_error;     /* errno of bringing pages in, 0: none */
static _Atomic unsigned populate_good; /* calls that succeed before that */
static _Atomic unsigned populates;     /* calls since that was set */
static gate giving_gate = GATE_OPEN;   /* chunks on their way back wait here */
static gate making_gate = GATE_OPEN;   /* pieces that are brought in wait here */

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

int __real_madvise(void *at, size_t size, int advice);
WRAP int __wrap_madvise(void *at, size_t size, int advice);
int __wrap_madvise(void *at, size_t size, int advice)
{
    if (advice == MADV_DONTNEED)
        gate_pass(&giving_gate);
    if (advice == MADV_POPULATE_WRITE) {
        gate_pass(&making_gate);
        int error = atomic_load(&populate_error);
        if (error != 0 && atomic_fetch_add(&populates, 1) >= atomic_load(&populate_good)) {
            errno = error;
            return -1;
        }
    }
    return __real_madvise(at, size, advice);
}

static void refuse_pages(int error, unsigned good)
{
    atomic_store(&populates, 0);
    atomic_store(&populate_good, good);
    atomic_store(&populate_error, error);
}

/* ---- The kernel's files ---- */

static _Atomic bool files_are_ours;
static const char *_Atomic meminfo; /* NULL: there is none */
static const char *cgroup_max, *cgroup_current, *cgroup_stat;

FILE *__real_fopen(const char *path, const char *mode);
WRAP FILE *__wrap_fopen(const char *path, const char *mode);
FILE *__wrap_fopen(const char *path, const char *mode)
{
    const char *text = NULL;
    if (!files_are_ours)
        return __real_fopen(path, mode);
    if (strcmp(path, "/proc/meminfo") == 0)
        text = meminfo;
    else if (strcmp(path, "/sys/fs/cgroup/memory.max") == 0)
        text = cgroup_max;
    else if (strcmp(path, "/sys/fs/cgroup/memory.current") == 0)
        text = cgroup_current;
    else if (strcmp(path, "/sys/fs/cgroup/memory.stat") == 0)
        text = cgroup_stat;
    return text != NULL ? fmemopen((void *)(uintptr_t)text, strlen(text), "r") : NULL;
}

static uint64_t available_from(const char *info, const char *max, const char *current,
                               const char *stat)
{
    meminfo = info;
    cgroup_max = max;
    cgroup_current = current;
    cgroup_stat = stat;
    files_are_ours = true;
    uint64_t bytes = rvli_hostmem_available();
    files_are_ours = false;
    return bytes;
}

static int stop_refusing(void **state)
{
    (void)state;
    refuse_calloc = refuse_aligned_alloc = refuse_mmap = refuse_next_insert = false;
    files_are_ours = false;
    gate_set(&making_gate, false); /* a test that failed may have left it shut */
    threads_refused_from = 0;
    refuse_pages(0, 0);
    return 0;
}

/* ---- Arena ---- */

enum { UNITS = 256, PIECES = 64 };

#define UNIT (2 * MIB)
#define ARENA_BEGIN (UINT64_C(1) << 40)

static void pieces_are_taken_from_below(void **state)
{
    (void)state;
    rvli_arena arena;
    assert_int_equal(rvli_arena_init(&arena, ARENA_BEGIN, 10 * UNIT), RVL_OK);
    assert_int_equal(arena.free_bytes, 10 * UNIT);
    assert_int_equal(rvli_arena_take(&arena, 11 * UNIT), 0);
    assert_int_equal(rvli_arena_take(&arena, 3 * UNIT), ARENA_BEGIN);
    assert_int_equal(rvli_arena_take(&arena, 4 * UNIT), ARENA_BEGIN + 3 * UNIT);
    assert_int_equal(rvli_arena_take(&arena, 3 * UNIT), ARENA_BEGIN + 7 * UNIT);
    assert_int_equal(arena.free_bytes, 0);
    assert_int_equal(rvli_arena_take(&arena, UNIT), 0);
    /* Alone, then joined with what is below, above, and on both sides. */
    assert_int_equal(rvli_arena_give(&arena, ARENA_BEGIN, 3 * UNIT), RVL_OK);
    assert_int_equal(rvli_arena_give(&arena, ARENA_BEGIN + 7 * UNIT, 3 * UNIT), RVL_OK);
    assert_int_equal(rvli_arena_take(&arena, 4 * UNIT), 0);
    assert_int_equal(arena.free_bytes, 6 * UNIT);
    assert_int_equal(rvli_arena_give(&arena, ARENA_BEGIN + 3 * UNIT, UNIT), RVL_OK);
    assert_int_equal(rvli_arena_give(&arena, ARENA_BEGIN + 6 * UNIT, UNIT), RVL_OK);
    assert_int_equal(rvli_arena_take(&arena, 5 * UNIT), 0);
    assert_int_equal(rvli_arena_give(&arena, ARENA_BEGIN + 4 * UNIT, 2 * UNIT), RVL_OK);
    assert_int_equal(arena.free.count, 1);
    assert_int_equal(arena.free_bytes, 10 * UNIT);
    assert_int_equal(rvli_arena_take(&arena, 10 * UNIT), ARENA_BEGIN);
    rvli_arena_destroy(&arena);
    assert_int_equal(arena.free_bytes, 0);
}

/* First run of free units that is long enough; UNITS: there is none. */
static unsigned model_take(bool *taken, unsigned count)
{
    for (unsigned first = 0, run = 0; first + run < UNITS;) {
        if (taken[first + run]) {
            first += run + 1;
            run = 0;
        } else if (++run == count) {
            memset(taken + first, true, count);
            return first;
        }
    }
    return UNITS;
}

static unsigned model_runs(const bool *taken)
{
    unsigned runs = 0;
    for (unsigned i = 0; i < UNITS; i++)
        runs += !taken[i] && (i == 0 || taken[i - 1]);
    return runs;
}

static void an_arena_is_what_its_model_is(void **state)
{
    (void)state;
    static bool taken[UNITS];
    struct {
        uint64_t begin;
        unsigned count;
    } pieces[PIECES] = {{0, 0}};
    rvli_arena arena;
    uint64_t random = 20, refused = 0, free_units = UNITS;
    assert_int_equal(rvli_arena_init(&arena, ARENA_BEGIN, UNITS * UNIT), RVL_OK);
    for (int step = 0; step < 20000; step++) {
        random = random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        unsigned i = (unsigned)(random >> 33) % PIECES, count = 1 + (unsigned)(random >> 40) % 12;
        if (pieces[i].count > 0) {
            uint64_t first = (pieces[i].begin - ARENA_BEGIN) / UNIT;
            assert_int_equal(rvli_arena_give(&arena, pieces[i].begin, pieces[i].count * UNIT),
                             RVL_OK);
            memset(taken + first, false, pieces[i].count);
            free_units += pieces[i].count;
            pieces[i].count = 0;
        } else {
            unsigned first = model_take(taken, count);
            pieces[i].begin = rvli_arena_take(&arena, count * UNIT);
            assert_int_equal(pieces[i].begin, first < UNITS ? ARENA_BEGIN + first * UNIT : 0);
            pieces[i].count = first < UNITS ? count : 0;
            free_units -= pieces[i].count;
            refused += first == UNITS;
        }
        assert_int_equal(arena.free_bytes, free_units * UNIT);
        assert_int_equal(arena.free.count, model_runs(taken));
    }
    assert_true(refused > 100);
    rvli_arena_destroy(&arena);
}

static void an_arena_without_memory_changes_nothing(void **state)
{
    (void)state;
    enum { MANY = 4096 };
    rvli_arena arena;
    refuse_aligned_alloc = true;
    assert_int_equal(rvli_arena_init(&arena, ARENA_BEGIN, UNIT), RVL_ERR_HOST_OOM);
    refuse_aligned_alloc = false;
    rvli_arena_destroy(&arena);
    assert_int_equal(rvli_arena_init(&arena, ARENA_BEGIN, MANY * UNIT), RVL_OK);
    for (uint64_t i = 0; i < MANY; i++)
        assert_int_equal(rvli_arena_take(&arena, UNIT), ARENA_BEGIN + i * UNIT);
    refuse_aligned_alloc = true;
    uint64_t given = 0;
    rvl_status status = RVL_OK;
    for (; given < MANY / 2; given++) { /* every other one: each is an entry of its own */
        status = rvli_arena_give(&arena, ARENA_BEGIN + 2 * given * UNIT, UNIT);
        if (status != RVL_OK)
            break;
    }
    assert_int_equal(status, RVL_ERR_HOST_OOM);
    assert_true(given > 0);
    assert_int_equal(arena.free_bytes, given * UNIT);
    assert_int_equal(arena.free.count, given);
    refuse_aligned_alloc = false;
    assert_int_equal(rvli_arena_give(&arena, ARENA_BEGIN + 2 * given * UNIT, UNIT), RVL_OK);
    assert_int_equal(arena.free_bytes, (given + 1) * UNIT);
    for (uint64_t i = 0; i <= given; i++)
        assert_int_equal(rvli_arena_take(&arena, UNIT), ARENA_BEGIN + 2 * i * UNIT);
    assert_int_equal(rvli_arena_take(&arena, UNIT), 0);
    rvli_arena_destroy(&arena);
}

/* What is left of a piece may need a node of its own, which cannot be had. */
static void a_rest_without_memory_changes_nothing(void **state)
{
    (void)state;
    rvli_arena arena;
    inserts = 0;
    assert_int_equal(rvli_arena_init(&arena, ARENA_BEGIN, 3 * UNIT), RVL_OK);
    assert_true(inserts > 0);
    refuse_next_insert = true;
    assert_int_equal(rvli_arena_take(&arena, UNIT), 0);
    assert_int_equal(arena.free_bytes, 3 * UNIT);
    assert_int_equal(rvli_arena_take(&arena, 3 * UNIT), ARENA_BEGIN);
    rvli_arena_destroy(&arena);
}

/* ---- Workers ---- */

enum { JOBS = 1000 };

typedef struct numbered {
    rvli_job job;
    int number;
    struct crew *crew;
} numbered;

/* What the jobs and threads of a test have done. */
typedef struct crew {
    _Atomic unsigned begun;
    _Atomic int done;
    int order[JOBS];
    gate gate;
    bool signals_blocked;
    numbered jobs[JOBS];
} crew;

static void begin_thread(void *user)
{
    crew *c = user;
    usleep(1000); /* so that the start would return first, if it did not wait */
    atomic_fetch_add(&c->begun, 1);
}

static void note_number(rvli_job *job)
{
    numbered *n = (numbered *)(void *)job;
    n->crew->order[atomic_fetch_add(&n->crew->done, 1)] = n->number;
}

static void wait_at_gate(rvli_job *job)
{
    numbered *n = (numbered *)(void *)job;
    gate_pass(&n->crew->gate);
    note_number(job);
}

static void look_at_signals(rvli_job *job)
{
    numbered *n = (numbered *)(void *)job;
    sigset_t mask;
    pthread_sigmask(SIG_SETMASK, NULL, &mask);
    n->crew->signals_blocked = sigismember(&mask, SIGINT) == 1 && sigismember(&mask, SIGTERM) == 1;
}

static crew *new_crew(void (*run)(rvli_job *job))
{
    crew *c = calloc(1, sizeof *c);
    assert_non_null(c);
    c->gate = (gate)GATE_OPEN;
    for (int i = 0; i < JOBS; i++)
        c->jobs[i] = (numbered){.job.run = run, .number = i, .crew = c};
    return c;
}

static void one_worker_keeps_the_order_to_the_end(void **state)
{
    (void)state;
    crew *c = new_crew(note_number);
    rvli_workers *workers = NULL;
    c->jobs[0].job.run = wait_at_gate;
    gate_set(&c->gate, true);
    assert_int_equal(rvli_workers_start(1, begin_thread, c, &workers), RVL_OK);
    for (int i = 0; i < JOBS; i++)
        rvli_workers_queue(workers, &c->jobs[i].job);
    gate_await(&c->gate, 1);
    assert_int_equal(c->done, 0);
    gate_set(&c->gate, false);
    rvli_workers_stop(workers); /* nearly all is queued still */
    assert_int_equal(c->done, JOBS);
    assert_int_equal(c->begun, 1);
    for (int i = 0; i < JOBS; i++)
        assert_int_equal(c->order[i], i);
    free(c);
}

static void workers_work_at_the_same_time(void **state)
{
    (void)state;
    crew *c = new_crew(wait_at_gate);
    rvli_workers *workers = NULL;
    bool seen[JOBS] = {false};
    gate_set(&c->gate, true);
    assert_int_equal(rvli_workers_start(4, begin_thread, c, &workers), RVL_OK);
    for (int i = 0; i < JOBS; i++)
        rvli_workers_queue(workers, &c->jobs[i].job);
    gate_await(&c->gate, 4); /* four jobs have begun and none has ended */
    assert_int_equal(c->done, 0);
    gate_set(&c->gate, false);
    rvli_workers_stop(workers);
    assert_int_equal(c->begun, 4);
    assert_int_equal(c->done, JOBS);
    for (int i = 0; i < JOBS; i++)
        seen[c->order[i]] = true;
    for (int i = 0; i < JOBS; i++)
        assert_true(seen[i]);
    free(c);
}

static void idle_workers_can_be_stopped(void **state)
{
    (void)state;
    crew *c = new_crew(note_number);
    rvli_workers *workers = NULL;
    assert_int_equal(rvli_workers_start(3, begin_thread, c, &workers), RVL_OK);
    assert_int_equal(c->begun, 3);
    rvli_workers_stop(workers);
    assert_int_equal(c->done, 0);
    free(c);
}

static void fewer_workers_are_accepted(void **state)
{
    (void)state;
    crew *c = new_crew(note_number);
    rvli_workers *workers = NULL;
    threads_refused_from = 3;
    assert_int_equal(rvli_workers_start(8, begin_thread, c, &workers), RVL_OK);
    for (int i = 0; i < JOBS; i++)
        rvli_workers_queue(workers, &c->jobs[i].job);
    rvli_workers_stop(workers);
    assert_int_equal(c->begun, 2);
    assert_int_equal(c->done, JOBS);
    free(c);
}

static void workers_that_cannot_be_had_leave_nothing(void **state)
{
    (void)state;
    crew *c = new_crew(note_number);
    rvli_workers *workers = NULL;
    threads_refused_from = 1;
    assert_int_equal(rvli_workers_start(2, begin_thread, c, &workers), RVL_ERR_HOST_OOM);
    assert_non_null(strstr(rvli_error_get()->message, "ulimit -u"));
    threads_refused_from = 0;
    refuse_calloc = true;
    assert_int_equal(rvli_workers_start(2, begin_thread, c, &workers), RVL_ERR_HOST_OOM);
    refuse_calloc = false;
    assert_non_null(strstr(rvli_error_get()->message, "no host memory"));
    assert_null(workers);
    assert_int_equal(c->begun, 0);
    free(c);
}

static void signals_stay_the_programs(void **state)
{
    (void)state;
    crew *c = new_crew(look_at_signals);
    rvli_workers *workers = NULL;
    sigset_t before, after;
    pthread_sigmask(SIG_SETMASK, NULL, &before);
    assert_int_equal(rvli_workers_start(1, begin_thread, c, &workers), RVL_OK);
    pthread_sigmask(SIG_SETMASK, NULL, &after);
    rvli_workers_queue(workers, &c->jobs[0].job);
    rvli_workers_stop(workers);
    assert_true(c->signals_blocked);
    assert_int_equal(sigismember(&after, SIGINT), sigismember(&before, SIGINT));
    assert_int_equal(sigismember(&after, SIGTERM), 0);
    free(c);
}

/* ---- Host memory that is left ---- */

static uint64_t first_number(const char *path, const char *key)
{
    char line[256];
    unsigned long long value = UINT64_MAX;
    FILE *file = fopen(path, "r");
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        const char *at = strstr(line, key);
        if (at == line && sscanf(line + strlen(key), "%llu", &value) == 1)
            break;
    }
    if (file != NULL)
        fclose(file);
    return value;
}

/* Somebody else may take or free memory meanwhile. */
static void the_kernel_is_believed(void **state)
{
    (void)state;
    uint64_t expected = first_number("/proc/meminfo", "MemAvailable:") * 1024;
    uint64_t limit = first_number("/sys/fs/cgroup/memory.max", "");
    uint64_t current = first_number("/sys/fs/cgroup/memory.current", "");
    if (limit != UINT64_MAX && current != UINT64_MAX) {
        uint64_t cache = first_number("/sys/fs/cgroup/memory.stat", "inactive_file ");
        uint64_t held = cache == UINT64_MAX ? current : current > cache ? current - cache : 0;
        uint64_t left = limit > held ? limit - held : 0;
        expected = left < expected ? left : expected;
    }
    uint64_t is = rvli_hostmem_available();
    uint64_t apart = is > expected ? is - expected : expected - is;
    assert_true(is > 0);
    assert_true(apart <= expected / 10 + GIB);
}

static void the_lower_of_host_and_cgroup_is_left(void **state)
{
    (void)state;
    const char *info = "MemTotal:       9000 kB\nMemFree:         200 kB\n"
                       "MemAvailable:   4000 kB\n";
    const char *stat = "anon 7\nfile 900000\ninactive_file 300000\nactive_file 600000\n";
    assert_int_equal(available_from(info, NULL, NULL, NULL), 4000 * 1024);
    assert_int_equal(available_from(info, "max\n", "1000\n", stat), 4000 * 1024);
    assert_int_equal(available_from(info, "2000000\n", NULL, stat), 4000 * 1024);
    assert_int_equal(available_from(info, "2000000\n", "500000\n", stat), 1800000);
    assert_int_equal(available_from(info, "2000000\n", "500000\n", NULL), 1500000);
    assert_int_equal(available_from(info, "2000000\n", "200000\n", stat), 2000000);
    assert_int_equal(available_from(info, "2000000\n", "2300000\n", stat), 0);
    assert_int_equal(available_from(info, "2000000\n", "9000000\n", stat), 0);
    assert_int_equal(available_from(info, "9000000\n", "500000\n", stat), 4000 * 1024);
    assert_int_equal(available_from(NULL, "2000000\n", "500000\n", stat), 1800000);
    assert_int_equal(available_from("MemFree: 200 kB\n", NULL, NULL, NULL), UINT64_MAX);
    assert_int_equal(available_from(NULL, NULL, NULL, NULL), UINT64_MAX);
}

/* ---- Pinned memory ---- */

static int hold_pool(void **state)
{
    (void)state;
    assert_int_equal(cuInit(0), CUDA_SUCCESS); /* undone by fake_reset() */
    assert_int_equal(rvli_pinned_hold(0, true), RVL_OK);
    return 0;
}

static int let_pool_go(void **state)
{
    stop_refusing(state);
    rvli_pinned_let_go(true);
    check_nothing_left();
    return 0;
}

static char *alloc_well(uint64_t size)
{
    void *host = NULL;
    assert_int_equal(rvli_pinned_alloc(size, RVLI_NUMA_ANY, &host), RVL_OK);
    assert_int_equal((uintptr_t)host % (2 * MIB), 0);
    return host;
}

static void free_well(void *host, uint64_t size, uint64_t keep_bytes)
{
    assert_int_equal(rvli_pinned_free(host, size, keep_bytes), RVL_OK);
    rvli_pinned_settle();
}

static rvl_status wait_all(const char *host, uint64_t size)
{
    rvli_pinned_span span = {0};
    for (uint64_t done = 0; done < size; done += span.bytes) {
        rvl_status status = rvli_pinned_wait(host + done, size - done, &span);
        if (status != RVL_OK)
            return status;
    }
    return RVL_OK;
}

static void check_facts(uint64_t used, uint64_t pinned, uint64_t pageable)
{
    rvli_pinned_facts facts = rvli_pinned_get_facts();
    assert_int_equal(facts.used_bytes, used);
    assert_int_equal(facts.pinned_bytes, pinned);
    assert_int_equal(facts.pageable_bytes, pageable);
    assert_int_equal(fake_stats_get().pinned_bytes, pinned);
    assert_int_equal(fake_stats_get().live.registrations, pinned / CHUNK);
}

static void check_writable(char *host, uint64_t size, uint64_t seed)
{
    support_fill((uintptr_t)host, size, seed);
    assert_true(support_holds((uintptr_t)host, size, seed));
}

static void the_last_user_takes_the_pool_away(void **state)
{
    (void)state;
    assert_int_equal(cuInit(0), CUDA_SUCCESS);
    assert_int_equal(rvli_pinned_hold(1, true), RVL_OK);
    assert_int_equal(rvli_pinned_hold(0, true), RVL_OK);
    assert_int_equal(fake_stats_get().live.context_references, 1);
    alloc_well(3 * CHUNK); /* never given back */
    rvli_pinned_let_go(true);
    rvli_pinned_settle();
    check_facts(3 * CHUNK, 3 * CHUNK, 0);
    rvli_pinned_let_go(true);
    check_facts(0, 0, 0);
    check_nothing_left();
}

static void check_hold_refused(rvl_status status)
{
    assert_int_equal(rvli_pinned_hold(0, true), status);
    stop_refusing(NULL);
    assert_int_equal(rvli_error_get()->status, status);
    assert_int_equal(fake_stats_get().live.context_references, 0);
    assert_int_equal(rvli_pinned_hold(0, true), RVL_OK);
    rvli_pinned_let_go(true);
    assert_int_equal(fake_stats_get().live.context_references, 0);
}

static void a_pool_that_cannot_be_had_leaves_nothing(void **state)
{
    (void)state;
    assert_int_equal(cuInit(0), CUDA_SUCCESS);
    refuse_mmap = true;
    check_hold_refused(RVL_ERR_HOST_OOM);
    refuse_calloc = true;
    check_hold_refused(RVL_ERR_HOST_OOM);
    refuse_aligned_alloc = true;
    check_hold_refused(RVL_ERR_HOST_OOM);
    fake_fail("cuDevicePrimaryCtxRetain", 1, CUDA_ERROR_OUT_OF_MEMORY, false);
    check_hold_refused(RVL_ERR_DEVICE_OOM);
    check_facts(0, 0, 0);
    fake_reset();
}

static void chunks_are_shared_and_used_again(void **state)
{
    (void)state;
    rvli_pinned_span span = {0};
    char *first = alloc_well(3 * MIB);
    assert_int_equal(rvli_pinned_wait(first + 8, 3 * MIB - 8, &span), RVL_OK);
    assert_int_equal(span.bytes, 3 * MIB - 8);
    check_facts(4 * MIB, CHUNK, 0);
    char *second = alloc_well(70 * MIB); /* from the first chunk into the second */
    assert_ptr_equal(second, first + 4 * MIB);
    assert_int_equal(rvli_pinned_wait(second, 70 * MIB, &span), RVL_OK);
    assert_int_equal(span.bytes, 60 * MIB);
    assert_int_equal(rvli_pinned_wait(second + span.bytes, 70 * MIB - span.bytes, &span), RVL_OK);
    assert_int_equal(span.bytes, 10 * MIB);
    check_facts(74 * MIB, 2 * CHUNK, 0);
    check_writable(first, 3 * MIB, 1);
    check_writable(second, 70 * MIB, 2);
    assert_true(support_holds((uintptr_t)first, 3 * MIB, 1));

    uint64_t made = fake_calls("cuMemHostRegister");
    free_well(first, 3 * MIB, RVLI_PINNED_KEEP_ALL);
    check_facts(70 * MIB, 2 * CHUNK, 0);
    assert_ptr_equal(alloc_well(4 * MIB), first);
    assert_true(support_holds((uintptr_t)second, 70 * MIB, 2));
    free_well(second, 70 * MIB, RVLI_PINNED_KEEP_ALL);
    free_well(first, 4 * MIB, RVLI_PINNED_KEEP_ALL);
    assert_ptr_equal(alloc_well(2 * CHUNK), first); /* all was joined */
    assert_int_equal(fake_calls("cuMemHostRegister"), made);
    check_facts(2 * CHUNK, 2 * CHUNK, 0);
}

static void what_is_kept_is_what_was_asked_for(void **state)
{
    (void)state;
    char *host = alloc_well(4 * CHUNK);
    rvli_pinned_settle();
    check_facts(4 * CHUNK, 4 * CHUNK, 0);
    free_well(host, 4 * CHUNK, RVLI_PINNED_KEEP_ALL);
    check_facts(0, 4 * CHUNK, 0);
    host = alloc_well(2 * CHUNK);
    free_well(host, 2 * CHUNK, 3 * CHUNK);
    check_facts(0, 3 * CHUNK, 0);
    char *low = alloc_well(2 * MIB), *high = alloc_well(2 * MIB);
    assert_ptr_equal(low, host); /* the lowest were kept */
    free_well(high, 2 * MIB, CHUNK + 1);
    check_facts(2 * MIB, CHUNK, 0);
    check_writable(low, 2 * MIB, 3);
    free_well(alloc_well(CHUNK), CHUNK, 0); /* partly in a chunk that is in use */
    check_facts(2 * MIB, CHUNK, 0);
    assert_true(support_holds((uintptr_t)low, 2 * MIB, 3));
    free_well(low, 2 * MIB, 0);
    check_facts(0, 0, 0);
    host = alloc_well(CHUNK);
    assert_int_equal(wait_all(host, CHUNK), RVL_OK);
    check_writable(host, CHUNK, 4);
}

static void a_chunk_on_its_way_back_can_be_wanted(void **state)
{
    (void)state;
    char *host = alloc_well(CHUNK);
    assert_int_equal(wait_all(host, CHUNK), RVL_OK);
    gate_set(&giving_gate, true);
    assert_int_equal(rvli_pinned_free(host, CHUNK, 0), RVL_OK);
    gate_await(&giving_gate, 1);
    check_facts(0, 0, 0);
    assert_ptr_equal(alloc_well(CHUNK), host);
    gate_set(&giving_gate, false);
    assert_int_equal(wait_all(host, CHUNK), RVL_OK);
    check_facts(CHUNK, CHUNK, 0);
    check_writable(host, CHUNK, 5);
    free_well(host, CHUNK, 0);
    check_facts(0, 0, 0);
}

static void memory_can_be_freed_while_it_is_made(void **state)
{
    (void)state;
    gate_set(&making_gate, true);
    char *host = alloc_well(2 * CHUNK);
    gate_await(&making_gate, 1);
    check_facts(2 * CHUNK, 0, 0);
    assert_int_equal(rvli_pinned_free(host, 2 * CHUNK, 0), RVL_OK);
    gate_set(&making_gate, false);
    rvli_pinned_settle();
    check_facts(0, 0, 0);
    gate_set(&making_gate, true);
    host = alloc_well(3 * CHUNK);
    gate_await(&making_gate, 1);
    assert_int_equal(rvli_pinned_free(host, 3 * CHUNK, 2 * CHUNK), RVL_OK);
    gate_set(&making_gate, false);
    rvli_pinned_settle();
    check_facts(0, 2 * CHUNK, 0);
}

static void refused_registering_leaves_pageable_memory(void **state)
{
    (void)state;
    fake_fail("cuMemHostRegister", 2, CUDA_ERROR_OUT_OF_MEMORY, true);
    char *host = alloc_well(3 * CHUNK);
    assert_int_equal(wait_all(host, 3 * CHUNK), RVL_OK);
    check_facts(3 * CHUNK, CHUNK, 2 * CHUNK);
    check_writable(host, 3 * CHUNK, 6);
    free_well(host, 3 * CHUNK, RVLI_PINNED_KEEP_ALL);
    check_facts(0, CHUNK, 2 * CHUNK);
    assert_ptr_equal(alloc_well(3 * CHUNK), host); /* it is not tried again */
    assert_int_equal(wait_all(host, 3 * CHUNK), RVL_OK);
    check_facts(3 * CHUNK, CHUNK, 2 * CHUNK);
    free_well(host, 3 * CHUNK, 0);
    check_facts(0, 0, 0);
    fake_fail("cuMemHostRegister", 0, CUDA_SUCCESS, false);
    assert_ptr_equal(alloc_well(3 * CHUNK), host);
    assert_int_equal(wait_all(host, 3 * CHUNK), RVL_OK);
    check_facts(3 * CHUNK, 3 * CHUNK, 0);
}

static void pages_that_cannot_be_had_are_host_oom(void **state)
{
    (void)state;
    refuse_pages(ENOMEM, 5); /* in the middle of the first chunk, and from there on */
    char *host = alloc_well(2 * CHUNK);
    rvli_pinned_settle();
    assert_int_equal(wait_all(host, 2 * CHUNK), RVL_ERR_HOST_OOM);
    assert_int_equal(wait_all(host + CHUNK, CHUNK), RVL_ERR_HOST_OOM);
    assert_non_null(strstr(rvli_error_get()->message, "ran out of memory"));
    check_facts(2 * CHUNK, 0, 0);
    refuse_pages(0, 0);
    free_well(host, 2 * CHUNK, RVLI_PINNED_KEEP_ALL);
    check_facts(0, 0, 0);
    assert_ptr_equal(alloc_well(2 * CHUNK), host); /* it is tried again */
    assert_int_equal(wait_all(host, 2 * CHUNK), RVL_OK);
    check_facts(2 * CHUNK, 2 * CHUNK, 0);
    check_writable(host, 2 * CHUNK, 7);
}

/* The first of three chunks is being made when others take the memory. */
static void memory_that_goes_midway_is_host_oom(void **state)
{
    (void)state;
    cgroup_max = cgroup_current = cgroup_stat = NULL;
    meminfo = "MemAvailable: 196608 kB\n"; /* three chunks */
    files_are_ours = true;
    threads_refused_from = 2; /* one maker, who brings in piece after piece */
    gate_set(&making_gate, true);
    char *host = alloc_well(3 * CHUNK);
    gate_await(&making_gate, 1);
    meminfo = "MemAvailable: 65535 kB\n"; /* a little less than one */
    gate_set(&making_gate, false);
    rvli_pinned_settle();
    assert_int_equal(making_gate.arrived, PIECES_OF_CHUNK);
    assert_int_equal(wait_all(host, CHUNK), RVL_OK);
    assert_int_equal(wait_all(host + CHUNK, CHUNK), RVL_ERR_HOST_OOM);
    assert_int_equal(wait_all(host + 2 * CHUNK, CHUNK), RVL_ERR_HOST_OOM);
    assert_non_null(strstr(rvli_error_get()->message, "ran out of memory"));
    check_facts(3 * CHUNK, CHUNK, 0);
    check_writable(host, CHUNK, 7);
    meminfo = "MemAvailable: 131072 kB\n";
    free_well(host + CHUNK, 2 * CHUNK, RVLI_PINNED_KEEP_ALL);
    assert_ptr_equal(alloc_well(2 * CHUNK), host + CHUNK); /* it is tried again */
    assert_int_equal(wait_all(host, 3 * CHUNK), RVL_OK);
    check_facts(3 * CHUNK, 3 * CHUNK, 0);
    assert_true(support_holds((uintptr_t)host, CHUNK, 7));
    check_writable(host + CHUNK, 2 * CHUNK, 8);
}

/* The kernel does not count what makers have still to bring in. */
static void what_is_being_made_is_not_available(void **state)
{
    (void)state;
    cgroup_max = cgroup_current = cgroup_stat = NULL;
    meminfo = "MemAvailable: 196608 kB\n"; /* three chunks */
    files_are_ours = true;
    gate_set(&making_gate, true);
    char *first = alloc_well(2 * CHUNK);
    void *second = NULL;
    assert_int_equal(rvli_pinned_alloc(2 * CHUNK, RVLI_NUMA_ANY, &second), RVL_ERR_HOST_OOM);
    assert_null(second);
    assert_non_null(strstr(rvli_error_get()->message, "not enough host memory available"));
    assert_ptr_equal(alloc_well(CHUNK), first + 2 * CHUNK);
    gate_set(&making_gate, false);
    rvli_pinned_settle();
    check_facts(3 * CHUNK, 3 * CHUNK, 0);
    assert_int_equal(rvli_pinned_alloc(4 * CHUNK, RVLI_NUMA_ANY, &second), RVL_ERR_HOST_OOM);
    assert_ptr_equal(alloc_well(3 * CHUNK), first + 3 * CHUNK); /* nothing is coming any more */
    assert_int_equal(wait_all(first, 6 * CHUNK), RVL_OK);
}

/* Linux before 5.14 does not know MADV_POPULATE_WRITE. */
static void pages_are_touched_where_they_cannot_be_asked_for(void **state)
{
    (void)state;
    refuse_pages(EINVAL, 0);
    char *host = alloc_well(2 * MIB);
    assert_int_equal(wait_all(host, 2 * MIB), RVL_OK);
    check_facts(2 * MIB, CHUNK, 0);
    check_writable(host, 2 * MIB, 8);
}

/* ---- While it is registered ---- */

static _Atomic pid_t leaver_id;
static gate registering_gate = GATE_OPEN;
static __typeof__(&cuMemHostRegister) real_register;

static CUresult register_at_gate(void *at, size_t size, unsigned flags)
{
    gate_pass(&registering_gate);
    return real_register(at, size, flags);
}

static int watch_registering(void **state)
{
    real_register = rvli_cuda.cuMemHostRegister;
    rvli_cuda.cuMemHostRegister = register_at_gate;
    return hold_pool(state);
}

static int leave_registering(void **state)
{
    gate_set(&registering_gate, false);
    int result = let_pool_go(state);
    rvli_cuda.cuMemHostRegister = real_register;
    return result;
}

static unsigned makers(void)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    return (unsigned)(cores > 12 ? 12 : cores);
}

/* As many as there are makers stand in the driver when it refuses one. */
static void a_refusal_leaves_other_chunks_as_they_are(void **state)
{
    (void)state;
    const unsigned chunks = makers() + 1;
    gate_set(&registering_gate, true);
    fake_fail("cuMemHostRegister", 2, CUDA_ERROR_OUT_OF_MEMORY, false);
    char *host = alloc_well(chunks * CHUNK);
    gate_await(&registering_gate, makers());
    check_facts(chunks * CHUNK, 0, 0);
    gate_set(&registering_gate, false);
    assert_int_equal(wait_all(host, chunks * CHUNK), RVL_OK);
    check_facts(chunks * CHUNK, (chunks - 1) * CHUNK, CHUNK);
    assert_int_equal(registering_gate.arrived, chunks);
    check_writable(host, chunks * CHUNK, 10);
}

static void memory_can_be_freed_while_it_is_registered(void **state)
{
    (void)state;
    gate_set(&registering_gate, true);
    char *host = alloc_well(3 * CHUNK);
    gate_await(&registering_gate, 1);
    assert_int_equal(rvli_pinned_free(host, 3 * CHUNK, CHUNK), RVL_OK);
    gate_set(&registering_gate, false);
    rvli_pinned_settle();
    check_facts(0, CHUNK, 0);
    assert_ptr_equal(alloc_well(3 * CHUNK), host);
    assert_int_equal(wait_all(host, 3 * CHUNK), RVL_OK);
    check_writable(host, 3 * CHUNK, 11);
}

static void *open_registering_gate(void *unused)
{
    (void)unused;
    support_await_sleep(&leaver_id);
    gate_set(&registering_gate, false);
    return NULL;
}

/* Its end waits for chunks that go from the makers to registering, and back when nobody has them.
 */
static void a_pool_can_end_while_it_registers(void **state)
{
    pthread_t opener;
    (void)state;
    assert_int_equal(rvli_pinned_hold(0, true), RVL_OK);
    rvli_pinned_let_go(true); /* the other user is left */
    gate_set(&registering_gate, true);
    char *host = alloc_well(4 * CHUNK);
    gate_await(&registering_gate, 1);
    assert_int_equal(rvli_pinned_free(host, 4 * CHUNK, 2 * CHUNK), RVL_OK);
    leaver_id = gettid();
    assert_int_equal(pthread_create(&opener, NULL, open_registering_gate, NULL), 0);
    rvli_pinned_let_go(true);
    pthread_join(opener, NULL);
    check_facts(0, 0, 0);
    assert_int_equal(fake_calls("cuMemHostRegister"), fake_calls("cuMemHostUnregister"));
    assert_int_equal(rvli_pinned_hold(0, true), RVL_OK); /* for the teardown */
}

static void check_alloc_refused(uint64_t size, rvl_status status, const char *cause)
{
    void *host = &host;
    rvli_pinned_facts before = rvli_pinned_get_facts();
    assert_int_equal(rvli_pinned_alloc(size, RVLI_NUMA_ANY, &host), status);
    stop_refusing(NULL);
    assert_non_null(strstr(rvli_error_get()->message, cause));
    assert_ptr_equal(host, &host);
    check_facts(before.used_bytes, before.pinned_bytes, before.pageable_bytes);
}

static void what_cannot_be_allocated_changes_nothing(void **state)
{
    (void)state;
    check_alloc_refused(0, RVL_ERR_INVALID, "0 bytes");
    check_alloc_refused((uint64_t)INT64_MAX + 1, RVL_ERR_INVALID, "2^63");
    threads_refused_from = 1;
    check_alloc_refused(MIB, RVL_ERR_HOST_OOM, "no thread could be started");
    check_alloc_refused(INT64_MAX, RVL_ERR_HOST_OOM, "no room");
    char *host = alloc_well(CHUNK);
    rvli_pinned_settle();
    meminfo = "MemAvailable: 65535 kB\n"; /* a little less than a chunk */
    cgroup_max = cgroup_current = cgroup_stat = NULL;
    files_are_ours = true;
    check_alloc_refused(2 * MIB, RVL_ERR_HOST_OOM, "not enough host memory available");
    free_well(host, CHUNK, RVLI_PINNED_KEEP_ALL);
    files_are_ours = true;
    assert_ptr_equal(alloc_well(2 * MIB), host); /* which is there already */
    meminfo = "MemAvailable: 65536 kB\n";
    assert_ptr_equal(alloc_well(CHUNK), host + 2 * MIB);
    rvli_pinned_settle();
    check_facts(CHUNK + 2 * MIB, 2 * CHUNK, 0);
}

static void what_is_not_ours_is_not_freed(void **state)
{
    (void)state;
    const uint64_t all = RVLI_PINNED_KEEP_ALL;
    char *host = alloc_well(4 * MIB);
    rvli_pinned_settle();
    const struct {
        char *at;
        uint64_t size;
    } wrong[] = {
        {NULL, 2 * MIB},
        {(char *)&host, 2 * MIB},
        {host + 4096, 2 * MIB},
        {host - 2 * MIB, 2 * MIB}, /* the pool's first allocation is where it begins */
        {host, 0},
        {host, UINT64_C(1) << 62},
        {host, UINT64_MAX},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        assert_int_equal(rvli_pinned_free(wrong[i].at, wrong[i].size, all), RVL_ERR_INVALID);
        assert_string_equal(rvli_error_get()->message, "not a host buffer of this backend");
        check_facts(4 * MIB, CHUNK, 0);
    }
    free_well(host, 4 * MIB, all);
    check_facts(0, CHUNK, 0);
}

static void memory_of_others_is_there(void **state)
{
    (void)state;
    char bytes[64] = {0};
    rvli_pinned_span span = {0};
    assert_int_equal(rvli_pinned_wait(bytes, sizeof bytes, &span), RVL_OK);
    assert_int_equal(span.bytes, sizeof bytes);
}

/* ---- Threads ---- */

static _Atomic pid_t newcomer_id;

static void *let_go(void *unused)
{
    (void)unused;
    leaver_id = gettid();
    rvli_pinned_let_go(true);
    return NULL;
}

typedef struct newcomer {
    rvl_status status;
    void *host;
} newcomer;

static void *come_and_use(void *argument)
{
    newcomer *n = argument;
    newcomer_id = gettid();
    n->status = rvli_pinned_hold(1, true);
    if (n->status == RVL_OK)
        n->status = rvli_pinned_alloc(CHUNK, RVLI_NUMA_ANY, &n->host);
    if (n->status == RVL_OK)
        n->status = wait_all(n->host, CHUNK);
    return NULL;
}

/* The pool is going, and its threads are not done, when somebody wants a new one. */
static void a_new_pool_waits_for_the_end_of_the_old(void **state)
{
    (void)state;
    pthread_t leaving, coming;
    newcomer n = {.host = NULL};
    gate_set(&making_gate, true);
    alloc_well(CHUNK);
    gate_await(&making_gate, 1);
    assert_int_equal(pthread_create(&leaving, NULL, let_go, NULL), 0);
    assert_true(support_await_sleep(&leaver_id));
    assert_int_equal(pthread_create(&coming, NULL, come_and_use, &n), 0);
    assert_true(support_await_sleep(&newcomer_id));
    gate_set(&making_gate, false);
    pthread_join(leaving, NULL);
    pthread_join(coming, NULL);
    assert_int_equal(n.status, RVL_OK);
    check_writable(n.host, CHUNK, 9);
    assert_int_equal(rvli_pinned_get_facts().used_bytes, CHUNK); /* the old one's is gone */
    rvli_pinned_settle();
    check_facts(CHUNK, CHUNK, 0);
    assert_int_equal(fake_stats_get().live.context_references, 1);
}

/* ---- Ahead ---- */

static uint64_t ahead(uint64_t *own, uint64_t bytes, uint64_t keep_bytes)
{
    rvli_pinned_want(own, bytes);
    uint64_t coming = rvli_pinned_ahead(bytes, RVLI_NUMA_ANY, keep_bytes);
    return coming;
}

/* There is enough from now on, whatever the machine has. */
static void give_plenty(void)
{
    static char plenty[64];
    snprintf(plenty, sizeof plenty, "MemAvailable: %llu kB\n",
             (unsigned long long)((rvli_hostmem_total() + 8 * CHUNK) / 1024));
    cgroup_max = cgroup_current = cgroup_stat = NULL;
    meminfo = plenty;
    files_are_ours = true;
}

static void memory_is_made_ahead_and_used(void **state)
{
    (void)state;
    uint64_t own = 0, other = 0;
    give_plenty();
    assert_int_equal(ahead(&own, CHUNK + 1, RVLI_PINNED_KEEP_ALL), CHUNK + 1);
    rvli_pinned_settle();
    check_facts(0, 2 * CHUNK, 0);
    assert_int_equal(ahead(&other, CHUNK, RVLI_PINNED_KEEP_ALL), CHUNK); /* the sum counts */
    rvli_pinned_settle();
    check_facts(0, 3 * CHUNK, 0);
    char *host = alloc_well(3 * CHUNK);
    assert_int_equal(wait_all(host, 3 * CHUNK), RVL_OK);
    check_facts(3 * CHUNK, 3 * CHUNK, 0);
    check_writable(host, 3 * CHUNK, 11);
    free_well(host, 3 * CHUNK, RVLI_PINNED_KEEP_ALL);
    assert_int_equal(ahead(&own, 0, RVLI_PINNED_KEEP_ALL), 0);
    check_facts(0, 3 * CHUNK, 0);
    rvli_pinned_trim(0);
    check_facts(0, 0, 0);
}

static void no_more_is_made_ahead_than_is_kept(void **state)
{
    (void)state;
    uint64_t own = 0;
    give_plenty();
    assert_int_equal(ahead(&own, 3 * CHUNK, 2 * CHUNK - 1), CHUNK);
    rvli_pinned_settle();
    check_facts(0, CHUNK, 0);
    assert_int_equal(ahead(&own, 3 * CHUNK, 0), CHUNK); /* it is there, and no more comes */
    rvli_pinned_settle();
    check_facts(0, CHUNK, 0);
}

/* An eighth of the host's memory stays free, and goes back if others need it. */
static void others_keep_their_part(void **state)
{
    (void)state;
    uint64_t own = 0, spare = rvli_hostmem_total() / 8;
    char info[64], less[64];
    snprintf(info, sizeof info, "MemAvailable: %llu kB\n",
             (unsigned long long)((spare + 2 * CHUNK) / 1024 + 1));
    snprintf(less, sizeof less, "MemAvailable: %llu kB\n", (unsigned long long)(spare / 4096));
    cgroup_max = cgroup_current = cgroup_stat = NULL;
    meminfo = info;
    files_are_ours = true;
    assert_int_equal(ahead(&own, 4 * CHUNK, RVLI_PINNED_KEEP_ALL), 2 * CHUNK);
    rvli_pinned_settle();
    check_facts(0, 2 * CHUNK, 0);
    meminfo = less;
    assert_int_equal(ahead(&own, 5 * CHUNK, RVLI_PINNED_KEEP_ALL), 0);
    rvli_pinned_settle();
    check_facts(0, 0, 0);
}

/* What is made ahead gives way; a buffer that has come to lie there meanwhile does not. */
static void a_buffer_does_not_give_way(void **state)
{
    (void)state;
    uint64_t own = 0;
    char little[64];
    give_plenty();
    snprintf(little, sizeof little, "MemAvailable: %llu kB\n", 2 * CHUNK / 1024 + 0ULL);
    gate_set(&making_gate, true);
    alloc_well(2 * CHUNK); /* keeps all workers busy */
    gate_await(&making_gate, 1);
    assert_int_equal(ahead(&own, 3 * CHUNK, RVLI_PINNED_KEEP_ALL), 3 * CHUNK);
    char *host = alloc_well(CHUNK);
    meminfo = little;
    gate_set(&making_gate, false);
    assert_int_equal(wait_all(host, CHUNK), RVL_OK);
    check_writable(host, CHUNK, 13);
}

static void what_cannot_be_made_ahead_is_made_later(void **state)
{
    (void)state;
    uint64_t own = 0;
    give_plenty();
    threads_refused_from = 1;
    assert_int_equal(ahead(&own, CHUNK, RVLI_PINNED_KEEP_ALL), 0);
    threads_refused_from = 0;
    refuse_pages(ENOMEM, 3);
    ahead(&own, 2 * CHUNK, RVLI_PINNED_KEEP_ALL);
    rvli_pinned_settle();
    check_facts(0, 0, 0);
    refuse_pages(0, 0);
    assert_true(fake_fail("cuMemHostRegister", 1, CUDA_ERROR_NOT_PERMITTED, false));
    assert_int_equal(ahead(&own, 2 * CHUNK, RVLI_PINNED_KEEP_ALL), 2 * CHUNK);
    rvli_pinned_settle();
    check_facts(0, CHUNK, CHUNK);
    char *host = alloc_well(2 * CHUNK);
    assert_int_equal(wait_all(host, 2 * CHUNK), RVL_OK);
    check_writable(host, 2 * CHUNK, 12);
}

#define POOL_TEST(test) cmocka_unit_test_setup_teardown(test, hold_pool, let_pool_go)
#define REGISTERING_TEST(test)                                                                     \
    cmocka_unit_test_setup_teardown(test, watch_registering, leave_registering)
#define PLAIN_TEST(test) cmocka_unit_test_teardown(test, stop_refusing)

int main(void)
{
    const struct CMUnitTest tests[] = {
        PLAIN_TEST(pieces_are_taken_from_below),
        PLAIN_TEST(an_arena_is_what_its_model_is),
        PLAIN_TEST(an_arena_without_memory_changes_nothing),
        PLAIN_TEST(a_rest_without_memory_changes_nothing),
        PLAIN_TEST(one_worker_keeps_the_order_to_the_end),
        PLAIN_TEST(workers_work_at_the_same_time),
        PLAIN_TEST(idle_workers_can_be_stopped),
        PLAIN_TEST(fewer_workers_are_accepted),
        PLAIN_TEST(workers_that_cannot_be_had_leave_nothing),
        PLAIN_TEST(signals_stay_the_programs),
        PLAIN_TEST(the_kernel_is_believed),
        PLAIN_TEST(the_lower_of_host_and_cgroup_is_left),
        PLAIN_TEST(the_last_user_takes_the_pool_away),
        PLAIN_TEST(a_pool_that_cannot_be_had_leaves_nothing),
        POOL_TEST(chunks_are_shared_and_used_again),
        POOL_TEST(what_is_kept_is_what_was_asked_for),
        POOL_TEST(a_chunk_on_its_way_back_can_be_wanted),
        POOL_TEST(memory_can_be_freed_while_it_is_made),
        POOL_TEST(refused_registering_leaves_pageable_memory),
        POOL_TEST(pages_that_cannot_be_had_are_host_oom),
        POOL_TEST(memory_that_goes_midway_is_host_oom),
        POOL_TEST(what_is_being_made_is_not_available),
        POOL_TEST(pages_are_touched_where_they_cannot_be_asked_for),
        REGISTERING_TEST(a_refusal_leaves_other_chunks_as_they_are),
        REGISTERING_TEST(memory_can_be_freed_while_it_is_registered),
        REGISTERING_TEST(a_pool_can_end_while_it_registers),
        POOL_TEST(what_cannot_be_allocated_changes_nothing),
        POOL_TEST(what_is_not_ours_is_not_freed),
        POOL_TEST(memory_of_others_is_there),
        POOL_TEST(a_new_pool_waits_for_the_end_of_the_old),
        POOL_TEST(memory_is_made_ahead_and_used),
        POOL_TEST(no_more_is_made_ahead_than_is_kept),
        POOL_TEST(others_keep_their_part),
        POOL_TEST(a_buffer_does_not_give_way),
        POOL_TEST(what_cannot_be_made_ahead_is_made_later),
    };
    setenv("RVL_CUDA_LIBRARY", RVL_CUDA_FAKE_PATH, 1);
    if (!gpu_is_there())
        return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
