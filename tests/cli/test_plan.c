/* SPDX-License-Identifier: MIT */
/*
 * `reveille plan`: largest sizes that can be worked out on paper, sweeps in which every case must
 * be what replay says of the same step, the same from four ranks as from one, and bad input.
 *
 * Linked with --wrap for malloc, calloc, realloc and strndup, so that each of them fails in turn.
 */
#include "tests/support/support.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <jansson.h>

#include "tests/support/folder.h"
#include "plan/plan.h"
#include "reveille/snapshot.h"
#include "tests/support/run_command.h"
#include "tests/support/short_memory.h"
#include "tests/support/skip.h"

#define TRACES SOURCE_WORD "/traces/"
#define CONFIGS SOURCE_WORD "/tests/data/configs/"

/* ---- Host memory that runs out ---- */

SHORT_MALLOC
SHORT_CALLOC
SHORT_REALLOC
SHORT_STRNDUP

/* ---- The command ---- */

static json_t *parsed(const char *words)
{
    json_error_t error;
    run_command(words);
    json_t *root = json_loads(answer.out, 0, &error);
    if (root == NULL)
        print_error("%s in: %s\n", error.text, answer.out);
    assert_non_null(root);
    return root;
}

static uint64_t number(json_t *root, const char *key)
{
    return (uint64_t)json_integer_value(json_object_get(root, key));
}

/* A device of 1000 MiB. 100 MiB of weights stay; a cache of 300 + 100 MiB leaves for training,
 * which takes 601 MiB and so 602. The trainer's own kv_cache is of another process. */
#define HEAD                                                                                       \
    "reveille-trace 1.0\n"                                                                         \
    "clock boot=- mono_ns=0 wall_ns=0\n"                                                           \
    "device 0 profile=- capacity_bytes=1048576000 granularity_bytes=2097152\n"                     \
    "process engine pid=0\n"                                                                       \
    "process trainer pid=0\n"

static const char by_hand[] = HEAD "step 1 engine 0\n"
                                   "stage 2 engine 0 rollout\n"
                                   "alloc 3 engine 0 1 0 104857600 weights\n"
                                   "alloc 4 engine 0 2 0 314572800 cache\n"
                                   "alloc 5 engine 0 3 0 104857600 cache\n"
                                   "pause 6 engine 0 cache discard\n"
                                   "stage 7 engine 0 train\n"
                                   "alloc 8 trainer 0 1 0 630194176 activations\n"
                                   "free 9 trainer 0 1\n"
                                   "stage 10 engine 0 update\n"
                                   "alloc 11 trainer 0 2 0 209715200 copy\n"
                                   "resume 12 engine 0 cache no_restore\n"
                                   "free 13 trainer 0 2\n"
                                   "free 14 engine 0 2\n"
                                   "free 15 engine 0 3\n"
                                   "alloc 16 engine 0 4 0 10485760 cache\n"
                                   "end 16\n";

static void finds_what_paper_says(void **state)
{
    (void)state;
    folder_write("x.rvt", by_hand);
    /* 1000 - 100 - 200 in the update, although rollout would have room for 900. */
    json_t *root = parsed("plan --headroom 0 x.rvt --max cache --json");
    assert_int_equal(number(root, "largest_bytes"), 700 * MIB);
    assert_int_equal(number(root, "traced_bytes"), 400 * MIB);
    assert_true(json_is_null(json_object_get(root, "mem_fraction")));
    json_t *binding = json_object_get(root, "binding");
    assert_string_equal(json_string_value(json_object_get(binding, "stage")), "update");
    assert_int_equal(number(binding, "peak_bytes"), 1000 * MIB);
    assert_int_equal(json_array_size(json_object_get(binding, "at_peak")), 3);
    json_decref(root);
    /* 900 less the odd megabyte, in whole granules. */
    root = parsed("plan --headroom 0 x.rvt --max trainer/activations --json");
    assert_int_equal(number(root, "largest_bytes"), 900 * MIB);
    json_decref(root);
    /* The device is another. */
    root = parsed("plan --headroom 0 x.rvt --max cache --device 2000MiB --json");
    assert_int_equal(number(root, "largest_bytes"), 1700 * MIB);
    json_decref(root);
    /* Together with its wake, nothing changes: one resume. */
    root = parsed("plan --headroom 0 x.rvt --max cache --wake together --json");
    assert_int_equal(number(root, "largest_bytes"), 700 * MIB);
    json_decref(root);
}

