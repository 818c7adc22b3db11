/* SPDX-License-Identifier: MIT */
/*
 * PyTorch snapshots in a replay: their stages peak where the snapshot itself says, alone and beside
 * an engine's trace on the same clock.
 *
 * Linked with --wrap for malloc, calloc, realloc, strdup and memfd_create, so that each of them
 * fails in turn.
 */
#include "support.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "reveille/replay.h"
#include "reveille/snapshot.h"

#define SNAPSHOTS RVL_SOURCE_DIR "/traces/snapshots/"

/* ---- What runs out ---- */

static long allocations_left = -1; /* negative: no limit */
static bool no_file;

static bool refuses(void)
{
    if (allocations_left < 0)
        return false;
    if (allocations_left == 0)
        return true;
    allocations_left--;
    return false;
}

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *old, size_t size);
char *__real_strdup(const char *text);
int __real_memfd_create(const char *name, unsigned int flags);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *old, size_t size);
char *__wrap_strdup(const char *text);
int __wrap_memfd_create(const char *name, unsigned int flags);

void *__wrap_malloc(size_t size)
{
    return refuses() ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t count, size_t size)
{
    return refuses() ? NULL : __real_calloc(count, size);
}

void *__wrap_realloc(void *old, size_t size)
{
    return refuses() ? NULL : __real_realloc(old, size);
}

char *__wrap_strdup(const char *text)
{
    return refuses() ? NULL : __real_strdup(text);
}

int __wrap_memfd_create(const char *name, unsigned int flags)
{
    if (!no_file)
        return __real_memfd_create(name, flags);
    errno = EMFILE;
    return -1;
}

/* ---- Alone ---- */

static rvl_replay *replay(const char *const *paths, size_t count, rvl_replay_options options)
{
    rvl_trace_error error = {.struct_size = sizeof error};
    rvl_replay *result = NULL;
    options.struct_size = sizeof options;
    rvl_status status = rvl_replay_run(paths, count, &options, &error, &result);
    if (status != RVL_OK)
        print_error("%s: %s\n", error.file != NULL ? error.file : "-", error.message);
    assert_int_equal(status, RVL_OK);
    return result;
}

/* The stage of a name; fails the test if there is none. */
static rvl_stage_stats stage_of(const rvl_replay *result, const char *name, uint32_t *index_out)
{
    rvl_stage_stats stats = {.struct_size = sizeof stats};
    for (*index_out = 0; rvl_replay_get_stage(result, 0, *index_out, &stats, NULL) == RVL_OK;
         ++*index_out) {
        if (strcmp(stats.name, name) == 0)
            return stats;
    }
    fail_msg("no stage %s", name);
    return stats;
}

static void check_alone(const char *path)
{
    uint32_t index;
    rvl_snapshot *snapshot;
    rvl_replay *result = replay(&path, 1, (rvl_replay_options){.device = "2GiB"});
    assert_int_equal(rvl_snapshot_run(path, NULL, NULL, &snapshot), RVL_OK);
    rvl_snapshot_facts facts = {.struct_size = sizeof facts};
    assert_int_equal(rvl_snapshot_get(snapshot, &facts), RVL_OK);
    assert_true(facts.stage_count > 5);
    for (uint32_t i = 0; i < facts.stage_count; i++) {
        rvl_snapshot_stage stage = {.struct_size = sizeof stage};
        assert_int_equal(rvl_snapshot_get_stage(snapshot, i, &stage), RVL_OK);
        rvl_stage_stats stats = stage_of(result, stage.name, &index);
        assert_int_equal(stats.peak_bytes, stage.peak_reserved_bytes);
        assert_int_equal(stats.end_bytes, stage.end_reserved_bytes);
    }
    rvl_replay_device device = {.struct_size = sizeof device};
    assert_int_equal(rvl_replay_get_device(result, 0, &device), RVL_OK);
    assert_false(device.fits);
    assert_string_equal(device.oom_file, path);
    assert_string_equal(device.oom_process, "trainer");
    assert_string_equal(device.oom_tag, "segments");
    rvl_snapshot_close(snapshot);
    rvl_replay_close(result);
}

static void stages_peak_where_the_snapshot_says(void **state)
{
    (void)state;
    check_alone(SNAPSHOTS "dev-default.pickle.gz");
    check_alone(SNAPSHOTS "dev-expandable.pickle.gz");
    check_alone(SNAPSHOTS "dev-maxsplit.pickle.gz");
}

/* ---- Beside a trace ---- */

static char folder[] = "/tmp/reveille-join-XXXXXX";
static char engine[64];

