/* SPDX-License-Identifier: MIT */
/*
 * Sleep and wake on the CUDA backend: which calls of the driver are made and in what order, what
 * forbids a sleep, and what each failure leaves. NVML is the fake driver's.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fake.h"
#include "gpu.h"
#include "nothing_left.h"
#include "reveille/share.h"
#include "reveille/sleep.h"

static const char *const steps[] = {"cuCheckpointProcessLock", "cuCheckpointProcessCheckpoint",
                                    "cuCheckpointProcessRestore", "cuCheckpointProcessUnlock"};

typedef struct scene {
    rvl_context *context, *second;
    rvl_addr weights;
} scene;

static scene s;

static int open_with(const rvl_cuda_options *options)
{
    gpu_fake_kernels();
    assert_int_equal(cuInit(0), CUDA_SUCCESS); /* undone by fake_reset() */
    s.context = gpu_open(options, NULL);
    s.second = gpu_open(options, NULL);
    s.weights = support_alloc(s.context, "weights", 0, 2 * GRANULE, RVL_BACKUP_HOST);
    support_alloc(s.second, "cache", 1, GRANULE, RVL_BACKUP_NONE);
    gpu_fill(s.context, 0, s.weights, 2 * GRANULE, 1);
    return 0;
}

static int open_scene(void **state)
{
    (void)state;
    return open_with(NULL);
}

static int open_pageable(void **state)
{
    const rvl_cuda_options pageable = {.struct_size = sizeof pageable,
                                       .flags = RVL_CUDA_HOST_PAGEABLE};
    (void)state;
    return open_with(&pageable);
}

static int close_scene(void **state)
{
    (void)state;
    assert_int_equal(rvl_context_close(s.second, NULL), RVL_OK);
    assert_int_equal(rvl_context_close(s.context, NULL), RVL_OK);
    check_nothing_left();
    return 0;
}

static rvl_error last_error(void)
{
    rvl_error error = {.struct_size = sizeof error};
    assert_int_equal(rvl_last_error(&error), RVL_OK);
    return error;
}

static void check_awake(void)
{
    assert_false(rvl_context_is_asleep(NULL));
    assert_int_equal(support_state(s.context, s.weights), RVL_STATE_ACTIVE);
    assert_true(gpu_holds(s.context, 0, s.weights, 2 * GRANULE, 1));
}

static void check_steps(uint64_t lock, uint64_t checkpoint, uint64_t restore, uint64_t unlock)
{
    const uint64_t wanted[] = {lock, checkpoint, restore, unlock};
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(fake_calls(steps[i]), wanted[i]);
}

static void a_process_sleeps_with_all_its_contexts(void **state)
{
    (void)state;
    rvl_context *more = NULL;
    rvl_addr addr;
    assert_int_equal(rvl_sleep(s.context, NULL), RVL_OK);
    check_steps(1, 1, 0, 0);
    assert_true(rvl_context_is_asleep(NULL));
    assert_int_equal(fake_stats_get().used_bytes[0], 0);
    assert_int_equal(fake_stats_get().used_bytes[1], 0);
    assert_int_equal(rvl_alloc(s.second, GRANULE, NULL, &addr), RVL_ERR_STATE);
    assert_int_equal(rvl_context_open("cuda", NULL, &more), RVL_ERR_STATE);
    assert_int_equal(rvl_wake_up(NULL, NULL), RVL_OK);
    check_steps(1, 1, 1, 1);
    check_awake();
    assert_int_equal(fake_calls_asleep(), 0);
}

