/* SPDX-License-Identifier: MIT */
/*
 * Memory that another context, as another process would, has made: exported block by block, put
 * together again, paused, resumed, given back and freed; and each of these made to fail.
 */
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/folder.h"
#include "gpu.h"
#include "reveille/record.h"
#include "reveille/share.h"
#include "tests/support/short_memory.h"

#define BLOCK_BYTES (4 * MIB)
#define BLOCKS 3
#define SIZE (BLOCKS * BLOCK_BYTES)

/* ---- Failures of the host ---- */

SHORT_CALLOC
SHORT_MEMORY(void *, rvli_pool_get, (rvli_pool * pool), (pool), NULL)
SHORT_MEMORY(rvl_status, rvli_index_insert, (rvli_index * index, rvli_allocation *allocation),
             (index, allocation), rvli_error(RVL_ERR_HOST_OOM, "no host memory for an address"))

/* The request of this number from now on is refused; 0: none is. */
static void refuse(uint64_t number)
{
    short_memory_requests = 0;
    short_memory_refused_request = number;
}

/* ---- A process that has memory, and one that imports it ---- */

typedef struct scene {
    rvl_context *exporter, *importer;
    fault_injector *exporters_fault, *fault;
    rvl_addr there, here;
} scene;

static rvl_error last_error(void)
{
    rvl_error error = {.struct_size = sizeof error};
    assert_int_equal(rvl_last_error(&error), RVL_OK);
    return error;
}

static rvl_addr export_memory(rvl_context *context, uint64_t seed)
{
    rvl_tag tag;
    rvl_addr addr = 0;
    const rvl_tag_options small = {.struct_size = sizeof small, .block_bytes = BLOCK_BYTES};
    const rvl_alloc_options options = {.struct_size = sizeof options,
                                       .tag = "weights",
                                       .backup = RVL_BACKUP_HOST,
                                       .flags = RVL_ALLOC_EXPORTABLE};
    assert_int_equal(rvl_tag_define(context, "weights", &small, &tag), RVL_OK);
    assert_int_equal(rvl_alloc(context, SIZE, &options, &addr), RVL_OK);
    gpu_fill(context, 0, addr, SIZE, seed);
    return addr;
}

static rvl_import *begin_import(rvl_context *context)
{
    rvl_import *import = NULL;
    const rvl_import_options options = {.struct_size = sizeof options, .tag = "peer"};
    assert_int_equal(rvl_import_begin(context, SIZE, &options, &import), RVL_OK);
    return import;
}

/* All blocks of the exporter's allocation, `at_once` at a time. */
static void add_blocks(const scene *s, rvl_import *import, size_t at_once)
{
    rvl_export done = {.struct_size = sizeof done};
    rvl_export_options options = {.struct_size = sizeof options};
    int fds[BLOCKS];
    uint64_t bytes[BLOCKS];
    for (; options.first_block < BLOCKS; options.first_block += done.file_count) {
        assert_int_equal(
            rvl_allocation_export(s->exporter, s->there, &options, fds, bytes, at_once, &done),
            RVL_OK);
        assert_true(done.file_count > 0);
        options.allocation_id = done.allocation_id;
        rvl_status status = rvl_import_add(import, fds, bytes, done.file_count);
        for (uint64_t i = 0; i < done.file_count; i++)
            close(fds[i]);
        assert_int_equal(status, RVL_OK);
    }
}

static int open_scene(void **state)
{
    scene *s = calloc(1, sizeof *s);
    s->exporter = gpu_open(NULL, &s->exporters_fault);
    s->importer = gpu_open(NULL, &s->fault);
    s->there = export_memory(s->exporter, 1);
    *state = s;
    return 0;
}

static int open_imported(void **state)
{
    open_scene(state);
    scene *s = *state;
    rvl_import *import = begin_import(s->importer);
    add_blocks(s, import, 2);
    assert_int_equal(rvl_import_finish(import, &s->here), RVL_OK);
    return 0;
}

static int close_scene(void **state)
{
    scene *s = *state;
    fault_set(s->fault, &(fault_plan){0});
    assert_int_equal(rvl_context_close(s->importer, NULL), RVL_OK);
    assert_int_equal(rvl_context_close(s->exporter, NULL), RVL_OK);
    free(s);
    return 0;
}

/* ---- What is counted ---- */

static void check_counted(const scene *s, uint64_t imported_bytes, uint64_t allocations)
{
    rvl_device_stats stats = support_stats(s->importer, 0);
    assert_int_equal(stats.imported_bytes, imported_bytes);
    assert_int_equal(stats.used_bytes, imported_bytes);
    assert_int_equal(stats.external_bytes, 0);
    assert_int_equal(stats.stranded_bytes, 0);
    assert_int_equal(stats.allocation_count, allocations);
    assert_int_equal(stats.alloc_calls, 0);
    assert_int_equal(stats.pauses, 0);
}

