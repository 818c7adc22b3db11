/* SPDX-License-Identifier: MIT */
/*
 * The ops of the CUDA backend one by one: what each answers for a device that does not exist or is
 * lost, for what a driver can answer, and for events and streams of the caller's.
 */
#include <stdlib.h>
#include <string.h>

#include "fake.h"
#include "gpu.h"
#include "nothing_left.h"
#include "tests/support/short_memory.h"

SHORT_CALLOC

static int open_context(void **state)
{
    assert_int_equal(cuInit(0), CUDA_SUCCESS); /* undone by fake_reset() */
    *state = gpu_open(NULL, NULL);
    return 0;
}

static int close_context(void **state)
{
    short_memory_left = -1;
    assert_int_equal(rvl_context_close(*state, NULL), RVL_OK);
    check_nothing_left();
    return 0;
}

/* ---- Devices ---- */

/* How often memory was touched; the pool's threads call the driver by themselves, but not for that.
 */
static uint64_t memory_calls(void)
{
    static const char *const names[] = {
        "cuMemAddressReserve", "cuMemAddressFree", "cuMemCreate",
        "cuMemRelease",        "cuMemMap",         "cuMemSetAccess",
        "cuMemUnmap",          "cuMemGetInfo",     "cuMemsetD8Async",
        "cuEventRecord",       "cuCtxSynchronize"};
    uint64_t calls = 0;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        calls += fake_calls(names[i]);
    return calls;
}

/* Every op that takes a device, with arguments that are good except for it; nothing is written. */
static void check_device_refused(rvl_context *context, int device, rvl_status status)
{
    const rvli_backend_ops *ops = &context->ops;
    void *self = context->self, *host = &host;
    uint64_t number = 7, total = 7, bytes = 0;
    rvli_handle block = 7;
    int fd = 7;
    rvli_device_facts facts = {.capacity_bytes = 7};
    uint64_t calls = memory_calls();
    assert_int_equal(ops->device_facts(self, device, &facts), status);
    assert_int_equal(ops->reserve(self, device, GRANULE, &number), status);
    assert_int_equal(ops->release_range(self, device, GRANULE, GRANULE), status);
    assert_int_equal(ops->create(self, device, GRANULE, 0, &block), status);
    assert_int_equal(ops->release(self, device, 1, GRANULE), status);
    assert_int_equal(ops->map(self, device, GRANULE, GRANULE, 1), status);
    assert_int_equal(ops->set_access(self, device, GRANULE, GRANULE, 1), status);
    assert_int_equal(ops->unmap(self, device, GRANULE, GRANULE), status);
    assert_int_equal(ops->memory_info(self, device, &number, &total), status);
    assert_int_equal(ops->fill(self, device, GRANULE, 8, 0), status);
    assert_int_equal(ops->host_alloc(self, device, GRANULE, &host), status);
    assert_int_equal(ops->copy_to_host(self, device, &bytes, GRANULE, 8), status);
    assert_int_equal(ops->copy_to_device(self, device, GRANULE, &bytes, 8), status);
    assert_int_equal(ops->record_event(self, device, &number), status);
    assert_int_equal(ops->synchronize(self, device), status);
    assert_int_equal(ops->export_block(self, device, 1, &fd), status);
    assert_int_equal(ops->import_block(self, device, 0, GRANULE, &block), status);
    assert_int_equal(rvli_error_get()->status, status);
    assert_int_equal(memory_calls(), calls); /* the driver was not asked */
    assert_ptr_equal(host, &host);
    assert_int_equal(number + total + block + facts.capacity_bytes, 28);
    assert_int_equal(fd, 7);
}

