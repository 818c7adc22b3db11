/* SPDX-License-Identifier: MIT */
/* Several devices: access of peers is restored, and each device's memory is its own. */
#include <dlfcn.h>
#include <string.h>

#include "gpu.h"

static void each_device_has_its_own_memory(void **state)
{
    (void)state;
    rvl_context *context = gpu_open(NULL, NULL);
    rvl_addr addrs[2];
    for (int device = 0; device < 2; device++) {
        addrs[device] = support_alloc(context, "weights", device, 64 * MIB, RVL_BACKUP_HOST);
        gpu_fill(context, device, addrs[device], 64 * MIB, 10 + (uint64_t)device);
    }
    rvl_tag tag = support_tag(context, "weights");
    uint64_t before[2], paused[2], total;
    for (int device = 0; device < 2; device++)
        assert_int_equal(context->ops.memory_info(context->self, device, &before[device], &total),
                         RVL_OK);
    assert_int_equal(rvl_pause(context, &tag, 1, NULL), RVL_OK);
    for (int device = 0; device < 2; device++) {
        assert_int_equal(context->ops.memory_info(context->self, device, &paused[device], &total),
                         RVL_OK);
        assert_int_equal(paused[device], before[device] + 64 * MIB);
        assert_int_equal(support_stats(context, device).used_bytes, 0);
    }
    assert_int_equal(rvl_resume(context, &tag, 1, NULL), RVL_OK);
    for (int device = 0; device < 2; device++)
        assert_true(gpu_holds(context, device, addrs[device], 64 * MIB, 10 + (uint64_t)device));
    assert_int_equal(rvl_context_close(context, NULL), RVL_OK);
}

/* Device 1 writes to device 0's memory and reads it, before and after a pause. */
static void a_peer_reaches_resumed_memory(void **state)
{
    (void)state;
    const int access[] = {1};
    rvl_alloc_options options = {.struct_size = sizeof options,
                                 .tag = "shared",
                                 .backup = RVL_BACKUP_HOST,
                                 .access = access,
                                 .access_count = 1};
    rvl_addr addr = 0;
    rvl_context *context = gpu_open(NULL, NULL);
    assert_int_equal(rvl_alloc(context, 32 * MIB, &options, &addr), RVL_OK);
    rvl_tag tag = support_tag(context, "shared");
    for (uint64_t round = 0; round < 3; round++) {
        gpu_fill(context, 1, addr, 32 * MIB, round); /* the copy runs in device 1's context */
        assert_int_equal(rvl_pause(context, &tag, 1, NULL), RVL_OK);
        assert_int_equal(rvl_resume(context, &tag, 1, NULL), RVL_OK);
        assert_true(gpu_holds(context, 1, addr, 32 * MIB, round));
        assert_true(gpu_holds(context, 0, addr, 32 * MIB, round));
    }
    assert_int_equal(rvl_context_close(context, NULL), RVL_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_device_has_its_own_memory),
        cmocka_unit_test(a_peer_reaches_resumed_memory),
    };
    int count = 0;
    if (!gpu_is_there())
        return SKIPPED;
    if (rvli_cuda.cuDeviceGetCount(&count) != CUDA_SUCCESS || count < 2) {
        SKIP_LINE("there is one device");
        return SKIPPED;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