static void each_step_of_the_driver_may_fail(void **state)
{
    (void)state;
    assert_true(fake_fail(steps[0], 1, CUDA_ERROR_NOT_READY, false));
    assert_int_equal(rvl_sleep(NULL, NULL), RVL_ERR_TIMEOUT);
    assert_string_equal(last_error().op, "process_lock");
    check_awake();

    assert_true(fake_fail("cuCheckpointProcessGetState", 1, CUDA_ERROR_NOT_SUPPORTED, false));
    assert_int_equal(rvl_sleep(NULL, NULL), RVL_ERR_NOT_SUPPORTED);
    assert_non_null(strstr(last_error().message, "that a profiler records"));
    assert_int_equal(last_error().native_code, CUDA_ERROR_NOT_SUPPORTED);
    check_steps(1, 0, 0, 0);
    check_awake();

    assert_true(fake_fail(steps[0], 1, CUDA_ERROR_NOT_SUPPORTED, false));
    assert_int_equal(rvl_sleep(NULL, NULL), RVL_ERR_NOT_SUPPORTED);
    assert_non_null(strstr(last_error().message, "no client of MPS"));
    check_awake();

    assert_true(fake_fail(steps[1], 1, CUDA_ERROR_NOT_SUPPORTED, false));
    assert_int_equal(rvl_sleep(NULL, NULL), RVL_ERR_NOT_SUPPORTED);
    assert_non_null(strstr(last_error().message, "managed memory"));
    assert_int_equal(last_error().native_code, CUDA_ERROR_NOT_SUPPORTED);
    check_awake();

    assert_int_equal(rvl_sleep(NULL, NULL), RVL_OK);
    assert_true(fake_fail(steps[3], 1, CUDA_ERROR_UNKNOWN, false));
    assert_int_equal(rvl_wake_up(NULL, NULL), RVL_ERR_IO);
    assert_true(rvl_context_is_asleep(NULL));
    assert_int_equal(rvl_wake_up(NULL, NULL), RVL_OK); /* goes on where it was */
    assert_int_equal(fake_calls(steps[2]), 1);
    check_awake();
    assert_int_equal(fake_calls_asleep(), 0);
}

/* The driver goes over host memory that is registered: chunks of 64 MiB, once the first is made. */
static void forecasts_price_registered_host_memory(void **state)
{
    (void)state;
    const rvl_sleep_options discard = {.struct_size = sizeof discard, .flags = RVL_SLEEP_DISCARD};
    rvl_forecast first = {.struct_size = sizeof first}, wake = first, more = first, less = first;
    assert_int_equal(rvl_sleep_forecast(NULL, NULL, &first), RVL_OK);
    assert_in_range(first.time_ns, 390000000, 500000000);
    assert_int_equal(rvl_sleep(NULL, NULL), RVL_OK);
    assert_int_equal(rvl_wake_up_forecast(NULL, NULL, &wake), RVL_OK);
    assert_int_equal(rvl_wake_up(NULL, NULL), RVL_OK);
    rvl_host_memory facts = {.struct_size = sizeof facts};
    assert_int_equal(rvl_host_get_memory(s.context, &facts), RVL_OK);
    assert_int_equal(facts.pinned_bytes, 64 * MIB);
    assert_int_equal(rvl_sleep_forecast(NULL, &discard, &more), RVL_OK);
    assert_int_equal(rvl_host_trim(s.context, 0), RVL_OK);
    assert_int_equal(rvl_sleep_forecast(NULL, &discard, &less), RVL_OK);
    assert_int_equal(more.time_ns - less.time_ns, 64 * MIB * 23300 / 1000000);
    assert_true(wake.time_ns > 300000000 + 64 * MIB * 16500 / 1000000);
}

/* Where nothing is registered a sleep takes as long with memory for backups as without. */
static void memory_that_is_not_registered_costs_nothing(void **state)
{
    (void)state;
    const rvl_sleep_options discard = {.struct_size = sizeof discard, .flags = RVL_SLEEP_DISCARD};
    const rvl_wake_up_options paused = {.struct_size = sizeof paused, .flags = RVL_WAKE_UP_PAUSED};
    rvl_forecast before = {.struct_size = sizeof before}, after = before, wake = before;
    rvl_host_memory facts = {.struct_size = sizeof facts};
    assert_int_equal(rvl_sleep(NULL, NULL), RVL_OK);
    assert_int_equal(rvl_wake_up_forecast(NULL, &paused, &wake), RVL_OK);
    assert_int_equal(wake.time_ns, 301400000); /* 1.1 ms more for 64 MiB that are registered */
    assert_int_equal(rvl_wake_up(NULL, NULL), RVL_OK);
    assert_int_equal(rvl_host_get_memory(s.context, &facts), RVL_OK);
    assert_int_equal(facts.pinned_bytes, 0);
    assert_int_equal(facts.pageable_bytes, 64 * MIB);
    assert_int_equal(rvl_sleep_forecast(NULL, &discard, &before), RVL_OK);
    assert_int_equal(rvl_host_trim(s.context, 0), RVL_OK);
    assert_int_equal(rvl_sleep_forecast(NULL, &discard, &after), RVL_OK);
    assert_int_equal(after.time_ns, before.time_ns);
    check_awake();
}

