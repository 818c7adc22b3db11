/* SPDX-License-Identifier: MIT */
/*
 * What the observer of the preload library is told. The library's files are in this program, which
 * therefore stands in front of the runtime and of dlsym() as the library does.
 */
#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <cuda.h>

#include "cudart_fake.h"
#include "fake.h"
#include "hooks/preload/driver_calls.h"
#include "hooks/preload/observe.h"
#include "hooks/process/captures.h"
#include "hooks/shim/abi.h"
#include "hooks/shim/runtime.h"
#include "stubs.h"

#define SIZE (UINT64_C(4) << 20)

static rvli_seen seen[16];
static size_t seen_count;
static bool observer_allocates;

static void note(const rvli_seen *event)
{
    void *pointer = NULL;
    assert_true(seen_count < sizeof seen / sizeof *seen);
    seen[seen_count++] = *event;
    if (observer_allocates)
        assert_int_equal(cudaMalloc(&pointer, 1), 0);
}

/* Exactly one event, since the last time. */
static void assert_seen(const char *function, rvli_seen_kind kind, uint64_t id, uint64_t size_bytes,
                        int device)
{
    assert_int_equal(seen_count, 1);
    assert_string_equal(seen[0].function, function);
    assert_int_equal(seen[0].kind, kind);
    assert_int_equal(seen[0].id, id);
    assert_int_equal(seen[0].size_bytes, size_bytes);
    assert_int_equal(seen[0].device, device);
    assert_false(seen[0].refused);
    seen_count = 0;
}

/* Exactly one request that was refused. */
static void assert_refused(const char *function, uint64_t size_bytes)
{
    assert_int_equal(seen_count, 1);
    assert_true(seen[0].refused);
    seen[0].refused = false;
    assert_seen(function, RVLI_SEEN_ALLOC, 0, size_bytes, -1);
}

static int begin(void **state)
{
    (void)state;
    seen_count = 0;
    observer_allocates = false;
    rvli_observe(note);
    return 0;
}

static int end(void **state)
{
    (void)state;
    rvli_observe(NULL);
    return 0;
}

/* ---- The runtime ---- */

/* The driver's calls below them are found by dlsym(), and are the same event. */
static void test_runtime_calls(void **state)
{
    (void)state;
    void *at = NULL;
    assert_int_equal(cudaMalloc(&at, SIZE), 0);
    assert_seen("cudaMalloc", RVLI_SEEN_ALLOC, (uintptr_t)at, SIZE, -1);
    assert_int_equal(cudaFree(at), 0);
    assert_seen("cudaFree", RVLI_SEEN_FREE, (uintptr_t)at, 0, -1);
    assert_int_equal(cudaMallocAsync(&at, SIZE, NULL), 0);
    assert_seen("cudaMallocAsync", RVLI_SEEN_ALLOC, (uintptr_t)at, SIZE, -1);
    assert_int_equal(cudaFreeAsync(at, NULL), 0);
    assert_seen("cudaFreeAsync", RVLI_SEEN_FREE, (uintptr_t)at, 0, -1);
    assert_int_equal(cudaMallocFromPoolAsync(&at, SIZE, NULL, NULL), 0);
    assert_seen("cudaMallocFromPoolAsync", RVLI_SEEN_ALLOC, (uintptr_t)at, SIZE, -1);
    assert_int_equal(cudaFreeAsync(at, NULL), 0);
    seen_count = 0;
    assert_int_equal(cudaMallocManaged(&at, SIZE, 1), 0);
    assert_seen("cudaMallocManaged", RVLI_SEEN_ALLOC, (uintptr_t)at, SIZE, -1);
    assert_int_equal(cudaFree(at), 0);
}

/* The same functions, as code that has a default stream a thread calls them. */
static void test_per_thread_calls(void **state)
{
    (void)state;
    void *at = NULL;
    assert_int_equal(cudaMallocAsync_ptsz(&at, SIZE, NULL), 0);
    assert_seen("cudaMallocAsync_ptsz", RVLI_SEEN_ALLOC, (uintptr_t)at, SIZE, -1);
    assert_int_equal(cudaFreeAsync_ptsz(at, NULL), 0);
    assert_seen("cudaFreeAsync_ptsz", RVLI_SEEN_FREE, (uintptr_t)at, 0, -1);
    assert_int_equal(cudaMallocFromPoolAsync_ptsz(&at, SIZE, NULL, NULL), 0);
    assert_seen("cudaMallocFromPoolAsync_ptsz", RVLI_SEEN_ALLOC, (uintptr_t)at, SIZE, -1);
    assert_int_equal(cudaFree(at), 0);
}