/* What is of the device, in all. Only the fake one is alone with us. */
static uint64_t device_bytes(const scene *s)
{
    uint64_t free_bytes = 0, total_bytes = 0;
    assert_int_equal(rvl_device_get_memory(s->importer, 0, &free_bytes, &total_bytes), RVL_OK);
    return gpu_is_fake() ? total_bytes - free_bytes : 0;
}

static uint64_t when_fake(uint64_t bytes)
{
    return gpu_is_fake() ? bytes : 0;
}

/* ---- What works ---- */

static void imports_are_the_same_memory(void **state)
{
    const scene *s = *state;
    uint64_t before = device_bytes(s);
    assert_int_not_equal(s->here, s->there);
    assert_true(gpu_holds(s->importer, 0, s->here, SIZE, 1));
    gpu_fill(s->importer, 0, s->here, SIZE, 2);
    assert_true(gpu_holds(s->exporter, 0, s->there, SIZE, 2));
    check_counted(s, SIZE, 1);

    rvl_allocation facts = {.struct_size = sizeof facts};
    assert_int_equal(rvl_allocation_find(s->importer, s->here + SIZE - 1, &facts), RVL_OK);
    assert_int_equal(facts.addr, s->here);
    assert_int_equal(facts.size_bytes, SIZE);
    assert_int_equal(facts.flags, RVL_ALLOC_IMPORTED);
    assert_int_equal(facts.state, RVL_STATE_ACTIVE);
    assert_int_equal(facts.backup, RVL_BACKUP_NONE);
    assert_string_equal(rvl_tag_name(s->importer, facts.tag), "peer");
    assert_int_equal(rvl_allocation_find(s->exporter, s->there, &facts), RVL_OK);
    assert_int_equal(facts.flags, RVL_ALLOC_EXPORTABLE);

    rvl_tag_stats tag = {.struct_size = sizeof tag};
    assert_int_equal(rvl_tag_get_stats(s->importer, support_tag(s->importer, "peer"), 0, &tag),
                     RVL_OK);
    assert_int_equal(tag.active_bytes, 0); /* it is not the tag's to give up */
    assert_int_equal(rvl_free(s->importer, s->here), RVL_OK);
    check_counted(s, 0, 0);
    assert_int_equal(device_bytes(s), before); /* the exporter has it */
}

static void imports_have_a_share_of_the_peak(void **state)
{
    const scene *s = *state;
    support_alloc(s->importer, "own", 0, 2 * MIB, RVL_BACKUP_NONE);
    rvl_holder holders[4];
    size_t count = 0;
    assert_int_equal(rvl_stage_get_holders(s->importer, 0, 0, holders, sizeof *holders, 4, &count),
                     RVL_OK);
    assert_int_equal(count, 2);
    assert_null(holders[0].process);
    assert_string_equal(holders[0].tag, "imported");
    assert_int_equal(holders[0].bytes, SIZE);
    assert_string_equal(holders[1].tag, "own");
    assert_int_equal(support_stats(s->importer, 0).peak_bytes, SIZE + 2 * MIB);
}

static void imports_are_paused_and_resumed(void **state)
{
    const scene *s = *state;
    fault_set(s->fault, &(fault_plan){0});
    for (int round = 0; round < 2; round++) {
        assert_int_equal(rvl_import_pause(s->importer, s->here), RVL_OK);
        assert_int_equal(support_state(s->importer, s->here), RVL_STATE_PAUSED);
        check_counted(s, SIZE, 1); /* its blocks are still held */
        assert_int_equal(rvl_import_pause(s->importer, s->here), RVL_OK);
        assert_int_equal(rvl_import_resume(s->importer, s->here), RVL_OK);
        assert_int_equal(support_state(s->importer, s->here), RVL_STATE_ACTIVE);
        assert_int_equal(rvl_import_resume(s->importer, s->here), RVL_OK);
    }
    assert_int_equal(fault_calls(s->fault, RVLI_OP_unmap), 2);
    assert_int_equal(fault_calls(s->fault, RVLI_OP_map), 2 * BLOCKS);
    assert_int_equal(fault_calls(s->fault, RVLI_OP_synchronize), 2);
    assert_int_equal(fault_calls(s->fault, RVLI_OP_copy_to_host), 0);
    assert_int_equal(fault_calls(s->fault, RVLI_OP_copy_to_device), 0);
    assert_int_equal(fault_calls(s->fault, RVLI_OP_fill), 0);
    assert_true(gpu_holds(s->importer, 0, s->here, SIZE, 1));
}

