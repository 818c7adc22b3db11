/* SPDX-License-Identifier: MIT */
/*
 * Exportable blocks: one block of memory, named by a file descriptor, at two addresses.
 *
 * Both ends are in one process here (tests/hooks has two). What is exported is a block of the ops
 * table, or the memory of an allocation as core made it.
 */
#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fake.h"
#include "gpu.h"
#include "nothing_left.h"

#define BLOCK_BYTES (6 * MIB)

static unsigned open_descriptors(void)
{
    unsigned count = 0;
    fake_stats_get(); /* the fake driver closes its ends of what nobody holds any more */
    DIR *all = opendir("/proc/self/fd");
    assert_non_null(all);
    while (readdir(all) != NULL)
        count++;
    closedir(all);
    return count;
}

/* What there is, to be the same after something that failed. */
typedef struct inventory {
    fake_live live;
    uint64_t used_bytes;
    unsigned descriptors;
} inventory;

static inventory take_inventory(void)
{
    inventory taken;
    memset(&taken, 0, sizeof taken);
    fake_stats stats = fake_stats_get();
    taken.live = stats.live;
    taken.used_bytes = stats.used_bytes[0];
    taken.descriptors = open_descriptors();
    return taken;
}

static void check_inventory(const inventory *before)
{
    inventory after = take_inventory();
    assert_memory_equal(&after.live, &before->live, sizeof after.live);
    assert_int_equal(after.used_bytes, before->used_bytes);
    assert_int_equal(after.descriptors, before->descriptors);
}

/* ---- A context, and blocks of its backend ---- */

static unsigned descriptors_at_start;

static int open_context(void **state)
{
    assert_int_equal(cuInit(0), CUDA_SUCCESS); /* undone by fake_reset() */
    descriptors_at_start = open_descriptors();
    *state = gpu_open(NULL, NULL);
    return 0;
}

static int close_context(void **state)
{
    assert_int_equal(rvl_context_close(*state, NULL), RVL_OK);
    assert_int_equal(open_descriptors(), descriptors_at_start);
    check_nothing_left();
    return 0;
}

static rvli_handle create_block(rvl_context *context, uint32_t properties)
{
    rvli_handle block = 0;
    assert_int_equal(context->ops.create(context->self, 0, BLOCK_BYTES, properties, &block),
                     RVL_OK);
    assert_int_not_equal(block, 0);
    return block;
}

static void release_block(rvl_context *context, rvli_handle block)
{
    assert_int_equal(context->ops.release(context->self, 0, block, BLOCK_BYTES), RVL_OK);
}

static int export_well(rvl_context *context, rvli_handle block)
{
    int fd = -1;
    assert_int_equal(context->ops.export_block(context->self, 0, block, &fd), RVL_OK);
    assert_true(fcntl(fd, F_GETFD) >= 0);
    return fd;
}

static rvli_handle import_well(rvl_context *context, int fd)
{
    rvli_handle block = 0;
    assert_int_equal(context->ops.import_block(context->self, 0, fd, BLOCK_BYTES, &block), RVL_OK);
    assert_int_not_equal(block, 0);
    return block;
}

static uint64_t map_block(rvl_context *context, rvli_handle block)
{
    uint64_t addr = 0;
    const rvli_backend_ops *ops = &context->ops;
    assert_int_equal(ops->reserve(context->self, 0, BLOCK_BYTES, &addr), RVL_OK);
    assert_int_equal(ops->map(context->self, 0, addr, BLOCK_BYTES, block), RVL_OK);
    assert_int_equal(ops->set_access(context->self, 0, addr, BLOCK_BYTES, 1), RVL_OK);
    return addr;
}

static void unmap_block(rvl_context *context, uint64_t addr)
{
    assert_int_equal(context->ops.unmap(context->self, 0, addr, BLOCK_BYTES), RVL_OK);
    assert_int_equal(context->ops.release_range(context->self, 0, addr, BLOCK_BYTES), RVL_OK);
}

/* ---- What works ---- */

static void an_imported_block_is_the_same_memory(void **state)
{
    rvl_context *context = *state;
    rvli_handle block = create_block(context, RVLI_BLOCK_EXPORTABLE);
    uint64_t here = map_block(context, block);
    gpu_fill(context, 0, here, BLOCK_BYTES, 1);
    int fd = export_well(context, block);
    rvli_handle imported = import_well(context, fd);
    uint64_t there = map_block(context, imported);
    assert_int_not_equal(there, here);
    assert_true(gpu_holds(context, 0, there, BLOCK_BYTES, 1));
    gpu_fill(context, 0, there, BLOCK_BYTES, 2);
    assert_true(gpu_holds(context, 0, here, BLOCK_BYTES, 2));
    assert_int_equal(fake_stats_get().used_bytes[0], BLOCK_BYTES); /* once */
    unmap_block(context, here);
    unmap_block(context, there);
    release_block(context, block);
    release_block(context, imported);
    close(fd);
}

