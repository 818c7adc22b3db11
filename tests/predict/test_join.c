/* SPDX-License-Identifier: MIT */
/*
 * PyTorch snapshots in a replay: their stages peak where the snapshot itself says, alone and beside
 * an engine's trace on the same clock.
 *
 * Linked with --wrap for malloc, calloc, realloc, strdup and memfd_create, so that each of them
 * fails in turn.
 */
#include "tests/support/support.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/support/folder.h"
#include "reveille/replay.h"
#include "reveille/snapshot.h"
#include "tests/support/short_memory.h"

#define SNAPSHOTS RVL_SOURCE_DIR "/traces/snapshots/"

/* ---- What runs out ---- */

SHORT_MALLOC
SHORT_CALLOC
SHORT_REALLOC
SHORT_STRDUP

static bool no_file;

int __real_memfd_create(const char *name, unsigned int flags);
int __wrap_memfd_create(const char *name, unsigned int flags);
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
    rvl_error error = {.struct_size = sizeof error};
    rvl_replay *result = NULL;
    options.struct_size = sizeof options;
    rvl_status status = rvl_replay_run(paths, count, &options, &result);
    rvl_last_error(&error);
    if (status != RVL_OK)
        print_error("%s: %s\n", error.file, error.message);
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
    assert_int_equal(rvl_snapshot_run(path, NULL, &snapshot), RVL_OK);
    rvl_snapshot_facts facts = {.struct_size = sizeof facts};
    assert_int_equal(rvl_snapshot_get_facts(snapshot, &facts), RVL_OK);
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

/* ---- By part ---- */

#define HOLDERS_MAX 8

enum { TENSORS, ROUNDING, PENDING, SPLIT, CACHED, PARTS };
static const char *const part_names[] = {"tensors", "rounding", "pending", "split", "cached"};

/* Who holds the peak of a stage of device 0. */
static void parts_at_peak(const rvl_replay *result, uint32_t index, uint64_t parts[PARTS])
{
    rvl_holder holders[HOLDERS_MAX];
    size_t count;
    assert_int_equal(
        rvl_replay_get_holders(result, 0, index, holders, sizeof *holders, HOLDERS_MAX, &count),
        RVL_OK);
    assert_in_range(count, 0, HOLDERS_MAX);
    memset(parts, 0, PARTS * sizeof *parts);
    for (size_t i = 0; i < count; i++) {
        int part = 0;
        assert_string_equal(holders[i].process, "trainer");
        while (part < PARTS && strcmp(part_names[part], holders[i].tag) != 0)
            part++;
        assert_in_range(part, 0, PARTS - 1);
        parts[part] = holders[i].bytes;
    }
}

static void check_near(uint64_t found, uint64_t expected, uint64_t allowed)
{
    uint64_t apart = found > expected ? found - expected : expected - found;
    if (apart > allowed)
        print_error("%" PRIu64 ", expected %" PRIu64 "\n", found, expected);
    assert_true(apart <= allowed);
}