/* The address stays when the memory goes, and the exporter's pause then frees it. */
static void imports_give_back_what_they_hold(void **state)
{
    const scene *s = *state;
    uint64_t held = device_bytes(s);
    rvl_tag weights = support_tag(s->exporter, "weights");
    assert_int_equal(rvl_import_release(s->importer, s->here), RVL_ERR_STATE);
    assert_int_equal(rvl_import_pause(s->importer, s->here), RVL_OK);
    assert_int_equal(rvl_pause(s->exporter, &weights, 1, NULL), RVL_OK);
    assert_int_equal(device_bytes(s), held);
    assert_int_equal(rvl_import_release(s->importer, s->here), RVL_OK);
    assert_int_equal(device_bytes(s), held - when_fake(SIZE));
    assert_int_equal(support_state(s->importer, s->here), RVL_STATE_LOST);
    check_counted(s, 0, 1);
    assert_int_equal(rvl_import_release(s->importer, s->here), RVL_OK);
    assert_int_equal(rvl_import_pause(s->importer, s->here), RVL_OK);
    assert_int_equal(rvl_import_resume(s->importer, s->here), RVL_ERR_STATE);
    assert_int_equal(support_state(s->importer, s->here), RVL_STATE_LOST);
    assert_int_equal(rvl_free(s->importer, s->here), RVL_OK);
    check_counted(s, 0, 0);
    assert_int_equal(rvl_free(s->importer, s->here), RVL_ERR_INVALID);
    assert_int_equal(rvl_resume(s->exporter, &weights, 1, NULL), RVL_OK);
    assert_true(gpu_holds(s->exporter, 0, s->there, SIZE, 1));
}

static void paused_imports_are_freed(void **state)
{
    const scene *s = *state;
    assert_int_equal(rvl_import_pause(s->importer, s->here), RVL_OK);
    assert_int_equal(rvl_free(s->importer, s->here), RVL_OK);
    check_counted(s, 0, 0);
    assert_int_equal(rvl_free(s->exporter, s->there), RVL_OK);
}

/* It is not the importer's memory to give up, nor to record. */
static void tags_leave_imports_as_they_are(void **state)
{
    const scene *s = *state;
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/import.rvt", folder);
    rvl_tag peer = support_tag(s->importer, "peer");
    rvl_forecast forecast = {.struct_size = sizeof forecast};
    assert_int_equal(rvl_record_start(s->importer, path), RVL_OK);
    assert_int_equal(rvl_pause_forecast(s->importer, &peer, 1, NULL, &forecast), RVL_OK);
    assert_int_equal(forecast.allocation_count, 0);
    assert_int_equal(rvl_pause(s->importer, NULL, 0, NULL), RVL_OK);
    assert_int_equal(support_state(s->importer, s->here), RVL_STATE_ACTIVE);
    assert_int_equal(rvl_import_pause(s->importer, s->here), RVL_OK);
    assert_int_equal(rvl_resume(s->importer, NULL, 0, NULL), RVL_OK);
    assert_int_equal(support_state(s->importer, s->here), RVL_STATE_PAUSED);
    assert_int_equal(rvl_free(s->importer, s->here), RVL_OK);
    assert_int_equal(rvl_record_stop(s->importer), RVL_OK);
    FILE *trace = fopen(path, "r");
    assert_non_null(trace);
    char line[512];
    unsigned lines = 0;
    for (; fgets(line, sizeof line, trace) != NULL; lines++) {
        assert_null(strstr(line, " alloc "));
        assert_null(strstr(line, " free "));
        assert_null(strstr(line, "peer"));
    }
    assert_true(lines > 1);
    fclose(trace);
}

/* ---- What is refused ---- */

static void check_import_refused(const scene *s, uint64_t size, const rvl_import_options *options,
                                 rvl_status status)
{
    rvl_import *import = (rvl_import *)&import;
    assert_int_equal(rvl_import_begin(s->importer, size, options, &import), status);
    assert_int_equal(last_error().status, status);
    assert_ptr_equal(import, &import);
}