static void test_captures_by_the_runtime(void **state)
{
    (void)state;
    void *stream = NULL;
    assert_int_equal(cudaStreamCreate(&stream), 0);
    for (int way = 0; way < 4; way++) {
        int error = way == 0   ? cudaStreamBeginCapture(stream, 0)
                    : way == 1 ? cudaStreamBeginCapture_ptsz(stream, 0)
                    : way == 2 ? cudaStreamBeginCaptureToGraph(stream, NULL, NULL, NULL, 0, 0)
                               : cudaStreamBeginCaptureToGraph_ptsz(stream, NULL, NULL, NULL, 0, 0);
        assert_int_equal(error, 0);
        assert_true(rvli_capture_running());
        error = way % 2 == 0 ? cudaStreamEndCapture(stream, NULL)
                             : cudaStreamEndCapture_ptsz(stream, NULL);
        assert_int_equal(error, 0);
        assert_false(rvli_capture_running());
    }
    assert_int_equal(cudaStreamDestroy(stream), 0);
}

static void test_refused(void **state)
{
    (void)state;
    void *at = NULL;
    assert_int_equal(cudaMalloc(&at, UINT64_C(1) << 40), 2);
    assert_refused("cudaMalloc", UINT64_C(1) << 40);
    assert_int_equal(rvli_calls_open, 0);
}

static void test_observer_is_not_told_of_itself(void **state)
{
    (void)state;
    void *at = NULL;
    observer_allocates = true;
    assert_int_equal(cudaMalloc(&at, SIZE), 0);
    assert_seen("cudaMalloc", RVLI_SEEN_ALLOC, (uintptr_t)at, SIZE, -1);
    observer_allocates = false;
    rvli_observe(NULL);
    assert_int_equal(cudaFree(at), 0);
    assert_int_equal(seen_count, 0);
}

static void test_reveille_is_not_the_program(void **state)
{
    (void)state;
    void *at = NULL;
    tms_set_interesting_region(true);
    tms_set_enable_cpu_backup(true);
    assert_int_equal(cudaMalloc(&at, SIZE), 0);
    assert_int_equal(tms_pause(NULL), 0);
    assert_int_equal(tms_resume(NULL), 0);
    assert_int_equal(cudaFree(at), 0);
    tms_set_interesting_region(false);
    assert_int_equal(seen_count, 0);
}

/* ---- The driver ---- */

static void *entry_point(const char *name, unsigned version)
{
    void *function = NULL;
    assert_int_equal(cudaGetDriverEntryPointByVersion(name, &function, version, 0, NULL), 0);
    assert_non_null(function);
    return function;
}

static void test_driver_calls_by_entry_point(void **state)
{
    (void)state;
    CUresult (*create)(CUmemGenericAllocationHandle *, size_t, const CUmemAllocationProp *,
                       unsigned long long);
    CUresult (*release)(CUmemGenericAllocationHandle);
    void *function = entry_point("cuMemCreate", 12000);
    assert_true(rvli_is_own(function));
    memcpy(&create, &function, sizeof create);
    function = entry_point("cuMemRelease", 12000);
    memcpy(&release, &function, sizeof release);
    assert_false(rvli_is_own(entry_point("cuMemMap", 12000)));

    CUmemGenericAllocationHandle handle = 0;
    CUmemAllocationProp properties = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 1},
    };
    assert_int_equal(create(&handle, SIZE, &properties, 0), CUDA_SUCCESS);
    assert_seen("cuMemCreate", RVLI_SEEN_CREATE, handle, SIZE, 1);
    assert_int_equal(release(handle), CUDA_SUCCESS);
    assert_seen("cuMemRelease", RVLI_SEEN_RELEASE, handle, 0, -1);
    assert_int_equal(create(&handle, 1, &properties, 0), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(seen_count, 0);
}

typedef void (*function)(void);

/* A front with a stub behind it. */
static void *front_of(const char *symbol, function real)
{
    void *found;
    memcpy(&found, &real, sizeof found);
    assert_true(rvli_driver_call_of(symbol) >= 0);
    return rvli_driver_front_at(rvli_driver_call_of(symbol), found);
}