static void devices_that_do_not_exist_are_refused(void **state)
{
    rvl_context *context = *state;
    const rvli_backend_ops *ops = &context->ops;
    const int wrong[] = {-1, 2, INT32_MAX};
    void *host = NULL;
    uint64_t event = 0;
    assert_int_equal(ops->host_alloc(context->self, 0, GRANULE, &host), RVL_OK);
    assert_int_equal(ops->record_event(context->self, 0, &event), RVL_OK);
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        check_device_refused(context, wrong[i], RVL_ERR_NO_DEVICE);
        assert_int_equal(ops->host_free(context->self, wrong[i], host, GRANULE), RVL_ERR_NO_DEVICE);
        assert_int_equal(ops->wait_event(context->self, wrong[i], event), RVL_ERR_NO_DEVICE);
    }
    assert_int_equal(ops->host_free(context->self, 0, host, GRANULE), RVL_OK);
    assert_int_equal(ops->wait_event(context->self, 0, event), RVL_OK);
}

static void access_is_for_devices_that_exist(void **state)
{
    rvl_context *context = *state;
    rvl_addr addr = support_alloc(context, "weights", 0, GRANULE, RVL_BACKUP_NONE);
    uint64_t calls = fake_calls("cuMemSetAccess");
    assert_int_equal(context->ops.set_access(context->self, 0, addr, GRANULE, 1 | 4),
                     RVL_ERR_INVALID);
    assert_non_null(strstr(rvli_error_get()->message, "access for a device that does not exist"));
    assert_int_equal(fake_calls("cuMemSetAccess"), calls);
    assert_int_equal(context->ops.set_access(context->self, 0, addr, GRANULE, 1 | 2), RVL_OK);
}

/* Only its host memory can still be given back; the other device is as good as before. */
static void a_lost_device_is_asked_for_nothing(void **state)
{
    rvl_context *context = *state;
    const rvli_backend_ops *ops = &context->ops;
    void *host = NULL;
    assert_int_equal(ops->host_alloc(context->self, 1, GRANULE, &host), RVL_OK);
    fake_fail("cuCtxSynchronize", 1, CUDA_ERROR_HARDWARE_STACK_ERROR, false);
    assert_int_equal(ops->synchronize(context->self, 1), RVL_ERR_DEVICE_LOST);
    check_device_refused(context, 1, RVL_ERR_DEVICE_LOST);
    assert_string_equal(rvli_error_get()->native_name, "CUDA_ERROR_HARDWARE_STACK_ERROR");
    assert_int_equal(ops->host_free(context->self, 1, host, GRANULE), RVL_OK);
    assert_int_equal(ops->synchronize(context->self, 0), RVL_OK);
}

static void a_context_without_host_memory_is_not_opened(void **state)
{
    (void)state;
    void *self = NULL;
    int count = 7;
    rvli_clock clock;
    memset(&clock, 0, sizeof clock);
    assert_int_equal(cuInit(0), CUDA_SUCCESS);
    short_memory_left = 0;
    assert_int_equal(rvli_cuda_ops.open(NULL, &clock, &self, &count), RVL_ERR_HOST_OOM);
    short_memory_left = -1;
    assert_null(self);
    assert_int_equal(count, 7);
    check_nothing_left();
}

/* ---- Results ---- */