static void bad_imports_are_refused(void **state)
{
    const scene *s = *state;
    const rvl_import_options nowhere = {.struct_size = sizeof nowhere, .device = 77};
    const rvl_import_options listless = {.struct_size = sizeof listless, .access_count = 1};
    const rvl_import_options sizeless = {0};
    const rvl_import_options nobody = {.struct_size = sizeof nobody, .process = 9};
    check_import_refused(s, 0, NULL, RVL_ERR_INVALID);
    check_import_refused(s, SIZE + 1, NULL, RVL_ERR_INVALID);
    check_import_refused(s, UINT64_MAX, NULL, RVL_ERR_INVALID);
    check_import_refused(s, SIZE, &nowhere, RVL_ERR_NO_DEVICE);
    check_import_refused(s, SIZE, &listless, RVL_ERR_INVALID);
    check_import_refused(s, SIZE, &sizeless, RVL_ERR_INVALID);
    check_import_refused(s, SIZE, &nobody, RVL_ERR_INVALID);
    assert_int_equal(rvl_import_begin(s->importer, SIZE, NULL, NULL), RVL_ERR_INVALID);
    assert_int_equal(rvl_import_begin(NULL, SIZE, NULL, NULL), RVL_ERR_INVALID);
    rvl_import_cancel(NULL);
    check_counted(s, 0, 0);
}

static void bad_blocks_are_refused(void **state)
{
    scene *s = *state;
    rvl_addr addr = 77;
    rvl_import *import = begin_import(s->importer);
    int file = open("/dev/null", O_RDONLY | O_CLOEXEC);
    const uint64_t none = 0, odd = 1, large = 2 * SIZE, block = BLOCK_BYTES;
    assert_int_equal(rvl_import_add(NULL, &file, &block, 1), RVL_ERR_INVALID);
    assert_int_equal(rvl_import_add(import, NULL, &block, 1), RVL_ERR_INVALID);
    assert_int_equal(rvl_import_add(import, &file, NULL, 1), RVL_ERR_INVALID);
    assert_int_equal(rvl_import_add(import, &file, &none, 1), RVL_ERR_INVALID);
    assert_int_equal(rvl_import_add(import, &file, &odd, 1), RVL_ERR_INVALID);
    assert_int_equal(rvl_import_add(import, &file, &large, 1), RVL_ERR_INVALID);
    assert_int_equal(rvl_import_add(import, NULL, NULL, 0), RVL_OK);
    assert_int_equal(rvl_import_finish(NULL, &addr), RVL_ERR_INVALID);
    assert_int_equal(rvl_import_finish(import, NULL), RVL_ERR_INVALID);
    assert_int_equal(rvl_import_finish(import, &addr), RVL_ERR_INVALID); /* no blocks yet */
    if (gpu_is_fake()) {
        assert_int_equal(rvl_import_add(import, &file, &block, 1), RVL_ERR_INVALID);
        assert_string_equal(last_error().op, "import_block");
    }
    close(file);
    assert_int_equal(addr, 77);
    add_blocks(s, import, 1); /* what was refused has left nothing */
    assert_int_equal(rvl_import_finish(import, &s->here), RVL_OK);
    assert_true(gpu_holds(s->importer, 0, s->here, SIZE, 1));
}

static void check_export_refused(const scene *s, rvl_addr addr, const rvl_export_options *options,
                                 rvl_status status)
{
    int fd = -77;
    uint64_t bytes = 77;
    rvl_export done = {.struct_size = sizeof done, .file_count = 77};
    assert_int_equal(rvl_allocation_export(s->exporter, addr, options, &fd, &bytes, 1, &done),
                     status);
    assert_int_equal(last_error().status, status);
    assert_int_equal(done.file_count, 77);
    assert_int_equal(fd, -77);
}

static void bad_exports_are_refused(void **state)
{
    const scene *s = *state;
    int fds[2];
    uint64_t bytes[2];
    rvl_export done = {.struct_size = sizeof done}, sizeless = {0};
    rvl_addr plain = support_alloc(s->exporter, "plain", 0, 2 * MIB, RVL_BACKUP_NONE);
    const rvl_export_options other = {.struct_size = sizeof other, .allocation_id = 4711};
    check_export_refused(s, s->there + 1, NULL, RVL_ERR_NOT_FOUND);
    check_export_refused(s, s->there, &other, RVL_ERR_NOT_FOUND);
    check_export_refused(s, plain, NULL, RVL_ERR_NOT_SUPPORTED);
    assert_int_equal(rvl_allocation_export(NULL, s->there, NULL, fds, bytes, 2, &done),
                     RVL_ERR_INVALID);
    assert_int_equal(rvl_allocation_export(s->exporter, s->there, NULL, NULL, bytes, 2, &done),
                     RVL_ERR_INVALID);
    assert_int_equal(rvl_allocation_export(s->exporter, s->there, NULL, fds, NULL, 2, &done),
                     RVL_ERR_INVALID);
    assert_int_equal(rvl_allocation_export(s->exporter, s->there, NULL, fds, bytes, 2, NULL),
                     RVL_ERR_INVALID);
    assert_int_equal(rvl_allocation_export(s->exporter, s->there, NULL, fds, bytes, 2, &sizeless),
                     RVL_ERR_INVALID);
    assert_int_equal(rvl_allocation_export(s->exporter, s->there, NULL, NULL, NULL, 0, &done),
                     RVL_OK);
    assert_int_equal(done.size_bytes, SIZE);
    assert_int_equal(done.block_count, BLOCKS);
    assert_int_equal(done.file_count, 0);
    rvl_tag weights = support_tag(s->exporter, "weights");
    assert_int_equal(rvl_pause(s->exporter, &weights, 1, NULL), RVL_OK);
    check_export_refused(s, s->there, NULL, RVL_ERR_STATE);
    assert_int_equal(rvl_resume(s->exporter, &weights, 1, NULL), RVL_OK);
}