/* What fits and leaves less than the headroom is not recommended. */
static void leaves_the_headroom(void **state)
{
    (void)state;
    folder_write("x.rvt", by_hand);
    json_t *root = parsed("plan x.rvt --max cache --json");
    assert_int_equal(number(root, "largest_bytes"), 670 * MIB);
    assert_int_equal(number(root, "headroom_bytes"), 30 * MIB);
    json_decref(root);
    root = parsed("plan x.rvt --max cache --headroom 101MiB --json");
    assert_int_equal(number(root, "largest_bytes"), 598 * MIB); /* in whole granules */
    json_decref(root);
    assert_int_equal(run_command("plan x.rvt --max cache --headroom 290MiB"), 0);
    check_printed("cache: at most 410.0 MiB (429916160 bytes); the trace has 400.0 MiB; the "
                  "headroom is 290.0 MiB\n");
    assert_int_equal(run_command("plan x.rvt --max cache --headroom 900MiB"), 3);
    check_printed("cache: no size leaves the headroom; the trace has 400.0 MiB; the headroom is "
                  "900.0 MiB\n");
    assert_int_equal(run_command("plan x.rvt --sweep --device 710MiB,500MiB"), 3);
    check_printed("710MiB  tight ");
    check_printed("nothing leaves the headroom; nearest: --device 710MiB (8.0 MiB free in stage "
                  "train, of a headroom of 21.3 MiB)\n");
    assert_int_equal(run_command("plan x.rvt --sweep --device 710MiB --headroom 1%"), 0);
    check_printed("cheapest that fits: --device 710MiB\n");
}

static void says_what_binds(void **state)
{
    (void)state;
    folder_write("x.rvt", by_hand);
    assert_int_equal(run_command("plan --headroom 0 x.rvt --max cache"), 0);
    check_printed("cache: at most 700.0 MiB (734003200 bytes); the trace has 400.0 MiB\n"
                  "  binds  stage update on device 0: 1000.0 MiB of 1000.0 MiB, 0 B free\n"
                  "         engine/cache 700.0 MiB\n"
                  "         trainer/copy 200.0 MiB\n"
                  "         engine/weights 100.0 MiB\n");
    assert_int_equal(run_command("plan --headroom 0 x.rvt --max cache --device 500MiB"), 3);
    check_printed("cache: no size fits; the trace has 400.0 MiB\n"
                  "  binds  stage train on device 0: 702.0 MiB of 500.0 MiB, 202.0 MiB missing\n"
                  "         trainer/activations 602.0 MiB\n");
    folder_write("y.rvt",
                 HEAD "stage 1 engine 0 a\nalloc 2 engine 0 1 0 2097152 t flags=paused\nend 2\n");
    assert_int_equal(run_command("plan --headroom 0 y.rvt --max t"), 0);
    check_printed("t: any size fits: it is never in use\n");
}

/* What a trace says of a size is what a replay of the trace with that size says. */
static void agrees_with_the_published_trace(void **state)
{
    (void)state;
    json_t *root =
        parsed("plan --headroom 0 " TRACES "qwen2.5-32b-tp2-h200.rvt --device h200 --max kv_cache "
               "--json");
    json_t *binding = json_object_get(root, "binding");
    uint64_t room = number(binding, "capacity_bytes") - number(binding, "peak_bytes");
    assert_true(room < GRANULE);
    assert_int_equal(number(root, "largest_bytes") % GRANULE, 0);
    assert_int_equal(number(root, "largest_bytes"), UINT64_C(109838336000));
    json_decref(root);
}

static void finds_the_fraction_of_a_model(void **state)
{
    (void)state;
    char words[512];
    json_t *root = parsed("plan --headroom 0 --model " CONFIGS
                          "qwen2.5-32b.json --tp 2 --max kv_cache --json");
    double fraction = json_real_value(json_object_get(root, "mem_fraction"));
    uint64_t bytes = number(root, "largest_bytes");
    json_decref(root);
    for (int more = 0; more <= 1; more++) {
        snprintf(words, sizeof words,
                 "model " CONFIGS "qwen2.5-32b.json --tp 2 --mem-fraction %.6f -o m.rvt",
                 fraction + more * 1e-6);
        assert_int_equal(run_command(words), 0);
        if (more == 0) {
            char size[64];
            snprintf(size, sizeof size, "%" PRIu64, bytes);
            check_printed(size);
        }
        /* To the millionth: one more has another stage that does not fit, or changes nothing. */
        assert_int_equal(run_command("replay m.rvt"), more == 0 ? 0 : 3);
    }
    assert_int_equal(
        run_command("plan --model " CONFIGS "qwen2.5-32b.json --device l4 --max kv_cache"), 3);
    check_printed("kv_cache: no size fits\n  --mem-fraction: no room for a KV cache");
    assert_int_equal(run_command("plan --model " CONFIGS
                                 "qwen2.5-32b.json --tp 2 --given kv_cache=9GiB --max kv_cache"),
                     0);
    check_printed("the settings give 9.0 GiB; the headroom is 4.2 GiB\n");
}

/* ---- Sweeps ---- */

#define SWEEP                                                                                      \
    "plan --headroom 0 --sweep --model " CONFIGS                                                   \
    "qwen2.5-7b.json --tp 1,2,3 --device h100-80g,h200 "                                           \
    "--strategy v0,v3 --train fsdp:8,fsdp:16 --recompute=yes,no --mem-fraction 0.5:0.7:0.1 "

