/* SPDX-License-Identifier: MIT */
/*
 * What the hook libraries share, in this process, with every step made to fail: a call that fails
 * says why and has changed nothing.
 */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <cuda.h>

#include "backends/cuda/driver.h"
#include "base/addrmap.h"
#include "base/error.h"
#include "cuda/gpu.h"
#include "fake.h"
#include "hooks/process/captures.h"
#include "hooks/process/disk_names.h"
#include "hooks/region/saver.h"
#include "hooks/shim/runtime.h"
#include "tests/support/short_memory.h"

#define MIB (UINT64_C(1) << 20)
#define SIZE (4 * MIB)

/* ---- Failures of the host ---- */

#define WRAP __attribute__((visibility("default")))

static bool no_links, no_inserts;

SHORT_CALLOC
SHORT_MALLOC

rvl_status __real_rvli_addrmap_insert(rvli_addrmap *map, uint64_t key, void *value);
WRAP rvl_status __wrap_rvli_addrmap_insert(rvli_addrmap *map, uint64_t key, void *value);
rvl_status __wrap_rvli_addrmap_insert(rvli_addrmap *map, uint64_t key, void *value)
{
    if (no_inserts)
        return rvli_error(RVL_ERR_HOST_OOM, "no host memory for the address table");
    return __real_rvli_addrmap_insert(map, key, value);
}

int __real_symlink(const char *target, const char *path);
WRAP int __wrap_symlink(const char *target, const char *path);
int __wrap_symlink(const char *target, const char *path)
{
    if (!no_links)
        return __real_symlink(target, path);
    errno = EPERM;
    return -1;
}

/* ---- Help ---- */

static char directory[] = "/tmp/reveille-saver-XXXXXX";

static rvli_thread_settings with(const char *tag, bool host, bool disk)
{
    return (rvli_thread_settings){.tag = rvli_intern(tag),
                                  .region = RVLI_REGION_INSIDE,
                                  .host_backup = host,
                                  .disk_backup = disk};
}

static uint8_t *need(const rvli_thread_settings *settings, int device)
{
    rvl_addr addr = 0;
    assert_int_equal(rvli_saver_alloc(device, SIZE, settings, &addr), RVL_OK);
    return (uint8_t *)(uintptr_t)addr;
}

static rvl_addr addr_of(const uint8_t *at)
{
    return (uintptr_t)at;
}

static bool holds(const uint8_t *at, uint8_t value)
{
    for (uint64_t i = 0; i < SIZE; i++)
        if (at[i] != value)
            return false;
    return true;
}

static uint64_t used(void)
{
    return fake_stats_get().used_bytes[0] + fake_stats_get().used_bytes[1];
}

/* ---- Tests ---- */

/* The first context, its tag, its allocation: every host allocation and driver call on the way. */
static void test_first_allocation(void **state)
{
    (void)state;
    const rvli_thread_settings settings = with("first", true, false);
    rvl_addr addr = 0;
    unsigned failures = 0;
    rvl_status status;
    do {
        short_memory_refuse_nth(++failures);
        status = rvli_saver_alloc(0, SIZE, &settings, &addr);
        bool failed = short_memory_has_refused();
        short_memory_refuse_nth(0);
        assert_int_equal(status, failed ? RVL_ERR_HOST_OOM : RVL_OK);
        if (status != RVL_OK) {
            assert_int_equal(addr, 0);
            assert_int_equal(rvli_saver_live, 0);
            assert_int_equal(used(), 0);
        }
    } while (status != RVL_OK && failures < 200);
    assert_int_equal(status, RVL_OK);
    assert_true(failures > 4);
    assert_int_equal(rvli_saver_live, 1);
    assert_int_equal(rvli_saver_free(addr), RVL_OK);
    assert_int_equal(used(), 0);
}