static void other_addresses_are_no_imports(void **state)
{
    const scene *s = *state;
    rvl_addr own = support_alloc(s->importer, "own", 0, 2 * MIB, RVL_BACKUP_NONE);
    const rvl_addr others[] = {own, s->here + 1, 0};
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(rvl_import_pause(s->importer, others[i]), RVL_ERR_NOT_FOUND);
        assert_int_equal(rvl_import_resume(s->importer, others[i]), RVL_ERR_NOT_FOUND);
        assert_int_equal(rvl_import_release(s->importer, others[i]), RVL_ERR_NOT_FOUND);
    }
    assert_int_equal(rvl_import_pause(NULL, s->here), RVL_ERR_INVALID);
    assert_int_equal(support_state(s->importer, s->here), RVL_STATE_ACTIVE);
}

/* ---- What fails ---- */

static void fail_once(fault_injector *fault, rvli_op op, uint64_t at)
{
    fault_set(fault, &(fault_plan){.op_mask = UINT64_C(1) << op, .countdown = at});
}

static void exports_fail_as_a_whole(void **state)
{
    const scene *s = *state;
    int fds[BLOCKS];
    uint64_t bytes[BLOCKS];
    rvl_export done = {.struct_size = sizeof done, .block_count = 77};
    for (uint64_t at = 1; at <= BLOCKS; at++) {
        fail_once(s->exporters_fault, RVLI_OP_export_block, at);
        assert_int_equal(
            rvl_allocation_export(s->exporter, s->there, NULL, fds, bytes, BLOCKS, &done),
            RVL_ERR_IO);
        assert_string_equal(last_error().op, "export_block");
        assert_int_equal(done.block_count, 77);
        for (uint64_t i = 0; i + 1 < at; i++) /* what was made is closed */
            assert_int_equal(fcntl(fds[i], F_GETFD), -1);
    }
    fault_set(s->exporters_fault, &(fault_plan){0});
    assert_int_equal(rvl_allocation_export(s->exporter, s->there, NULL, fds, bytes, BLOCKS, &done),
                     RVL_OK);
    assert_int_equal(done.file_count, BLOCKS);
    for (uint64_t i = 0; i < BLOCKS; i++) {
        assert_int_equal(bytes[i], BLOCK_BYTES);
        assert_int_equal(close(fds[i]), 0);
    }
}

/* Every step of an import, and what undoes it. */
static void imports_fail_as_a_whole(void **state)
{
    scene *s = *state;
    static const struct {
        rvli_op op;
        unsigned calls;
        const char *name;
    } steps[] = {{RVLI_OP_reserve, 1, "reserve"},
                 {RVLI_OP_map, BLOCKS, "map"},
                 {RVLI_OP_set_access, 1, "set_access"}};
    rvl_import *import = begin_import(s->importer);
    rvl_export done = {.struct_size = sizeof done};
    int fds[BLOCKS];
    uint64_t bytes[BLOCKS];
    assert_int_equal(rvl_allocation_export(s->exporter, s->there, NULL, fds, bytes, BLOCKS, &done),
                     RVL_OK);
    for (uint64_t at = 1; at <= BLOCKS; at++) {
        fail_once(s->fault, RVLI_OP_import_block, at);
        assert_int_equal(rvl_import_add(import, fds, bytes, BLOCKS), RVL_ERR_IO);
        assert_string_equal(last_error().op, "import_block");
        assert_int_equal(fault_calls(s->fault, RVLI_OP_release), at - 1);
        fault_set(s->fault, &(fault_plan){0});
        refuse(at);
        assert_int_equal(rvl_import_add(import, fds, bytes, BLOCKS), RVL_ERR_HOST_OOM);
        refuse(0);
        assert_int_equal(fault_calls(s->fault, RVLI_OP_release), at);
    }
    assert_int_equal(rvl_import_add(import, fds, bytes, BLOCKS), RVL_OK);
    for (int i = 0; i < BLOCKS; i++)
        close(fds[i]);
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++)
        for (uint64_t at = 1; at <= steps[i].calls; at++) {
            rvl_addr addr = 77;
            fail_once(s->fault, steps[i].op, at);
            assert_int_equal(rvl_import_finish(import, &addr), RVL_ERR_IO);
            assert_string_equal(last_error().op, steps[i].name);
            assert_string_equal(last_error().tag, "peer");
            assert_int_equal(last_error().requested_bytes, SIZE);
            assert_int_equal(addr, 77);
            check_counted(s, 0, 0);
        }
    fault_set(s->fault, &(fault_plan){0});
    for (uint64_t at = 1; at <= 3; at++) { /* what counts its tag, its record, and its address */
        refuse(at);
        assert_int_equal(rvl_import_finish(import, &s->here), RVL_ERR_HOST_OOM);
        refuse(0);
        check_counted(s, 0, 0);
    }
    assert_int_equal(fault_calls(s->fault, RVLI_OP_reserve), 3);
    assert_int_equal(fault_calls(s->fault, RVLI_OP_release_range), 3);
    assert_int_equal(rvl_import_finish(import, &s->here), RVL_OK);
    assert_true(gpu_holds(s->importer, 0, s->here, SIZE, 1));
    refuse(1);
    assert_int_equal(rvl_import_begin(s->importer, SIZE, NULL, &import), RVL_ERR_HOST_OOM);
    refuse(0);
}

