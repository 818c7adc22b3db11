/* SPDX-License-Identifier: MIT */
/*
 * Every driver call that a public call makes is made to fail, once and for good, on the fake
 * driver.
 *
 * Once: the call fails and everything is as before, or it got by without; then the same call
 * succeeds. For good: what a backup holds can be had again when the driver works again. At the end
 * the fake driver must hold nothing.
 */
#include <stdlib.h>
#include <string.h>

#include "backends/cuda/pinned.h"
#include "fake.h"
#include "gpu.h"
#include "nothing_left.h"

#define SMALL_BYTES (6 * MIB)
#define LARGE_BYTES (66 * MIB) /* more than one chunk of pinned memory */
#define KV_BYTES (4 * MIB)

typedef struct scene {
    rvl_context *context;
    uint64_t weights_bytes;
    rvl_tag weights, kv;
    rvl_addr weights_addr, kv_addr, extra_addr;
} scene;

static void begin(scene *s, uint64_t weights_bytes, uint64_t keep_bytes)
{
    const int first = 0;
    const rvl_cuda_options cuda = {
        .struct_size = sizeof cuda, .devices = &first, .device_count = 1};
    const rvl_context_options options = {
        .struct_size = sizeof options, .backend_options = &cuda, .keep_bytes = keep_bytes};
    *s = (scene){.weights_bytes = weights_bytes};
    assert_int_equal(cuInit(0), CUDA_SUCCESS); /* undone by fake_reset() */
    assert_int_equal(rvl_context_open("cuda", &options, &s->context), RVL_OK);
    s->weights_addr = support_alloc(s->context, "weights", 0, weights_bytes, RVL_BACKUP_HOST);
    s->kv_addr = support_alloc(s->context, "kv", 0, KV_BYTES, RVL_BACKUP_NONE);
    s->weights = support_tag(s->context, "weights");
    s->kv = support_tag(s->context, "kv");
    gpu_fill(s->context, 0, s->weights_addr, s->weights_bytes, 1);
    gpu_fill(s->context, 0, s->kv_addr, KV_BYTES, 2);
}

static void end(scene *s)
{
    assert_int_equal(rvl_context_close(s->context, NULL), RVL_OK);
    check_nothing_left();
}

/* ---- The calls, and how each is undone ---- */

static rvl_status do_pause(scene *s)
{
    const rvl_tag both[] = {s->weights, s->kv};
    return rvl_pause(s->context, both, 2, NULL);
}

static rvl_status do_resume(scene *s)
{
    const rvl_tag both[] = {s->weights, s->kv};
    return rvl_resume(s->context, both, 2, NULL);
}

static rvl_status do_alloc(scene *s)
{
    const rvl_alloc_options options = {.struct_size = sizeof options, .tag_id = s->kv};
    return rvl_alloc(s->context, KV_BYTES, &options, &s->extra_addr);
}

static rvl_status do_free(scene *s)
{
    return rvl_free(s->context, s->extra_addr);
}

typedef struct call {
    const char *name;
    rvl_status (*run)(scene *s);
    rvl_status (*inverse)(scene *s);
    bool inverse_first; /* it starts from what its inverse leaves */
} call;

static const call calls[] = {
    {"pause", do_pause, do_resume, false},
    {"resume", do_resume, do_pause, true},
    {"alloc", do_alloc, do_free, false},
    {"free", do_free, do_alloc, true},
};
#define CALLS (sizeof calls / sizeof calls[0])

/* ---- What must not change ---- */

typedef struct snapshot {
    rvl_state weights, kv;
    uint64_t used_bytes, backup_bytes, allocations, free_bytes;
} snapshot;

static snapshot take_snapshot(scene *s)
{
    rvl_device_stats stats = support_stats(s->context, 0);
    return (snapshot){.weights = support_state(s->context, s->weights_addr),
                      .kv = support_state(s->context, s->kv_addr),
                      .used_bytes = stats.used_bytes,
                      .backup_bytes = stats.host_backup_bytes,
                      .allocations = stats.allocation_count,
                      .free_bytes = gpu_free_bytes(s->context)};
}