/* What cannot be noted is not allocated. */
static void test_full_table(void **state)
{
    (void)state;
    const rvli_thread_settings settings = with("first", false, false);
    rvl_addr addr = 0;
    no_inserts = true;
    assert_int_equal(rvli_saver_alloc(0, SIZE, &settings, &addr), RVL_ERR_HOST_OOM);
    no_inserts = false;
    assert_int_equal(addr, 0);
    assert_int_equal(used(), 0);
    assert_int_equal(rvli_saver_live, 0);
}

typedef rvl_status (*step)(void);

static uint8_t *moved;

static rvl_status alloc_step(void)
{
    const rvli_thread_settings settings = with("second", true, false);
    rvl_addr addr = 0;
    rvl_status status = rvli_saver_alloc(1, SIZE, &settings, &addr);
    moved = (uint8_t *)(uintptr_t)addr;
    return status;
}

static rvl_status pause_step(void)
{
    return rvli_saver_pause("second");
}

static rvl_status resume_step(void)
{
    return rvli_saver_resume("second");
}

static rvl_status free_step(void)
{
    return rvli_saver_free(addr_of(moved));
}

/* Whichever call of the driver fails, so does the step, and what is in use stays. */
static void assert_fails_by(step each, const char *const *symbols)
{
    for (; *symbols != NULL; symbols++) {
        uint64_t used_before = used(), live_before = rvli_saver_live;
        assert_true(fake_fail(*symbols, 1, CUDA_ERROR_UNKNOWN, true));
        if (each() == RVL_OK)
            fail_msg("%s", *symbols);
        assert_true(fake_fail(*symbols, 0, CUDA_SUCCESS, false));
        assert_int_equal(used(), used_before);
        assert_int_equal(rvli_saver_live, live_before);
    }
    assert_int_equal(each(), RVL_OK);
}

static void test_driver_failures(void **state)
{
    (void)state;
    assert_fails_by(alloc_step,
                    (const char *[]){"cuDevicePrimaryCtxRetain", "cuMemGetAllocationGranularity",
                                     "cuMemGetInfo", "cuStreamCreate", "cuCtxPushCurrent",
                                     "cuMemAddressReserve", "cuMemCreate", "cuMemMap",
                                     "cuMemSetAccess", NULL});
    memset(moved, 5, SIZE);
    assert_fails_by(pause_step, (const char *[]){"cuCtxSynchronize", "cuMemcpyDtoHAsync",
                                                 "cuEventRecord", "cuMemUnmap", NULL});
    assert_int_equal(used(), 0);
    assert_fails_by(resume_step, (const char *[]){"cuMemCreate", "cuMemMap", "cuMemSetAccess",
                                                  "cuMemcpyHtoDAsync", NULL});
    assert_true(holds(moved, 5));
    assert_fails_by(free_step, (const char *[]){"cuCtxSynchronize", "cuMemUnmap", NULL});
    assert_int_equal(used(), 0);
    assert_int_equal(rvli_saver_live, 0);
    assert_int_equal(free_step(), RVL_ERR_NOT_FOUND);
}

static void test_captures(void **state)
{
    (void)state;
    const rvli_thread_settings settings = with("g", false, false);
    uint8_t *at = need(&settings, 0);
    rvli_capture_begin(NULL, 0); /* the stream that cannot be captured */
    assert_false(rvli_capture_running());
    rvli_capture_begin(at, 0);
    assert_int_equal(rvli_saver_pause("g"), RVL_ERR_BUSY);
    assert_int_equal(rvli_saver_resume("g"), RVL_ERR_BUSY);
    assert_int_equal(rvli_saver_free(addr_of(at)), RVL_ERR_BUSY);
    uint8_t *other = need(&settings, 0);
    rvli_capture_end(0, at);
    assert_int_equal(rvli_saver_pause("g"), RVL_OK);
    rvli_capture_begin(at, 0);
    assert_int_equal(rvli_saver_free(addr_of(at)), RVL_OK); /* nobody can be using it */
    rvli_capture_end(0, at);
    assert_int_equal(rvli_saver_free(addr_of(other)), RVL_OK);
}

