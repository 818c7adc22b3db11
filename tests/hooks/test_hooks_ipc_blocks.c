/* SPDX-License-Identifier: MIT */
/*
 * An allocation of more blocks than one message takes, from the exporter's handle to the importer's
 * memory: both sides of the hooks are in this process, and talk over the socket.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "cuda/gpu.h"
#include "fake.h"
#include "hooks/export/export.h"
#include "hooks/ipc/import.h"
#include "hooks/region/saver.h"
#include "reveille/hooks.h"

#define BLOCK_BYTES (2 * MIB)
#define BLOCKS (2 * RVLI_IPC_BLOCKS + 3)
#define SIZE (BLOCKS * BLOCK_BYTES)

static rvl_context *context; /* importer and exporter have the same, for device 0 */
static rvl_addr memory;

static int prepare(void **state)
{
    (void)state;
    rvl_tag tag;
    const rvl_tag_options small = {.struct_size = sizeof small, .block_bytes = BLOCK_BYTES};
    const rvli_thread_settings settings = {
        .tag = "w", .region = RVLI_REGION_INSIDE, .host_backup = true};
    atomic_store(&rvli_saver_exportable, true);
    if (rvl_hooks_get_context(0, &context) != RVL_OK ||
        rvl_tag_define(context, "w", &small, &tag) != RVL_OK ||
        rvli_saver_alloc(0, SIZE, &settings, &memory) != RVL_OK)
        return -1;
    gpu_fill(context, 0, memory, SIZE, 1);
    return 0;
}

static rvl_status import(rvl_addr *addr_out)
{
    rvli_ipc_handle handle;
    rvli_ipc_name name;
    bool whole = false;
    assert_int_equal(rvli_ipc_export(context, memory, &handle), RVL_OK);
    assert_true(rvli_ipc_read_handle(&handle, &name, &whole));
    assert_true(whole);
    return rvli_ipc_import(&handle, &name, 0, addr_out);
}

static rvl_addr import_well(void)
{
    rvl_addr addr = 0;
    assert_int_equal(import(&addr), RVL_OK);
    assert_true(gpu_holds(context, 0, addr, SIZE, 1));
    return addr;
}

static void close_well(rvl_addr addr)
{
    rvl_status status = RVL_ERR_IO;
    assert_true(rvli_ipc_release(addr, &status));
    assert_int_equal(status, RVL_OK);
    assert_int_equal(support_stats(context, 0).imported_bytes, 0);
    assert_false(rvli_ipc_release(addr, &status));
}

/* Descriptors of blocks are on their way until the exporter's thread has closed them. */
static void check_no_exports(void)
{
    for (int i = 0; fake_stats_get().live.exports > 0; i++) {
        assert_true(i < 5000);
        usleep(1000);
    }
}

static void all_blocks_are_granted(void **state)
{
    (void)state;
    rvl_addr addr = import_well();
    assert_int_equal(support_stats(context, 0).imported_bytes, SIZE);
    assert_int_equal(fake_stats_get().used_bytes[0], SIZE);
    assert_int_equal(fake_stats_get().live.handles, 2 * BLOCKS);
    check_no_exports();
    rvl_allocation facts = {.struct_size = sizeof facts};
    assert_int_equal(rvl_allocation_find(context, addr, &facts), RVL_OK);
    assert_int_equal(facts.flags, RVL_ALLOC_IMPORTED);
    assert_int_equal(facts.size_bytes, SIZE);
    close_well(addr);
    assert_int_equal(fake_stats_get().live.handles, BLOCKS);
}

/* In the middle of the second message. */
static void grants_that_fail_leave_nothing(void **state)
{
    (void)state;
    static const char *const calls[] = {"cuMemExportToShareableHandle",
                                        "cuMemImportFromShareableHandle"};
    for (int i = 0; i < 2; i++) {
        rvl_addr addr = 77;
        fake_live before = fake_stats_get().live;
        uint64_t failures = fake_failures();
        fake_fail(calls[i], RVLI_IPC_BLOCKS + 2, CUDA_ERROR_OPERATING_SYSTEM, false);
        assert_int_equal(import(&addr), RVL_ERR_IO);
        assert_int_equal(fake_failures(), failures + 1);
        assert_int_equal(addr, 77);
        check_no_exports();
        fake_live after = fake_stats_get().live;
        assert_memory_equal(&before, &after, sizeof after);
        assert_int_equal(support_stats(context, 0).imported_bytes, 0);
    }
    close_well(import_well());
}

static void pauses_take_all_blocks(void **state)
{
    (void)state;
    rvl_addr addr = import_well();
    assert_int_equal(rvl_hooks_pause("w"), RVL_OK);
    assert_int_equal(support_state(context, addr), RVL_STATE_LOST);
    assert_int_equal(support_stats(context, 0).imported_bytes, 0);
    assert_int_equal(fake_stats_get().used_bytes[0], 0);
    assert_int_equal(rvl_hooks_resume("w"), RVL_OK);
    assert_int_equal(support_state(context, addr), RVL_STATE_LOST);
    rvl_addr again = import_well();
    assert_int_not_equal(again, addr);
    close_well(again);
    close_well(addr);
}

/* The exporter unmaps after the importer has, and is refused. */
static void failed_pauses_give_all_blocks_back(void **state)
{
    (void)state;
    rvl_addr addr = import_well();
    fake_fail("cuMemUnmap", 2, CUDA_ERROR_INVALID_VALUE, false);
    assert_int_equal(rvl_hooks_pause("w"), RVL_ERR_INVALID);
    assert_int_equal(support_state(context, addr), RVL_STATE_ACTIVE);
    assert_int_equal(support_state(context, memory), RVL_STATE_ACTIVE);
    assert_true(gpu_holds(context, 0, addr, SIZE, 1));
    close_well(addr);
}

/* All of them, or none: what is mapped by half is given back. */
static void half_restored_imports_are_lost(void **state)
{
    (void)state;
    rvl_addr addr = import_well();
    uint64_t handles = fake_stats_get().live.handles;
    fake_fail("cuMemUnmap", 2, CUDA_ERROR_INVALID_VALUE, false);
    fake_fail("cuMemMap", 3, CUDA_ERROR_OUT_OF_MEMORY, false);
    assert_int_equal(rvl_hooks_pause("w"), RVL_ERR_INVALID);
    assert_int_equal(support_state(context, memory), RVL_STATE_ACTIVE);
    assert_true(gpu_holds(context, 0, memory, SIZE, 1));
    assert_int_equal(support_state(context, addr), RVL_STATE_LOST);
    assert_int_equal(support_stats(context, 0).imported_bytes, 0);
    assert_int_equal(fake_stats_get().live.handles, handles - BLOCKS);
    close_well(addr);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_blocks_are_granted),
        cmocka_unit_test(grants_that_fail_leave_nothing),
        cmocka_unit_test(pauses_take_all_blocks),
        cmocka_unit_test(failed_pauses_give_all_blocks_back),
        cmocka_unit_test(half_restored_imports_are_lost),
    };
    setenv("RVL_CUDA_LIBRARY", RVL_CUDA_FAKE_PATH, 1);
    if (!gpu_is_there())
        return 1;
    alarm(100);
    return cmocka_run_group_tests(tests, prepare, NULL);
}