static void check_same(const snapshot *a, const snapshot *b)
{
    assert_int_equal(a->weights, b->weights);
    assert_int_equal(a->kv, b->kv);
    assert_int_equal(a->used_bytes, b->used_bytes);
    assert_int_equal(a->backup_bytes, b->backup_bytes);
    assert_int_equal(a->allocations, b->allocations);
    assert_int_equal(a->free_bytes, b->free_bytes);
}

static void check_content(scene *s)
{
    if (support_state(s->context, s->weights_addr) == RVL_STATE_ACTIVE)
        assert_true(gpu_holds(s->context, 0, s->weights_addr, s->weights_bytes, 1));
}

/* ---- Once ---- */

/* false: the call makes fewer than n driver calls. */
static bool fail_once(scene *s, const call *c, uint64_t n)
{
    snapshot before = take_snapshot(s);
    rvli_pinned_settle();
    uint64_t failures = fake_failures();
    fake_fail(NULL, n, CUDA_ERROR_OUT_OF_MEMORY, false);
    rvl_status status = c->run(s);
    rvli_pinned_settle();
    bool failed = fake_failures() > failures;
    fake_fail(NULL, 0, CUDA_SUCCESS, false);
    if (status != RVL_OK) {
        assert_true(failed);
        assert_int_equal(status, RVL_ERR_DEVICE_OOM);
        snapshot after = take_snapshot(s);
        check_same(&before, &after);
        check_content(s);
        assert_int_equal(c->run(s), RVL_OK);
    }
    check_content(s);
    assert_int_equal(c->inverse(s), RVL_OK);
    check_content(s);
    return failed;
}

static void sweep_once(const call *c, uint64_t keep_bytes)
{
    scene s;
    uint64_t n = 1;
    begin(&s, SMALL_BYTES, keep_bytes);
    if (c->inverse_first)
        assert_int_equal(c->inverse(&s), RVL_OK);
    while (fail_once(&s, c, n))
        n++;
    assert_true(n > 2);
    end(&s);
}

static void everything_fails_once(void **state)
{
    (void)state;
    for (size_t i = 0; i < CALLS; i++) {
        sweep_once(&calls[i], 0);
        sweep_once(&calls[i], 128 * MIB);
    }
}

/* ---- For good ---- */

/* false: the call makes fewer than n driver calls. */
static bool fail_for_good(const call *c, uint64_t n)
{
    scene s;
    begin(&s, SMALL_BYTES, 0);
    if (c->inverse_first)
        assert_int_equal(c->inverse(&s), RVL_OK);
    rvli_pinned_settle();
    uint64_t failures = fake_failures();
    fake_fail(NULL, n, CUDA_ERROR_OUT_OF_MEMORY, true);
    c->run(&s);
    rvli_pinned_settle();
    bool failed = fake_failures() > failures;
    fake_fail(NULL, 0, CUDA_SUCCESS, false);

    rvl_status status = do_resume(&s);
    if (status != RVL_OK)
        print_error("%s, from call %d: %s: %s\n", c->name, (int)n, rvli_error_get()->op,
                    rvli_error_get()->message);
    assert_int_equal(status, RVL_OK);
    assert_int_equal(support_state(s.context, s.weights_addr), RVL_STATE_ACTIVE);
    check_content(&s);
    assert_int_equal(do_pause(&s), RVL_OK);
    assert_int_equal(do_resume(&s), RVL_OK);
    check_content(&s);
    /* What could not be undone may be left behind in the driver, but never in use by us. */
    assert_int_equal(rvl_context_close(s.context, NULL), RVL_OK);
    fake_live left = fake_reset();
    assert_int_equal(left.streams, 0);
    assert_int_equal(left.registrations, 0);
    return failed;
}

static void everything_fails_for_good(void **state)
{
    (void)state;
    for (size_t i = 0; i < CALLS; i++) {
        uint64_t n = 1;
        while (fail_for_good(&calls[i], n))
            n++;
        assert_true(n > 2);
    }
}

/* ---- Opening ---- */

