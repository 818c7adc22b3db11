/* SPDX-License-Identifier: MIT */
/*
 * The command as a user meets it: what it prints where, and its exit status. Bad input of every
 * kind ends in status 2, one line that names its place, and nothing on stdout.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <pty.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <jansson.h>
#include <zstd.h>

#include "folder.h"
#include "run_command.h"

#define TRACE "x.rvt" /* trace_path in the folder */

#define HEAD                                                                                       \
    "reveille-trace 1.0\n"                                                                         \
    "clock boot=- mono_ns=0 wall_ns=0\n"                                                           \
    "device 0 profile=- capacity_bytes=1048576000 granularity_bytes=2097152\n"                     \
    "process e pid=0\n"

#define RUN(...) run_words(WORDS(__VA_ARGS__))

static char trace_path[64];
static char zstd_path[64];

static void check_status(int status)
{
    if (answer.status != status)
        print_error("stdout: %s\nstderr: %s\n", answer.out, answer.err);
    assert_int_equal(answer.status, status);
}

/* Status 2, nothing on stdout, and "reveille: PLACE: ...PART..." as one line on stderr. */
static void check_bad_trace(const char *text, const char *place, const char *part)
{
    char beginning[128];
    folder_write(TRACE, text);
    RUN("replay", trace_path);
    check_status(2);
    assert_string_equal(answer.out, "");
    snprintf(beginning, sizeof beginning, "reveille: %s:%s: ", trace_path, place);
    check_contains(answer.err, beginning);
    assert_ptr_equal(strstr(answer.err, beginning), answer.err);
    check_contains(answer.err, part);
    assert_ptr_equal(strchr(answer.err, '\n'), answer.err + strlen(answer.err) - 1);
}

static void check_bad_usage(const char *part)
{
    check_status(2);
    assert_string_equal(answer.out, "");
    assert_ptr_equal(strstr(answer.err, "reveille: "), answer.err);
    check_contains(answer.err, part);
}

/* ---- What is good ---- */

static const char good[] = HEAD "stage 1 e 1 rollout\n"
                                "alloc 2 e 1 1 0 629145600 weights backup=host\n"
                                "pause 3 e 1 weights\n"
                                "stage 4 e 1 train\n"
                                "end 4\n";

static void test_fits(void **state)
{
    (void)state;
    folder_write(TRACE, good);
    RUN("replay", trace_path);
    check_status(0);
    assert_string_equal(answer.err, "");
    check_contains(answer.out,
                   "device 0: given by size, 1000.0 MiB; peak 600.0 MiB in rollout: fits\n");
    check_contains(answer.out, "  stage         peak  ");
    check_contains(answer.out, "e/weights 600.0 MiB\n");
    assert_null(strstr(answer.out, "OOM"));
    assert_null(strchr(answer.out, '\x1b')); /* not a terminal: no colour */
    assert_null(strstr(answer.out, " \n"));
}

static void test_does_not_fit(void **state)
{
    (void)state;
    char expected[256];
    folder_write(TRACE, good);
    RUN("replay", "--device", "500MiB", trace_path);
    check_status(3);
    assert_string_equal(answer.err, "");
    check_contains(answer.out, "does not fit\n");
    check_contains(answer.out, "* OOM");
    snprintf(expected, sizeof expected,
             "  does not fit from %s:6 on: in rollout, e/weights asks for 600.0 MiB, 500.0 MiB are "
             "free\n",
             trace_path);
    check_contains(answer.out, expected);
}

static void test_budget(void **state)
{
    (void)state;
    folder_write(TRACE, good);
    RUN("replay", trace_path, "--budget", "rollout=600MiB", "--budget=train=1");
    check_status(0);
    RUN("replay", trace_path, "--budget", "rollout=599MiB");
    check_status(3);
    check_contains(answer.out, "* over budget");
    check_contains(answer.out, "fits, over budget\n");
    RUN("replay", trace_path, "--budget", "rollaut=1GiB");
    check_bad_usage("unknown stage \"rollaut\"; the trace has: rollout, train");
}