static void cancelled_imports_hold_nothing(void **state)
{
    const scene *s = *state;
    rvl_import *import = begin_import(s->importer);
    fault_set(s->fault, &(fault_plan){0});
    add_blocks(s, import, BLOCKS);
    (void)rvl_device_get_info(s->importer, 77, NULL);
    rvl_import_cancel(import);
    assert_int_equal(last_error().status, RVL_ERR_NO_DEVICE);
    assert_int_equal(fault_calls(s->fault, RVLI_OP_release), BLOCKS);
    uint64_t held = device_bytes(s);
    assert_int_equal(rvl_free(s->exporter, s->there), RVL_OK);
    assert_int_equal(device_bytes(s), held - when_fake(SIZE));
    check_counted(s, 0, 0);
}

static void pauses_fail_as_a_whole(void **state)
{
    const scene *s = *state;
    static const rvli_op ops[] = {RVLI_OP_synchronize, RVLI_OP_unmap};
    for (size_t i = 0; i < 2; i++) {
        fail_once(s->fault, ops[i], 1);
        assert_int_equal(rvl_import_pause(s->importer, s->here), RVL_ERR_IO);
        assert_string_equal(last_error().op, rvli_op_name(ops[i]));
        assert_non_null(strstr(last_error().message, "pause of an import of \"peer\""));
        assert_int_equal(support_state(s->importer, s->here), RVL_STATE_ACTIVE);
        assert_true(gpu_holds(s->importer, 0, s->here, SIZE, 1));
        check_counted(s, SIZE, 1);
    }
    assert_int_equal(rvl_import_pause(s->importer, s->here), RVL_OK);
}

static void resumes_fail_as_a_whole(void **state)
{
    const scene *s = *state;
    assert_int_equal(rvl_import_pause(s->importer, s->here), RVL_OK);
    for (uint64_t at = 1; at <= BLOCKS + 1; at++) {
        bool mapping = at <= BLOCKS;
        fail_once(s->fault, mapping ? RVLI_OP_map : RVLI_OP_set_access, mapping ? at : 1);
        assert_int_equal(rvl_import_resume(s->importer, s->here), RVL_ERR_IO);
        assert_int_equal(fault_calls(s->fault, RVLI_OP_unmap), at > 1);
        assert_int_equal(support_state(s->importer, s->here), RVL_STATE_PAUSED);
        check_counted(s, SIZE, 1);
    }
    assert_int_equal(rvl_import_resume(s->importer, s->here), RVL_OK);
    assert_true(gpu_holds(s->importer, 0, s->here, SIZE, 1));
}