/* The same step, written and replayed, has the same peak, host memory and seconds. */
static void check_case(json_t *item)
{
    char words[1024] = "model", replay[128];
    const char *name;
    json_t *value;
    uint64_t peak = 0, host = 0;
    double seconds = 0;
    json_object_foreach(json_object_get(item, "settings"), name, value)
    {
        const char *text = json_string_value(value);
        size_t length = strlen(words);
        if (strcmp(name, "model") == 0)
            snprintf(words + length, sizeof words - length, " '%s' -o c.rvt", text);
        else if (strcmp(name, "recompute") != 0)
            snprintf(words + length, sizeof words - length, " --%s %s", name, text);
        else if (strcmp(text, "yes") == 0)
            snprintf(words + length, sizeof words - length, " --recompute");
    }
    assert_int_equal(run_command(words), 0);
    snprintf(replay, sizeof replay, "replay c.rvt --json");
    json_t *root = parsed(replay);
    json_t *device = json_array_get(json_object_get(root, "devices"), 0), *stage;
    size_t i;
    json_array_foreach(json_object_get(device, "stages"), i, stage)
    {
        peak = number(stage, "peak_bytes") > peak ? number(stage, "peak_bytes") : peak;
        host = number(stage, "host_bytes") > host ? number(stage, "host_bytes") : host;
        seconds += json_number_value(json_object_get(stage, "seconds"));
    }
    assert_int_equal(number(item, "peak_bytes"), peak);
    assert_int_equal(number(item, "host_bytes"), host);
    /* A sweep has a trainer's segments as one, which the driver takes back as a whole: by the
     * H200's costs 2.0 % at most. */
    double apart = json_real_value(json_object_get(item, "seconds")) - seconds;
    assert_true(apart < 25e-3 * seconds + 1e-6 && -apart < 25e-3 * seconds + 1e-6);
    bool fits = json_is_true(json_object_get(device, "fits"));
    assert_string_equal(json_string_value(json_object_get(item, "fits")), fits ? "yes" : "no");
    json_decref(root);
}

static void sweeps_say_what_replays_say(void **state)
{
    (void)state;
    json_t *root = parsed(SWEEP "--json"), *item, *cases = json_object_get(root, "cases");
    size_t i, refused = 0;
    uint64_t gpus_min = UINT64_MAX;
    assert_int_equal(json_array_size(cases), 3 * 2 * 2 * 2 * 2 * 3);
    json_array_foreach(cases, i, item)
    {
        const char *fits = json_string_value(json_object_get(item, "fits"));
        if (strcmp(fits, "refused") == 0) {
            refused++;
            assert_string_equal(
                json_string_value(json_object_get(json_object_get(item, "settings"), "tp")), "3");
            assert_non_null(strstr(json_string_value(json_object_get(item, "why")),
                                   "does not divide by tp = 3"));
        } else if (i % 7 == 0) {
            check_case(item);
        }
        if (strcmp(fits, "yes") == 0 && number(item, "gpus") < gpus_min)
            gpus_min = number(item, "gpus");
    }
    assert_int_equal(refused, 48);
    json_t *cheapest = json_array_get(cases, number(root, "cheapest"));
    assert_string_equal(json_string_value(json_object_get(cheapest, "fits")), "yes");
    assert_int_equal(number(cheapest, "gpus"), gpus_min);
    assert_true(json_is_null(json_object_get(root, "nearest")));
    json_decref(root);
}

static void threads_do_not_change_it(void **state)
{
    (void)state;
    char *one;
    assert_int_equal(run_command(SWEEP "--json --threads 1"), 0);
    one = strdup(answer.out);
    assert_int_equal(run_command(SWEEP "--json --threads 7"), 0);
    assert_string_equal(answer.out, one);
    free(one);
}

/* ---- A trace a rank ---- */

#define RANKS "r0.rvt r1.rvt r2.rvt r3.rvt"

/* Beside the cache: 200, 500, 600 and 400 MiB of 1000, so that rank 2 has least room. */
static void write_ranks(void)
{
    static const uint64_t beside[] = {200, 500, 600, 400};
    for (int rank = 0; rank < 4; rank++) {
        char name[16], text[1024];
        snprintf(name, sizeof name, "r%d.rvt", rank);
        snprintf(text, sizeof text,
                 HEAD "stage 2 engine 0 rollout\nalloc 3 engine 0 1 0 %llu cache\n"
                      "stage 4 engine 0 train\nalloc 5 trainer 0 1 0 %llu activations\nend 4\n",
                 (unsigned long long)(20 * (uint64_t)(rank + 1) * MIB),
                 (unsigned long long)(beside[rank] * MIB));
        folder_write(name, text);
    }
}