static void test_json(void **state)
{
    (void)state;
    folder_write(TRACE, good);
    RUN("replay", "--json", trace_path);
    check_status(0);
    json_t *root = json_loads(answer.out, 0, NULL);
    assert_non_null(root);
    assert_int_equal(json_integer_value(json_object_get(root, "schema")), 1);
    assert_int_equal(json_integer_value(json_object_get(root, "events")), 4);
    json_t *device = json_array_get(json_object_get(root, "devices"), 0);
    assert_int_equal(json_integer_value(json_object_get(device, "peak_bytes")), 629145600);
    json_decref(root);

    RUN("replay", "--json", "--device=1MiB", trace_path);
    check_status(3);
    check_contains(answer.out, "\"fits\":false,\"oom\":{\"file\":");
}

static void test_wake(void **state)
{
    (void)state;
    folder_write(TRACE, HEAD "alloc 1 e 1 1 0 629145600 a flags=paused\n"
                             "alloc 2 e 1 2 0 629145600 b flags=paused\n"
                             "resume 3 e 1 a\npause 4 e 1 a\nresume 5 e 1 b\nend 5\n");
    RUN("replay", "--wake", "staged", trace_path);
    check_status(0);
    RUN("replay", "--wake", "together", trace_path);
    check_status(3);
    check_contains(answer.out, ":7 on: ");
}

static void test_partial(void **state)
{
    (void)state;
    folder_write(TRACE, HEAD "alloc 1 e 1 1 0 2097152 a\nalloc 2 e 1");
    RUN("replay", trace_path);
    check_status(2);
    RUN("replay", "--partial", trace_path);
    check_status(0);
    check_contains(answer.out, "peak 2.0 MiB in start: fits\n");
    check_contains(answer.out, "1 of the files break off before their end record\n");
}

static void test_names_cannot_steer_the_terminal(void **state)
{
    (void)state;
    folder_write(TRACE, HEAD "stage 1 e 1 a%1B[31mb\nalloc 2 e 1 1 0 1 c%0Ad\nend 2\n");
    RUN("replay", trace_path);
    check_status(0);
    check_contains(answer.out, "a%1B[31mb");
    check_contains(answer.out, "e/c%0Ad");
}

/* ---- Bad traces ---- */

static void test_bad_traces(void **state)
{
    (void)state;
    check_bad_trace("rubbish\n", "1:1", "");
    check_bad_trace("reveille-trace 2.0\n", "1:16", "major version");
    check_bad_trace(HEAD "alloc 1 e 1 1 0 0 a\nend 1\n", "5:17", "");
    check_bad_trace(HEAD "alloc 1 e 1 1 0 9223372036854775808 a\nend 1\n", "5:17", "");
    check_bad_trace(HEAD "alloc 1 e 1 1 0 99999999999999999999999 a\nend 1\n", "5:17", "");
    check_bad_trace(HEAD "alloc 1 e 1 1 3 1 a\nend 1\n", "5:15", "device");
    check_bad_trace(HEAD "alloc 2 e 1 1 0 1 a\nfree 1 e 1 1\nend 2\n", "6:6", "");
    check_bad_trace(HEAD "alloc 1 e 1 1 0 1 a\nfree 2 e 1 1\nfree 3 e 1 1\nend 3\n", "7:12",
                    "double free");
    check_bad_trace(HEAD "free 1 e 1 9\nend 1\n", "5:12", "unknown id");
    check_bad_trace(HEAD "pause 1 e 1 a\nend 1\n", "5:13", "unknown tag a");
    check_bad_trace(HEAD "resume 1 e 1 a\nend 1\n", "5:14", "unknown tag a");
    check_bad_trace(HEAD "alloc 1 e 1 1 0 1 a\n", "6:1", "end record is missing");
    check_bad_trace(HEAD "alloc 1 e 1 1 0 1 a\nend 2\n", "6:5", "");
    check_bad_trace(HEAD "alloc 1 nobody 1 1 0 1 a\nend 1\n", "5:9", "");
    check_bad_trace(HEAD "dance 1 e 1\nend 1\n", "5:1", "");
}

static void write_zstd(const char *text, size_t cut)
{
    char packed[1024];
    size_t length = ZSTD_compress(packed, sizeof packed, text, strlen(text), 3);
    assert_false(ZSTD_isError(length));
    folder_write_bytes(TRACE ".zst", packed, length - cut);
}