static void a_wake_that_finds_no_room_does_not_try(void **state)
{
    (void)state;
    CUmemGenericAllocationHandle left = 0;
    const CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                            .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    uint64_t free_bytes = 0;
    rvl_context *c = s.context;
    assert_int_equal(rvli_cuda.cuMemCreate(&left, 64 * MIB, &properties, 0), CUDA_SUCCESS);
    assert_int_equal(rvl_sleep(NULL, NULL), RVL_OK);
    assert_int_equal(c->ops.process_room(c->self, 0, &free_bytes), RVL_OK);
    assert_int_equal(free_bytes, 1 << 30);
    /* What the driver holds, some to spare, and the weights: 64 + 64 + 4 MiB. */
    assert_true(fake_take(0, 1024 * MIB - 131 * MIB));
    assert_int_equal(rvl_wake_up(NULL, NULL), RVL_ERR_DEVICE_OOM);
    assert_int_equal(last_error().requested_bytes, 132 * MIB);
    check_steps(1, 1, 0, 0);
    assert_true(fake_take(0, 1024 * MIB - 132 * MIB));
    assert_int_equal(rvl_wake_up(NULL, NULL), RVL_OK);
    assert_true(fake_take(0, 0));
    assert_int_equal(rvli_cuda.cuMemRelease(left), CUDA_SUCCESS);
    check_awake();
}

static void reasons_forbid_it(void **state)
{
    (void)state;
    assert_int_equal(rvl_sleep_forbid(7, "memory of process 4711 is open at 0x7000"), RVL_OK);
    assert_int_equal(rvl_sleep(NULL, NULL), RVL_ERR_BUSY);
    assert_string_equal(last_error().message,
                        "the process cannot sleep: memory of process 4711 is open at 0x7000");
    assert_int_equal(rvl_sleep_forbid(7, "twice"), RVL_OK);
    assert_int_equal(rvl_sleep_forecast(NULL, NULL, NULL), RVL_ERR_BUSY);
    assert_string_equal(last_error().message, "the process cannot sleep: twice (and 1 more)");
    assert_int_equal(rvl_sleep_allow(7), RVL_OK);
    assert_int_equal(rvl_sleep_allow(7), RVL_OK);
    check_steps(0, 0, 0, 0);
    assert_int_equal(rvl_sleep(NULL, NULL), RVL_OK);
    assert_int_equal(rvl_wake_up(NULL, NULL), RVL_OK);
    check_awake();
}

static void an_import_forbids_it(void **state)
{
    (void)state;
    rvli_handle block = 0;
    rvl_import *import = NULL;
    rvl_addr addr = 0;
    int fd = -1;
    const uint64_t bytes = GRANULE;
    rvl_context *c = s.context;
    assert_int_equal(c->ops.create(c->self, 0, bytes, RVLI_BLOCK_EXPORTABLE, &block), RVL_OK);
    assert_int_equal(c->ops.export_block(c->self, 0, block, &fd), RVL_OK);
    assert_int_equal(rvl_import_begin(c, bytes, NULL, &import), RVL_OK);
    assert_int_equal(rvl_import_add(import, &fd, &bytes, 1), RVL_OK);
    assert_int_equal(rvl_import_finish(import, &addr), RVL_OK);
    close(fd);
    assert_int_equal(rvl_sleep(NULL, NULL), RVL_ERR_BUSY);
    assert_non_null(strstr(last_error().message, "memory of another process is open here"));
    assert_int_equal(rvl_free(c, addr), RVL_OK);
    assert_int_equal(c->ops.release(c->self, 0, block, bytes), RVL_OK);
    assert_int_equal(rvl_sleep(NULL, NULL), RVL_OK);
    assert_int_equal(rvl_wake_up(NULL, NULL), RVL_OK);
    check_awake();
}

