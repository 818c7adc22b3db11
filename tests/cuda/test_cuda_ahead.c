/* SPDX-License-Identifier: MIT */
/*
 * Host memory that is made ahead of the first pause, through public calls on the fake driver.
 *
 * Each step of it fails once: a call of the driver, memory of the library, a thread, pages. The
 * allocation then succeeds all the same, or has changed nothing. Nothing of ours tells that it was
 * tried, and the pause makes what is missing.
 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "backends/cuda/hostmem.h"
#include "backends/cuda/pinned.h"
#include "fake.h"
#include "gpu.h"
#include "nothing_left.h"
#include "tests/support/short_memory.h"

#define CHUNK RVL_HOST_CHUNK_BYTES
#define WEIGHTS_BYTES (6 * MIB)
#define KV_BYTES (4 * MIB)

/* ---- What fails ---- */

SHORT_MALLOC
SHORT_CALLOC

/* The linker wants them visible: shared libraries name the same functions. */
#define WRAP __attribute__((visibility("default")))

typedef struct countdown {
    _Atomic uint64_t left; /* the call that brings it to 0 fails, and no other */
    _Atomic bool failed;
} countdown;

static countdown threads, pages;

static bool is_due(countdown *of)
{
    uint64_t left = atomic_load(&of->left);
    while (left > 0 && !atomic_compare_exchange_weak(&of->left, &left, left - 1))
        continue;
    if (left == 1)
        atomic_store(&of->failed, true);
    return left == 1;
}

typedef void *(*thread_start)(void *argument);
int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, thread_start start,
                          void *argument);
WRAP int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes,
                               thread_start start, void *argument);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, thread_start start,
                          void *argument)
{
    return is_due(&threads) ? EAGAIN : __real_pthread_create(thread, attributes, start, argument);
}

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

int __real_madvise(void *at, size_t size, int advice);
WRAP int __wrap_madvise(void *at, size_t size, int advice);
int __wrap_madvise(void *at, size_t size, int advice)
{
    if (advice == MADV_POPULATE_WRITE && is_due(&pages)) {
        errno = ENOMEM;
        return -1;
    }
    return __real_madvise(at, size, advice);
}

/* ---- How much host memory there is ---- */

static _Atomic uint64_t host_bytes; /* for us, with what is registered; 0: as the kernel says */

FILE *__real_fopen(const char *path, const char *mode);
WRAP FILE *__wrap_fopen(const char *path, const char *mode);
FILE *__wrap_fopen(const char *path, const char *mode)
{
    static _Thread_local char text[64];
    uint64_t all = atomic_load(&host_bytes), taken = fake_stats_get().live.registrations * CHUNK;
    if (all == 0)
        return __real_fopen(path, mode);
    if (strcmp(path, "/proc/meminfo") != 0)
        return NULL; /* no cgroup */
    snprintf(text, sizeof text, "MemAvailable: %llu kB\n",
             (unsigned long long)(all > taken ? all - taken : 0) / 1024);
    return fmemopen(text, strlen(text), "r");
}

/* ---- A context ---- */

typedef struct scene {
    rvl_context *context;
    rvl_tag weights, kv;
    rvl_addr weights_addr, kv_addr;
} scene;

static void begin(scene *s, uint64_t flags, rvl_host_keep keep)
{
    const int first = 0;
    const rvl_cuda_options cuda = {.struct_size = sizeof cuda,
                                   .devices = &first,
                                   .device_count = 1,
                                   .host_keep = keep,
                                   .flags = flags};
    const rvl_context_options options = {.struct_size = sizeof options, .backend_options = &cuda};
    *s = (scene){.context = NULL};
    atomic_store(&host_bytes, rvli_hostmem_total() + 64 * CHUNK); /* whatever others have */
    gpu_fake_kernels();
    assert_int_equal(cuInit(0), CUDA_SUCCESS); /* undone by fake_reset() */
    assert_int_equal(rvl_context_open("cuda", &options, &s->context), RVL_OK);
    s->kv_addr = support_alloc(s->context, "kv", 0, KV_BYTES, RVL_BACKUP_NONE);
    s->kv = support_tag(s->context, "kv");
    assert_int_equal(rvl_tag_define(s->context, "weights", NULL, &s->weights), RVL_OK);
    gpu_fill(s->context, 0, s->kv_addr, KV_BYTES, 2);
}

static void end(scene *s)
{
    assert_int_equal(rvl_context_close(s->context, NULL), RVL_OK);
    check_nothing_left();
}

/* What begins to make host memory. */
static rvl_status alloc_weights(scene *s)
{
    const rvl_alloc_options options = {
        .struct_size = sizeof options, .tag_id = s->weights, .backup = RVL_BACKUP_HOST};
    return rvl_alloc(s->context, WEIGHTS_BYTES, &options, &s->weights_addr);
}