static void test_zstd(void **state)
{
    (void)state;
    write_zstd(good, 0);
    RUN("replay", zstd_path);
    check_status(0);
    write_zstd(good, 20);
    RUN("replay", zstd_path);
    check_status(2);
    assert_string_equal(answer.out, "");
    check_contains(answer.err, zstd_path);
    unlink(zstd_path);
}

static void test_no_such_file(void **state)
{
    (void)state;
    RUN("replay", "/nowhere/at/all.rvt");
    check_bad_usage("/nowhere/at/all.rvt");
}

/* ---- Bad usage ---- */

static void test_bad_usage(void **state)
{
    (void)state;
    folder_write(TRACE, good);
    RUN(NULL);
    check_bad_usage("name a command");
    RUN("repaly");
    check_bad_usage("unknown command repaly");
    RUN("help", "repaly");
    check_bad_usage("unknown command repaly");
    RUN("replay");
    check_bad_usage("name at least one trace");
    RUN("replay", trace_path, "--frobnicate");
    check_bad_usage("unknown option --frobnicate");
    RUN("replay", trace_path, "--settle", "1s");
    check_bad_usage("--settle 1s: expected milliseconds");
    RUN("replay", trace_path, "--settle", "60001");
    check_bad_usage("--settle 60001");
    RUN("replay", trace_path, "--device");
    check_bad_usage("option --device needs a value");
    RUN("replay", trace_path, "--device", "h999");
    check_bad_usage("--device h999");
    RUN("replay", trace_path, "--wake", "early");
    check_bad_usage("--wake early");
    RUN("replay", trace_path, "--backend", "abacus");
    check_bad_usage("--backend abacus");
    RUN("replay", trace_path, "--budget", "rollout");
    check_bad_usage("STAGE=SIZE");
    RUN("replay", trace_path, "--budget", "=1GiB");
    check_bad_usage("STAGE=SIZE");
    RUN("replay", trace_path, "--budget", "rollout=much");
    check_bad_usage("rollout=much");
    RUN("replay", trace_path, "--conductor", "nobody");
    check_bad_usage("unknown conductor \"nobody\"");
    RUN("devices", "h200");
    check_bad_usage("unexpected argument h200");
}

/* ---- Help, version, devices ---- */

static void test_help(void **state)
{
    (void)state;
    static const char *const options[] = {"--device",  "--wake",    "--budget", "--conductor",
                                          "--backend", "--partial", "--json",   "--help"};
    RUN("replay", "--help");
    check_status(0);
    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++)
        check_contains(answer.out, options[i]);
    char text[ANSWER_BYTES];
    strcpy(text, answer.out);
    RUN("help", "replay");
    check_status(0);
    assert_string_equal(answer.out, text);
    RUN("help", "devices");
    check_status(0);
    check_contains(answer.out, "usage: reveille devices");
    RUN("--help");
    check_status(0);
    check_contains(answer.out, "replay");
    check_contains(answer.out, "devices");
    RUN("help");
    check_status(0);
    check_contains(answer.out, "usage: reveille COMMAND");
}

static void test_version(void **state)
{
    (void)state;
    RUN("--version");
    check_status(0);
    unsigned major, minor, patch;
    assert_int_equal(sscanf(answer.out, "reveille %u.%u.%u\n", &major, &minor, &patch), 3);
}

static void test_devices(void **state)
{
    (void)state;
    static const char *const names[] = {"h200",     "h100-80g", "h100-94g", "a100-80g",
                                        "a100-40g", "b200",     "l40s",     "rtx4090"};
    RUN("devices");
    check_status(0);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        check_contains(answer.out, names[i]);
    check_contains(answer.out, "139.8 GiB");

    RUN("devices", "--json");
    check_status(0);
    json_t *root = json_loads(answer.out, 0, NULL);
    assert_non_null(root);
    json_t *first = json_array_get(json_object_get(root, "devices"), 0);
    assert_true(json_is_string(json_object_get(first, "name")));
    assert_true(json_integer_value(json_object_get(first, "capacity_bytes")) > 0);
    assert_true(json_is_string(json_object_get(first, "source")));
    json_decref(root);
}

/* ---- Output that nobody takes ---- */

#define SNAPSHOTS RVL_SOURCE_DIR "/tests/corpus/snapshot/"