static void opening_fails_cleanly(void **state)
{
    (void)state;
    for (uint64_t n = 1;; n++) {
        rvl_context *context = NULL;
        gpu_fake_kernels();
        assert_int_equal(cuInit(0), CUDA_SUCCESS);
        uint64_t failures = fake_failures();
        fake_fail(NULL, n, CUDA_ERROR_NOT_PERMITTED, false);
        rvl_status status = rvl_context_open("cuda", NULL, &context);
        bool failed = fake_failures() > failures;
        fake_fail(NULL, 0, CUDA_SUCCESS, false);
        if (status == RVL_OK)
            assert_int_equal(rvl_context_close(context, NULL), RVL_OK);
        else
            assert_null(context);
        check_nothing_left();
        if (!failed)
            break;
        assert_true(n < 200);
    }
}

/* ---- Single answers ---- */

static void a_lost_device_stays_lost(void **state)
{
    (void)state;
    scene s;
    begin(&s, SMALL_BYTES, 0);
    fake_fail("cuMemUnmap", 1, CUDA_ERROR_LAUNCH_FAILED, false);
    assert_int_equal(do_pause(&s), RVL_ERR_DEVICE_LOST);
    rvl_error error = {.struct_size = sizeof error};
    assert_int_equal(rvl_last_error(&error), RVL_OK);
    assert_int_equal(error.native_code, CUDA_ERROR_LAUNCH_FAILED);
    assert_string_equal(error.native_name, "CUDA_ERROR_LAUNCH_FAILED");
    assert_non_null(strstr(error.message, "lost"));
    assert_int_equal(do_alloc(&s), RVL_ERR_DEVICE_LOST); /* the driver would do it */
    assert_int_equal(do_pause(&s), RVL_ERR_DEVICE_LOST);
    assert_int_not_equal(rvl_context_close(s.context, NULL), RVL_OK);
    fake_reset();
}

static void refused_rdma_is_done_without(void **state)
{
    (void)state;
    fake_config config = {.rdma_refused = true};
    fake_configure(&config);
    scene s;
    begin(&s, SMALL_BYTES, 0); /* blocks were created all the same */
    uint64_t calls_before = fake_calls("cuMemCreate");
    assert_int_equal(do_alloc(&s), RVL_OK);
    assert_int_equal(fake_calls("cuMemCreate"), calls_before + 1); /* it is remembered */
    end(&s);
}

static void refused_pinning_is_done_without(void **state)
{
    (void)state;
    fake_config config = {.registered_limit_bytes = 1};
    fake_configure(&config);
    scene s;
    begin(&s, LARGE_BYTES, 0);
    fake_stats before = fake_stats_get();
    assert_int_equal(do_pause(&s), RVL_OK);
    fake_stats after = fake_stats_get();
    assert_int_equal(after.to_host_pinned_bytes, before.to_host_pinned_bytes);
    assert_int_equal(after.to_host_pageable_bytes - before.to_host_pageable_bytes, LARGE_BYTES);
    assert_int_equal(rvli_pinned_get_facts().pinned_bytes, 0);
    assert_int_equal(rvli_pinned_get_facts().pageable_bytes, 128 * MIB);
    assert_int_equal(do_resume(&s), RVL_OK);
    check_content(&s);
    end(&s);
}

static void backups_are_copied_pinned(void **state)
{
    (void)state;
    scene s;
    begin(&s, LARGE_BYTES, 0);
    fake_stats before = fake_stats_get();
    assert_int_equal(do_pause(&s), RVL_OK);
    assert_int_equal(do_resume(&s), RVL_OK);
    fake_stats after = fake_stats_get();
    assert_int_equal(after.to_host_pinned_bytes - before.to_host_pinned_bytes, LARGE_BYTES);
    assert_int_equal(after.to_device_pinned_bytes - before.to_device_pinned_bytes, LARGE_BYTES);
    assert_int_equal(after.to_host_pageable_bytes, before.to_host_pageable_bytes);
    assert_int_equal(after.to_device_pageable_bytes, before.to_device_pageable_bytes);
    check_content(&s);
    end(&s);
}