/* The exporter may be done with it first; the descriptor alone keeps it too. */
static void the_last_that_names_a_block_frees_it(void **state)
{
    rvl_context *context = *state;
    rvli_handle block = create_block(context, RVLI_BLOCK_EXPORTABLE);
    uint64_t here = map_block(context, block);
    gpu_fill(context, 0, here, BLOCK_BYTES, 3);
    int fd = export_well(context, block);
    unmap_block(context, here);
    release_block(context, block);
    assert_int_equal(fake_stats_get().used_bytes[0], BLOCK_BYTES);
    rvli_handle imported = import_well(context, fd);
    close(fd);
    uint64_t there = map_block(context, imported);
    assert_true(gpu_holds(context, 0, there, BLOCK_BYTES, 3));
    unmap_block(context, there);
    release_block(context, imported);
    assert_int_equal(fake_stats_get().used_bytes[0], 0);
}

static void a_block_can_be_exported_twice(void **state)
{
    rvl_context *context = *state;
    rvli_handle block = create_block(context, RVLI_BLOCK_EXPORTABLE);
    int first = export_well(context, block), second = export_well(context, block);
    assert_int_not_equal(first, second);
    assert_int_equal(fake_stats_get().live.exports, 2);
    close(first);
    assert_int_equal(fake_stats_get().live.exports, 1);
    rvli_handle imported = import_well(context, second);
    close(second);
    release_block(context, block);
    release_block(context, imported);
}

/* The only block of an allocation. */
static rvli_handle block_of(rvl_context *context, rvl_addr addr)
{
    const rvli_allocation *allocation = rvli_index_get(&context->by_addr, addr);
    assert_non_null(allocation);
    assert_non_null(allocation->blocks);
    assert_int_equal(allocation->blocks->size, BLOCK_BYTES);
    return allocation->blocks->handle;
}

static rvl_addr alloc_flagged(rvl_context *context, uint32_t flags)
{
    rvl_addr addr = 0;
    const rvl_alloc_options options = {
        .struct_size = sizeof options, .tag = "weights", .backup = RVL_BACKUP_HOST, .flags = flags};
    assert_int_equal(rvl_alloc(context, BLOCK_BYTES, &options, &addr), RVL_OK);
    return addr;
}

/* A resumed allocation has new memory, which can be exported as well as the old. */
static void exportable_allocations_stay_so(void **state)
{
    rvl_context *context = *state;
    rvl_addr addr = alloc_flagged(context, RVL_ALLOC_EXPORTABLE);
    rvl_tag tag = support_tag(context, "weights");
    gpu_fill(context, 0, addr, BLOCK_BYTES, 4);
    for (int round = 0; round < 2; round++) {
        int fd = export_well(context, block_of(context, addr));
        rvli_handle imported = import_well(context, fd);
        close(fd);
        uint64_t there = map_block(context, imported);
        assert_true(gpu_holds(context, 0, there, BLOCK_BYTES, 4));
        unmap_block(context, there);
        release_block(context, imported);
        assert_int_equal(rvl_pause(context, &tag, 1, NULL), RVL_OK);
        assert_int_equal(fake_stats_get().used_bytes[0], 0);
        assert_int_equal(rvl_resume(context, &tag, 1, NULL), RVL_OK);
    }
    assert_true(gpu_holds(context, 0, addr, BLOCK_BYTES, 4));
    assert_int_equal(rvl_free(context, addr), RVL_OK);
}

/* ---- What is refused ---- */

static void check_export_refused(rvl_context *context, int device, rvli_handle block,
                                 rvl_status status)
{
    int fd = -77;
    inventory before = take_inventory();
    assert_int_equal(context->ops.export_block(context->self, device, block, &fd), status);
    assert_int_equal(rvli_error_get()->status, status);
    assert_int_equal(fd, -77);
    check_inventory(&before);
}

static void check_import_refused(rvl_context *context, int device, int fd, rvl_status status)
{
    rvli_handle block = 77;
    inventory before = take_inventory();
    assert_int_equal(context->ops.import_block(context->self, device, fd, BLOCK_BYTES, &block),
                     status);
    assert_int_equal(rvli_error_get()->status, status);
    assert_int_equal(block, 77);
    check_inventory(&before);
}

static void other_blocks_are_not_exported(void **state)
{
    rvl_context *context = *state;
    rvli_handle block = create_block(context, 0);
    check_export_refused(context, 0, block, RVL_ERR_INVALID);
    assert_non_null(strstr(rvli_error_get()->message, "exporting a block"));
    assert_string_equal(rvli_error_get()->native_name, "CUDA_ERROR_INVALID_VALUE");
    check_export_refused(context, 0, 0, RVL_ERR_INVALID);
    check_export_refused(context, 2, block, RVL_ERR_NO_DEVICE);
    check_export_refused(context, -1, block, RVL_ERR_NO_DEVICE);
    release_block(context, block);
    rvl_addr addr = alloc_flagged(context, 0);
    check_export_refused(context, 0, block_of(context, addr), RVL_ERR_INVALID);
}