static rvl_host_memory host_memory(scene *s)
{
    rvl_host_memory memory = {.struct_size = sizeof memory};
    rvli_pinned_settle();
    assert_int_equal(rvl_host_get_memory(s->context, &memory), RVL_OK);
    return memory;
}

static uint64_t host_made(scene *s)
{
    rvl_host_memory memory = host_memory(s);
    return memory.pinned_bytes + memory.pageable_bytes;
}

/* There and back, by hand and without what was made ahead: content of weights, and its place. */
static void check_pause(scene *s)
{
    gpu_fill(s->context, 0, s->weights_addr, WEIGHTS_BYTES, 1);
    assert_int_equal(rvl_pause(s->context, &s->weights, 1, NULL), RVL_OK);
    assert_int_equal(host_memory(s).used_bytes, WEIGHTS_BYTES);
    assert_int_equal(host_made(s), CHUNK);
    assert_int_equal(support_state(s->context, s->weights_addr), RVL_STATE_PAUSED);
    assert_int_equal(rvl_resume(s->context, &s->weights, 1, NULL), RVL_OK);
    assert_true(gpu_holds(s->context, 0, s->weights_addr, WEIGHTS_BYTES, 1));
    assert_true(gpu_holds(s->context, 0, s->kv_addr, KV_BYTES, 2));
}

/* ---- Each step fails once ---- */

typedef struct kind {
    const char *name;
    void (*arm)(uint64_t nth); /* 0: nothing fails any more */
    bool (*has_failed)(void);
} kind;

static uint64_t failures_before;

static void arm_driver(uint64_t nth)
{
    failures_before = nth > 0 ? fake_failures() : failures_before;
    fake_fail(NULL, nth, nth > 0 ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS, false);
}

static bool driver_has_failed(void)
{
    return fake_failures() > failures_before;
}

static void arm_countdown(countdown *of, uint64_t nth)
{
    atomic_store(&of->left, nth);
    if (nth > 0)
        atomic_store(&of->failed, false);
}

static void arm_threads(uint64_t nth)
{
    arm_countdown(&threads, nth);
}

static bool threads_have_failed(void)
{
    return threads.failed;
}

static void arm_pages(uint64_t nth)
{
    arm_countdown(&pages, nth);
}

static bool pages_have_failed(void)
{
    return pages.failed;
}

static bool memory_failed;

static void arm_memory(uint64_t nth)
{
    memory_failed = short_memory_has_refused();
    short_memory_refuse_nth(nth);
}

static bool memory_has_failed(void)
{
    return memory_failed;
}

static const kind kinds[] = {
    {"driver", arm_driver, driver_has_failed},
    {"memory", arm_memory, memory_has_failed},
    {"thread", arm_threads, threads_have_failed},
    {"pages", arm_pages, pages_have_failed},
};
#define KINDS (sizeof kinds / sizeof kinds[0])

typedef struct snapshot {
    rvl_device_stats stats;
    rvl_tag_stats weights, kv;
    uint64_t free_bytes, used_host_bytes;
    rvl_state kv_state;
} snapshot;

static snapshot take_snapshot(scene *s)
{
    snapshot taken;
    memset(&taken, 0, sizeof taken);
    taken.stats = support_stats(s->context, 0);
    taken.weights.struct_size = sizeof taken.weights;
    taken.kv.struct_size = sizeof taken.kv;
    assert_int_equal(rvl_tag_get_stats(s->context, s->weights, 0, &taken.weights), RVL_OK);
    assert_int_equal(rvl_tag_get_stats(s->context, s->kv, 0, &taken.kv), RVL_OK);
    taken.free_bytes = gpu_free_bytes(s->context);
    taken.used_host_bytes = host_memory(s).used_bytes;
    taken.kv_state = support_state(s->context, s->kv_addr);
    return taken;
}

/* false: fewer than n such steps are made. */
static bool fail_once(const kind *k, uint64_t n, const snapshot *without)
{
    scene s;
    begin(&s, RVL_CUDA_HOST_AHEAD, RVL_HOST_KEEP_ALL);
    snapshot before = take_snapshot(&s);
    rvl_status last = rvli_error(RVL_ERR_VETOED, "an error of before");
    k->arm(n);
    rvl_status status = alloc_weights(&s);
    rvli_pinned_settle();
    k->arm(0);
    bool failed = k->has_failed();
    if (status == RVL_OK) {
        assert_int_equal(rvli_error_get()->status, last);
        assert_string_equal(rvli_error_get()->message, "an error of before");
    } else {
        assert_true(failed);
        snapshot after = take_snapshot(&s);
        assert_memory_equal(&after, &before, sizeof before);
        assert_int_equal(alloc_weights(&s), RVL_OK);
    }
    snapshot after = take_snapshot(&s);
    assert_memory_equal(&after, without, sizeof after);
    assert_true(gpu_holds(s.context, 0, s.kv_addr, KV_BYTES, 2));
    check_pause(&s);
    end(&s);
    return failed;
}