static void check_ranks(json_t *root)
{
    static const uint64_t largest[] = {800, 500, 400, 600};
    assert_int_equal(number(root, "largest_bytes"), 400 * MIB);
    assert_int_equal(number(root, "traced_bytes"), 60 * MIB);
    assert_int_equal(number(root, "binding_rank"), 2);
    json_t *binding = json_object_get(root, "binding"), *ranks = json_object_get(root, "ranks");
    assert_string_equal(json_string_value(json_object_get(binding, "stage")), "train");
    assert_int_equal(json_array_size(json_object_get(binding, "at_peak")), 2);
    assert_int_equal(json_array_size(ranks), 4);
    for (size_t i = 0; i < 4; i++) {
        json_t *rank = json_array_get(ranks, i);
        char name[16], words[64];
        snprintf(name, sizeof name, "r%zu.rvt", i);
        assert_string_equal(json_string_value(json_object_get(rank, "trace")), name);
        assert_int_equal(number(rank, "largest_bytes"), largest[i] * MIB);
        assert_int_equal(number(rank, "traced_bytes"), 20 * (i + 1) * MIB);
        /* As of the trace alone. */
        snprintf(words, sizeof words, "plan --headroom 0 %s --max cache --json", name);
        json_t *alone = parsed(words);
        assert_int_equal(number(alone, "largest_bytes"), number(rank, "largest_bytes"));
        json_decref(alone);
    }
}

static void the_least_of_all_ranks_binds(void **state)
{
    (void)state;
    write_ranks();
    json_t *root = parsed("plan --headroom 0 --per-rank " RANKS " --max cache --json");
    check_ranks(root);
    json_decref(root);
    assert_int_equal(run_command("plan --headroom 0 --per-rank " RANKS " --max cache"), 0);
    check_printed("  rank  trace     largest    traced  fraction\n"
                  "     0  r0.rvt  800.0 MiB  20.0 MiB\n"
                  "     1  r1.rvt  500.0 MiB  40.0 MiB\n"
                  "     2  r2.rvt  400.0 MiB  60.0 MiB\n"
                  "     3  r3.rvt  600.0 MiB  80.0 MiB\n"
                  "cache: at most 400.0 MiB (419430400 bytes); the trace has 60.0 MiB\n"
                  "  binds  rank 2, r2.rvt\n"
                  "  binds  stage train on device 0: 1000.0 MiB of 1000.0 MiB, 0 B free\n"
                  "         trainer/activations 600.0 MiB\n"
                  "         engine/cache 400.0 MiB\n");
    assert_int_equal(
        run_command("plan --headroom 0 --per-rank " RANKS " --max cache --device 600MiB"), 3);
    check_printed("     2  r2.rvt       none  60.0 MiB\n");
    check_printed("cache: no size fits; the trace has 60.0 MiB\n  binds  rank 2, r2.rvt\n");
    folder_write("r1.rvt", HEAD "stage 1 engine 0 a\n"
                                "alloc 2 engine 0 1 0 2097152 cache flags=paused\nend 2\n");
    root = parsed("plan --headroom 0 --per-rank r0.rvt r1.rvt --max cache --json");
    assert_int_equal(number(root, "largest_bytes"), 800 * MIB);
    assert_int_equal(number(root, "binding_rank"), 0);
    assert_true(json_is_true(
        json_object_get(json_array_get(json_object_get(root, "ranks"), 1), "unbounded")));
    json_decref(root);
}

static void a_rank_that_cannot_be_planned_is_named(void **state)
{
    (void)state;
    write_ranks();
    assert_int_equal(run_command("plan --per-rank r0.rvt none.rvt --max cache"), 2);
    check_printed("reveille: none.rvt: ");
    folder_write("r1.rvt", HEAD "alloc 2 engine 0 1 0 2097152 cache\nend 1\n");
    assert_int_equal(run_command("plan --headroom 0 --per-rank " RANKS " --max cache"), 2);
    check_printed("reveille: r1.rvt: the trace has no stage");
    folder_write("r1.rvt", HEAD "stage 1 engine 0 a\nalloc 2 engine 0 1 0 2097152 t\nend 2\n");
    assert_int_equal(run_command("plan --headroom 0 --per-rank " RANKS " --max cache"), 2);
    check_printed("reveille: r1.rvt: --max: nothing is allocated under the tag cache; there "
                  "are: t\n");
}

static void sweeps_traces_and_prints_tables(void **state)
{
    (void)state;
    folder_write("x.rvt", by_hand);
    assert_int_equal(
        run_command("plan --headroom 0 x.rvt --sweep --device 500MiB,1000MiB,2000MiB --max cache"),
        0);
    check_printed("device   fits  GPUs    capacity        peak  stage         free  host  "
                  "seconds    largest  fraction\n");
    check_printed("500MiB   no       1   500.0 MiB   702.0 MiB  train   -202.0 MiB");
    check_printed("cheapest that fits: --device 1000MiB\n");
    assert_int_equal(
        run_command(
            "plan --headroom 0 x.rvt --sweep --device 500MiB,600MiB --wake staged,together"),
        3);
    check_printed("nothing fits; nearest: --device 600MiB --wake staged (");
    assert_int_equal(run_command("plan --headroom 0 x.rvt --sweep --device 1000MiB --csv"), 0);
    check_printed("device,fits,gpus,capacity_bytes,peak_bytes,stage,host_bytes,seconds,"
                  "largest_bytes,mem_fraction_max,why\n"
                  "1000MiB,yes,1,1048576000,736100352,");
}