/* Some blocks are mapped and cannot be unmapped: what is left is told, and put right later. */
static void half_resumed_imports_are_lost(void **state)
{
    const scene *s = *state;
    const uint64_t mask = UINT64_C(1) << RVLI_OP_map | UINT64_C(1) << RVLI_OP_unmap;
    const fault_plan plan = {.op_mask = mask, .countdown = 2, .for_good = true};
    for (int round = 0; round < 3; round++) {
        assert_int_equal(rvl_import_pause(s->importer, s->here), RVL_OK);
        fault_set(s->fault, &plan);
        assert_int_equal(rvl_import_resume(s->importer, s->here), RVL_ERR_IO);
        assert_string_equal(last_error().op, "map");
        assert_int_equal(support_state(s->importer, s->here), RVL_STATE_LOST);
        check_counted(s, SIZE, 1);
        assert_int_equal(rvl_import_release(s->importer, s->here), RVL_ERR_IO);
        assert_int_equal(support_state(s->importer, s->here), RVL_STATE_LOST);
        fault_set(s->fault, &(fault_plan){0});
        if (round == 0) {
            assert_int_equal(rvl_import_resume(s->importer, s->here), RVL_OK);
            assert_true(gpu_holds(s->importer, 0, s->here, SIZE, 1));
        } else if (round == 1) {
            fault_set(s->fault, &plan); /* the first of two maps that are missing succeeds */
            assert_int_equal(rvl_import_resume(s->importer, s->here), RVL_ERR_IO);
            fault_set(s->fault, &(fault_plan){0});
            assert_int_equal(rvl_import_resume(s->importer, s->here), RVL_OK);
        } else {
            assert_int_equal(rvl_free(s->importer, s->here), RVL_OK);
        }
    }
    check_counted(s, 0, 0);
}

static void refused_blocks_stay(void **state)
{
    const scene *s = *state;
    assert_int_equal(rvl_import_pause(s->importer, s->here), RVL_OK);
    const uint64_t release = UINT64_C(1) << RVLI_OP_release;
    fault_set(s->fault, &(fault_plan){.op_mask = release, .countdown = 1, .for_good = true});
    assert_int_equal(rvl_import_release(s->importer, s->here), RVL_ERR_IO);
    assert_int_equal(support_state(s->importer, s->here), RVL_STATE_PAUSED);
    check_counted(s, SIZE, 1);
    assert_int_equal(rvl_free(s->importer, s->here), RVL_ERR_IO);
    assert_int_equal(support_state(s->importer, s->here), RVL_STATE_PAUSED);
    check_counted(s, SIZE, 1);
    /* One that is gone cannot be had again: the others follow, or are kept for the close. */
    fault_set(s->fault, &(fault_plan){.op_mask = release, .countdown = 2, .for_good = true});
    assert_int_equal(rvl_import_release(s->importer, s->here), RVL_OK);
    assert_int_equal(support_state(s->importer, s->here), RVL_STATE_LOST);
    rvl_device_stats stats = support_stats(s->importer, 0);
    assert_int_equal(stats.imported_bytes, 0);
    assert_int_equal(stats.stranded_bytes, SIZE - BLOCK_BYTES);
}

/* Mapped again, if it cannot be freed. */
static void failed_frees_leave_imports_mapped(void **state)
{
    const scene *s = *state;
    fail_once(s->fault, RVLI_OP_unmap, 1);
    assert_int_equal(rvl_free(s->importer, s->here), RVL_ERR_IO);
    assert_true(gpu_holds(s->importer, 0, s->here, SIZE, 1));
    fault_set(
        s->fault,
        &(fault_plan){.op_mask = UINT64_C(1) << RVLI_OP_release, .countdown = 1, .for_good = true});
    assert_int_equal(rvl_free(s->importer, s->here), RVL_ERR_IO);
    fault_set(s->fault, &(fault_plan){0});
    assert_int_equal(support_state(s->importer, s->here), RVL_STATE_ACTIVE);
    assert_true(gpu_holds(s->importer, 0, s->here, SIZE, 1));
    check_counted(s, SIZE, 1);
    assert_int_equal(rvl_free(s->importer, s->here), RVL_OK);
    check_counted(s, 0, 0);
}

/* ---- Several threads ---- */

typedef struct mover {
    const scene *s;
    rvl_status (*move)(rvl_context *context, rvl_addr addr);
    uint64_t wrong; /* answers other than that it worked, or that the import is gone */
} mover;

#define MOVES 300

static void *move_often(void *argument)
{
    mover *m = argument;
    rvl_status status = RVL_OK;
    for (int i = 0; i < MOVES && status != RVL_ERR_NOT_FOUND; i++) {
        status = m->move(m->s->importer, m->s->here);
        m->wrong += status != RVL_OK && status != RVL_ERR_NOT_FOUND;
    }
    return NULL;
}

/* Moves of one import wait for each other, and its free for the one that is on. */
static void threads_move_one_import(void **state)
{
    const scene *s = *state;
    mover movers[] = {
        {s, rvl_import_pause, 0}, {s, rvl_import_resume, 0}, {s, rvl_import_pause, 0}};
    pthread_t threads[3];
    for (int i = 0; i < 3; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, move_often, &movers[i]), 0);
    for (int i = 0; i < 50; i++) {
        rvl_device_stats stats = support_stats(s->importer, 0);
        assert_int_equal(stats.imported_bytes, SIZE);
        assert_int_equal(stats.used_bytes, SIZE);
    }
    assert_int_equal(rvl_free(s->importer, s->here), RVL_OK);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_int_equal(movers[i].wrong, 0);
    }
    check_counted(s, 0, 0);
}

