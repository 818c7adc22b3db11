/* SPDX-License-Identifier: MIT */
/* The fake driver's streams: nothing happens before somebody waits. Events, captures, kernels. */
#include <pthread.h>
#include <string.h>

#include "driver.h"

static CUstream new_stream(unsigned flags)
{
    CUstream stream = NULL;
    assert_int_equal(cu.cuStreamCreate(&stream, flags), CUDA_SUCCESS);
    return stream;
}

static CUevent new_event(void)
{
    CUevent event = NULL;
    assert_int_equal(cu.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING), CUDA_SUCCESS);
    return event;
}

static void set(CUdeviceptr addr, unsigned char byte, CUstream stream)
{
    assert_int_equal(cu.cuMemsetD8Async(addr, byte, 16, stream), CUDA_SUCCESS);
}

static void test_copies_are_deferred(void **state)
{
    (void)state;
    CUdeviceptr addr = driver_map(GRANULE);
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    unsigned char in[16], out[16] = {0};
    memset(in, 1, sizeof in);
    memset(bytes_at(addr), 9, 16);
    assert_int_equal(cu.cuMemcpyHtoDAsync(addr, in, 16, stream), CUDA_SUCCESS);
    assert_int_equal(cu.cuMemcpyDtoHAsync(out, addr, 16, stream), CUDA_SUCCESS);
    set(addr, 3, stream);
    assert_int_equal(bytes_at(addr)[0], 9);
    assert_int_equal(out[15], 0);
    assert_int_equal(cu.cuStreamSynchronize(stream), CUDA_SUCCESS);
    assert_int_equal(out[0], 1);
    assert_int_equal(out[15], 1);
    assert_int_equal(bytes_at(addr)[15], 3);
    set(addr, 4, stream);
    assert_int_equal(cu.cuStreamDestroy(stream), CUDA_SUCCESS); /* what is queued still happens */
    assert_int_equal(cu.cuStreamSynchronize(stream), CUDA_ERROR_INVALID_HANDLE);
    assert_int_equal(bytes_at(addr)[0], 3);
    assert_int_equal(cu.cuCtxSynchronize(), CUDA_SUCCESS);
    assert_int_equal(bytes_at(addr)[0], 4);
    driver_unmap(addr, GRANULE);
}

static void test_events(void **state)
{
    (void)state;
    CUdeviceptr addr = driver_map(GRANULE);
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    CUevent event = new_event();
    assert_int_equal(cu.cuEventSynchronize(event), CUDA_SUCCESS); /* never recorded */
    memset(bytes_at(addr), 0, 16);
    set(addr, 1, stream);
    assert_int_equal(cu.cuEventRecord(event, stream), CUDA_SUCCESS);
    set(addr, 2, stream);
    assert_int_equal(bytes_at(addr)[0], 0);
    assert_int_equal(cu.cuEventSynchronize(event), CUDA_SUCCESS);
    assert_int_equal(bytes_at(addr)[0], 1); /* and no further */
    assert_int_equal(cu.cuEventRecord(event, stream), CUDA_SUCCESS);
    assert_int_equal(cu.cuEventSynchronize(event), CUDA_SUCCESS);
    assert_int_equal(bytes_at(addr)[0], 2);
    assert_int_equal(cu.cuEventDestroy(event), CUDA_SUCCESS);
    assert_int_equal(cu.cuEventSynchronize(event), CUDA_ERROR_INVALID_HANDLE);
    assert_int_equal(cu.cuStreamDestroy(stream), CUDA_SUCCESS);
    driver_unmap(addr, GRANULE);
}

/* a: set 1, event; b waits for it and sets 2; c waits for b and sets 3. Waiting for c does all. */
static void test_wait_chain(void **state)
{
    (void)state;
    CUdeviceptr addr = driver_map(GRANULE);
    CUstream streams[3];
    CUevent events[2] = {new_event(), new_event()};
    for (int i = 0; i < 3; i++)
        streams[i] = new_stream(CU_STREAM_NON_BLOCKING);
    set(addr, 1, streams[0]);
    assert_int_equal(cu.cuEventRecord(events[0], streams[0]), CUDA_SUCCESS);
    set(addr + 16, 9, streams[0]); /* after the event */
    assert_int_equal(cu.cuStreamWaitEvent(streams[1], events[0], 0), CUDA_SUCCESS);
    set(addr, 2, streams[1]);
    assert_int_equal(cu.cuEventRecord(events[1], streams[1]), CUDA_SUCCESS);
    assert_int_equal(cu.cuStreamWaitEvent(streams[2], events[1], 0), CUDA_SUCCESS);
    set(addr, 3, streams[2]);
    memset(bytes_at(addr), 0, 32);
    assert_int_equal(cu.cuStreamSynchronize(streams[2]), CUDA_SUCCESS);
    assert_int_equal(bytes_at(addr)[0], 3);
    assert_int_equal(bytes_at(addr)[16], 0);
    assert_int_equal(cu.cuStreamSynchronize(streams[0]), CUDA_SUCCESS);
    assert_int_equal(cu.cuStreamSynchronize(streams[1]), CUDA_SUCCESS);
    assert_int_equal(bytes_at(addr)[0], 3); /* each happened once, in order */
    assert_int_equal(bytes_at(addr)[16], 9);
    for (int i = 0; i < 3; i++)
        assert_int_equal(cu.cuStreamDestroy(streams[i]), CUDA_SUCCESS);
    for (int i = 0; i < 2; i++)
        assert_int_equal(cu.cuEventDestroy(events[i]), CUDA_SUCCESS);
    driver_unmap(addr, GRANULE);
}