static void other_descriptors_are_not_imported(void **state)
{
    rvl_context *context = *state;
    rvli_handle block = create_block(context, RVLI_BLOCK_EXPORTABLE);
    int ends[2], fd = export_well(context, block);
    int file = open("/dev/null", O_RDONLY | O_CLOEXEC);
    assert_true(file >= 0);
    assert_int_equal(pipe(ends), 0);
    check_import_refused(context, 0, -1, RVL_ERR_INVALID);
    assert_non_null(strstr(rvli_error_get()->message, "importing a block"));
    check_import_refused(context, 0, file, RVL_ERR_INVALID);
    check_import_refused(context, 0, ends[0], RVL_ERR_INVALID);
    check_import_refused(context, 2, fd, RVL_ERR_NO_DEVICE);
    check_import_refused(context, -1, fd, RVL_ERR_NO_DEVICE);
    close(file);
    close(ends[0]);
    close(ends[1]);
    close(fd);
    check_import_refused(context, 0, fd, RVL_ERR_INVALID);
    release_block(context, block);
}

/* ---- What fails ---- */

static const struct {
    CUresult result;
    rvl_status status;
} failures[] = {
    {CUDA_ERROR_OUT_OF_MEMORY, RVL_ERR_DEVICE_OOM},
    {CUDA_ERROR_NOT_PERMITTED, RVL_ERR_NOT_SUPPORTED},
    {CUDA_ERROR_INVALID_VALUE, RVL_ERR_INVALID},
    {CUDA_ERROR_OPERATING_SYSTEM, RVL_ERR_IO},
};

static void failures_change_nothing(void **state)
{
    rvl_context *context = *state;
    rvli_handle block = create_block(context, RVLI_BLOCK_EXPORTABLE);
    uint64_t here = map_block(context, block);
    gpu_fill(context, 0, here, BLOCK_BYTES, 5);
    for (size_t i = 0; i < sizeof failures / sizeof failures[0]; i++) {
        fake_fail("cuMemExportToShareableHandle", 1, failures[i].result, false);
        check_export_refused(context, 0, block, failures[i].status);
        assert_int_equal(rvli_error_get()->native_code, failures[i].result);
        int fd = export_well(context, block);
        fake_fail("cuMemImportFromShareableHandle", 1, failures[i].result, false);
        check_import_refused(context, 0, fd, failures[i].status);
        assert_int_equal(rvli_error_get()->native_code, failures[i].result);
        rvli_handle imported = import_well(context, fd);
        close(fd);
        uint64_t there = map_block(context, imported);
        assert_true(gpu_holds(context, 0, there, BLOCK_BYTES, 5));
        unmap_block(context, there);
        release_block(context, imported);
    }
    unmap_block(context, here);
    release_block(context, block);
}

/* The device is lost to every later call, also to those that the driver would do. */
static void lost_devices_share_nothing(void **state)
{
    (void)state;
    static const char *const symbols[] = {"cuMemExportToShareableHandle",
                                          "cuMemImportFromShareableHandle"};
    for (int i = 0; i < 2; i++) {
        assert_int_equal(cuInit(0), CUDA_SUCCESS);
        rvl_context *context = gpu_open(NULL, NULL);
        rvli_handle block = create_block(context, RVLI_BLOCK_EXPORTABLE);
        int fd = export_well(context, block);
        fake_fail(symbols[i], 1, CUDA_ERROR_ECC_UNCORRECTABLE, false);
        if (i == 0)
            check_export_refused(context, 0, block, RVL_ERR_DEVICE_LOST);
        else
            check_import_refused(context, 0, fd, RVL_ERR_DEVICE_LOST);
        check_export_refused(context, 0, block, RVL_ERR_DEVICE_LOST);
        check_import_refused(context, 0, fd, RVL_ERR_DEVICE_LOST);
        assert_string_equal(rvli_error_get()->native_name, "CUDA_ERROR_ECC_UNCORRECTABLE");
        close(fd);
        assert_int_equal(rvl_context_close(context, NULL), RVL_OK);
        assert_int_equal(fake_reset().handles, 1); /* which the lost device has */
    }
}

#define CONTEXT_TEST(test) cmocka_unit_test_setup_teardown(test, open_context, close_context)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CONTEXT_TEST(an_imported_block_is_the_same_memory),
        CONTEXT_TEST(the_last_that_names_a_block_frees_it),
        CONTEXT_TEST(a_block_can_be_exported_twice),
        CONTEXT_TEST(exportable_allocations_stay_so),
        CONTEXT_TEST(other_blocks_are_not_exported),
        CONTEXT_TEST(other_descriptors_are_not_imported),
        CONTEXT_TEST(failures_change_nothing),
        cmocka_unit_test(lost_devices_share_nothing),
    };
    setenv("RVL_CUDA_LIBRARY", RVL_CUDA_FAKE_PATH, 1);
    if (!gpu_is_there())
        return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