static const struct {
    CUresult result;
    const char *name;
    rvl_status status;
} results[] = {
#define RESULT(result, status) {result, #result, status},
    RESULT(CUDA_ERROR_OUT_OF_MEMORY, RVL_ERR_DEVICE_OOM) RESULT(CUDA_ERROR_NOT_SUPPORTED,
                                                                RVL_ERR_NOT_SUPPORTED)
        RESULT(CUDA_ERROR_NOT_PERMITTED, RVL_ERR_NOT_SUPPORTED) RESULT(CUDA_ERROR_NO_DEVICE,
                                                                       RVL_ERR_NO_DEVICE)
            RESULT(CUDA_ERROR_INVALID_DEVICE,
                   RVL_ERR_NO_DEVICE) RESULT(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, RVL_ERR_BUSY)
                RESULT(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED,
                       RVL_ERR_BUSY) RESULT(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, RVL_ERR_BUSY)
                    RESULT(CUDA_ERROR_CAPTURED_EVENT, RVL_ERR_BUSY) RESULT(CUDA_ERROR_DEINITIALIZED,
                                                                           RVL_ERR_DEVICE_LOST)
                        RESULT(CUDA_ERROR_ECC_UNCORRECTABLE, RVL_ERR_DEVICE_LOST) RESULT(
                            CUDA_ERROR_CONTEXT_IS_DESTROYED, RVL_ERR_DEVICE_LOST)
                            RESULT(CUDA_ERROR_ILLEGAL_ADDRESS, RVL_ERR_DEVICE_LOST) RESULT(
                                CUDA_ERROR_LAUNCH_TIMEOUT,
                                RVL_ERR_DEVICE_LOST) RESULT(CUDA_ERROR_ASSERT, RVL_ERR_DEVICE_LOST)
                                RESULT(CUDA_ERROR_LAUNCH_FAILED, RVL_ERR_DEVICE_LOST)
                                    RESULT(CUDA_ERROR_NVLINK_UNCORRECTABLE, RVL_ERR_DEVICE_LOST)
                                        RESULT(CUDA_ERROR_INVALID_VALUE, RVL_ERR_INVALID) RESULT(
                                            CUDA_ERROR_INVALID_CONTEXT, RVL_ERR_INVALID)
                                            RESULT(CUDA_ERROR_INVALID_HANDLE, RVL_ERR_INVALID)
                                                RESULT(CUDA_ERROR_NOT_FOUND, RVL_ERR_INVALID)
                                                    RESULT(CUDA_ERROR_OPERATING_SYSTEM, RVL_ERR_IO)
                                                        RESULT(CUDA_ERROR_UNKNOWN, RVL_ERR_IO)
#undef RESULT
};

static void results_keep_their_number_and_name(void **state)
{
    (void)state;
    assert_int_equal(rvli_cuda_status(CUDA_SUCCESS), RVL_OK);
    assert_int_equal(rvli_cuda_check(CUDA_SUCCESS, "succeeding"), RVL_OK);
    for (size_t i = 0; i < sizeof results / sizeof results[0]; i++) {
        assert_int_equal(rvli_cuda_check(results[i].result, "trying"), results[i].status);
        const rvl_error *error = rvli_error_get();
        assert_int_equal(error->status, results[i].status);
        assert_int_equal(error->native_code, results[i].result);
        assert_int_equal(strncmp(error->native_name, results[i].name, strlen(error->native_name)),
                         0);
        assert_ptr_equal(strstr(error->message, "trying: the d"), error->message);
        assert_non_null(strstr(error->message, results[i].name));
        assert_true((results[i].status == RVL_ERR_DEVICE_LOST) ==
                    (strstr(error->message, "lost to this process; start it again") != NULL));
    }
    assert_int_equal(rvli_cuda_check((CUresult)990, "trying"), RVL_ERR_IO);
    assert_int_equal(rvli_error_get()->native_code, 990);
    assert_string_equal(rvli_error_get()->native_name, "CUresult");
    assert_string_equal(rvli_error_get()->message, "trying: the driver answered CUresult");
}

/* ---- Events ---- */

static void check_record_refused(rvl_context *context, rvl_status status)
{
    uint64_t event = 7;
    fake_live before = fake_stats_get().live;
    assert_int_equal(context->ops.record_event(context->self, 0, &event), status);
    short_memory_left = -1;
    assert_int_equal(event, 7);
    assert_int_equal(fake_stats_get().live.events, before.events);
}