/* A job's ranks have prepared a move: what is freed meanwhile goes once that has ended. */
static void test_frees_of_prepared_memory(void **state)
{
    (void)state;
    const rvli_thread_settings settings = with("job", true, false);
    rvl_transition *transition = NULL;
    uint64_t before = used();
    uint8_t *at = need(&settings, 0);
    rvl_addr begin = 0;
    rvl_context *context = NULL;
    assert_true(rvli_saver_find(addr_of(at), &context, &begin));
    rvl_tag tag = 0;
    assert_int_equal(rvl_tag_find(context, 0, "job", &tag), RVL_OK);
    assert_int_equal(rvl_pause_prepare(context, &tag, 1, NULL, &transition), RVL_OK);
    assert_int_equal(rvli_saver_free(addr_of(at)), RVL_OK);
    assert_int_equal(rvli_saver_free(addr_of(at)), RVL_ERR_NOT_FOUND);
    rvli_saver_free_deferred(); /* too early */
    assert_int_equal(used(), before + SIZE);
    assert_int_equal(rvl_transition_abort(transition), RVL_OK);
    uint8_t *other = need(&settings, 0); /* the next allocation frees it first */
    assert_int_equal(used(), before + SIZE);
    assert_int_equal(rvli_saver_free(addr_of(other)), RVL_OK);
    assert_int_equal(used(), before);
}

typedef struct freeing {
    rvl_addr addr;
    bool relaxed; /* so the thread calls itself */
    rvl_status status;
} freeing;

static void *free_it(void *argument)
{
    freeing *what = argument;
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    if (what->relaxed)
        assert_int_equal(rvli_cuda.cuThreadExchangeStreamCaptureMode(&mode), CUDA_SUCCESS);
    what->status = rvli_saver_free(what->addr);
    mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
    assert_int_equal(rvli_cuda.cuThreadExchangeStreamCaptureMode(&mode), CUDA_SUCCESS);
    assert_int_equal(mode, what->relaxed ? CU_STREAM_CAPTURE_MODE_RELAXED
                                         : CU_STREAM_CAPTURE_MODE_GLOBAL);
    return NULL;
}