/* ---- Who may, and who may not ---- */

static rvl_status move_import(void *user, rvl_tag tag)
{
    scene *s = user;
    (void)tag;
    assert_int_equal(rvl_import_pause(s->importer, s->here), RVL_OK);
    assert_int_equal(rvl_import_resume(s->importer, s->here), RVL_OK);
    assert_int_equal(rvl_free(s->importer, s->here), RVL_OK);
    assert_int_equal(rvl_free(s->importer, s->here), RVL_ERR_STATE); /* not an import any more */
    rvl_import *import = begin_import(s->importer);
    add_blocks(s, import, BLOCKS);
    assert_int_equal(rvl_import_finish(import, &s->here), RVL_OK);
    assert_int_equal(rvl_import_pause(s->importer, s->here), RVL_OK);
    assert_int_equal(rvl_import_release(s->importer, s->here), RVL_OK);
    return RVL_ERR_BUSY;
}

/* Those who must let go of memory before a pause may have imported it. */
static void callbacks_may_move_imports(void **state)
{
    scene *s = *state;
    rvl_tag own;
    const rvl_tag_options options = {
        .struct_size = sizeof options, .before_unmap = move_import, .callback_user = s};
    assert_int_equal(rvl_tag_define(s->importer, "own", &options, &own), RVL_OK);
    rvl_addr addr = support_alloc(s->importer, "own", 0, 2 * MIB, RVL_BACKUP_NONE);
    assert_int_equal(rvl_pause(s->importer, &own, 1, NULL), RVL_ERR_VETOED);
    assert_int_equal(support_state(s->importer, s->here), RVL_STATE_LOST);
    assert_int_equal(rvl_free(s->importer, addr), RVL_OK);
    assert_int_equal(support_stats(s->importer, 0).imported_bytes, 0);
}

/* What is the parent's is not the child's to give back. */
static void children_move_no_imports(void **state)
{
    const scene *s = *state;
    rvl_import *import = begin_import(s->importer);
    fault_set(s->fault, &(fault_plan){0});
    pid_t child = fork();
    if (child == 0) {
        rvl_addr addr;
        bool right = rvl_import_pause(s->importer, s->here) == RVL_ERR_FORKED &&
                     rvl_import_add(import, NULL, NULL, 0) == RVL_ERR_FORKED &&
                     rvl_import_finish(import, &addr) == RVL_ERR_FORKED;
        rvl_import_cancel(import);
        _exit(right && fault_calls(s->fault, RVLI_OP_release) == 0 ? 0 : 1);
    }
    int how = 0;
    assert_int_equal(waitpid(child, &how, 0), child);
    assert_int_equal(how, 0);
    rvl_import_cancel(import);
    assert_true(gpu_holds(s->importer, 0, s->here, SIZE, 1));
}

#define SCENE_TEST(test) cmocka_unit_test_setup_teardown(test, open_scene, close_scene)
#define IMPORT_TEST(test) cmocka_unit_test_setup_teardown(test, open_imported, close_scene)

int main(void)
{
    const struct CMUnitTest tests[] = {
        IMPORT_TEST(imports_are_the_same_memory),
        IMPORT_TEST(imports_have_a_share_of_the_peak),
        IMPORT_TEST(imports_are_paused_and_resumed),
        IMPORT_TEST(imports_give_back_what_they_hold),
        IMPORT_TEST(paused_imports_are_freed),
        IMPORT_TEST(tags_leave_imports_as_they_are),
        SCENE_TEST(bad_imports_are_refused),
        SCENE_TEST(bad_blocks_are_refused),
        SCENE_TEST(bad_exports_are_refused),
        IMPORT_TEST(other_addresses_are_no_imports),
        SCENE_TEST(exports_fail_as_a_whole),
        SCENE_TEST(imports_fail_as_a_whole),
        SCENE_TEST(cancelled_imports_hold_nothing),
        IMPORT_TEST(pauses_fail_as_a_whole),
        IMPORT_TEST(resumes_fail_as_a_whole),
        IMPORT_TEST(half_resumed_imports_are_lost),
        IMPORT_TEST(refused_blocks_stay),
        IMPORT_TEST(failed_frees_leave_imports_mapped),
        IMPORT_TEST(threads_move_one_import),
        IMPORT_TEST(callbacks_may_move_imports),
        IMPORT_TEST(children_move_no_imports),
    };
    if (!gpu_is_there())
        return SKIPPED;
    return cmocka_run_group_tests(tests, folder_make, folder_remove);
}