static void events_that_cannot_be_made_leave_nothing(void **state)
{
    rvl_context *context = *state;
    short_memory_left = 0;
    check_record_refused(context, RVL_ERR_HOST_OOM);
    assert_string_equal(rvli_error_get()->message, "no host memory for an event");
    for (uint64_t nth = 1; nth <= 3; nth++) { /* one for each stream */
        fake_fail("cuEventCreate", nth, CUDA_ERROR_OUT_OF_MEMORY, false);
        check_record_refused(context, RVL_ERR_DEVICE_OOM);
        assert_non_null(strstr(rvli_error_get()->message, "creating an event"));
    }
    uint64_t event = 0;
    assert_int_equal(context->ops.record_event(context->self, 0, &event), RVL_OK);
    assert_int_equal(context->ops.wait_event(context->self, 0, event), RVL_OK);
    for (uint64_t nth = 1; nth <= 2; nth++) {
        fake_fail("cuEventRecord", nth, CUDA_ERROR_OUT_OF_MEMORY, false);
        check_record_refused(context, RVL_ERR_DEVICE_OOM);
        assert_non_null(strstr(rvli_error_get()->message, "recording an event"));
    }
}

static void events_are_used_again(void **state)
{
    rvl_context *context = *state;
    uint64_t first = 0, second = 0;
    for (int round = 0; round < 3; round++) {
        assert_int_equal(context->ops.record_event(context->self, 0, &first), RVL_OK);
        assert_int_equal(context->ops.record_event(context->self, 0, &second), RVL_OK);
        assert_int_not_equal(first, second);
        assert_int_equal(context->ops.wait_event(context->self, 0, first), RVL_OK);
        assert_int_equal(context->ops.wait_event(context->self, 0, second), RVL_OK);
        assert_int_equal(fake_stats_get().live.events,
                         6); /* one for each stream, one for digests */
    }
}

static void an_event_tells_of_failed_copies_once(void **state)
{
    rvl_context *context = *state;
    for (uint64_t nth = 1; nth <= 2; nth++) {
        uint64_t event = 0;
        assert_int_equal(context->ops.record_event(context->self, 0, &event), RVL_OK);
        fake_fail("cuEventSynchronize", nth, CUDA_ERROR_UNKNOWN, false);
        assert_int_equal(context->ops.wait_event(context->self, 0, event), RVL_ERR_IO);
        assert_non_null(strstr(rvli_error_get()->message, "waiting for copies"));
        assert_int_equal(context->ops.record_event(context->self, 0, &event), RVL_OK);
        assert_int_equal(context->ops.wait_event(context->self, 0, event), RVL_OK);
        assert_int_equal(fake_stats_get().live.events, 3);
    }
}

/* ---- The caller's events and streams ---- */