/* Blocking streams and the NULL stream are ordered with each other; others are not. */
static void test_legacy_stream(void **state)
{
    (void)state;
    CUdeviceptr addr = driver_map(GRANULE);
    CUstream blocking = new_stream(0), free = new_stream(CU_STREAM_NON_BLOCKING);
    memset(bytes_at(addr), 0, 48);
    set(addr, 1, blocking);
    set(addr + 32, 1, free);
    set(addr, 2, NULL);
    set(addr + 16, 3, blocking);
    assert_int_equal(cu.cuStreamSynchronize(blocking), CUDA_SUCCESS);
    assert_int_equal(bytes_at(addr)[0], 2);
    assert_int_equal(bytes_at(addr)[16], 3);
    assert_int_equal(bytes_at(addr)[32], 0);
    assert_int_equal(cu.cuStreamSynchronize(NULL), CUDA_SUCCESS);
    assert_int_equal(bytes_at(addr)[32], 0);
    assert_int_equal(cu.cuCtxSynchronize(), CUDA_SUCCESS);
    assert_int_equal(bytes_at(addr)[32], 1);
    assert_int_equal(cu.cuStreamDestroy(blocking), CUDA_SUCCESS);
    assert_int_equal(cu.cuStreamDestroy(free), CUDA_SUCCESS);
    driver_unmap(addr, GRANULE);
}

static void test_stream_of_another_context(void **state)
{
    (void)state;
    CUdeviceptr addr = driver_map(GRANULE);
    CUstream stream = new_stream(0);
    CUcontext other;
    assert_int_equal(cu.cuDevicePrimaryCtxRetain(&other, 1), CUDA_SUCCESS);
    assert_int_equal(driver_access(addr, GRANULE, 1, CU_MEM_ACCESS_FLAGS_PROT_READWRITE),
                     CUDA_SUCCESS);
    assert_int_equal(cu.cuCtxPushCurrent(other), CUDA_SUCCESS);
    assert_int_equal(cu.cuMemsetD8Async(addr, 1, 16, stream), CUDA_ERROR_INVALID_HANDLE);
    assert_int_equal(cu.cuStreamSynchronize(stream), CUDA_SUCCESS);
    assert_int_equal(cu.cuCtxPopCurrent(NULL), CUDA_SUCCESS);
    assert_int_equal(cu.cuDevicePrimaryCtxRelease(1), CUDA_SUCCESS);
    assert_int_equal(cu.cuStreamDestroy(stream), CUDA_SUCCESS);
    driver_unmap(addr, GRANULE);
}

