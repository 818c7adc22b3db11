/* SPDX-License-Identifier: MIT */
#include "rdma.h"

#include <string.h>

#define SHARED_BYTES (4 * GRANULE)

rvl_status rdma_alloc(rvl_context *context, const char *tag, uint64_t size, uint32_t more_flags,
                      rvl_addr *addr_out)
{
    const rvl_alloc_options options = {
        .struct_size = sizeof options, .tag = tag, .flags = RVL_ALLOC_RDMA | more_flags};
    return rvl_alloc(context, size, &options, addr_out);
}

void rdma_is_refused(rvl_context *context)
{
    const rvl_device_stats before = support_stats(context, 0);
    for (int paused = 0; paused < 2; paused++) {
        rvl_addr addr = 42;
        const uint32_t flags = paused ? RVL_ALLOC_PAUSED : 0;
        assert_int_equal(rdma_alloc(context, "rdma", GRANULE, flags, &addr), RVL_ERR_NOT_SUPPORTED);
        assert_int_equal(addr, 42);
        rvl_error error = {.struct_size = sizeof error};
        assert_int_equal(rvl_last_error(&error), RVL_OK);
        assert_int_equal(error.status, RVL_ERR_NOT_SUPPORTED);
        assert_non_null(strstr(error.message, "without RVL_ALLOC_RDMA"));
    }
    const rvl_device_stats after = support_stats(context, 0);
    assert_int_equal(after.used_bytes, before.used_bytes);
    assert_int_equal(after.allocation_count, before.allocation_count);
    support_alloc(context, "plain", 0, GRANULE, RVL_BACKUP_NONE);
}

static void pause_and_resume(rvl_context *context, const char *name, rdma_bytes_fn rdma_bytes,
                             uint64_t bytes)
{
    const rvl_tag tag = support_tag(context, name);
    assert_int_equal(rvl_pause(context, &tag, 1, NULL), RVL_OK);
    /* Plain memory of the same size takes nothing of what was released and kept. */
    rvl_addr plain = support_alloc(context, "plain", 0, bytes, RVL_BACKUP_NONE);
    assert_int_equal(rvl_resume(context, &tag, 1, NULL), RVL_OK);
    assert_int_equal(rdma_bytes(), bytes);
    /* Nor the other way: what is kept of plain memory does not serve it. */
    assert_int_equal(rvl_free(context, plain), RVL_OK);
    assert_true(support_stats(context, 0).kept_bytes >= bytes);
    assert_int_equal(rvl_pause(context, &tag, 1, NULL), RVL_OK);
    assert_int_equal(rvl_resume(context, &tag, 1, NULL), RVL_OK);
    assert_int_equal(rdma_bytes(), bytes);
}

void rdma_is_kept(rvl_context *context, rdma_bytes_fn rdma_bytes)
{
    rvl_addr addr = 0, shared[2];
    rvl_addr plain = support_alloc(context, "plain", 0, GRANULE, RVL_BACKUP_NONE);
    assert_int_equal(rdma_bytes(), 0);
    assert_int_equal(rvl_free(context, plain), RVL_OK);
    assert_int_equal(support_stats(context, 0).kept_bytes, GRANULE);

    assert_int_equal(rdma_alloc(context, "own", GRANULE, 0, &addr), RVL_OK);
    assert_int_equal(rdma_bytes(), GRANULE);
    pause_and_resume(context, "own", rdma_bytes, GRANULE);
    assert_int_equal(rvl_free(context, addr), RVL_OK);
    assert_int_equal(rdma_bytes(), GRANULE); /* kept: the next such request gets it */
    assert_int_equal(rdma_alloc(context, "own", GRANULE, 0, &addr), RVL_OK);
    assert_int_equal(rdma_bytes(), GRANULE);
    pause_and_resume(context, "own", rdma_bytes, GRANULE);

    /* Born paused: asked for at its first resume. */
    rvl_addr born = 0;
    assert_int_equal(rdma_alloc(context, "later", 2 * GRANULE, RVL_ALLOC_PAUSED, &born), RVL_OK);
    assert_int_equal(rdma_bytes(), GRANULE);
    const rvl_tag later = support_tag(context, "later");
    assert_int_equal(rvl_resume(context, &later, 1, NULL), RVL_OK);
    assert_int_equal(rdma_bytes(), 3 * GRANULE);
    assert_int_equal(rvl_pause(context, &later, 1, NULL), RVL_OK);
    assert_int_equal(rvl_free(context, born), RVL_OK);
    assert_int_equal(rvl_free(context, addr), RVL_OK);
    const uint64_t left_over = rdma_bytes();

    /* Neighbours share one block, which has the flag too, and no block with plain ones. */
    rvl_tag tag = 0;
    const rvl_tag_options share = {.struct_size = sizeof share, .coalesce_bytes = SHARED_BYTES};
    assert_int_equal(rvl_tag_define(context, "shared", &share, &tag), RVL_OK);
    support_alloc(context, "shared", 0, GRANULE, RVL_BACKUP_NONE);
    for (int i = 0; i < 2; i++)
        assert_int_equal(rdma_alloc(context, "shared", GRANULE, 0, &shared[i]), RVL_OK);
    assert_int_equal(shared[1], shared[0] + GRANULE);
    assert_int_equal(rdma_bytes(), left_over + SHARED_BYTES);
    assert_int_equal(rvl_pause(context, &tag, 1, NULL), RVL_OK);
    assert_int_equal(rvl_resume(context, &tag, 1, NULL), RVL_OK);
    assert_int_equal(rdma_bytes(), left_over + SHARED_BYTES);
}