/* Wall clock of the snapshot's first event, and of the begin of train0. */
static void times_of(const char *path, uint64_t *begin_ns_out, uint64_t *train_ns_out)
{
    char made[80];
    const char *file = made;
    rvl_trace_reader *reader;
    rvl_trace_event event;
    snprintf(made, sizeof made, "%s/made.rvt", folder);
    rvl_snapshot_trace how = {.struct_size = sizeof how,
                              .device = {.capacity_bytes = 64 * GIB, .granularity_bytes = GRANULE}};
    assert_int_equal(rvl_snapshot_write_trace(path, NULL, &how, made, NULL), RVL_OK);
    FILE *text = fopen(made, "r");
    assert_non_null(text);
    assert_int_equal(
        fscanf(text, "reveille-trace 1.0 clock boot=- mono_ns=0 wall_ns=%" SCNu64, begin_ns_out),
        1);
    fclose(text);
    assert_int_equal(rvl_trace_reader_open(&file, 1, NULL, NULL, &reader), RVL_OK);
    while (rvl_trace_reader_next(reader, &event, NULL) == RVL_OK) {
        if (event.kind == RVL_EVENT_STAGE && strcmp(event.name, "train0") == 0)
            *train_ns_out = *begin_ns_out + event.time_ns;
    }
    rvl_trace_reader_close(reader);
}

/* An engine with 3 GiB that it gives up a microsecond before a time. */
static void write_engine(uint64_t begin_ns, uint64_t leaves_ns, const char *profile)
{
    FILE *file = fopen(engine, "w");
    assert_non_null(file);
    fprintf(file,
            "reveille-trace 1.0\n"
            "clock boot=- mono_ns=0 wall_ns=%" PRIu64 "\n"
            "device 0 profile=- capacity_bytes=1073741824 granularity_bytes=2097152\n"
            "device 1 profile=%s capacity_bytes=150109880320 granularity_bytes=2097152\n"
            "process engine pid=0\n"
            "alloc 0 engine 0 1 1 3221225472 kv_cache\n"
            "free %" PRIu64 " engine 0 1\n"
            "end 2\n",
            begin_ns, profile, leaves_ns - begin_ns - 1000);
    fclose(file);
}

static void joins_a_trace_on_one_clock(void **state)
{
    (void)state;
    uint64_t begin_ns = 0, train_ns = 0;
    uint32_t index;
    const char *paths[] = {SNAPSHOTS "dev-default.pickle.gz", engine};
    times_of(paths[0], &begin_ns, &train_ns);
    assert_true(train_ns > begin_ns);
    rvl_replay *alone = replay(paths, 1, (rvl_replay_options){0});
    write_engine(begin_ns, train_ns, "h200");
    for (int how = 0; how < 2; how++) {
        rvl_replay *joined =
            replay(paths, 2,
                   (rvl_replay_options){
                       .snapshot_process = "learner", .snapshot_device = 1, .wake = (rvl_wake)how});
        rvl_replay_device device = {.struct_size = sizeof device};
        assert_int_equal(rvl_replay_get_device(joined, 1, &device), RVL_OK);
        assert_int_equal(device.device, 1);
        rvl_stage_stats before = stage_of(alone, "logprob0", &index), stats = before;
        stage_of(joined, "logprob0", &index);
        assert_int_equal(rvl_replay_get_stage(joined, 1, index, &stats, NULL), RVL_OK);
        assert_int_equal(stats.peak_bytes, before.peak_bytes + 3 * GIB);
        before = stage_of(alone, "train0", &index);
        stage_of(joined, "train0", &index);
        assert_int_equal(rvl_replay_get_stage(joined, 1, index, &stats, NULL), RVL_OK);
        assert_int_equal(stats.peak_bytes, before.peak_bytes);
        const rvl_holder *holders;
        size_t count;
        assert_int_equal(rvl_replay_get_holders(joined, 1, index, &holders, &count), RVL_OK);
        assert_int_equal(count, 1);
        assert_string_equal(holders[0].process, "learner");
        rvl_replay_close(joined);
    }
    rvl_replay_close(alone);
}

static void several_snapshots_are_several_processes(void **state)
{
    (void)state;
    const char *paths[] = {SNAPSHOTS "dev-default.pickle.gz", SNAPSHOTS "dev-default.pickle.gz"};
    rvl_replay *result = replay(paths, 2, (rvl_replay_options){0});
    const rvl_holder *holders;
    size_t count;
    uint32_t index;
    stage_of(result, "final", &index);
    assert_int_equal(rvl_replay_get_holders(result, 0, index, &holders, &count), RVL_OK);
    assert_int_equal(count, 2);
    assert_string_equal(holders[0].process, "trainer");
    assert_string_equal(holders[1].process, "trainer2");
    rvl_replay_close(result);
}

/* ---- What goes wrong ---- */