static void test_illegal_address_is_sticky(void **state)
{
    (void)state;
    CUdeviceptr addr = driver_map(GRANULE), good = driver_map(GRANULE);
    CUstream stream = new_stream(0);
    CUcontext other, mine;
    size_t free, total;
    unsigned char out[16] = {0};
    assert_int_equal(cu.cuMemcpyDtoHAsync(out, addr + GRANULE, 16, stream),
                     CUDA_ERROR_INVALID_VALUE); /* not mapped when queued: not sticky */
    assert_int_equal(cu.cuMemcpyDtoHAsync(out, addr, 16, stream), CUDA_SUCCESS);
    set(good, 5, stream);
    assert_int_equal(cu.cuMemUnmap(addr, GRANULE), CUDA_SUCCESS);
    assert_int_equal(cu.cuMemGetInfo(&free, &total), CUDA_SUCCESS);
    assert_int_equal(cu.cuStreamSynchronize(stream), CUDA_ERROR_ILLEGAL_ADDRESS);
    assert_int_equal(out[0], 0);
    assert_int_not_equal(bytes_at(good)[0], 5); /* nothing after it happens */
    assert_int_equal(cu.cuMemGetInfo(&free, &total), CUDA_ERROR_ILLEGAL_ADDRESS);
    assert_int_equal(cu.cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
    assert_int_equal(cu.cuMemsetD8Async(good, 1, 16, stream), CUDA_ERROR_ILLEGAL_ADDRESS);
    assert_int_equal(cu.cuStreamDestroy(stream), CUDA_ERROR_ILLEGAL_ADDRESS);
    assert_int_equal(cu.cuDevicePrimaryCtxRetain(&other, 1), CUDA_SUCCESS);
    assert_int_equal(cu.cuCtxPushCurrent(other), CUDA_SUCCESS); /* the other device is well */
    assert_int_equal(cu.cuMemGetInfo(&free, &total), CUDA_SUCCESS);
    assert_int_equal(cu.cuCtxPopCurrent(NULL), CUDA_SUCCESS);
    assert_int_equal(cu.cuDevicePrimaryCtxRelease(1), CUDA_SUCCESS);
    assert_int_equal(cu.cuMemAddressFree(addr, GRANULE), CUDA_SUCCESS);
    driver_unmap(good, GRANULE);
    assert_int_equal(cu.cuDevicePrimaryCtxRelease(0), CUDA_SUCCESS); /* a new context is well */
    assert_int_equal(cu.cuDevicePrimaryCtxRetain(&mine, 0), CUDA_SUCCESS);
    assert_int_equal(cu.cuCtxSetCurrent(mine), CUDA_SUCCESS);
    assert_int_equal(cu.cuMemGetInfo(&free, &total), CUDA_SUCCESS);
    assert_int_equal(fake_reset().streams, 1);
    driver_start(NULL);
}

/* ---- Captures ---- */

static void test_captures(void **state)
{
    (void)state;
    CUdeviceptr addr = driver_map(GRANULE);
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING), other = new_stream(0);
    CUevent event = new_event();
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_INVALIDATED;
    assert_int_equal(cu.cuStreamIsCapturing(stream, &status), CUDA_SUCCESS);
    assert_int_equal(status, CU_STREAM_CAPTURE_STATUS_NONE);
    assert_true(fake_stream_set_capturing(stream, true));
    CUdeviceptr more = driver_map(GRANULE); /* disturbs nothing */
    driver_unmap(more, GRANULE);
    set(addr, 1, other);
    assert_int_equal(cu.cuStreamSynchronize(other), CUDA_SUCCESS);
    assert_int_equal(bytes_at(addr)[0], 1);
    set(addr, 2, stream); /* goes into the graph */
    assert_int_equal(fake_stats_get().pending, 0);
    assert_int_equal(cu.cuEventRecord(event, stream), CUDA_SUCCESS);
    assert_int_equal(cu.cuEventSynchronize(event), CUDA_ERROR_CAPTURED_EVENT);
    assert_int_equal(cu.cuStreamIsCapturing(stream, &status), CUDA_SUCCESS);
    assert_int_equal(status, CU_STREAM_CAPTURE_STATUS_ACTIVE);
    CUevent free = new_event();
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    assert_int_equal(cu.cuEventRecord(free, other), CUDA_SUCCESS);
    assert_int_equal(cu.cuThreadExchangeStreamCaptureMode(&mode), CUDA_SUCCESS);
    assert_int_equal(mode, CU_STREAM_CAPTURE_MODE_GLOBAL);
    assert_int_equal(cu.cuEventSynchronize(free), CUDA_SUCCESS);
    assert_false(fake_capture_invalidated());
    assert_int_equal(cu.cuThreadExchangeStreamCaptureMode(&mode), CUDA_SUCCESS);
    assert_int_equal(mode, CU_STREAM_CAPTURE_MODE_RELAXED);
    assert_int_equal(cu.cuEventSynchronize(free), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    assert_true(fake_capture_invalidated());
    assert_int_equal(cu.cuEventDestroy(free), CUDA_SUCCESS);
    assert_int_equal(cu.cuCtxSynchronize(), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    assert_true(fake_capture_invalidated());
    assert_int_equal(cu.cuStreamIsCapturing(stream, &status), CUDA_SUCCESS);
    assert_int_equal(status, CU_STREAM_CAPTURE_STATUS_INVALIDATED);
    assert_true(fake_stream_set_capturing(stream, false));
    assert_int_equal(cu.cuCtxSynchronize(), CUDA_SUCCESS);
    assert_int_equal(bytes_at(addr)[0], 1);
    assert_true(fake_stream_set_capturing(stream, true));
    assert_int_equal(cu.cuStreamSynchronize(stream), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    assert_true(fake_stream_set_capturing(stream, false));
    assert_true(fake_stream_set_capturing(other, true));
    assert_int_equal(cu.cuMemsetD8Async(addr, 1, 16, NULL), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    assert_false(fake_stream_set_capturing(NULL, true));
    assert_int_equal(cu.cuStreamDestroy(stream), CUDA_SUCCESS);
    assert_int_equal(cu.cuStreamDestroy(other), CUDA_SUCCESS);
    assert_int_equal(cu.cuEventDestroy(event), CUDA_SUCCESS);
    driver_unmap(addr, GRANULE);
}

/* ---- Kernels ---- */

static void add_kernel(void **params)
{
    uint64_t *sum = *(uint64_t **)params[0];
    *sum += (uint64_t) * (int *)params[1] + *(uint64_t *)params[2];
}

static void test_kernels(void **state)
{
    (void)state;
    CUmodule module = NULL;
    CUfunction function = NULL;
    CUdeviceptr addr = driver_map(GRANULE);
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    const size_t sizes[] = {sizeof(CUdeviceptr), sizeof(int), sizeof(uint64_t)};
    assert_true(fake_kernel_set("add", add_kernel, COUNT(sizes), sizes));
    assert_int_equal(cu.cuModuleLoadData(&module, "image"), CUDA_SUCCESS);
    assert_int_equal(cu.cuModuleGetFunction(&function, module, "sub"), CUDA_ERROR_NOT_FOUND);
    assert_int_equal(cu.cuModuleGetFunction(&function, module, "add"), CUDA_SUCCESS);
    int small = 5;
    uint64_t large = UINT64_C(1) << 40;
    void *params[] = {&addr, &small, &large};
    assert_int_equal(cu.cuLaunchKernel(function, 0, 1, 1, 1, 1, 1, 0, stream, params, NULL),
                     CUDA_ERROR_INVALID_VALUE);
    set(addr, 0, stream);
    assert_int_equal(cu.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL),
                     CUDA_SUCCESS);
    small = 1000; /* the values are those of the launch */
    assert_int_equal(fake_stats_get().launches, 0);
    assert_int_equal(cu.cuStreamSynchronize(stream), CUDA_SUCCESS);
    uint64_t sum;
    memcpy(&sum, bytes_at(addr), sizeof sum);
    assert_int_equal(sum, large + 5);
    assert_int_equal(fake_stats_get().launches, 1);
    assert_int_equal(cu.cuModuleUnload(module), CUDA_SUCCESS);
    assert_int_equal(cu.cuModuleUnload(module), CUDA_ERROR_INVALID_HANDLE);
    assert_int_equal(cu.cuStreamDestroy(stream), CUDA_SUCCESS);
    driver_unmap(addr, GRANULE);
}

/* ---- Threads ---- */

#define THREADS 4

static pthread_barrier_t start;

static void *copy_rounds(void *context)
{
    pthread_barrier_wait(&start);
    CUdeviceptr addr;
    CUstream stream;
    unsigned char out[16];
    if (cu.cuCtxSetCurrent(context) != CUDA_SUCCESS)
        return "no context";
    for (int round = 1; round <= 50; round++) {
        addr = driver_map(GRANULE);
        stream = new_stream(CU_STREAM_NON_BLOCKING);
        set(addr, (unsigned char)round, stream);
        if (cu.cuMemcpyDtoHAsync(out, addr, 16, stream) != CUDA_SUCCESS ||
            cu.cuStreamSynchronize(stream) != CUDA_SUCCESS || out[15] != round)
            return "wrong bytes";
        if (cu.cuStreamDestroy(stream) != CUDA_SUCCESS)
            return "stream";
        driver_unmap(addr, GRANULE);
    }
    return NULL;
}

static void test_threads(void **state)
{
    (void)state;
    pthread_t threads[THREADS];
    CUcontext context;
    assert_int_equal(pthread_barrier_init(&start, NULL, THREADS), 0);
    assert_int_equal(cu.cuCtxGetCurrent(&context), CUDA_SUCCESS);
    for (size_t i = 0; i < COUNT(threads); i++)
        assert_int_equal(pthread_create(&threads[i], NULL, copy_rounds, context), 0);
    for (size_t i = 0; i < COUNT(threads); i++) {
        void *complaint = "not joined";
        assert_int_equal(pthread_join(threads[i], &complaint), 0);
        assert_null(complaint);
    }
    assert_int_equal(fake_stats_get().to_host_pageable_bytes, THREADS * 50 * 16);
}

int test_streams(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_copies_are_deferred, driver_start, driver_end),
        cmocka_unit_test_setup_teardown(test_events, driver_start, driver_end),
        cmocka_unit_test_setup_teardown(test_wait_chain, driver_start, driver_end),
        cmocka_unit_test_setup_teardown(test_legacy_stream, driver_start, driver_end),
        cmocka_unit_test_setup_teardown(test_stream_of_another_context, driver_start, driver_end),
        cmocka_unit_test_setup_teardown(test_illegal_address_is_sticky, driver_start, driver_end),
        cmocka_unit_test_setup_teardown(test_captures, driver_start, driver_end),
        cmocka_unit_test_setup_teardown(test_kernels, driver_start, driver_end),
        cmocka_unit_test_setup_teardown(test_threads, driver_start, driver_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