/* At each stage's peak the parts are the model's, to the granule, and their sum to the byte. */
static void check_parts(const rvl_replay *result, const char *path, uint64_t granule)
{
    rvl_snapshot *snapshot;
    rvl_snapshot_facts facts = {.struct_size = sizeof facts};
    uint64_t gaps = 0;
    assert_int_equal(rvl_snapshot_run(path, NULL, &snapshot), RVL_OK);
    assert_int_equal(rvl_snapshot_get_facts(snapshot, &facts), RVL_OK);
    for (uint32_t i = 0; i < facts.stage_count; i++) {
        uint32_t index;
        uint64_t parts[PARTS];
        rvl_snapshot_stage stage = {.struct_size = sizeof stage};
        assert_int_equal(rvl_snapshot_get_stage(snapshot, i, &stage), RVL_OK);
        rvl_stage_stats stats = stage_of(result, stage.name, &index);
        assert_int_equal(stats.peak_bytes, stage.peak_reserved_bytes);
        assert_int_equal(stats.end_bytes, stage.end_reserved_bytes);
        parts_at_peak(result, index, parts);
        uint64_t gap =
            stage.rounding_bytes + stage.pending_bytes + stage.split_bytes + stage.cached_bytes;
        check_near(parts[TENSORS], stage.peak_reserved_bytes - gap, granule / 2);
        check_near(parts[ROUNDING], stage.rounding_bytes, granule);
        check_near(parts[PENDING], stage.pending_bytes, granule);
        check_near(parts[SPLIT], stage.split_bytes, granule);
        check_near(parts[CACHED], stage.cached_bytes, granule / 2);
        assert_int_equal(parts[TENSORS] + parts[ROUNDING] + parts[PENDING] + parts[SPLIT] +
                             parts[CACHED],
                         stage.peak_reserved_bytes);
        gaps += gap;
    }
    assert_true(gaps > facts.stage_count * GRANULE); /* there is something to tell apart */
    rvl_snapshot_close(snapshot);
}

static void parts_are_those_of_the_model(void **state)
{
    (void)state;
    const char *paths[] = {SNAPSHOTS "dev-default.pickle.gz", SNAPSHOTS "dev-expandable.pickle.gz",
                           SNAPSHOTS "dev-maxsplit.pickle.gz"};
    char made[] = "/tmp/reveille-parts-XXXXXX";
    const char *fine = made;
    int file = mkstemp(made);
    assert_true(file >= 0);
    close(file);
    rvl_snapshot_trace how = {
        .struct_size = sizeof how,
        .device = &(rvl_trace_device){.capacity_bytes = 64 * GIB, .granularity_bytes = 4096},
        .device_size = sizeof(rvl_trace_device),
        .flags = RVL_SNAPSHOT_BY_PART};
    for (size_t i = 0; i < 3; i++) {
        rvl_replay *result =
            replay(&paths[i], 1,
                   (rvl_replay_options){.device = "h200", .flags = RVL_REPLAY_SNAPSHOT_PARTS});
        check_parts(result, paths[i], GRANULE);
        rvl_replay_close(result);
        assert_int_equal(rvl_snapshot_write_trace(paths[i], NULL, &how, made), RVL_OK);
        result = replay(&fine, 1, (rvl_replay_options){0});
        check_parts(result, paths[i], 4096);
        rvl_replay_close(result);
    }
    unlink(made);
}

/* With room for every change. */
static rvl_timeline *timeline_of(const char *path, bool by_part)
{
    rvl_timeline_options options = {.struct_size = sizeof options,
                                    .points = RVL_TIMELINE_POINTS_MAX};
    rvl_timeline *timeline;
    assert_int_equal(rvl_timeline_open(&options, &timeline), RVL_OK);
    rvl_replay_close(
        replay(&path, 1,
               (rvl_replay_options){.timeline = timeline,
                                    .flags = by_part ? RVL_REPLAY_SNAPSHOT_PARTS : 0}));
    return timeline;
}

/*
 * Parts give to each other at one instant, by a free and an allocation. What lies between the two
 * never was: at every instant the sum is one that the whole has then, or just before.
 */