static void check_refused(const char *const *paths, size_t count, rvl_replay_options options,
                          rvl_status status, const char *message)
{
    rvl_trace_error error = {.struct_size = sizeof error};
    rvl_replay *result = NULL;
    options.struct_size = sizeof options;
    assert_int_equal(rvl_replay_run(paths, count, &options, &error, &result), status);
    if (strstr(error.message, message) == NULL)
        print_error("expected \"%s\" in \"%s\"\n", message, error.message);
    assert_non_null(strstr(error.message, message));
    assert_null(result);
}

static void bad_input_is_named(void **state)
{
    (void)state;
    char broken[80];
    const char *good = SNAPSHOTS "dev-default.pickle.gz", *bad = broken;
    const char *both[] = {good, engine};
    snprintf(broken, sizeof broken, "%s/broken.pickle", folder);
    check_refused(&bad, 1, (rvl_replay_options){0}, RVL_ERR_IO, "");
    FILE *file = fopen(broken, "w");
    assert_non_null(file);
    fputs("no pickle", file);
    fclose(file);
    check_refused(&bad, 1, (rvl_replay_options){0}, RVL_ERR_CORRUPT_TRACE, "byte 0");
    rvl_trace_error error = {.struct_size = sizeof error};
    rvl_replay *result;
    assert_int_equal(rvl_replay_run(&bad, 1, NULL, &error, &result), RVL_ERR_CORRUPT_TRACE);
    assert_ptr_equal(error.file, bad);
    check_refused(&good, 1, (rvl_replay_options){.snapshot_device = 64}, RVL_ERR_INVALID,
                  "the last possible is 63");
    check_refused(&good, 1, (rvl_replay_options){.device = "h900"}, RVL_ERR_INVALID,
                  "unknown device \"h900\"");
    check_refused(&good, 1, (rvl_replay_options){.snapshot_process = ""}, RVL_ERR_INVALID,
                  "no name");
    check_refused(&good, 1, (rvl_replay_options){.conductor = "engine"}, RVL_ERR_INVALID,
                  "unknown conductor");
    write_engine(1000, 5000, "x900");
    check_refused(both, 2, (rvl_replay_options){.snapshot_device = 1}, RVL_ERR_INVALID,
                  "device 1 is a x900, which no profile describes");
    unlink(engine);
    check_refused(both, 2, (rvl_replay_options){0}, RVL_ERR_IO, "");
    no_file = true;
    check_refused(&good, 1, (rvl_replay_options){0}, RVL_ERR_IO, "no file in memory");
    no_file = false;
    rvl_snapshot_trace how = {.struct_size = sizeof how};
    assert_int_equal(rvl_snapshot_write_trace(good, NULL, NULL, "x", NULL), RVL_ERR_INVALID);
    assert_int_equal(rvl_snapshot_write_trace(good, NULL, &how, NULL, NULL), RVL_ERR_INVALID);
    how.device = (rvl_trace_device){.capacity_bytes = GIB, .granularity_bytes = GRANULE};
    error = (rvl_trace_error){.struct_size = sizeof error};
    assert_int_equal(rvl_snapshot_write_trace(good, NULL, &how, "/no/such/folder", &error),
                     RVL_ERR_IO);
    assert_string_equal(error.message, "its trace could not be written");
}

/* The first ones one by one, the many of the run itself with gaps. */
static void survives_lacks_of_memory(void **state)
{
    (void)state;
    const char *path = SNAPSHOTS "dev-default.pickle.gz";
    rvl_status status = RVL_ERR_HOST_OOM;
    for (long left = 0; status != RVL_OK && left < 1000000; left += 1 + left / 8) {
        rvl_replay *result = NULL;
        allocations_left = left;
        status = rvl_replay_run(&path, 1, NULL, NULL, &result);
        allocations_left = -1;
        assert_true(status == RVL_OK || status == RVL_ERR_HOST_OOM);
        assert_true((status == RVL_OK) == (result != NULL));
        rvl_replay_close(result);
    }
    assert_int_equal(status, RVL_OK);
}

static int setup(void **state)
{
    (void)state;
    if (mkdtemp(folder) == NULL)
        return -1;
    snprintf(engine, sizeof engine, "%s/engine.rvt", folder);
    return 0;
}

static int teardown(void **state)
{
    char line[64];
    (void)state;
    snprintf(line, sizeof line, "rm -r %s", folder);
    return system(line);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stages_peak_where_the_snapshot_says),
        cmocka_unit_test(joins_a_trace_on_one_clock),
        cmocka_unit_test(several_snapshots_are_several_processes),
        cmocka_unit_test(bad_input_is_named),
        cmocka_unit_test(survives_lacks_of_memory),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