/* ---- Snapshots ---- */

#define SNAPSHOT RVL_SOURCE_DIR "/traces/snapshots/dev-default.pickle.gz"
#define SNAPSHOT_WORD TRACES "snapshots/dev-default.pickle.gz"

/* The most that a snapshot has reserved, and the wall clock of its first event. */
/* What other programs had of a step, and what a device may give less. */
static void says_what_is_in_doubt(void **state)
{
    (void)state;
    assert_int_equal(run_command("plan --model " CONFIGS
                                 "llama-3.2-1b.json --sweep --device b200,h200 --tp 1,2"),
                     0);
    check_printed("\nin doubt: programs may get up to 1.8 GiB less of a device\n"
                  "in doubt: up to 4.3 GiB of a step, as other programs had; ");
    assert_int_equal(
        run_command("plan --json --model " CONFIGS "llama-3.2-1b.json --sweep --device b200,h200"),
        0);
    check_printed("\"capacity_doubt_bytes\":1922658467,\"assumed_bytes\":4626144767");
    check_printed("\"why\":null,\"assumed_bytes\":4626144767");
}

static void measure_snapshot(uint64_t *peak_out, uint64_t *begin_ns_out)
{
    char path[256];
    rvl_snapshot *snapshot;
    rvl_snapshot_stage stage = {.struct_size = sizeof stage};
    rvl_snapshot_trace how = {
        .struct_size = sizeof how,
        .device = &(const rvl_trace_device){.capacity_bytes = GIB, .granularity_bytes = GRANULE},
        .device_size = sizeof(rvl_trace_device)};
    *peak_out = 0;
    assert_int_equal(rvl_snapshot_run(SNAPSHOT, NULL, &snapshot), RVL_OK);
    for (uint32_t i = 0; rvl_snapshot_get_stage(snapshot, i, &stage) == RVL_OK; i++)
        *peak_out = stage.peak_reserved_bytes > *peak_out ? stage.peak_reserved_bytes : *peak_out;
    rvl_snapshot_close(snapshot);
    snprintf(path, sizeof path, "%s/made.rvt", folder);
    assert_int_equal(rvl_snapshot_write_trace(SNAPSHOT, NULL, &how, path), RVL_OK);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    assert_int_equal(
        fscanf(file, "reveille-trace 1.0 clock boot=- mono_ns=0 wall_ns=%" SCNu64, begin_ns_out),
        1);
    fclose(file);
}

/* Alone its segments may grow to the device; beside it an engine's cache has what it leaves. */
static void snapshots_are_planned_as_traces_are(void **state)
{
    (void)state;
    uint64_t peak = 0, begin_ns = 0;
    char text[1024];
    measure_snapshot(&peak, &begin_ns);
    assert_true(peak > GIB);
    json_t *root =
        parsed("plan --headroom 0 " SNAPSHOT_WORD " --max segments --device 8GiB --json");
    assert_int_equal(number(root, "traced_bytes"), peak);
    assert_int_equal(number(root, "largest_bytes"), 8 * GIB);
    json_t *binding = json_object_get(root, "binding");
    assert_int_equal(number(binding, "peak_bytes"), 8 * GIB);
    json_decref(root);
    snprintf(text, sizeof text,
             "reveille-trace 1.0\n"
             "clock boot=- mono_ns=0 wall_ns=%" PRIu64 "\n"
             "device 1 profile=- capacity_bytes=8589934592 granularity_bytes=2097152\n"
             "process engine pid=0\n"
             "alloc 0 engine 0 1 1 1073741824 kv_cache\n"
             "end 1\n",
             begin_ns);
    folder_write("engine.rvt", text);
    root = parsed("plan --headroom 0 engine.rvt " SNAPSHOT_WORD
                  " --snapshot-device 1 --max engine/kv_cache --json");
    assert_int_equal(number(root, "traced_bytes"), GIB);
    assert_int_equal(number(root, "largest_bytes"), 8 * GIB - peak);
    json_decref(root);
    root = parsed("plan --headroom 0 " SNAPSHOT_WORD
                  " engine.rvt --snapshot-process learner --snapshot-device 1 "
                  "--max learner/segments --json");
    assert_int_equal(number(root, "traced_bytes"), peak);
    assert_int_equal(number(root, "largest_bytes"), 7 * GIB);
    json_decref(root);
    assert_int_equal(
        run_command("plan --headroom 0 " SNAPSHOT_WORD " --sweep --device 80GiB,1GiB,2GiB --csv"),
        0);
    check_printed("80GiB,yes,1,");
    check_printed("1GiB,no,1,");
}