static void the_sum_of_parts_is_never_less(void **state)
{
    (void)state;
    const char *path = SNAPSHOTS "dev-default.pickle.gz";
    rvl_timeline *whole = timeline_of(path, false), *parts = timeline_of(path, true);
    rvl_timeline_device a = {.struct_size = sizeof a}, b = {.struct_size = sizeof b};
    assert_int_equal(rvl_timeline_get_device(whole, 0, &a), RVL_OK);
    assert_int_equal(rvl_timeline_get_device(parts, 0, &b), RVL_OK);
    assert_int_equal(a.peak_bytes, b.peak_bytes);
    assert_int_equal(a.peak_ns, b.peak_ns);
    assert_int_equal(a.series_count, 1);
    assert_true(b.changes > 10 * a.changes);
    assert_int_equal(b.point_count, b.changes);
    uint32_t at = 0; /* of the whole's points those before it are past */
    uint64_t held = 0;
    for (uint32_t i = 0; i < b.point_count; i++) {
        rvl_timeline_point part = {.struct_size = sizeof part}, point = part;
        assert_int_equal(rvl_timeline_get_point(parts, 0, i, &part), RVL_OK);
        while (rvl_timeline_get_point(whole, 0, at, &point) == RVL_OK &&
               point.end_ns < part.end_ns) {
            held = point.last_bytes;
            at++;
        }
        bool known = part.last_bytes == held;
        for (uint32_t k = at; !known && rvl_timeline_get_point(whole, 0, k, &point) == RVL_OK &&
                              point.end_ns == part.end_ns;
             k++)
            known = part.last_bytes == point.last_bytes;
        assert_true(known);
    }
    assert_in_range(at, a.point_count - 1, a.point_count);
    rvl_timeline_close(whole);
    rvl_timeline_close(parts);
}

/* ---- Beside a trace ---- */

static char engine[64];