/* A stream of the caller's, made in a context that is current no longer. */
static CUstream make_stream(rvl_context *context, CUevent *event_out)
{
    const rvli_cuda_instance *instance = rvli_learner_inner(context->learner);
    CUcontext popped;
    CUstream stream = NULL;
    assert_int_equal(rvli_cuda.cuCtxPushCurrent(instance->devices[0].context), CUDA_SUCCESS);
    assert_int_equal(rvli_cuda.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    assert_int_equal(rvli_cuda.cuEventCreate(event_out, CU_EVENT_DISABLE_TIMING), CUDA_SUCCESS);
    assert_int_equal(rvli_cuda.cuCtxPopCurrent(&popped), CUDA_SUCCESS);
    return stream;
}

static void destroy_stream(rvl_context *context, CUstream stream, CUevent event)
{
    const rvli_cuda_instance *instance = rvli_learner_inner(context->learner);
    CUcontext popped;
    assert_int_equal(rvli_cuda.cuCtxPushCurrent(instance->devices[0].context), CUDA_SUCCESS);
    assert_int_equal(rvli_cuda.cuEventDestroy(event), CUDA_SUCCESS);
    assert_int_equal(rvli_cuda.cuStreamDestroy(stream), CUDA_SUCCESS);
    assert_int_equal(rvli_cuda.cuCtxPopCurrent(&popped), CUDA_SUCCESS);
}

static void the_callers_work_is_waited_for(void **state)
{
    rvl_context *context = *state;
    const rvli_cuda_instance *instance = rvli_learner_inner(context->learner);
    CUevent event = NULL;
    CUcontext popped;
    CUstream stream = make_stream(context, &event);
    rvl_addr addr = support_alloc(context, "weights", 0, GRANULE, RVL_BACKUP_NONE);
    uint64_t pending = fake_stats_get().pending;
    assert_int_equal(rvli_cuda.cuCtxPushCurrent(instance->devices[0].context), CUDA_SUCCESS);
    assert_int_equal(rvli_cuda.cuMemsetD8Async(addr, 0x5A, GRANULE, stream), CUDA_SUCCESS);
    assert_int_equal(rvli_cuda.cuEventRecord(event, stream), CUDA_SUCCESS);
    assert_int_equal(rvli_cuda.cuCtxPopCurrent(&popped), CUDA_SUCCESS);
    assert_true(fake_stats_get().pending > pending);
    fake_fail("cuCtxPushCurrent", 1, CUDA_ERROR_NOT_PERMITTED, false);
    assert_int_equal(context->ops.wait_user(context->self, event), RVL_ERR_NOT_SUPPORTED);
    assert_true(fake_stats_get().pending > pending);
    assert_int_equal(context->ops.wait_user(context->self, event), RVL_OK);
    assert_int_equal(*(const unsigned char *)(uintptr_t)(addr + GRANULE - 1), 0x5A);
    fake_fail("cuEventSynchronize", 1, CUDA_ERROR_INVALID_HANDLE, false);
    assert_int_equal(context->ops.wait_user(context->self, event), RVL_ERR_INVALID);
    assert_non_null(strstr(rvli_error_get()->message, "waiting for the caller's event"));
    destroy_stream(context, stream, event);
}

static void whether_a_stream_is_captured_is_known_without_a_context(void **state)
{
    rvl_context *context = *state;
    const rvli_backend_ops *ops = &context->ops;
    CUevent event = NULL;
    bool capturing = true;
    CUstream stream = make_stream(context, &event);
    assert_int_equal(ops->is_capturing(context->self, stream, &capturing), RVL_OK);
    assert_false(capturing);
    assert_true(fake_stream_set_capturing(stream, true));
    assert_int_equal(ops->is_capturing(context->self, stream, &capturing), RVL_OK);
    assert_true(capturing);
    fake_fail("cuCtxPushCurrent", 1, CUDA_ERROR_NOT_PERMITTED, false);
    assert_int_equal(ops->is_capturing(context->self, stream, &capturing), RVL_ERR_NOT_SUPPORTED);
    fake_fail("cuStreamIsCapturing", 1, CUDA_ERROR_INVALID_HANDLE, false);
    assert_int_equal(ops->is_capturing(context->self, stream, &capturing), RVL_ERR_INVALID);
    assert_non_null(strstr(rvli_error_get()->message, "whether a stream is being captured"));
    assert_true(capturing); /* what was there before */
    fake_fail("cuStreamIsCapturing", 1, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, false);
    capturing = false;
    assert_int_equal(ops->is_capturing(context->self, NULL, &capturing), RVL_OK);
    assert_true(capturing);
    assert_false(fake_capture_invalidated());
    assert_true(fake_stream_set_capturing(stream, false));
    destroy_stream(context, stream, event);
}

#define CONTEXT_TEST(test) cmocka_unit_test_setup_teardown(test, open_context, close_context)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CONTEXT_TEST(devices_that_do_not_exist_are_refused),
        CONTEXT_TEST(access_is_for_devices_that_exist),
        CONTEXT_TEST(a_lost_device_is_asked_for_nothing),
        cmocka_unit_test(a_context_without_host_memory_is_not_opened),
        cmocka_unit_test(results_keep_their_number_and_name),
        CONTEXT_TEST(events_that_cannot_be_made_leave_nothing),
        CONTEXT_TEST(events_are_used_again),
        CONTEXT_TEST(an_event_tells_of_failed_copies_once),
        CONTEXT_TEST(the_callers_work_is_waited_for),
        CONTEXT_TEST(whether_a_stream_is_captured_is_known_without_a_context),
    };
    setenv("RVL_CUDA_LIBRARY", RVL_CUDA_FAKE_PATH, 1);
    if (!gpu_is_there())
        return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
