/* SPDX-License-Identifier: MIT */
#include "gpu.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool gpu_is_there(void)
{
    rvl_status status = rvli_cuda_driver_load();
    if (status == RVL_OK)
        return true;
    print_message("skipped: %s\n", rvli_error_get()->message);
    if (gpu_is_fake())
        exit(1); /* the fake driver is always there */
    return false;
}

bool gpu_is_fake(void)
{
    return getenv("RVL_CUDA_LIBRARY") != NULL;
}

rvl_context *gpu_open(const rvl_cuda_options *options, rvli_fault **fault_out)
{
    rvl_context *context = NULL;
    rvl_context_options context_options = {.struct_size = sizeof context_options,
                                           .backend_options = options};
    rvl_status status =
        rvli_context_open_ops(&rvli_cuda_ops, &context_options, fault_out, &context);
    if (status != RVL_OK)
        fail_msg("%s", rvli_error_get()->message);
    return context;
}

static uint64_t *buffer_of(uint64_t size)
{
    uint64_t *buffer = malloc(size);
    assert_non_null(buffer);
    return buffer;
}

static uint64_t pattern(uint64_t seed, uint64_t place)
{
    return (seed + place) * UINT64_C(0x9E3779B97F4A7C15);
}

static void wait_for_copies(rvl_context *context, int device)
{
    uint64_t event = 0;
    assert_int_equal(context->ops.record_event(context->self, device, &event), RVL_OK);
    assert_int_equal(context->ops.wait_event(context->self, device, event), RVL_OK);
}

void gpu_fill(rvl_context *context, int device, rvl_addr addr, uint64_t size, uint64_t seed)
{
    uint64_t *buffer = buffer_of(size);
    for (uint64_t i = 0; i < size / 8; i++)
        buffer[i] = pattern(seed, i);
    assert_int_equal(context->ops.copy_to_device(context->self, device, addr, buffer, size),
                     RVL_OK);
    wait_for_copies(context, device);
    free(buffer);
}

bool gpu_holds(rvl_context *context, int device, rvl_addr addr, uint64_t size, uint64_t seed)
{
    bool same = true;
    uint64_t *buffer = buffer_of(size);
    memset(buffer, 0, size);
    assert_int_equal(context->ops.copy_to_host(context->self, device, buffer, addr, size), RVL_OK);
    wait_for_copies(context, device);
    for (uint64_t i = 0; i < size / 8 && same; i++)
        same = buffer[i] == pattern(seed, i);
    free(buffer);
    return same;
}

uint64_t gpu_free_bytes(rvl_context *context)
{
    uint64_t free_bytes = 0, total = 0;
    assert_int_equal(context->ops.memory_info(context->self, 0, &free_bytes, &total), RVL_OK);
    return free_bytes;
}

pid_t gpu_spawn(const char *verb, const char *word, int *to_out, int *from_out)
{
    int to[2], from[2];
    assert_int_equal(pipe(to), 0);
    assert_int_equal(pipe(from), 0);
    pid_t child = fork();
    if (child == 0) {
        dup2(to[0], STDIN_FILENO);
        dup2(from[1], STDOUT_FILENO);
        close(to[1]);
        close(from[0]);
        execl("/proc/self/exe", "test", verb, word, (char *)NULL);
        _exit(127);
    }
    assert_true(child > 0);
    close(to[0]);
    close(from[1]);
    *to_out = to[1];
    *from_out = from[0];
    return child;
}