/* Wall clock of the snapshot's first event, and of the begin of train0. */
static void times_of(const char *path, uint64_t *begin_ns_out, uint64_t *train_ns_out)
{
    char made[80];
    const char *file = made;
    rvl_trace_reader *reader;
    rvl_trace_event event;
    snprintf(made, sizeof made, "%s/made.rvt", folder);
    rvl_snapshot_trace how = {
        .struct_size = sizeof how,
        .device = &(rvl_trace_device){.capacity_bytes = 64 * GIB, .granularity_bytes = GRANULE},
        .device_size = sizeof(rvl_trace_device)};
    assert_int_equal(rvl_snapshot_write_trace(path, NULL, &how, made), RVL_OK);
    FILE *text = fopen(made, "r");
    assert_non_null(text);
    assert_int_equal(
        fscanf(text, "reveille-trace 1.0 clock boot=- mono_ns=0 wall_ns=%" SCNu64, begin_ns_out),
        1);
    fclose(text);
    assert_int_equal(rvl_trace_reader_open(&file, 1, NULL, &reader), RVL_OK);
    while (rvl_trace_reader_next(reader, &event, sizeof event) == RVL_OK) {
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
        rvl_holder holders[HOLDERS_MAX];
        size_t count;
        assert_int_equal(
            rvl_replay_get_holders(joined, 1, index, holders, sizeof *holders, HOLDERS_MAX, &count),
            RVL_OK);
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
    rvl_holder holders[HOLDERS_MAX];
    size_t count;
    uint32_t index;
    stage_of(result, "final", &index);
    assert_int_equal(
        rvl_replay_get_holders(result, 0, index, holders, sizeof *holders, HOLDERS_MAX, &count),
        RVL_OK);
    assert_int_equal(count, 2);
    assert_string_equal(holders[0].process, "trainer");
    assert_string_equal(holders[1].process, "trainer2");
    rvl_replay_close(result);
}

/* What is read is what is replayed. */
static void a_reader_has_both(void **state)
{
    (void)state;
    uint64_t begin_ns = 0, train_ns = 0, live[2] = {0}, bytes = 0, peak = 0;
    const char *paths[] = {SNAPSHOTS "dev-default.pickle.gz", engine};
    times_of(paths[0], &begin_ns, &train_ns);
    write_engine(begin_ns, train_ns, "h200");
    rvl_replay_options options = {
        .struct_size = sizeof options, .snapshot_process = "learner", .snapshot_device = 1};
    rvl_trace_device devices[2];
    size_t device_count = 0;
    rvl_trace_reader *reader;
    rvl_trace_event event;
    assert_int_equal(rvl_replay_open_reader(paths, 2, &options, &reader), RVL_OK);
    assert_int_equal(
        rvl_trace_reader_get_devices(reader, devices, sizeof *devices, 2, &device_count), RVL_OK);
    assert_int_equal(device_count, 2);
    assert_string_equal(devices[1].profile, "h200");
    assert_ptr_equal(rvl_trace_reader_path(reader, 0), paths[0]);
    assert_ptr_equal(rvl_trace_reader_path(reader, 1), paths[1]);
    while (rvl_trace_reader_next(reader, &event, sizeof event) == RVL_OK) {
        if (event.kind != RVL_EVENT_ALLOC)
            continue;
        live[event.file]++;
        assert_string_equal(event.process, event.file == 0 ? "learner" : "engine");
        assert_string_equal(event.tag, event.file == 0 ? "segments" : "kv_cache");
        assert_int_equal(event.device, 1);
    }
    rvl_trace_reader_close(reader);
    assert_int_equal(live[1], 1);
    assert_true(live[0] > 10);
    /* Pieces go in the order opposite to that in which they came. */
    uint64_t sizes[4096];
    size_t count = 0;
    assert_int_equal(rvl_replay_open_reader(paths, 1, NULL, &reader), RVL_OK);
    while (rvl_trace_reader_next(reader, &event, sizeof event) == RVL_OK) {
        if (event.kind == RVL_EVENT_ALLOC) {
            assert_in_range(count, 0, 4095);
            sizes[count++] = event.bytes;
            bytes += event.bytes;
        } else if (event.kind == RVL_EVENT_FREE) {
            bytes -= sizes[--count];
        }
        peak = bytes > peak ? bytes : peak;
    }
    rvl_trace_reader_close(reader);
    rvl_replay *result = replay(paths, 1, (rvl_replay_options){0});
    rvl_replay_device device = {.struct_size = sizeof device};
    assert_int_equal(rvl_replay_get_device(result, 0, &device), RVL_OK);
    assert_int_equal(peak, device.peak_bytes);
    rvl_replay_close(result);
}

/* ---- What goes wrong ---- */

static char refused_file[PATH_MAX]; /* that the last refusal names */

static void check_refused(const char *const *paths, size_t count, rvl_replay_options options,
                          rvl_status status, const char *message)
{
    rvl_error error = {.struct_size = sizeof error};
    rvl_replay *result = NULL;
    options.struct_size = sizeof options;
    assert_int_equal(rvl_replay_run(paths, count, &options, &result), status);
    rvl_last_error(&error);
    if (strstr(error.message, message) == NULL)
        print_error("expected \"%s\" in \"%s\"\n", message, error.message);
    assert_non_null(strstr(error.message, message));
    assert_null(result);
    snprintf(refused_file, sizeof refused_file, "%s", error.file);
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
    rvl_error error = {.struct_size = sizeof error};
    rvl_replay *result;
    assert_int_equal(rvl_replay_run(&bad, 1, NULL, &result), RVL_ERR_CORRUPT_TRACE);
    rvl_last_error(&error);
    assert_string_equal(error.file, bad);
    rvl_trace_reader *reader = NULL;
    error = (rvl_error){.struct_size = sizeof error};
    assert_int_equal(rvl_replay_open_reader(&bad, 1, NULL, &reader), RVL_ERR_CORRUPT_TRACE);
    rvl_last_error(&error);
    assert_string_equal(error.file, bad);
    assert_non_null(strstr(error.message, "byte 0"));
    assert_int_equal(rvl_replay_open_reader(NULL, 1, NULL, &reader), RVL_ERR_INVALID);
    assert_int_equal(rvl_replay_open_reader(&good, 0, NULL, &reader), RVL_ERR_INVALID);
    assert_int_equal(rvl_replay_open_reader(&good, 1, NULL, NULL), RVL_ERR_INVALID);
    assert_int_equal(rvl_replay_open_reader((const char *const[]){NULL}, 1, NULL, &reader),
                     RVL_ERR_INVALID);
    rvl_last_error(&error);
    assert_non_null(strstr(error.message, "no trace"));
    assert_null(reader);
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
                  "a snapshot cannot join device 1: the traces beside it say that it is a x900, "
                  "which no profile describes");
    assert_string_equal(refused_file, engine); /* the file that says so */
    unlink(engine);
    check_refused(both, 2, (rvl_replay_options){0}, RVL_ERR_IO, "");
    no_file = true;
    check_refused(&good, 1, (rvl_replay_options){0}, RVL_ERR_IO, "no file in memory");
    no_file = false;
    rvl_snapshot_trace how = {.struct_size = sizeof how, .device_size = sizeof(rvl_trace_device)};
    assert_int_equal(rvl_snapshot_write_trace(good, NULL, NULL, "x"), RVL_ERR_INVALID);
    assert_int_equal(rvl_snapshot_write_trace(good, NULL, &how, NULL), RVL_ERR_INVALID);
    how.device = &(const rvl_trace_device){.capacity_bytes = GIB, .granularity_bytes = GRANULE};
    error = (rvl_error){.struct_size = sizeof error};
    assert_int_equal(rvl_snapshot_write_trace(good, NULL, &how, "/no/such/folder"), RVL_ERR_IO);
    rvl_last_error(&error);
    assert_string_equal(error.message, "its trace could not be written: /no/such/folder: No such "
                                       "file or directory: name a file in a directory that exists");
    struct stat before, after;
    assert_int_equal(stat(good, &before), 0);
    assert_int_equal(rvl_snapshot_write_trace(good, NULL, &how, good), RVL_ERR_INVALID);
    rvl_last_error(&error);
    assert_string_equal(error.message,
                        "its trace would replace it: name another file for the trace");
    assert_int_equal(stat(good, &after), 0);
    assert_int_equal(after.st_ino, before.st_ino);
}