static void captures_are_told_and_left_alone(void **state)
{
    (void)state;
    scene s;
    begin(&s, SMALL_BYTES, 0);
    CUstream stream;
    CUcontext primary;
    assert_int_equal(rvli_cuda.cuDevicePrimaryCtxRetain(&primary, 0), CUDA_SUCCESS);
    assert_int_equal(rvli_cuda.cuCtxSetCurrent(primary), CUDA_SUCCESS);
    assert_int_equal(rvli_cuda.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    assert_true(fake_stream_set_capturing(stream, true));
    void *const streams[] = {stream};
    const rvl_pause_options named = {
        .struct_size = sizeof named, .streams = streams, .stream_count = 1};
    assert_int_equal(rvl_pause(s.context, &s.kv, 1, &named), RVL_ERR_BUSY);
    assert_int_equal(do_alloc(&s), RVL_OK);
    void *const none[] = {NULL};
    const rvl_pause_options unwatched = {.struct_size = sizeof unwatched, .events = none};
    assert_int_equal(rvl_pause(s.context, &s.weights, 1, &unwatched), RVL_OK);
    assert_false(fake_capture_invalidated());
    assert_int_equal(rvl_pause(s.context, &s.kv, 1, NULL),
                     RVL_ERR_BUSY); /* synchronizing breaks it */
    assert_int_equal(support_state(s.context, s.kv_addr), RVL_STATE_ACTIVE);
    assert_true(fake_stream_set_capturing(stream, false));
    assert_int_equal(do_resume(&s), RVL_OK);
    check_content(&s);
    assert_int_equal(rvli_cuda.cuStreamDestroy(stream), CUDA_SUCCESS);
    assert_int_equal(rvli_cuda.cuCtxSetCurrent(NULL), CUDA_SUCCESS);
    assert_int_equal(rvli_cuda.cuDevicePrimaryCtxRelease(0), CUDA_SUCCESS);
    end(&s);
}

/* ---- Digests ---- */

static rvl_status queue_digest(rvl_context *context, rvl_addr addr, rvli_digest *digest_out)
{
    return context->ops.digest(context->self, 0, addr, GRANULE, true, NULL, digest_out);
}

static bool has_digests(rvl_context *context)
{
    return context->devices[0].facts.digests;
}

/* A failed call has queued nothing, and is repeated with success. */
static void digests_fail_cleanly(void **state)
{
    (void)state;
    scene s;
    gpu_fake_kernels();
    begin(&s, SMALL_BYTES, 0);
    bool failed = has_digests(s.context);
    for (uint64_t n = 1; failed; n++) {
        rvli_digest digest = {7, 7};
        uint64_t failures = fake_failures();
        fake_fail(NULL, n, CUDA_ERROR_OUT_OF_MEMORY, false);
        rvl_status status = queue_digest(s.context, s.kv_addr, &digest);
        failed = fake_failures() > failures;
        fake_fail(NULL, 0, CUDA_SUCCESS, false);
        if (status != RVL_OK) {
            assert_true(failed);
            assert_int_equal(status, RVL_ERR_DEVICE_OOM);
            assert_int_equal(fake_stats_get().pending, 0);
            assert_int_equal(queue_digest(s.context, s.kv_addr, &digest), RVL_OK);
        }
        assert_int_equal(digest.low, 7);
        assert_int_equal(s.context->ops.synchronize(s.context->self, 0), RVL_OK);
        assert_int_not_equal(digest.low, 7);
    }
    end(&s);
}

/* Making room for results waits: when that fails, so does the call; the next one succeeds. */
static void waiting_for_room_fails_cleanly(void **state)
{
    (void)state;
    static rvli_digest digests[2][200];
    static const char *const steps[] = {"cuLaunchKernel", "cuStreamSynchronize"};
    const fake_config small = {.capacity_bytes = 512 * MIB}; /* and as many results as granules */
    scene s;
    fake_configure(&small);
    gpu_fake_kernels();
    begin(&s, SMALL_BYTES, 0);
    rvl_addr addr = support_alloc(s.context, "kv", 0, 200 * GRANULE, RVL_BACKUP_NONE);
    for (uint64_t i = 0; has_digests(s.context) && i < 2; i++) {
        digests[0][0].low = digests[1][0].low = 7;
        assert_int_equal(
            s.context->ops.digest(s.context->self, 0, addr, 200 * GRANULE, true, NULL, digests[0]),
            RVL_OK);
        fake_fail(steps[i], 1, CUDA_ERROR_NOT_PERMITTED, false);
        assert_int_equal(
            s.context->ops.digest(s.context->self, 0, addr, 200 * GRANULE, true, NULL, digests[1]),
            RVL_ERR_NOT_SUPPORTED);
        assert_int_equal(digests[0][0].low, 7);
        assert_int_equal(
            s.context->ops.digest(s.context->self, 0, addr, 200 * GRANULE, true, NULL, digests[1]),
            RVL_OK);
        assert_int_not_equal(digests[0][0].low, 7); /* was waited for */
        assert_int_equal(digests[1][0].low, 7);
        assert_int_equal(s.context->ops.synchronize(s.context->self, 0), RVL_OK);
        assert_memory_equal(digests[0], digests[1], sizeof digests[0]);
    }
    end(&s);
}

/* What was gathered stays so when computing cannot begin, and is computed by the next try. */
static void computing_fails_cleanly(void **state)
{
    (void)state;
    static const char *const steps[] = {"cuEventRecord", "cuStreamWaitEvent", "cuLaunchKernel"};
    scene s;
    gpu_fake_kernels();
    begin(&s, SMALL_BYTES, 0);
    for (size_t i = 0; has_digests(s.context) && i < 3; i++) {
        uint64_t event = 0;
        rvli_digest digest = {7, 7};
        rvli_backend_ops *ops = &s.context->ops;
        assert_int_equal(queue_digest(s.context, s.kv_addr, &digest), RVL_OK);
        fake_fail(steps[i], 1, CUDA_ERROR_NOT_PERMITTED, false);
        assert_int_equal(ops->record_event(s.context->self, 0, &event), RVL_ERR_NOT_SUPPORTED);
        assert_non_null(strstr(rvli_error_get()->message, "computing digests"));
        assert_int_equal(digest.low, 7);
        assert_int_equal(ops->record_event(s.context->self, 0, &event), RVL_OK);
        assert_int_equal(ops->wait_event(s.context->self, 0, event), RVL_OK);
        assert_int_not_equal(digest.low, 7);
    }
    end(&s);
}

/* After a wait that failed nothing is written any more: the memory may be gone. */
static void a_failed_wait_forgets_digests(void **state)
{
    (void)state;
    static const char *const waits[] = {"cuEventSynchronize", "cuCtxSynchronize"};
    scene s;
    gpu_fake_kernels();
    begin(&s, SMALL_BYTES, 0);
    for (int i = 0; has_digests(s.context) && i < 2; i++) {
        uint64_t event = 0;
        rvli_digest digest = {7, 7}, next = {7, 7};
        rvli_backend_ops *ops = &s.context->ops;
        assert_int_equal(queue_digest(s.context, s.kv_addr, &digest), RVL_OK);
        assert_int_equal(ops->record_event(s.context->self, 0, &event), RVL_OK);
        fake_fail(waits[i], 1, CUDA_ERROR_NOT_PERMITTED, false);
        if (i == 0)
            assert_int_equal(ops->wait_event(s.context->self, 0, event), RVL_ERR_NOT_SUPPORTED);
        else
            assert_int_equal(ops->synchronize(s.context->self, 0), RVL_ERR_NOT_SUPPORTED);
        assert_int_equal(queue_digest(s.context, s.kv_addr, &next), RVL_OK);
        assert_int_equal(ops->synchronize(s.context->self, 0), RVL_OK);
        assert_int_equal(digest.low, 7);
        assert_int_not_equal(next.low, 7);
        if (i == 1)
            assert_int_equal(ops->wait_event(s.context->self, 0, event), RVL_OK);
    }
    end(&s);
}

static void a_lost_device_writes_nothing(void **state)
{
    (void)state;
    scene s;
    uint64_t event = 0;
    rvli_digest digest = {7, 7};
    gpu_fake_kernels();
    begin(&s, SMALL_BYTES, 0);
    if (has_digests(s.context)) {
        assert_int_equal(queue_digest(s.context, s.kv_addr, &digest), RVL_OK);
        assert_int_equal(s.context->ops.record_event(s.context->self, 0, &event), RVL_OK);
        fake_fail("cuLaunchKernel", 1, CUDA_ERROR_LAUNCH_FAILED, false);
        uint64_t later = 0;
        assert_int_equal(queue_digest(s.context, s.kv_addr, &digest), RVL_OK);
        assert_int_equal(s.context->ops.record_event(s.context->self, 0, &later),
                         RVL_ERR_DEVICE_LOST);
        assert_int_equal(queue_digest(s.context, s.kv_addr, &digest), RVL_ERR_DEVICE_LOST);
        assert_int_equal(s.context->ops.wait_event(s.context->self, 0, event), RVL_OK);
        assert_int_equal(digest.low, 7);
    }
    rvl_context_close(s.context, NULL);
    fake_reset();
}

/* Opening does without digests; the op says what the driver answered. */
static void refused_kernels_are_done_without(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        uint64_t nth;
    } calls_of_opening[] = {{"cuModuleLoadData", 1},
                            {"cuModuleGetFunction", 1},
                            {"cuStreamCreate", 3}, /* behind those for copies */
                            {"cuEventCreate", 1},
                            {"cuMemHostAlloc", 1}};
    for (size_t i = 0; i < 5; i++) {
        scene s;
        rvli_digest digest = {7, 7};
        gpu_fake_kernels();
        assert_int_equal(cuInit(0), CUDA_SUCCESS);
        fake_fail(calls_of_opening[i].name, calls_of_opening[i].nth, CUDA_ERROR_NO_BINARY_FOR_GPU,
                  false);
        begin(&s, SMALL_BYTES, 0);
        assert_false(has_digests(s.context));
        assert_int_equal(queue_digest(s.context, s.kv_addr, &digest), RVL_ERR_NOT_SUPPORTED);
        if (fake_failures() > 0) { /* there was a kernel to load */
            assert_int_equal(rvli_error_get()->native_code, CUDA_ERROR_NO_BINARY_FOR_GPU);
            assert_string_equal(rvli_error_get()->native_name, "CUDA_ERROR_NO_BINARY_FOR_GPU");
        }
        assert_int_equal(digest.low, 7);
        end(&s);
    }
}

