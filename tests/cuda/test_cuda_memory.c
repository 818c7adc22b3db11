/* SPDX-License-Identifier: MIT */
/*
 * Pausing and resuming on the CUDA backend: content, what becomes free, failures.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backends/cuda/pinned.h"
#include "gpu.h"

static rvl_tag pause_well(rvl_context *context, const char *name)
{
    rvl_tag tag = support_tag(context, name);
    assert_int_equal(rvl_pause(context, &tag, 1, NULL), RVL_OK);
    return tag;
}

static void resume_well(rvl_context *context, rvl_tag tag)
{
    rvl_status status = rvl_resume(context, &tag, 1, NULL);
    if (status != RVL_OK)
        fail_msg("%s: %s", rvl_status_name(status), rvli_error_get()->message);
}

/* ---- Content ---- */

static void content_comes_back(void **state)
{
    (void)state;
    rvl_context *context = gpu_open(NULL, NULL);
    uint64_t before = gpu_free_bytes(context);
    rvl_addr kept = support_alloc(context, "weights", 0, 130 * MIB, RVL_BACKUP_HOST);
    rvl_addr small = support_alloc(context, "weights", 0, 2 * MIB, RVL_BACKUP_HOST);
    rvl_addr lost = support_alloc(context, "kv", 0, 64 * MIB, RVL_BACKUP_NONE);
    gpu_fill(context, 0, kept, 130 * MIB, 1);
    gpu_fill(context, 0, small, 2 * MIB, 2);
    assert_int_equal(gpu_free_bytes(context), before - 196 * MIB);
    for (uint64_t round = 0; round < 3; round++) {
        rvl_tag weights = pause_well(context, "weights");
        rvl_tag kv = pause_well(context, "kv");
        assert_int_equal(gpu_free_bytes(context), before);
        assert_int_equal(support_stats(context, 0).host_backup_bytes, 132 * MIB);
        resume_well(context, weights);
        resume_well(context, kv);
        assert_true(gpu_holds(context, 0, kept, 130 * MIB, 1 + 2 * round));
        assert_true(gpu_holds(context, 0, small, 2 * MIB, 2 + 2 * round));
        gpu_fill(context, 0, lost, 64 * MIB, 9); /* it can be written to again */
        gpu_fill(context, 0, kept, 130 * MIB, 3 + 2 * round);
        gpu_fill(context, 0, small, 2 * MIB, 4 + 2 * round);
    }
    uint64_t live = 0;
    assert_int_equal(rvl_context_close(context, &live), RVL_OK);
    assert_int_equal(live, 3);
}

static void what_comes_back_without_content_is_poisoned(void **state)
{
    (void)state;
    rvl_context *context = gpu_open(NULL, NULL);
    rvl_tag_options options = {.struct_size = sizeof options, .flags = RVL_TAG_POISON};
    rvl_tag tag;
    assert_int_equal(rvl_tag_define(context, "engine", &options, &tag), RVL_OK);
    rvl_addr weights = support_alloc(context, "engine", 0, 32 * MIB, RVL_BACKUP_HOST);
    rvl_addr cache = support_alloc(context, "engine", 0, 130 * MIB, RVL_BACKUP_NONE);
    gpu_fill(context, 0, weights, 32 * MIB, 1);
    gpu_fill(context, 0, cache, 130 * MIB, 2);
    resume_well(context, pause_well(context, "engine"));
    assert_true(gpu_holds(context, 0, weights, 32 * MIB, 1));
    assert_true(gpu_is_filled(context, 0, cache, 130 * MIB, 0xFF));
    assert_int_equal(rvl_context_close(context, NULL), RVL_OK);
}

static void backups_can_be_read(void **state)
{
    (void)state;
    rvl_context *context = gpu_open(NULL, NULL);
    rvl_addr addr = support_alloc(context, "weights", 0, 4 * MIB, RVL_BACKUP_HOST);
    gpu_fill(context, 0, addr, 4 * MIB, 77);
    pause_well(context, "weights");
    const void *backup = NULL;
    uint64_t size = 0;
    assert_int_equal(rvl_backup_find(context, addr + 8, &backup, &size), RVL_OK);
    assert_int_equal(size, 4 * MIB - 8);
    uint64_t first = 0;
    memcpy(&first, backup, sizeof first);
    assert_int_equal(first, (77 + 1) * UINT64_C(0x9E3779B97F4A7C15));
    assert_int_equal(rvl_context_close(context, NULL), RVL_OK);
}