/* The first ones one by one, the many of the run itself with gaps. */
static void survives_lacks_of_memory(void **state)
{
    (void)state;
    const char *path = SNAPSHOTS "dev-default.pickle.gz";
    rvl_status status = RVL_ERR_HOST_OOM;
    for (long left = 0; status != RVL_OK && left < 1000000; left += 1 + left / 8) {
        rvl_replay *result = NULL;
        short_memory_left = left;
        status = rvl_replay_run(&path, 1, NULL, &result);
        short_memory_left = -1;
        assert_true(status == RVL_OK || status == RVL_ERR_HOST_OOM);
        assert_true((status == RVL_OK) == (result != NULL));
        rvl_replay_close(result);
    }
    assert_int_equal(status, RVL_OK);
    status = RVL_ERR_HOST_OOM;
    for (long left = 0; status != RVL_OK && left < 1000000; left += 1 + left / 8) {
        rvl_replay_options options = {.struct_size = sizeof options,
                                      .flags = RVL_REPLAY_SNAPSHOT_PARTS};
        rvl_trace_reader *reader = NULL;
        short_memory_left = left;
        status = rvl_replay_open_reader(&path, 1, &options, &reader);
        short_memory_left = -1;
        assert_true(status == RVL_OK || status == RVL_ERR_HOST_OOM);
        assert_true((status == RVL_OK) == (reader != NULL));
        rvl_trace_reader_close(reader);
    }
    assert_int_equal(status, RVL_OK);
}

static int setup(void **state)
{
    int status = folder_make(state);
    snprintf(engine, sizeof engine, "%s/engine.rvt", folder);
    return status;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stages_peak_where_the_snapshot_says),
        cmocka_unit_test(parts_are_those_of_the_model),
        cmocka_unit_test(the_sum_of_parts_is_never_less),
        cmocka_unit_test(joins_a_trace_on_one_clock),
        cmocka_unit_test(several_snapshots_are_several_processes),
        cmocka_unit_test(a_reader_has_both),
        cmocka_unit_test(bad_input_is_named),
        cmocka_unit_test(survives_lacks_of_memory),
    };
    return cmocka_run_group_tests(tests, setup, folder_remove);
}