/* ---- Interrupted ---- */

/* More cases than can be done before Ctrl-C: the first of them are shown, and the rest is named. */
static void an_interrupt_keeps_the_cases_that_are_done(void **state)
{
    (void)state;
    size_t done = 0, cases = 0, lines = 0;
    run_interrupted(WORDS("plan", "--sweep", "--model",
                          RVL_SOURCE_DIR "/tests/data/configs/qwen2.5-7b.json", "--csv", "--tp",
                          "1,2,4", "--train", "fsdp:2,fsdp:4,fsdp:8,fsdp:16", "--mem-fraction",
                          "0.1:0.9:0.0002"),
                    NULL, NULL);
    assert_int_equal(answer.signal, SIGINT);
    assert_int_equal(sscanf(answer.err,
                            "reveille: interrupted: done with %zu of %zu cases, and "
                            "what is shown is of these",
                            &done, &cases),
                     2);
    assert_int_equal(cases, 3 * 4 * 4001);
    assert_true(done > 0 && done < cases);
    /* The answer has room for the first lines: each case has one, none is empty. */
    check_contains(answer.out, "model,tp,mem-fraction,train,fits,");
    for (const char *line = strchr(answer.out, '\n'); line != NULL && line[1] != '\0';
         line = strchr(line + 1, '\n'))
        lines++;
    assert_true(lines == done || strlen(answer.out) == ANSWER_BYTES - 1);
    assert_null(strstr(answer.out, ",fsdp:4,,"));
}

/* One rank allows least, and which is not known before all are done. */
static void an_interrupt_of_ranks_has_no_answer(void **state)
{
    (void)state;
    char paths[2][128], fifo[128];
    snprintf(paths[0], sizeof paths[0], "%s/r0.rvt", folder);
    snprintf(paths[1], sizeof paths[1], "%s/r2.rvt", folder);
    snprintf(fifo, sizeof fifo, "%s/r1.fifo", folder);
    folder_write("r0.rvt", by_hand);
    folder_write("r2.rvt", by_hand);
    assert_int_equal(mkfifo(fifo, 0600), 0);
    run_interrupted(
        WORDS("plan", "--per-rank", paths[0], fifo, paths[1], "--max", "cache", "--threads", "1"),
        fifo, by_hand);
    assert_int_equal(answer.signal, SIGINT);
    assert_string_equal(answer.out, "");
    assert_string_equal(answer.err, "reveille: interrupted: done with 2 of 3 cases\n");
    assert_int_equal(unlink(fifo), 0);
}

/* ---- Bad input ---- */