/* ---- Beside others ---- */

/* A neighbour: holds all device memory but `word` bytes until it is told to end. */
static int neighbour(const char *word)
{
    char byte = 0;
    uint64_t left = strtoull(word, NULL, 10);
    rvl_context *context = NULL;
    rvl_addr addr;
    if (rvl_context_open("cuda", NULL, &context) != RVL_OK)
        return 1;
    uint64_t size = (gpu_free_bytes(context) - left) / (2 * MIB) * (2 * MIB);
    if (rvl_alloc(context, size, NULL, &addr) != RVL_OK)
        return 2;
    if (write(STDOUT_FILENO, "x", 1) != 1 || read(STDIN_FILENO, &byte, 1) < 0)
        return 3;
    return rvl_context_close(context, NULL) == RVL_OK ? 0 : 4;
}

/* Another process sees what a pause gave up, at once; and takes it, so that resuming fails. */
static void out_of_memory_on_resume_is_survived(void **state)
{
    (void)state;
    if (gpu_is_fake())
        SKIP_TEST("each process has a fake card of its own");
    char byte;
    int to, from, status;
    rvl_context *context = gpu_open(NULL, NULL);
    rvl_addr first = support_alloc(context, "weights", 0, 512 * MIB, RVL_BACKUP_HOST);
    rvl_addr second = support_alloc(context, "weights", 0, 8192 * MIB, RVL_BACKUP_HOST);
    gpu_fill(context, 0, first, 512 * MIB, 5);
    gpu_fill(context, 0, second, 512 * MIB, 6);
    rvl_tag tag = pause_well(context, "weights");

    pid_t child = gpu_spawn("neighbour", "2147483648", &to, &from); /* leaves 2 GiB: too little */
    assert_int_equal(read(from, &byte, 1), 1);
    rvl_device_stats before = support_stats(context, 0);
    assert_int_equal(rvl_resume(context, &tag, 1, NULL), RVL_ERR_DEVICE_OOM);
    rvl_error error = {.struct_size = sizeof error};
    assert_int_equal(rvl_last_error(&error), RVL_OK);
    assert_int_equal(error.native_code, CUDA_ERROR_OUT_OF_MEMORY);
    assert_string_equal(error.native_name, "CUDA_ERROR_OUT_OF_MEMORY");
    assert_string_equal(error.op, "create");
    assert_string_equal(error.tag, "weights");
    assert_int_equal(error.requested_bytes, 8704 * MIB);
    assert_in_range(error.free_bytes, 1, 2048 * MIB);
    rvl_device_stats after = support_stats(context, 0);
    assert_int_equal(after.used_bytes, before.used_bytes);
    assert_int_equal(after.host_backup_bytes, before.host_backup_bytes);
    assert_int_equal(support_state(context, first), RVL_STATE_PAUSED);

    assert_int_equal(write(to, "x", 1), 1);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    resume_well(context, tag);
    assert_true(gpu_holds(context, 0, first, 512 * MIB, 5));
    assert_true(gpu_holds(context, 0, second, 512 * MIB, 6));
    close(to);
    close(from);
    assert_int_equal(rvl_context_close(context, NULL), RVL_OK);
}

static void the_callers_context_stays(void **state)
{
    (void)state;
    CUcontext none = NULL, popped = NULL, mine = NULL;
    rvl_context *context = gpu_open(NULL, NULL);
    CUdevice device;
    assert_int_equal(rvli_cuda.cuDeviceGet(&device, 0), CUDA_SUCCESS);
    assert_int_equal(rvli_cuda.cuDevicePrimaryCtxRetain(&mine, device), CUDA_SUCCESS);
    for (int current = 0; current <= 1; current++) {
        assert_int_equal(rvli_cuda.cuCtxSetCurrent(current ? mine : none), CUDA_SUCCESS);
        rvl_addr addr = support_alloc(context, "x", 0, 2 * MIB, RVL_BACKUP_HOST);
        resume_well(context, pause_well(context, "x"));
        assert_int_equal(rvl_alloc(context, UINT64_C(1) << 50, NULL, &addr), RVL_ERR_DEVICE_OOM);
        CUresult result = rvli_cuda.cuCtxPopCurrent(&popped);
        assert_int_equal(result, current ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT);
        if (current)
            assert_ptr_equal(popped, mine);
    }
    assert_int_equal(rvli_cuda.cuDevicePrimaryCtxRelease(device), CUDA_SUCCESS);
    assert_int_equal(rvl_context_close(context, NULL), RVL_OK);
}