static void test_snapshot_table(void **state)
{
    (void)state;
    RUN("snapshot", SNAPSHOTS "default.pickle.gz", "--verify");
    check_status(0);
    assert_string_equal(
        answer.out,
        "verified, 11 entries, confidence: exact\n"
        "  stage  allocated  reserved       end  retries  rounding     split  cached  pending"
        "  most pinned\n"
        "  a        5.0 MiB  20.0 MiB  20.0 MiB        0       0 B  17.0 MiB     0 B      0 B"
        "  17.0 MiB by entry 1 (3.0 MiB)\n"
        "  b        1.0 KiB  20.0 MiB   2.0 MiB        1       0 B  18.0 MiB     0 B  2.0 MiB\n");
    RUN("snapshot", "--capacity", "10MiB", SNAPSHOTS "default.pickle");
    check_status(3);
    check_contains(answer.out, "1 requests did not fit; the first is entry 1, 3.0 MiB\n");
    check_contains(answer.out, "note: requests did not fit");
    RUN("snapshot", "--stage-prefix", "none:", SNAPSHOTS "default.pickle");
    check_status(0);
    check_contains(answer.out, "note: no annotation begins with the stage prefix");
    assert_string_equal(answer.err, "");
}

static void test_snapshot_json(void **state)
{
    (void)state;
    RUN("snapshot", "--json", "--set", "expandable_segments=true", "--empty-cache-at-stages",
        "--device", "0", SNAPSHOTS "default.pickle");
    check_status(0);
    json_t *root = json_loads(answer.out, 0, NULL);
    assert_non_null(root);
    assert_string_equal(json_string_value(json_object_get(root, "mode")), "predict");
    json_t *stage = json_array_get(json_object_get(root, "stages"), 1);
    assert_int_equal(json_integer_value(json_object_get(stage, "end_reserved_bytes")), 2 << 20);
    json_decref(root);
}

static void check_bad_snapshot(const char *bytes, size_t size, const char *part)
{
    char beginning[128];
    folder_write_bytes(TRACE, bytes, size);
    RUN("snapshot", trace_path);
    check_status(2);
    assert_string_equal(answer.out, "");
    snprintf(beginning, sizeof beginning, "reveille: %s: ", trace_path);
    assert_ptr_equal(strstr(answer.err, beginning), answer.err);
    check_contains(answer.err, part);
}

static void test_bad_snapshots(void **state)
{
    (void)state;
    check_bad_snapshot("\x80\x04"
                       "cos\nsystem\n",
                       13, "byte 2: opcode GLOBAL names or calls code, which is refused");
    check_bad_snapshot("\x80\x04}(", 4, "byte 4: the pickle breaks off");
    check_bad_snapshot("{}", 2, "byte 0: not a pickle");
    RUN("snapshot");
    check_bad_usage("name one snapshot");
    RUN("snapshot", "a", "b");
    check_bad_usage("name one snapshot");
    RUN("snapshot", "a", "--capacity", "much");
    check_bad_usage("--capacity much: expected a size such as 80GiB");
    RUN("snapshot", "a", "--device", "x");
    check_bad_usage("--device x: expected the index of a device");
    RUN("snapshot", "a", "--quick");
    check_bad_usage("unknown option --quick");
    RUN("snapshot", "a", "--set");
    check_bad_usage("option --set needs a value");
    RUN("snapshot", SNAPSHOTS "default.pickle", "--set", "colour=red");
    check_status(2);
    check_contains(answer.err, "setting colour=red: the model follows expandable_segments");
    RUN("snapshot", "--verify", "--empty-cache-at-stages", SNAPSHOTS "default.pickle");
    check_status(2);
    check_contains(answer.err, "a verification runs with the recorded settings");
    RUN("snapshot", "--device", "7", SNAPSHOTS "default.pickle");
    check_status(2);
    check_contains(answer.err, "this device has no trace in it");
    RUN("snapshot", "--help");
    check_status(0);
    check_contains(answer.out, "usage: reveille snapshot");
}

/* The exit status of `reveille devices` with stdout there; what it says is in answer.err. */
static int devices_to(int out)
{
    FILE *err = tmpfile();
    assert_non_null(err);
    int status = run_wait(run_start(WORDS("devices"), out, fileno(err)));
    rewind(err);
    answer.err[fread(answer.err, 1, ANSWER_BYTES - 1, err)] = '\0';
    fclose(err);
    return status;
}