/* The file that the driver maps for events which another process shares. */
static void events_of_others_forbid_it(void **state)
{
    (void)state;
    static const char name[] = "/dev/shm/cuda.shm.0.ffffff1.1";
    const rvl_sleep_options fine = {.struct_size = sizeof fine, .flags = RVL_SLEEP_SHARED_EVENTS};
    int file = open(name, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_true(file >= 0);
    assert_int_equal(ftruncate(file, 4096), 0);
    void *events = mmap(NULL, 4096, PROT_READ, MAP_SHARED, file, 0);
    assert_ptr_not_equal(events, MAP_FAILED);
    close(file);
    unlink(name);
    assert_int_equal(rvl_sleep(NULL, NULL), RVL_ERR_BUSY);
    assert_non_null(strstr(last_error().message, "process 268435441 shares events"));
    assert_int_equal(rvl_sleep(NULL, &fine), RVL_OK);
    assert_int_equal(rvl_wake_up(NULL, NULL), RVL_OK);
    munmap(events, 4096);
    check_awake();
}

static void somebody_else_may_have_it_locked(void **state)
{
    (void)state;
    assert_int_equal(rvli_cuda_process.cuCheckpointProcessLock((int)getpid(), NULL), CUDA_SUCCESS);
    assert_int_equal(rvl_sleep(NULL, NULL), RVL_ERR_BUSY);
    assert_int_equal(rvli_cuda_process.cuCheckpointProcessUnlock((int)getpid(), NULL),
                     CUDA_SUCCESS);
    check_awake();
}

/* As with a driver that is older than CUDA 12.8: the table of its calls is empty. */
static void an_older_driver_is_named(void **state)
{
    (void)state;
    const rvli_cuda_checkpoint there = rvli_cuda_process;
    rvli_process_state unused;
    rvl_context *c = s.context;
    memset(&rvli_cuda_process, 0, sizeof rvli_cuda_process);
    assert_int_equal(rvl_sleep(NULL, NULL), RVL_ERR_NOT_SUPPORTED);
    assert_string_equal(last_error().message,
                        "the CUDA driver has no process checkpoint (cuCheckpointProcessLock): "
                        "install a driver of CUDA 12.8 or newer");
    assert_int_equal(c->ops.process_state(c->self, &unused), RVL_ERR_NOT_SUPPORTED);
    assert_int_equal(c->ops.process_lock(c->self, 1), RVL_ERR_NOT_SUPPORTED);
    assert_int_equal(c->ops.process_checkpoint(c->self), RVL_ERR_NOT_SUPPORTED);
    assert_int_equal(c->ops.process_restore(c->self), RVL_ERR_NOT_SUPPORTED);
    assert_int_equal(c->ops.process_unlock(c->self), RVL_ERR_NOT_SUPPORTED);
    rvli_cuda_process = there;
    check_awake();
}

int main(void)
{
    setenv("RVL_CUDA_LIBRARY", RVL_CUDA_FAKE_PATH, 1);
    setenv("RVL_NVML_LIBRARY", RVL_CUDA_FAKE_PATH, 1);
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, open_scene, close_scene)
        TEST(a_process_sleeps_with_all_its_contexts),
        TEST(each_step_of_the_driver_may_fail),
        TEST(forecasts_price_registered_host_memory),
        cmocka_unit_test_setup_teardown(memory_that_is_not_registered_costs_nothing, open_pageable,
                                        close_scene),
        TEST(a_wake_that_finds_no_room_does_not_try),
        TEST(reasons_forbid_it),
        TEST(an_import_forbids_it),
        TEST(events_of_others_forbid_it),
        TEST(somebody_else_may_have_it_locked),
        TEST(an_older_driver_is_named),
#undef TEST
    };
    if (!gpu_is_there())
        return 77;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