/* ---- Host memory ---- */

/* Memory of the process's own: that of simulated devices is shared. */
static uint64_t resident_bytes(void)
{
    unsigned long long size = 0, resident = 0, shared = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    assert_non_null(file);
    assert_int_equal(fscanf(file, "%llu %llu %llu", &size, &resident, &shared), 3);
    fclose(file);
    return (resident - shared) * (uint64_t)sysconf(_SC_PAGESIZE);
}

static void check_host_memory(rvl_context *context, uint64_t used, uint64_t pinned)
{
    rvl_host_memory memory = {.struct_size = sizeof memory};
    rvli_pinned_settle();
    assert_int_equal(rvl_host_get_memory(context, &memory), RVL_OK);
    assert_int_equal(memory.used_bytes, used);
    assert_int_equal(memory.pinned_bytes, pinned);
    assert_int_equal(memory.pageable_bytes, 0);
    assert_int_equal(memory.staged_copy_bytes, 0);
    assert_int_equal(memory.registering_refused, 0);
}

static void host_memory_goes_back_if_asked(void **state)
{
    (void)state;
    rvl_cuda_options options = {.struct_size = sizeof options, .host_keep = RVL_HOST_KEEP_NONE};
    const uint64_t size = 256 * MIB;
    rvl_context *context = gpu_open(&options, NULL);
    rvl_addr addr = support_alloc(context, "weights", 0, size, RVL_BACKUP_HOST);
    gpu_fill(context, 0, addr, size, 3);
    uint64_t before = resident_bytes();
    (void)before;
    rvl_tag tag = pause_well(context, "weights");
    check_host_memory(context, size, size);
#if !defined(__SANITIZE_THREAD__) /* its own memory grows with ours */
    assert_true(resident_bytes() > before + size / 2);
#endif
    resume_well(context, tag);
    check_host_memory(context, 0, 0);
#if !defined(__SANITIZE_THREAD__)
    assert_true(resident_bytes() < before + size / 4);
#endif
    assert_true(gpu_holds(context, 0, addr, size, 3));
    assert_int_equal(rvl_context_close(context, NULL), RVL_OK);
}

static void host_memory_is_kept_and_reused(void **state)
{
    (void)state;
    rvl_context *context = gpu_open(NULL, NULL);
    support_alloc(context, "weights", 0, 128 * MIB, RVL_BACKUP_HOST);
    const void *first = NULL, *second = NULL;
    uint64_t size = 0;
    for (int round = 0; round < 2; round++) {
        rvl_tag tag = pause_well(context, "weights");
        rvl_addr addr = 0;
        rvl_allocation allocation = {.struct_size = sizeof allocation};
        assert_int_equal(rvl_allocation_next(context, 0, &allocation), RVL_OK);
        addr = allocation.addr;
        assert_int_equal(rvl_backup_find(context, addr, round ? &second : &first, &size), RVL_OK);
        resume_well(context, tag);
        check_host_memory(context, 0, 128 * MIB);
    }
    assert_ptr_equal(first, second);
    assert_int_equal(rvl_context_close(context, NULL), RVL_OK);
}

static void too_large_a_backup_is_refused(void **state)
{
    (void)state;
    void *host = NULL;
    rvl_context *context = gpu_open(NULL, NULL);
    assert_int_equal(context->ops.host_alloc(context->self, 0, UINT64_C(1) << 50, &host),
                     RVL_ERR_HOST_OOM);
    assert_null(host);
    assert_int_equal(context->ops.host_alloc(context->self, 0, 0, &host), RVL_ERR_INVALID);
    int nothing = 0;
    assert_int_equal(context->ops.host_free(context->self, 0, &nothing, 4096), RVL_ERR_INVALID);
    assert_int_equal(rvl_context_close(context, NULL), RVL_OK);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(content_comes_back),
        cmocka_unit_test(what_comes_back_without_content_is_poisoned),
        cmocka_unit_test(backups_can_be_read),
        cmocka_unit_test(out_of_memory_on_resume_is_survived),
        cmocka_unit_test(the_callers_context_stays),
        cmocka_unit_test(host_memory_goes_back_if_asked),
        cmocka_unit_test(host_memory_is_kept_and_reused),
        cmocka_unit_test(too_large_a_backup_is_refused),
    };
    if (argc == 3 && strcmp(argv[1], "neighbour") == 0)
        return neighbour(argv[2]);
    if (!gpu_is_there())
        return SKIPPED;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