static rvl_status free_in(bool other_thread, bool relaxed, rvl_addr addr)
{
    freeing what = {addr, relaxed, RVL_ERR_IO};
    pthread_t thread;
    if (!other_thread)
        return rvli_saver_free(addr);
    assert_int_equal(pthread_create(&thread, NULL, free_it, &what), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    return what.status;
}

/* Where CUDA allows a free while a stream is captured, we do: the memory goes after the end. */
static void test_frees_during_captures(void **state)
{
    (void)state;
    static const struct {
        CUstreamCaptureMode mode;
        bool other_thread, relaxed;
        rvl_status status;
    } rows[] = {
        {CU_STREAM_CAPTURE_MODE_GLOBAL, false, false, RVL_ERR_BUSY},
        {CU_STREAM_CAPTURE_MODE_GLOBAL, true, false, RVL_ERR_BUSY},
        {CU_STREAM_CAPTURE_MODE_GLOBAL, true, true, RVL_OK},
        {CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, false, false, RVL_ERR_BUSY},
        {CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, true, false, RVL_OK},
        {CU_STREAM_CAPTURE_MODE_RELAXED, false, false, RVL_OK},
        {CU_STREAM_CAPTURE_MODE_RELAXED, true, false, RVL_OK},
    };
    const rvli_thread_settings settings = with("g", false, false);
    CUstream stream = NULL;
    uint8_t *kept = need(&settings, 0);
    CUcontext primary = NULL;
    assert_int_equal(rvli_cuda.cuDevicePrimaryCtxRetain(&primary, 0), CUDA_SUCCESS);
    assert_int_equal(rvli_cuda.cuCtxPushCurrent(primary), CUDA_SUCCESS);
    assert_int_equal(rvli_cuda.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        uint64_t before = used();
        uint8_t *at = need(&settings, 0);
        rvli_capture_begin(stream, (int)rows[i].mode);
        assert_true(fake_stream_set_capturing(stream, true));
        assert_int_equal(free_in(rows[i].other_thread, rows[i].relaxed, addr_of(at)),
                         rows[i].status);
        assert_int_equal(used(), before + SIZE);
        if (rows[i].status == RVL_OK)
            assert_int_equal(rvli_saver_free(addr_of(at)), RVL_ERR_NOT_FOUND);
        rvli_saver_free_deferred(); /* too early */
        rvli_capture_end(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD, stream);
        assert_true(rvli_capture_running());
        assert_false(fake_capture_invalidated());
        assert_true(fake_stream_set_capturing(stream, false));
        rvli_capture_end(0, stream);
        if (i == 2) { /* the device says no once: it stays for the next time */
            assert_true(fake_fail("cuCtxSynchronize", 1, CUDA_ERROR_UNKNOWN, false));
            rvli_saver_free_deferred();
            assert_int_equal(used(), before + SIZE);
        }
        rvli_saver_free_deferred();
        if (rows[i].status != RVL_OK)
            assert_int_equal(rvli_saver_free(addr_of(at)), RVL_OK);
        assert_int_equal(used(), before);
    }
    assert_int_equal(rvli_cuda.cuStreamDestroy(stream), CUDA_SUCCESS);
    assert_int_equal(rvli_cuda.cuCtxPopCurrent(&primary), CUDA_SUCCESS);
    assert_int_equal(rvli_cuda.cuDevicePrimaryCtxRelease(0), CUDA_SUCCESS);
    assert_int_equal(rvli_saver_free(addr_of(kept)), RVL_OK);
}

/* A refused end has ended it, unless the driver says otherwise. */
static void test_ends_of_captures(void **state)
{
    (void)state;
    int stream = 0;
    rvli_capture_begin(&stream, 0);
    rvli_capture_end(CUDA_ERROR_INVALID_VALUE, NULL); /* of another stream */
    assert_true(rvli_capture_running());
    rvli_capture_end(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, &stream);
    assert_false(rvli_capture_running());
    assert_false(rvli_capture_forbids_frees());
    const void *own = rvli_capture_stream(NULL, true);
    assert_null(rvli_capture_stream(NULL, false));
    assert_ptr_equal(rvli_capture_stream(&stream, true), &stream);
    rvli_capture_begin(own, 0);
    assert_true(rvli_capture_running());
    assert_true(rvli_capture_forbids_frees());
    rvli_capture_end(0, own);
    assert_false(rvli_capture_running());
    short_memory_refuse_nth(1);
    rvli_capture_begin(&stream, 0); /* there is no memory to note it */
    short_memory_refuse_nth(0);
    assert_false(rvli_capture_running());
}

static void test_margin(void **state)
{
    (void)state;
    const rvli_thread_settings settings = with("m", false, false);
    rvl_error error = {.struct_size = sizeof error};
    rvl_addr addr = 0;
    rvli_saver_set_margin(1);
    assert_int_equal(rvli_saver_alloc(0, UINT64_MAX, &settings, &addr), RVL_ERR_DEVICE_OOM);
    assert_int_equal(rvli_saver_alloc(0, 1024 * MIB, &settings, &addr), RVL_ERR_DEVICE_OOM);
    assert_int_equal(rvl_last_error(&error), RVL_OK);
    assert_int_equal(error.requested_bytes, 1024 * MIB);
    assert_int_equal(error.free_bytes, 1024 * MIB);
    assert_true(fake_fail("cuMemGetInfo", 1, CUDA_ERROR_UNKNOWN, false));
    assert_int_not_equal(rvli_saver_alloc(0, SIZE, &settings, &addr), RVL_OK);
    assert_int_equal(addr, 0);
    rvli_saver_set_margin(0);
}

static void test_disk_names(void **state)
{
    (void)state;
    const rvli_thread_settings settings = with("d", false, true);
    assert_int_equal(rvli_saver_set_directory(NULL), RVL_ERR_INVALID);
    assert_int_equal(rvli_saver_set_directory(""), RVL_ERR_INVALID);
    short_memory_refuse_nth(1);
    assert_int_equal(rvli_saver_set_directory(directory), RVL_ERR_HOST_OOM);
    short_memory_refuse_nth(0);
    assert_int_equal(rvli_saver_set_directory(directory), RVL_OK);
    uint8_t *at = need(&settings, 0);
    memset(at, 7, SIZE);
    for (int i = 0; i < 2; i++) { /* a backup without a name is one all the same */
        no_links = i == 0;
        assert_int_equal(rvli_saver_pause("d"), RVL_OK);
        assert_int_equal(used(), 0);
        if (no_links)
            assert_int_equal(rmdir(directory), 0); /* nothing is in it */
        else
            assert_int_not_equal(rmdir(directory), 0);
        assert_int_equal(rvli_saver_resume("d"), RVL_OK);
        assert_int_equal(rvli_saver_set_directory(directory), RVL_OK); /* makes it again */
        assert_true(holds(at, 7));
    }
    assert_int_equal(rvli_saver_free(addr_of(at)), RVL_OK);
    short_memory_refuse_nth(1);
    assert_null(rvli_disk_name_add(directory, 0, 0, 1));
    short_memory_refuse_nth(0);
    rvli_disk_name_remove(NULL);
}

#ifdef RVL_HAVE_DIGEST_KERNEL
#define COPIED_AGAIN (SIZE / 2)
#else
#define COPIED_AGAIN SIZE
#endif

/* With digests: the second pause copies what has changed, into the same memory. */
static void test_retained_backups(void **state)
{
    (void)state;
    const rvli_thread_settings settings = with("r", true, false);
    uint8_t *at = need(&settings, 0);
    const uint8_t *first = NULL;
    memset(at, 1, SIZE);
    for (int round = 0; round < 4; round++) {
        uint64_t copied = fake_stats_get().to_host_pinned_bytes;
        at[SIZE - 1] = (uint8_t)round; /* in the second of two granules */
        rvli_saver_set_retain(false);
        assert_int_equal(rvli_saver_pause("r"), RVL_OK);
        copied = fake_stats_get().to_host_pinned_bytes - copied;
        assert_int_equal(copied, round == 0 ? SIZE : COPIED_AGAIN);
        const uint8_t *backup = rvli_saver_backup(addr_of(at), SIZE);
        first = round == 0 ? backup : first;
        assert_ptr_equal(backup, first);
        assert_int_equal(backup[0], 1);
        assert_int_equal(backup[SIZE - 1], round);
        rvli_saver_set_retain(true);
        assert_int_equal(rvli_saver_resume("r"), RVL_OK);
        assert_ptr_equal(rvli_saver_backup(addr_of(at) + 7, 1), first + 7);
        assert_int_equal(at[SIZE - 1], round);
    }
    rvli_saver_set_retain(false);
    assert_int_equal(rvli_saver_pause(NULL), RVL_OK);
    assert_int_equal(rvli_saver_resume(NULL), RVL_OK);
    assert_null(rvli_saver_backup(addr_of(at), 1));
    assert_int_equal(rvli_saver_free(addr_of(at)), RVL_OK);
}

/* A resume that would fit in one context and not in the next moves none. */
static void test_resume_fits_everywhere(void **state)
{
    (void)state;
    const rvli_thread_settings host = with("f", true, false), disk = with("f", false, true);
    rvl_error error = {.struct_size = sizeof error};
    assert_int_equal(rvli_saver_set_directory(directory), RVL_OK);
    uint8_t *at = need(&host, 0), *on_disk = need(&disk, 0), *elsewhere = need(&host, 1);
    assert_int_equal(rvli_saver_pause("f"), RVL_OK);
    uint64_t creations = fake_calls("cuMemCreate");
    assert_true(fake_take(0, 1024 * MIB - 2 * SIZE + 1)); /* room for one there, and elsewhere */
    const char *const tags[] = {"f", NULL};
    for (int i = 0; i < 2; i++) {
        assert_int_equal(rvli_saver_resume(tags[i]), RVL_ERR_DEVICE_OOM);
        assert_int_equal(rvl_last_error(&error), RVL_OK);
        assert_int_equal(error.requested_bytes, 2 * SIZE);
        assert_int_equal(error.free_bytes, 2 * SIZE - 1);
        assert_int_equal(error.device, 0);
        assert_string_equal(error.tag, i == 0 ? "f" : "");
        assert_non_null(strstr(error.message, i == 0 ? "resume of \"f\" needs 8.0 MiB, "
                                                     : "resume needs 8.0 MiB, "));
    }
    assert_int_equal(fake_calls("cuMemCreate"), creations);
    assert_int_equal(used(), 0);
    assert_true(fake_take(0, 0));
    assert_int_equal(rvli_saver_resume("f"), RVL_OK);
    assert_int_equal(rvli_saver_free(addr_of(at)), RVL_OK);
    assert_int_equal(rvli_saver_free(addr_of(on_disk)), RVL_OK);
    assert_int_equal(rvli_saver_free(addr_of(elsewhere)), RVL_OK);
}

/* The tag's other options are the program's. */
static rvl_status count_call(void *user, rvl_tag tag)
{
    (void)tag;
    ++*(int *)user;
    return RVL_OK;
}

static void test_retaining_keeps_options(void **state)
{
    (void)state;
    int calls = 0;
    rvl_tag tag;
    rvl_context *context = NULL;
    const rvl_tag_options options = {.struct_size = sizeof options,
                                     .block_bytes = SIZE / 2,
                                     .before_unmap = count_call,
                                     .callback_user = &calls};
    const rvli_thread_settings settings = with("o", true, false);
    assert_int_equal(rvli_saver_context(0, &context), RVL_OK);
    assert_int_equal(rvl_tag_define(context, "o", &options, &tag), RVL_OK);
    for (int round = 0; round < 2; round++) {
        uint64_t handles = fake_stats_get().live.handles;
        uint8_t *at = need(&settings, 0);
        assert_int_equal(fake_stats_get().live.handles, handles + 2);
        rvli_saver_set_retain(round == 0);
        assert_int_equal(rvli_saver_pause("o"), RVL_OK);
        assert_int_equal(calls, round + 1);
        assert_int_equal(rvli_saver_resume("o"), RVL_OK);
        assert_int_equal(rvli_saver_backup(addr_of(at), 1) != NULL, round == 0);
        assert_int_equal(rvli_saver_free(addr_of(at)), RVL_OK);
    }
    rvli_saver_set_retain(false);
}

#define THREADS 4

static pthread_barrier_t start;

static void *work(void *argument)
{
    pthread_barrier_wait(&start);
    const char *const tags[THREADS] = {"t0", "t1", "t2", "t3"};
    uint8_t number = (uint8_t)(uintptr_t)argument;
    const rvli_thread_settings settings = with(tags[number], true, false);
    for (int i = 0; i < 10; i++) {
        rvl_addr addr = 0;
        bool good = rvli_saver_alloc(number % 2, SIZE, &settings, &addr) == RVL_OK;
        memset((void *)(uintptr_t)addr, number, SIZE);
        good = good && rvli_saver_pause(tags[number]) == RVL_OK;
        good = good && *rvli_saver_backup(addr + 1, 1) == number;
        good = good && rvli_saver_resume(tags[number]) == RVL_OK;
        good = good && holds((uint8_t *)(uintptr_t)addr, number);
        good = good && rvli_saver_free(addr) == RVL_OK;
        if (!good)
            return argument;
    }
    return NULL;
}

static void test_threads(void **state)
{
    (void)state;
    pthread_t threads[THREADS];
    assert_int_equal(pthread_barrier_init(&start, NULL, THREADS), 0);
    for (uintptr_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, work, (void *)i), 0);
    for (int i = 0; i < THREADS; i++) {
        void *wrong = threads;
        assert_int_equal(pthread_join(threads[i], &wrong), 0);
        assert_null(wrong);
    }
    assert_int_equal(used(), 0);
    assert_int_equal(rvli_saver_live, 0);
}