static void test_full_disk(void **state)
{
    (void)state;
    int full = open("/dev/full", O_WRONLY);
    assert_true(full >= 0);
    assert_int_equal(devices_to(full), 1);
    check_contains(answer.err, "reveille: writing the output: No space left on device");
    close(full);
}

static void test_closed_pipe(void **state)
{
    (void)state;
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    close(ends[0]);
    assert_int_equal(devices_to(ends[1]), 1);
    assert_string_equal(answer.err, "");
    close(ends[1]);
}

/* ---- On a terminal ---- */

/* The command with stdout and stderr on a terminal; the answer is in `answer.out`. */
static void on_a_terminal(const char *option, const char *value)
{
    const char *words[] = {RVL_COMMAND_PATH, "replay", trace_path, option, value, NULL};
    struct winsize window = {.ws_row = 50, .ws_col = 200};
    int terminal;
    pid_t child = forkpty(&terminal, NULL, NULL, &window);
    if (child == 0) {
        execv(RVL_COMMAND_PATH, (char *const *)(uintptr_t)words);
        _exit(127);
    }
    assert_true(child > 0);
    run_finish(child, terminal);
}

/* More than 16 MiB, so that reading it is worth a bar. */
static void write_long_trace(void)
{
    enum { PAIRS = 280000 };
    FILE *file = fopen(trace_path, "w");
    assert_non_null(file);
    fputs(HEAD, file);
    for (int id = 1; id <= PAIRS; id++)
        fprintf(file, "alloc %d e 0 %d 0 2097152 weights\nfree %d e 0 %d\n", id, id, id, id);
    fprintf(file, "end %d\n", 2 * PAIRS);
    assert_int_equal(fclose(file), 0);
}

static void bar_and_colour_are_for_terminals(void **state)
{
    (void)state;
    unsetenv("NO_COLOR");
    write_long_trace();
    on_a_terminal("--device", "1GiB");
    assert_int_equal(answer.status, 0);
    check_contains(answer.out, "\r[");
    check_contains(answer.out, "[########################################] 100 %  560000 events");
    const char *cleared = strstr(answer.out, "\r\x1b[K");
    assert_non_null(cleared);
    check_contains(cleared, "weights"); /* the table comes after it */
    assert_null(strstr(cleared + 4, "\x1b["));

    RUN("replay", "--device", "1GiB", trace_path);
    assert_int_equal(answer.status, 0);
    assert_string_equal(answer.err, "");
    assert_null(strchr(answer.out, '\x1b'));
    assert_null(strchr(answer.out, '\r'));

    folder_write(TRACE, HEAD "alloc 1 e 0 1 0 2097152 weights\nend 1\n");
    on_a_terminal("--device", "1MiB"); /* does not fit: the mark is coloured */
    assert_int_equal(answer.status, 3);
    assert_null(strstr(answer.out, "\r[")); /* too short for a bar */
    check_contains(answer.out, "\x1b[");
    RUN("replay", "--device", "1MiB", trace_path);
    assert_int_equal(answer.status, 3);
    assert_null(strchr(answer.out, '\x1b'));
}

static int setup(void **state)
{
    int status = folder_make(state);
    snprintf(trace_path, sizeof trace_path, "%s/" TRACE, folder);
    snprintf(zstd_path, sizeof zstd_path, "%s/" TRACE ".zst", folder);
    return status;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fits),
        cmocka_unit_test(test_does_not_fit),
        cmocka_unit_test(test_budget),
        cmocka_unit_test(test_json),
        cmocka_unit_test(test_wake),
        cmocka_unit_test(test_partial),
        cmocka_unit_test(test_names_cannot_steer_the_terminal),
        cmocka_unit_test(test_bad_traces),
        cmocka_unit_test(test_zstd),
        cmocka_unit_test(test_no_such_file),
        cmocka_unit_test(test_bad_usage),
        cmocka_unit_test(test_help),
        cmocka_unit_test(test_version),
        cmocka_unit_test(test_devices),
        cmocka_unit_test(test_snapshot_table),
        cmocka_unit_test(test_snapshot_json),
        cmocka_unit_test(test_bad_snapshots),
        cmocka_unit_test(test_full_disk),
        cmocka_unit_test(test_closed_pipe),
        cmocka_unit_test(bar_and_colour_are_for_terminals),
    };
    return cmocka_run_group_tests(tests, setup, folder_remove);
}