static void each_step_fails_once(void **state)
{
    (void)state;
    scene s;
    begin(&s, 0, RVL_HOST_KEEP_ALL);
    assert_int_equal(alloc_weights(&s), RVL_OK);
    snapshot without = take_snapshot(&s);
    end(&s);
    for (size_t i = 0; i < KINDS; i++) {
        uint64_t n = 1;
        while (fail_once(&kinds[i], n, &without))
            n++;
        if (n == 1)
            fail_msg("no step of %s is made", kinds[i].name);
    }
}

/* ---- Off, and given back ---- */

static void it_is_made_where_asked(void **state)
{
    (void)state;
    static const struct {
        uint64_t flags;
        rvl_host_keep keep;
        uint64_t made_bytes;
    } ways[] = {
        {RVL_CUDA_HOST_AHEAD, RVL_HOST_KEEP_ALL, CHUNK},
        {0, RVL_HOST_KEEP_ALL, 0},
        {RVL_CUDA_HOST_AHEAD, RVL_HOST_KEEP_NONE, 0}, /* there would be nothing to use */
    };
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        scene s;
        begin(&s, ways[i].flags, ways[i].keep);
        assert_int_equal(alloc_weights(&s), RVL_OK);
        assert_int_equal(host_made(&s), ways[i].made_bytes);
        assert_int_equal(rvl_free(s.context, s.weights_addr), RVL_OK);
        assert_int_equal(rvl_host_trim(s.context, 0), RVL_OK);
        assert_int_equal(host_made(&s), 0);
        end(&s);
    }
}

/* Others have taken what was free: what no buffer lies in goes back with the next allocation. */
static void others_get_it_back(void **state)
{
    (void)state;
    scene s;
    uint64_t spare = rvli_hostmem_total() / 8;
    begin(&s, RVL_CUDA_HOST_AHEAD, RVL_HOST_KEEP_ALL);
    atomic_store(&host_bytes, spare + 4 * CHUNK);
    assert_int_equal(alloc_weights(&s), RVL_OK);
    assert_int_equal(host_made(&s), CHUNK);
    atomic_store(&host_bytes, spare / 4);
    support_alloc(s.context, "more", 0, CHUNK, RVL_BACKUP_HOST);
    assert_int_equal(host_made(&s), 0);
    atomic_store(&host_bytes, spare + 4 * CHUNK);
    check_pause(&s);
    atomic_store(&host_bytes, 0);
    end(&s);
}

static void move(scene *s, const char *tag_name, rvl_status status, bool away)
{
    rvl_tag tag = support_tag(s->context, tag_name);
    assert_int_equal(away ? rvl_pause(s->context, &tag, 1, NULL)
                          : rvl_resume(s->context, &tag, 1, NULL),
                     status);
}

/* A backup that does not fit where idle memory lies gets the room of it. */
static void idle_memory_goes_to_who_needs_it(void **state)
{
    (void)state;
    static const char *const names[] = {"a", "b", "c", "d"};
    scene s;
    begin(&s, 0, RVL_HOST_KEEP_ALL);
    atomic_store(&host_bytes, 5 * CHUNK);
    for (size_t i = 0; i < 4; i++) {
        gpu_fill(s.context, 0, support_alloc(s.context, names[i], 0, CHUNK, RVL_BACKUP_HOST), CHUNK,
                 i);
        move(&s, names[i], RVL_OK, true);
    }
    move(&s, "a", RVL_OK, false);
    move(&s, "c", RVL_OK, false); /* two idle chunks, apart from each other */
    assert_int_equal(host_made(&s), 4 * CHUNK);
    rvl_addr large = support_alloc(s.context, "large", 0, 2 * CHUNK, RVL_BACKUP_HOST);
    gpu_fill(s.context, 0, large, 2 * CHUNK, 7);
    move(&s, "large", RVL_OK, true);
    assert_int_equal(host_made(&s), 4 * CHUNK);
    move(&s, "a", RVL_OK, true); /* the fifth */
    move(&s, "c", RVL_ERR_HOST_OOM, true);
    move(&s, "large", RVL_OK, false);
    assert_true(gpu_holds(s.context, 0, large, 2 * CHUNK, 7));
    atomic_store(&host_bytes, 0);
    end(&s);
}

static int stop_failing(void **state)
{
    (void)state;
    for (size_t i = 0; i < KINDS; i++)
        kinds[i].arm(0);
    atomic_store(&host_bytes, 0);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(each_step_fails_once, stop_failing),
        cmocka_unit_test_teardown(it_is_made_where_asked, stop_failing),
        cmocka_unit_test_teardown(others_get_it_back, stop_failing),
        cmocka_unit_test_teardown(idle_memory_goes_to_who_needs_it, stop_failing),
    };
    setenv("RVL_CUDA_LIBRARY", RVL_CUDA_FAKE_PATH, 1);
    if (!gpu_is_there())
        return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