static void test_both_backups(void **state)
{
    (void)state;
    const rvli_thread_settings settings = with("b", true, true);
    rvl_addr addr = 0;
    assert_int_equal(rvli_saver_alloc(0, SIZE, &settings, &addr), RVL_ERR_INVALID);
    assert_int_equal(addr, 0);
    assert_int_equal(rvli_saver_live, 0);
}

static void test_errors_of_cuda(void **state)
{
    (void)state;
    static const struct {
        rvl_status status;
        int error;
    } rows[] = {
        {RVL_OK, 0},
        {RVL_ERR_DEVICE_OOM, RVLI_CUDA_MEMORY_ALLOCATION},
        {RVL_ERR_HOST_OOM, RVLI_CUDA_MEMORY_ALLOCATION},
        {RVL_ERR_INVALID, RVLI_CUDA_INVALID_VALUE},
        {RVL_ERR_FORKED, RVLI_CUDA_INITIALIZATION},
        {RVL_ERR_NO_DRIVER, RVLI_CUDA_INSUFFICIENT_DRIVER},
        {RVL_ERR_DRIVER_TOO_OLD, RVLI_CUDA_INSUFFICIENT_DRIVER},
        {RVL_ERR_NO_DEVICE, RVLI_CUDA_NO_DEVICE},
        {RVL_ERR_NOT_SUPPORTED, RVLI_CUDA_NOT_SUPPORTED},
        {RVL_ERR_BUSY, RVLI_CUDA_CAPTURE_UNSUPPORTED},
        {RVL_ERR_IO, RVLI_CUDA_UNKNOWN},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        rvli_error(rows[i].status, "");
        assert_int_equal(rvli_saver_cuda_error(rows[i].status), rows[i].error);
    }
    rvli_error(RVL_ERR_DEVICE_LOST, "");
    rvli_error_native(719, "CUDA_ERROR_LAUNCH_FAILED");
    assert_int_equal(rvli_saver_cuda_error(RVL_ERR_DEVICE_LOST), 719);
}

static int begin(void **state)
{
    (void)state;
    gpu_fake_kernels();
    return mkdtemp(directory) != NULL ? 0 : -1;
}

static int end(void **state)
{
    (void)state;
    return rmdir(directory);
}

int main(void)
{
    setenv("RVL_CUDA_LIBRARY", RVL_CUDA_FAKE_PATH, 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_first_allocation),
        cmocka_unit_test(test_full_table),
        cmocka_unit_test(test_driver_failures),
        cmocka_unit_test(test_captures),
        cmocka_unit_test(test_frees_of_prepared_memory),
        cmocka_unit_test(test_margin),
        cmocka_unit_test(test_disk_names),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_retained_backups),
        cmocka_unit_test(test_resume_fits_everywhere),
        cmocka_unit_test(test_retaining_keeps_options),
        cmocka_unit_test(test_frees_during_captures),
        cmocka_unit_test(test_ends_of_captures),
        cmocka_unit_test(test_both_backups),
        cmocka_unit_test(test_errors_of_cuda),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