static void test_every_front(void **state)
{
    (void)state;
    static const struct {
        const char *symbol;
        rvli_seen_kind kind;
    } rows[] = {
        {"cuMemAlloc_v2", RVLI_SEEN_ALLOC},
        {"cuMemAllocManaged", RVLI_SEEN_ALLOC},
        {"cuMemAllocAsync", RVLI_SEEN_ALLOC},
        {"cuMemAllocAsync_ptsz", RVLI_SEEN_ALLOC},
        {"cuMemAllocFromPoolAsync", RVLI_SEEN_ALLOC},
        {"cuMemAllocFromPoolAsync_ptsz", RVLI_SEEN_ALLOC},
        {"cuMemFree_v2", RVLI_SEEN_FREE},
        {"cuMemFreeAsync", RVLI_SEEN_FREE},
        {"cuMemFreeAsync_ptsz", RVLI_SEEN_FREE},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        CUresult (*alloc)(CUdeviceptr *, size_t, void *, void *);
        CUresult (*give_back)(CUdeviceptr, void *);
        CUdeviceptr at = 0;
        stub_result = CUDA_SUCCESS;
        if (rows[i].kind == RVLI_SEEN_ALLOC) {
            void *front = front_of(rows[i].symbol, (function)stub_alloc);
            memcpy(&alloc, &front, sizeof alloc);
            assert_int_equal(alloc(&at, SIZE, NULL, NULL), CUDA_SUCCESS);
            assert_seen(rows[i].symbol, RVLI_SEEN_ALLOC, 0x1000, SIZE, -1);
            stub_result = CUDA_ERROR_OUT_OF_MEMORY;
            assert_int_equal(alloc(&at, SIZE, NULL, NULL), CUDA_ERROR_OUT_OF_MEMORY);
            assert_refused(rows[i].symbol, SIZE);
            stub_result = CUDA_ERROR_INVALID_VALUE;
            assert_int_equal(alloc(&at, SIZE, NULL, NULL), CUDA_ERROR_INVALID_VALUE);
            assert_int_equal(seen_count, 0);
        } else {
            void *front = front_of(rows[i].symbol, (function)stub_any);
            memcpy(&give_back, &front, sizeof give_back);
            assert_int_equal(give_back(0x3000, NULL), CUDA_SUCCESS);
            assert_seen(rows[i].symbol, RVLI_SEEN_FREE, 0x3000, 0, -1);
        }
    }
    assert_int_equal(rvli_driver_call_of("cuMemcpy"), -1);
    assert_int_equal(rvli_driver_call_of("cuMemAlloc"), -1); /* of CUDA 2, with 32 bits */
}

static void test_pitched(void **state)
{
    (void)state;
    CUresult (*alloc)(CUdeviceptr *, size_t *, size_t, size_t, unsigned);
    CUdeviceptr at = 0;
    size_t pitch = 0;
    stub_result = CUDA_SUCCESS;
    void *front = front_of("cuMemAllocPitch_v2", (function)stub_pitch);
    memcpy(&alloc, &front, sizeof alloc);
    assert_int_equal(alloc(&at, &pitch, 100, 10, 4), CUDA_SUCCESS);
    assert_seen("cuMemAllocPitch_v2", RVLI_SEEN_ALLOC, 0x2000, 5120, -1);
    stub_result = CUDA_ERROR_OUT_OF_MEMORY; /* the pitch is not known then */
    pitch = 0;
    assert_int_equal(alloc(&at, &pitch, 100, 10, 4), CUDA_ERROR_OUT_OF_MEMORY);
    assert_refused("cuMemAllocPitch_v2", 1000);
}

static void test_captures_by_the_driver(void **state)
{
    (void)state;
    static const char *const rows[][2] = {
        {"cuStreamBeginCapture_v2", "cuStreamEndCapture"},
        {"cuStreamBeginCapture_v2_ptsz", "cuStreamEndCapture_ptsz"},
        {"cuStreamBeginCapture_v2", "cuStreamDestroy_v2"},
        {"cuStreamBeginCaptureToGraph", "cuStreamEndCapture"},
        {"cuStreamBeginCaptureToGraph_ptsz", "cuStreamEndCapture_ptsz"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        CUresult (*call[2])(void *, void *);
        for (size_t k = 0; k < 2; k++) {
            void *front = front_of(rows[i][k], (function)stub_any);
            memcpy(&call[k], &front, sizeof front);
        }
        stub_result = CUDA_ERROR_INVALID_VALUE;
        call[0]((void *)16, NULL);
        assert_false(rvli_capture_running());
        stub_result = CUDA_SUCCESS;
        call[0]((void *)16, NULL);
        call[0]((void *)16, NULL); /* as the runtime and the driver both tell it */
        assert_true(rvli_capture_running());
        stub_result = i == 0 ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS;
        call[1]((void *)16, NULL);
        assert_false(rvli_capture_running());
        stub_result = CUDA_SUCCESS;
        bool per_thread = strstr(rows[i][0], "_ptsz") != NULL;
        call[0](NULL, NULL); /* the default stream: only a thread's own can be captured */
        assert_int_equal(rvli_capture_running(), per_thread);
        call[1](NULL, NULL);
        assert_false(rvli_capture_running());
    }
}

/* Told to the recorder alone, which is off here: the answer comes through. */
static void test_what_observers_do_not_see(void **state)
{
    (void)state;
    static const char *const symbols[] = {"cuMemRetainAllocationHandle", "cuDevicePrimaryCtxRetain",
                                          "cuDevicePrimaryCtxRelease_v2",
                                          "cuDevicePrimaryCtxReset_v2"};
    for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++) {
        CUresult (*call)(void *, void *);
        void *out = NULL;
        void *front = front_of(symbols[i], (function)stub_any);
        assert_non_null(front);
        memcpy(&call, &front, sizeof front);
        stub_result = CUDA_ERROR_INVALID_DEVICE;
        assert_int_equal(call(&out, NULL), CUDA_ERROR_INVALID_DEVICE);
        stub_result = CUDA_SUCCESS;
        assert_int_equal(call(&out, NULL), CUDA_SUCCESS);
    }
    assert_int_equal(seen_count, 0);
    assert_int_equal(rvli_calls_open, 0);
}