static void bad_usage_is_named(void **state)
{
    (void)state;
    static const struct {
        const char *words;
        const char *message;
    } cases[] = {
        {"", "name a trace, or a config with --model"},
        {"x.rvt", "say what to find: --max TAG, --sweep, or both"},
        {"x.rvt --max", "option --max needs a value"},
        {"x.rvt --what", "unknown option --what"},
        {"x.rvt --sweep --model y", "a model or traces, not both"},
        {"x.rvt --sweep --json --csv", "one of them"},
        {"x.rvt --max a --csv", "only with --sweep"},
        {"x.rvt --max a --device h200,l4", "lists of several values are for --sweep"},
        {"x.rvt --per-rank --sweep", "only for traces, with --max and without --sweep"},
        {"x.rvt --per-rank --max a --sweep", "only for traces, with --max and without --sweep"},
        {"--model y --per-rank --max a", "only for traces, with --max and without --sweep"},
        {"x.rvt --per-rank --max a --device h200,l4", "lists of several values are for --sweep"},
        {"x.rvt --sweep --device h900", "--device h900: neither a size nor a profile"},
        {"x.rvt --sweep --tp 2", "--tp is a setting of a model's step"},
        {"x.rvt --sweep --given buffers=0", "only with --model"},
        {"--model y --sweep --given buffers", "expected TERM=SIZE"},
        {"--model y --sweep --given buffer=0", "no such term"},
        {"--model y --sweep --partial", "only for a trace"},
        {"--model y --sweep --snapshot-device 0", "only for a trace"},
        {"--model y --sweep --snapshot-process p", "only for a trace"},
        {"x.pickle --sweep --snapshot-device -1", "--snapshot-device -1: expected a whole number"},
        {"--model y --sweep --tp 1,,2", "an empty value in the list"},
        {"--model y --sweep --tp 1,x", "--tp x: expected a whole number"},
        {"--model y --sweep --recompute=maybe", "--recompute maybe: expected yes or no"},
        {"--model y --sweep --mem-fraction 0.9:0.6:0.1", "expected FROM:TO:STEP"},
        {"--model y --sweep --mem-fraction 0.1:0.6:0.1x", "expected FROM:TO:STEP"},
        {"--model y --sweep --mem-fraction 0.1:1:0.000001", "expected FROM:TO:STEP"},
        {"--model y --sweep --threads 0", "--threads 0: expected"},
        {"--model y --sweep --threads 9999", "--threads 9999: expected"},
        {"--model y --max a --threads 2", "--threads: only with --sweep or --per-rank"},
        {"--model y --sweep --m 1", "option --m is ambiguous: did you mean --max or --model"},
        {"--model y --sweep --device h100,h200", "did you mean h100-80g or h100-94g?"},
        {"--model y --sweep --device 80", "no GPU has: did you mean 80GiB?"},
        {"--model y --sweep --micro-batch 1,2", "--micro-batch changes nothing with --train none"},
        {"--model y --sweep --train ddp,none --reshard=yes,no", "--reshard changes nothing"},
        {"--model y --sweep --strategy v0,v2 --wake staged,together", "--wake changes nothing"},
        {"--model y --sweep --max kv_cache --mem-fraction 0.8,0.9",
         "--mem-fraction is what --max kv_cache looks for"},
        {"x.rvt --sweep --snapshot-device 1", "--snapshot-device: no PyTorch snapshot"},
        {"x.rvt --sweep --snapshot-process p", "--snapshot-process: no PyTorch snapshot"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char words[256];
        snprintf(words, sizeof words, "plan %s", cases[i].words);
        assert_int_equal(run_command(words), 2);
        check_printed(cases[i].message);
        check_printed("Try `reveille plan --help`.");
    }
    assert_int_equal(run_command("plan --help"), 0);
    check_printed("usage: reveille plan [OPTION]... TRACE|SNAPSHOT... --max TAG\n");
    check_printed("[OPTION]... --per-rank TRACE|SNAPSHOT... --max TAG\n");
}

static void bad_input_is_named(void **state)
{
    (void)state;
    folder_write("x.rvt", by_hand);
    folder_write("none.rvt", HEAD "alloc 2 engine 0 1 0 2097152 t\nend 1\n");
    folder_write("bad.rvt", HEAD "stage 2 engine 0 a\nfree 3 engine 0 7\nend 2\n");
    folder_write("half.rvt", HEAD "stage 2 engine 0 a\nalloc 3 engine 0 1 0 2097152 t\n");
    assert_int_equal(run_command("plan none.rvt --max t"), 2);
    check_printed("none.rvt: the trace has no stage, so there is none to fit: mark them with "
                  "rvl_stage() or reveille.stage(), or with ranges (`reveille run "
                  "--stages`)\n");
    assert_int_equal(run_command("plan --headroom 0 x.rvt --max kash"), 2);
    check_printed("nothing is allocated under the tag kash; there are: weights, cache, "
                  "activations, copy");
    assert_int_equal(run_command("plan --headroom 0 x.rvt --max nobody/cache"), 2);
    assert_int_equal(run_command("plan --headroom 0 x.rvt --max cache --conductor nobody"), 2);
    check_printed("unknown conductor");
    assert_int_equal(run_command("plan bad.rvt --sweep"), 2);
    check_printed("reveille: bad.rvt:7:17: free of an unknown id");
    folder_write("vast.rvt", HEAD "stage 2 engine 0 a\nalloc 3 engine 0 1 0 9223372036852678656 t\n"
                                  "alloc 3 engine 0 2 0 9223372036852678656 u\nend 3\n");
    assert_int_equal(run_command("plan vast.rvt --sweep"), 2);
    check_printed("reveille: vast.rvt:7:22: ");
    assert_int_equal(run_command("plan half.rvt --max t"), 2);
    assert_int_equal(run_command("plan half.rvt --max t --partial"), 0);
    /* What is no trace need not end. */
    assert_int_equal(run_shell("while echo no; do sleep 0.01; done 2>/dev/null | "
                               "timeout 20 " COMMAND_WORD " plan /dev/stdin --max t 2>&1"),
                     2);
    check_printed("reveille: /dev/stdin:1:1: not a Reveille trace: its first line must be");
    assert_int_equal(run_command("plan nothing.rvt --max t"), 2);
    check_printed("nothing.rvt");
    folder_write("bad.pickle", "no pickle");
    assert_int_equal(run_command("plan bad.pickle --max segments"), 2);
    check_printed("reveille: bad.pickle: byte 0: ");
    assert_int_equal(run_command("plan --headroom 0 x.rvt nothing.pickle.gz --sweep"), 2);
    check_printed("nothing.pickle.gz");
    assert_int_equal(run_command("plan --headroom 0 " SNAPSHOT_WORD " --max tensors"), 2);
    check_printed("nothing is allocated under the tag tensors; there are: segments");
    assert_int_equal(run_command("plan --model nothing.json --sweep"), 2);
    check_printed("nothing.json");
    assert_int_equal(run_command("plan --model " CONFIGS "qwen2.5-32b.json --tp 3 --max kv_cache"),
                     2);
    check_printed("num_attention_heads: 40 does not divide by tp = 3");
    assert_int_equal(run_command("plan --sweep --model " CONFIGS "qwen2.5-32b.json --tp 3,6"), 2);
    check_printed("does not divide by tp = 3");
}

/* ---- Within ---- */

static void check_lacks_of_memory(bool per_rank)
{
    char path[256], devnull[] = "/dev/null";
    snprintf(path, sizeof path, "%s/x.rvt", folder);
    folder_write("x.rvt", by_hand);
    char plan[] = "plan", max[] = "--max", tag[] = "engine/cache", each[] = "--per-rank";
    char *words[] = {plan, path, max, tag, per_rank ? each : NULL, NULL};
    int code = EXIT_INTERNAL, shown = dup(STDERR_FILENO);
    bool done = false;
    assert_non_null(freopen(devnull, "w", stderr));
    for (long left = 0; !done && left < 20000; left++) {
        plan_arguments arguments;
        plan_subject *subject = NULL;
        rvl_plan_result result = {.state = RVL_PLAN_FAILED};
        rvl_replay *replay = NULL;
        short_memory_left = left;
        code = plan_parse(per_rank ? 5 : 4, words, &arguments);
        if (code == 0)
            code = plan_subject_open(&arguments, &subject);
        if (code == 0)
            plan_case_run(subject, 0, &result, &replay);
        short_memory_left = -1;
        fflush(stderr);
        done = result.state == RVL_PLAN_FITS;
        assert_true(done || result.state == RVL_PLAN_FAILED);
        assert_true(done == (replay != NULL));
        rvl_replay_close(replay);
        plan_subject_close(subject);
        plan_arguments_free(&arguments);
        if (done)
            assert_int_equal(result.largest_bytes, 670 * MIB); /* 3 % are left */
    }
    dup2(shown, STDERR_FILENO);
    close(shown);
    assert_true(done);
}

static void every_lack_of_memory_is_told(void **state)
{
    (void)state;
    check_lacks_of_memory(false);
    check_lacks_of_memory(true);
}

/* Of a command that failed it was said that no size fits, with all of the device free. */
static void check_unfinished(const char *refused, const char *ended, const char *why)
{
    char text[1024];
    snprintf(text, sizeof text,
             "reveille-trace 1.2\nclock boot=- mono_ns=0 wall_ns=0\n"
             "device 0 profile=- capacity_bytes=1048576000 granularity_bytes=2097152\n"
             "process p pid=0 refusals=yes\nstage 1 p 0 run\nalloc 1 p 0 1 0 104857600 t\n%sended "
             "3 p 0 %s\n"
             "end %d\n",
             refused, ended, refused[0] != '\0' ? 4 : 3);
    folder_write("x.rvt", text);
    assert_int_equal(run_command("plan x.rvt --max t 2>&1"), 2);
    check_printed(why);
    check_printed(". What the command would have needed after that is not known: plan from a run");
    assert_int_equal(run_command("plan x.rvt --sweep --device 2GiB,4GiB 2>&1"), 2);
    check_printed(". What the command would have needed after that is not known: plan from a run");
    /* What overflows by what it did is known. */
    assert_int_equal(run_command("plan x.rvt --sweep --device 50MiB"), 3);
    check_printed("nothing fits; nearest: --device 50MiB (");
}

static void what_did_not_end_well_is_no_plan(void **state)
{
    (void)state;
    check_unfinished("", "exit=5", "x.rvt: no verdict: the command failed with exit status 5. ");
    check_unfinished("", "signal=9", "x.rvt: no verdict: the command was killed by signal 9");
    check_unfinished("refuse 2 p 0 0 2097152000 943718400 t\n", "exit=1",
                     "x.rvt: out of memory: p/t asked for 2.0 GiB of device 0 with 900.0 MiB free");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(says_what_is_in_doubt),
        cmocka_unit_test(finds_what_paper_says),
        cmocka_unit_test(leaves_the_headroom),
        cmocka_unit_test(says_what_binds),
        cmocka_unit_test(agrees_with_the_published_trace),
        cmocka_unit_test(finds_the_fraction_of_a_model),
        cmocka_unit_test(sweeps_say_what_replays_say),
        cmocka_unit_test(threads_do_not_change_it),
        cmocka_unit_test(the_least_of_all_ranks_binds),
        cmocka_unit_test(a_rank_that_cannot_be_planned_is_named),
        cmocka_unit_test(sweeps_traces_and_prints_tables),
        cmocka_unit_test(snapshots_are_planned_as_traces_are),
        cmocka_unit_test(an_interrupt_keeps_the_cases_that_are_done),
        cmocka_unit_test(an_interrupt_of_ranks_has_no_answer),
        cmocka_unit_test(bad_usage_is_named),
        cmocka_unit_test(bad_input_is_named),
        cmocka_unit_test(every_lack_of_memory_is_told),
        cmocka_unit_test(what_did_not_end_well_is_no_plan),
    };
    return cmocka_run_group_tests(tests, folder_make, folder_remove);
}
