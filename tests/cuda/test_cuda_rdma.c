/* SPDX-License-Identifier: MIT */
/* RVL_ALLOC_RDMA on the fake driver: asked for, refused by the device, refused by the driver. */
#include <stdlib.h>
#include <string.h>

#include "fake.h"
#include "gpu.h"
#include "nothing_left.h"
#include "tests/support/rdma.h"

static rvl_context *open_keeping(uint64_t keep_bytes)
{
    const int first = 0;
    const rvl_cuda_options cuda = {
        .struct_size = sizeof cuda, .devices = &first, .device_count = 1};
    const rvl_context_options options = {
        .struct_size = sizeof options, .backend_options = &cuda, .keep_bytes = keep_bytes};
    rvl_context *context = NULL;
    assert_int_equal(cuInit(0), CUDA_SUCCESS); /* undone by fake_reset() */
    gpu_fake_kernels();
    assert_int_equal(rvl_context_open("cuda", &options, &context), RVL_OK);
    return context;
}

static void end(rvl_context *context)
{
    assert_int_equal(rvl_context_close(context, NULL), RVL_OK);
    check_nothing_left();
}

static void set_refusal(bool refused)
{
    const fake_config config = {.rdma_refused = refused};
    fake_configure(&config);
}

static uint64_t rdma_bytes(void)
{
    return fake_stats_get().rdma_bytes;
}

/* Plain blocks ask for it too, where they can have it. A first refusal ends that. */
static void it_is_kept(void **state)
{
    (void)state;
    set_refusal(true);
    rvl_context *context = open_keeping(64 * MIB);
    rvl_addr plain = support_alloc(context, "first", 0, GRANULE, RVL_BACKUP_NONE);
    assert_int_equal(rvl_free(context, plain), RVL_OK);
    set_refusal(false);
    rdma_is_kept(context, rdma_bytes);
    end(context);
}

static void plain_blocks_have_it_where_they_can(void **state)
{
    (void)state;
    rvl_context *context = open_keeping(0);
    support_alloc(context, "plain", 0, GRANULE, RVL_BACKUP_NONE);
    assert_int_equal(rdma_bytes(), GRANULE);
    end(context);
}

static void a_device_without_it_refuses(void **state)
{
    (void)state;
    assert_int_equal(cuInit(0), CUDA_SUCCESS);
    fake_attribute_set(CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED, 0);
    rvl_context *context = open_keeping(0);
    const uint64_t creates = fake_calls("cuMemCreate");
    rdma_is_refused(context);
    assert_int_equal(fake_calls("cuMemCreate"), creates + 1); /* of the plain one at the end */
    assert_int_equal(rdma_bytes(), 0);

    rvli_handle block = 0;
    assert_int_equal(context->ops.create(context->self, 0, GRANULE, RVLI_BLOCK_RDMA, &block),
                     RVL_ERR_NOT_SUPPORTED);
    assert_int_equal(block, 0);
    end(context);
}

/* The device says yes and the driver says no: the block that was made without it is given back. */
static void a_driver_that_refuses(void **state)
{
    (void)state;
    set_refusal(true);
    rvl_context *context = open_keeping(0);
    rvl_addr addr = 42;
    assert_int_equal(rdma_alloc(context, "rdma", GRANULE, 0, &addr), RVL_ERR_NOT_SUPPORTED);
    assert_int_equal(addr, 42);
    rvl_error error = {.struct_size = sizeof error};
    assert_int_equal(rvl_last_error(&error), RVL_OK);
    assert_string_equal(error.op, "create");
    assert_string_equal(error.tag, "rdma");
    assert_int_equal(fake_stats_get().live.handles, 0);
    assert_int_equal(support_stats(context, 0).used_bytes, 0);

    /* Born paused it has its address, and stays paused. */
    assert_int_equal(rdma_alloc(context, "later", GRANULE, RVL_ALLOC_PAUSED, &addr), RVL_OK);
    const rvl_tag later = support_tag(context, "later");
    assert_int_equal(rvl_resume(context, &later, 1, NULL), RVL_ERR_NOT_SUPPORTED);
    assert_int_equal(support_state(context, addr), RVL_STATE_PAUSED);
    assert_int_equal(fake_stats_get().live.handles, 0);
    set_refusal(false);
    assert_int_equal(rvl_resume(context, &later, 1, NULL), RVL_OK);
    assert_int_equal(rdma_bytes(), GRANULE);
    end(context);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_is_kept),
        cmocka_unit_test(plain_blocks_have_it_where_they_can),
        cmocka_unit_test(a_device_without_it_refuses),
        cmocka_unit_test(a_driver_that_refuses),
    };
    setenv("RVL_CUDA_LIBRARY", RVL_CUDA_FAKE_PATH, 1);
    if (!gpu_is_there())
        return 1;
    fake_reset();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