static void a_device_lost_while_opening_is_told(void **state)
{
    (void)state;
    rvl_context *context = NULL;
    assert_int_equal(cuInit(0), CUDA_SUCCESS);
    fake_fail("cuModuleLoadData", 1, CUDA_ERROR_LAUNCH_FAILED, false);
    rvl_status status = rvl_context_open("cuda", NULL, &context);
    if (fake_failures() > 0)
        assert_int_equal(status, RVL_ERR_DEVICE_LOST);
    else
        assert_int_equal(rvl_context_close(context, NULL), RVL_OK);
    check_nothing_left();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(everything_fails_once),
        cmocka_unit_test(everything_fails_for_good),
        cmocka_unit_test(opening_fails_cleanly),
        cmocka_unit_test(a_lost_device_stays_lost),
        cmocka_unit_test(refused_rdma_is_done_without),
        cmocka_unit_test(refused_pinning_is_done_without),
        cmocka_unit_test(backups_are_copied_pinned),
        cmocka_unit_test(captures_are_told_and_left_alone),
        cmocka_unit_test(digests_fail_cleanly),
        cmocka_unit_test(waiting_for_room_fails_cleanly),
        cmocka_unit_test(computing_fails_cleanly),
        cmocka_unit_test(a_failed_wait_forgets_digests),
        cmocka_unit_test(a_lost_device_writes_nothing),
        cmocka_unit_test(refused_kernels_are_done_without),
        cmocka_unit_test(a_device_lost_while_opening_is_told),
    };
    setenv("RVL_CUDA_LIBRARY", RVL_CUDA_FAKE_PATH, 1);
    const fake_config config = {.devices = 1, .capacity_bytes = 512 * MIB};
    fake_configure(&config);
    if (!gpu_is_there())
        return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