/* Every name of the runtime is found at its own place, and no other is. */
static void test_names(void **state)
{
    (void)state;
    static const char *const names[] = {
#define NAME(name, parameters) #name,
        RVLI_RUNTIME_MAP(NAME)
#undef NAME
    };
    for (int slot = 0; slot < RVLI_RUNTIME_COUNT; slot++) {
        char other[64];
        snprintf(other, sizeof other, "%s_", names[slot]);
        assert_int_equal(rvli_runtime_slot_of(names[slot]), slot);
        assert_int_equal(rvli_runtime_slot_of(other), -1);
        assert_int_equal(rvli_driver_call_of(names[slot]), -1);
    }
    assert_int_equal(rvli_runtime_slot_of(""), -1);
    assert_int_equal(rvli_runtime_slot_of("cudaMallo"), -1);
    assert_true(rvli_is_own(dlsym(RTLD_DEFAULT, "cudaMallocAsync")));
    assert_false(rvli_is_own(dlsym(RTLD_DEFAULT, "cudaStreamCreate")));
}

/* By name, version and flavour; what is not ours is passed on as it is. */
static void test_choice(void **state)
{
    (void)state;
    void *common = rvli_driver_front_of("cuMemAllocAsync", 12000, false, STUB_FOUND);
    void *per_thread = rvli_driver_front_of("cuMemAllocAsync", 12000, true, STUB_FOUND);
    assert_ptr_not_equal(common, STUB_FOUND);
    assert_ptr_not_equal(per_thread, STUB_FOUND);
    assert_ptr_not_equal(common, per_thread);
    assert_ptr_equal(rvli_driver_front_of("cuMemAllocAsync", 11010, false, STUB_FOUND), STUB_FOUND);
    assert_ptr_equal(rvli_driver_front_of("cuMemcpy", 12000, false, STUB_FOUND), STUB_FOUND);
    assert_ptr_equal(rvli_driver_front_of(NULL, 12000, false, STUB_FOUND), STUB_FOUND);
    assert_ptr_equal(rvli_driver_front_of("cuMemAllocAsync", 12000, true, common), common);
    assert_null(rvli_driver_front_of("cuMemFree", 12000, true, NULL));
    void *old = rvli_driver_front_of("cuGetProcAddress", 11040, false, STUB_FOUND);
    void *new = rvli_driver_front_of("cuGetProcAddress", 12000, false, STUB_FOUND);
    assert_ptr_not_equal(old, new);

    CUresult (*get)(const char *, void **, int, cuuint64_t);
    void *found = NULL;
    stub_result = CUDA_SUCCESS;
    void *front = front_of("cuGetProcAddress", (function)stub_get);
    memcpy(&get, &front, sizeof get);
    assert_int_equal(get("cuMemAllocAsync", &found, 12000, 0), CUDA_SUCCESS);
    assert_ptr_equal(found, common);
    assert_int_equal(
        get("cuMemAllocAsync", &found, 12000, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM),
        CUDA_SUCCESS);
    assert_ptr_equal(found, per_thread);
    stub_result = CUDA_ERROR_NOT_FOUND;
    assert_int_equal(get("cuMemAllocAsync", &found, 12000, 0), CUDA_ERROR_NOT_FOUND);
    assert_ptr_equal(found, STUB_FOUND);
}

int main(void)
{
    setenv("RVL_CUDA_LIBRARY", RVL_CUDA_FAKE_PATH, 1);
#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)
    const struct CMUnitTest tests[] = {
        TEST(test_runtime_calls),
        TEST(test_per_thread_calls),
        TEST(test_captures_by_the_runtime),
        TEST(test_refused),
        TEST(test_observer_is_not_told_of_itself),
        TEST(test_reveille_is_not_the_program),
        TEST(test_driver_calls_by_entry_point),
        TEST(test_every_front),
        TEST(test_pitched),
        TEST(test_captures_by_the_driver),
        TEST(test_what_observers_do_not_see),
        TEST(test_names),
        TEST(test_choice),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
