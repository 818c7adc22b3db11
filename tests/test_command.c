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
#include <sys/wait.h>
#include <unistd.h>

#include <jansson.h>
#include <zstd.h>

#define OUTPUT_BYTES 32768
#define WORDS_MAX 16

#define HEAD                                                                                       \
    "reveille-trace 1.0\n"                                                                         \
    "clock boot=- mono_ns=0 wall_ns=0\n"                                                           \
    "device 0 profile=- capacity_bytes=1048576000 granularity_bytes=2097152\n"                     \
    "process e pid=0\n"

static char trace_path[] = "/tmp/reveille-command-XXXXXX";
static char zstd_path[sizeof trace_path + 4];

/* ---- Running it ---- */

typedef struct result {
    int status; /* -1: it was killed */
    char out[OUTPUT_BYTES];
    char err[OUTPUT_BYTES];
} result;

static result last;

static void read_all(FILE *file, char *text)
{
    rewind(file);
    size_t length = fread(text, 1, OUTPUT_BYTES - 1, file);
    text[length] = '\0';
    fclose(file);
}

static pid_t start(char *const *words, int out, int err)
{
    pid_t child = fork();
    if (child == 0) {
        dup2(out, STDOUT_FILENO);
        dup2(err, STDERR_FILENO);
        execv(RVL_COMMAND_PATH, words);
        _exit(127);
    }
    assert_true(child > 0);
    return child;
}

static int status_of(pid_t child)
{
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* The command with the given words, up to NULL; the answer is in `last`. */
static void command(const char *first, ...)
{
    char name[] = "reveille";
    char *words[WORDS_MAX] = {name};
    size_t count = 1;
    va_list rest;
    va_start(rest, first);
    for (const char *word = first; word != NULL; word = va_arg(rest, const char *)) {
        assert_true(count < WORDS_MAX - 1);
        words[count++] = strdup(word);
    }
    va_end(rest);

    FILE *out = tmpfile();
    FILE *err = tmpfile();
    assert_non_null(out);
    assert_non_null(err);
    last.status = status_of(start(words, fileno(out), fileno(err)));
    read_all(out, last.out);
    read_all(err, last.err);
    while (count > 1)
        free(words[--count]);
}

static void write_trace(const char *text)
{
    FILE *file = fopen(trace_path, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static void check_contains(const char *text, const char *part)
{
    if (strstr(text, part) == NULL)
        print_error("expected \"%s\" in:\n%s\n", part, text);
    assert_non_null(strstr(text, part));
}

static void check_status(int status)
{
    if (last.status != status)
        print_error("stdout: %s\nstderr: %s\n", last.out, last.err);
    assert_int_equal(last.status, status);
}

/* Status 2, nothing on stdout, and "reveille: PLACE: ...PART..." as one line on stderr. */
static void check_bad_trace(const char *text, const char *place, const char *part)
{
    char beginning[128];
    write_trace(text);
    command("replay", trace_path, NULL);
    check_status(2);
    assert_string_equal(last.out, "");
    snprintf(beginning, sizeof beginning, "reveille: %s:%s: ", trace_path, place);
    check_contains(last.err, beginning);
    assert_ptr_equal(strstr(last.err, beginning), last.err);
    check_contains(last.err, part);
    assert_ptr_equal(strchr(last.err, '\n'), last.err + strlen(last.err) - 1);
}

static void check_bad_usage(const char *part)
{
    check_status(2);
    assert_string_equal(last.out, "");
    assert_ptr_equal(strstr(last.err, "reveille: "), last.err);
    check_contains(last.err, part);
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
    write_trace(good);
    command("replay", trace_path, NULL);
    check_status(0);
    assert_string_equal(last.err, "");
    check_contains(last.out,
                   "device 0: given by size, 1000.0 MiB; peak 600.0 MiB in rollout: fits\n");
    check_contains(last.out, "  stage         peak  ");
    check_contains(last.out, "e/weights 600.0 MiB\n");
    assert_null(strstr(last.out, "OOM"));
    assert_null(strchr(last.out, '\x1b')); /* not a terminal: no colour */
    assert_null(strstr(last.out, " \n"));
}

static void test_does_not_fit(void **state)
{
    (void)state;
    char expected[256];
    write_trace(good);
    command("replay", "--device", "500MiB", trace_path, NULL);
    check_status(3);
    assert_string_equal(last.err, "");
    check_contains(last.out, "does not fit\n");
    check_contains(last.out, "* OOM");
    snprintf(expected, sizeof expected,
             "  does not fit from %s:6 on: in rollout, e/weights asks for 600.0 MiB, 500.0 MiB are "
             "free\n",
             trace_path);
    check_contains(last.out, expected);
}

static void test_budget(void **state)
{
    (void)state;
    write_trace(good);
    command("replay", trace_path, "--budget", "rollout=600MiB", "--budget=train=1", NULL);
    check_status(0);
    command("replay", trace_path, "--budget", "rollout=599MiB", NULL);
    check_status(3);
    check_contains(last.out, "* over budget");
    check_contains(last.out, "fits, over budget\n");
    command("replay", trace_path, "--budget", "rollaut=1GiB", NULL);
    check_bad_usage("unknown stage \"rollaut\"; the trace has: rollout, train");
}

static void test_json(void **state)
{
    (void)state;
    write_trace(good);
    command("replay", "--json", trace_path, NULL);
    check_status(0);
    json_t *root = json_loads(last.out, 0, NULL);
    assert_non_null(root);
    assert_int_equal(json_integer_value(json_object_get(root, "schema")), 1);
    assert_int_equal(json_integer_value(json_object_get(root, "events")), 4);
    json_t *device = json_array_get(json_object_get(root, "devices"), 0);
    assert_int_equal(json_integer_value(json_object_get(device, "peak_bytes")), 629145600);
    json_decref(root);

    command("replay", "--json", "--device=1MiB", trace_path, NULL);
    check_status(3);
    check_contains(last.out, "\"fits\":false,\"oom\":{\"file\":");
}

static void test_wake(void **state)
{
    (void)state;
    write_trace(HEAD "alloc 1 e 1 1 0 629145600 a flags=paused\n"
                     "alloc 2 e 1 2 0 629145600 b flags=paused\n"
                     "resume 3 e 1 a\npause 4 e 1 a\nresume 5 e 1 b\nend 5\n");
    command("replay", "--wake", "staged", trace_path, NULL);
    check_status(0);
    command("replay", "--wake", "together", trace_path, NULL);
    check_status(3);
    check_contains(last.out, ":7 on: ");
}

static void test_partial(void **state)
{
    (void)state;
    write_trace(HEAD "alloc 1 e 1 1 0 2097152 a\nalloc 2 e 1");
    command("replay", trace_path, NULL);
    check_status(2);
    command("replay", "--partial", trace_path, NULL);
    check_status(0);
    check_contains(last.out, "peak 2.0 MiB in start: fits\n");
    check_contains(last.out, "1 of the files break off before their end record\n");
}

static void test_names_cannot_steer_the_terminal(void **state)
{
    (void)state;
    write_trace(HEAD "stage 1 e 1 a%1B[31mb\nalloc 2 e 1 1 0 1 c%0Ad\nend 2\n");
    command("replay", trace_path, NULL);
    check_status(0);
    check_contains(last.out, "a%1B[31mb");
    check_contains(last.out, "e/c%0Ad");
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
    FILE *file = fopen(zstd_path, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(packed, 1, length - cut, file), length - cut);
    assert_int_equal(fclose(file), 0);
}

static void test_zstd(void **state)
{
    (void)state;
    write_zstd(good, 0);
    command("replay", zstd_path, NULL);
    check_status(0);
    write_zstd(good, 20);
    command("replay", zstd_path, NULL);
    check_status(2);
    assert_string_equal(last.out, "");
    check_contains(last.err, zstd_path);
    unlink(zstd_path);
}

static void test_no_such_file(void **state)
{
    (void)state;
    command("replay", "/nowhere/at/all.rvt", NULL);
    check_bad_usage("/nowhere/at/all.rvt");
}

/* ---- Bad usage ---- */

static void test_bad_usage(void **state)
{
    (void)state;
    write_trace(good);
    command(NULL, NULL);
    check_bad_usage("name a command");
    command("repaly", NULL);
    check_bad_usage("unknown command repaly");
    command("help", "repaly", NULL);
    check_bad_usage("unknown command repaly");
    command("replay", NULL);
    check_bad_usage("name at least one trace");
    command("replay", trace_path, "--frobnicate", NULL);
    check_bad_usage("unknown option --frobnicate");
    command("replay", trace_path, "--settle", "1s", NULL);
    check_bad_usage("--settle 1s: expected milliseconds");
    command("replay", trace_path, "--settle", "60001", NULL);
    check_bad_usage("--settle 60001");
    command("replay", trace_path, "--device", NULL);
    check_bad_usage("option --device needs a value");
    command("replay", trace_path, "--device", "h999", NULL);
    check_bad_usage("--device h999");
    command("replay", trace_path, "--wake", "early", NULL);
    check_bad_usage("--wake early");
    command("replay", trace_path, "--backend", "abacus", NULL);
    check_bad_usage("--backend abacus");
    command("replay", trace_path, "--budget", "rollout", NULL);
    check_bad_usage("STAGE=SIZE");
    command("replay", trace_path, "--budget", "=1GiB", NULL);
    check_bad_usage("STAGE=SIZE");
    command("replay", trace_path, "--budget", "rollout=much", NULL);
    check_bad_usage("rollout=much");
    command("replay", trace_path, "--conductor", "nobody", NULL);
    check_bad_usage("unknown conductor \"nobody\"");
    command("devices", "h200", NULL);
    check_bad_usage("unexpected argument h200");
}

/* ---- Help, version, devices ---- */

static void test_help(void **state)
{
    (void)state;
    static const char *const options[] = {"--device",  "--wake",    "--budget", "--conductor",
                                          "--backend", "--partial", "--json",   "--help"};
    command("replay", "--help", NULL);
    check_status(0);
    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++)
        check_contains(last.out, options[i]);
    char text[OUTPUT_BYTES];
    strcpy(text, last.out);
    command("help", "replay", NULL);
    check_status(0);
    assert_string_equal(last.out, text);
    command("help", "devices", NULL);
    check_status(0);
    check_contains(last.out, "usage: reveille devices");
    command("--help", NULL);
    check_status(0);
    check_contains(last.out, "replay");
    check_contains(last.out, "devices");
    command("help", NULL);
    check_status(0);
    check_contains(last.out, "usage: reveille COMMAND");
}

static void test_version(void **state)
{
    (void)state;
    command("--version", NULL);
    check_status(0);
    unsigned major, minor, patch;
    assert_int_equal(sscanf(last.out, "reveille %u.%u.%u\n", &major, &minor, &patch), 3);
}

static void test_devices(void **state)
{
    (void)state;
    static const char *const names[] = {"h200",     "h100-80g", "h100-94g", "a100-80g",
                                        "a100-40g", "b200",     "l40s",     "rtx4090"};
    command("devices", NULL);
    check_status(0);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        check_contains(last.out, names[i]);
    check_contains(last.out, "139.8 GiB");

    command("devices", "--json", NULL);
    check_status(0);
    json_t *root = json_loads(last.out, 0, NULL);
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
    command("snapshot", SNAPSHOTS "default.pickle.gz", "--verify", NULL);
    check_status(0);
    assert_string_equal(
        last.out,
        "verified, 11 entries, confidence: exact\n"
        "  stage  allocated  reserved       end  retries  rounding     split  cached  pending"
        "  most pinned\n"
        "  a        5.0 MiB  20.0 MiB  20.0 MiB        0       0 B  17.0 MiB     0 B      0 B"
        "  17.0 MiB by entry 1 (3.0 MiB)\n"
        "  b        1.0 KiB  20.0 MiB   2.0 MiB        1       0 B  18.0 MiB     0 B  2.0 MiB\n");
    command("snapshot", "--capacity", "10MiB", SNAPSHOTS "default.pickle", NULL);
    check_status(3);
    check_contains(last.out, "1 requests did not fit; the first is entry 1, 3.0 MiB\n");
    check_contains(last.out, "note: requests did not fit");
    command("snapshot", "--stage-prefix", "none:", SNAPSHOTS "default.pickle", NULL);
    check_status(0);
    check_contains(last.out, "note: no annotation begins with the stage prefix");
    assert_string_equal(last.err, "");
}

static void test_snapshot_json(void **state)
{
    (void)state;
    command("snapshot", "--json", "--set", "expandable_segments=true", "--empty-cache-at-stages",
            "--device", "0", SNAPSHOTS "default.pickle", NULL);
    check_status(0);
    json_t *root = json_loads(last.out, 0, NULL);
    assert_non_null(root);
    assert_string_equal(json_string_value(json_object_get(root, "mode")), "predict");
    json_t *stage = json_array_get(json_object_get(root, "stages"), 1);
    assert_int_equal(json_integer_value(json_object_get(stage, "end_reserved_bytes")), 2 << 20);
    json_decref(root);
}

static void check_bad_snapshot(const char *bytes, size_t size, const char *part)
{
    char beginning[128];
    FILE *file = fopen(trace_path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
    command("snapshot", trace_path, NULL);
    check_status(2);
    assert_string_equal(last.out, "");
    snprintf(beginning, sizeof beginning, "reveille: %s: ", trace_path);
    assert_ptr_equal(strstr(last.err, beginning), last.err);
    check_contains(last.err, part);
}

static void test_bad_snapshots(void **state)
{
    (void)state;
    check_bad_snapshot("\x80\x04"
                       "cos\nsystem\n",
                       13, "byte 2: opcode GLOBAL names or calls code, which is refused");
    check_bad_snapshot("\x80\x04}(", 4, "byte 4: the pickle breaks off");
    check_bad_snapshot("{}", 2, "byte 0: not a pickle");
    command("snapshot", NULL);
    check_bad_usage("name one snapshot");
    command("snapshot", "a", "b", NULL);
    check_bad_usage("name one snapshot");
    command("snapshot", "a", "--capacity", "much", NULL);
    check_bad_usage("--capacity much: expected a size such as 80GiB");
    command("snapshot", "a", "--device", "x", NULL);
    check_bad_usage("--device x: expected the index of a device");
    command("snapshot", "a", "--quick", NULL);
    check_bad_usage("unknown option --quick");
    command("snapshot", "a", "--set", NULL);
    check_bad_usage("option --set needs a value");
    command("snapshot", SNAPSHOTS "default.pickle", "--set", "colour=red", NULL);
    check_status(2);
    check_contains(last.err, "setting colour=red: the model follows expandable_segments");
    command("snapshot", "--verify", "--empty-cache-at-stages", SNAPSHOTS "default.pickle", NULL);
    check_status(2);
    check_contains(last.err, "a verification runs with the recorded settings");
    command("snapshot", "--device", "7", SNAPSHOTS "default.pickle", NULL);
    check_status(2);
    check_contains(last.err, "this device has no trace in it");
    command("snapshot", "--help", NULL);
    check_status(0);
    check_contains(last.out, "usage: reveille snapshot");
}

static void test_full_disk(void **state)
{
    (void)state;
    char name[] = "reveille", subcommand[] = "devices";
    char *words[] = {name, subcommand, NULL};
    int full = open("/dev/full", O_WRONLY);
    FILE *err = tmpfile();
    assert_true(full >= 0);
    assert_non_null(err);
    assert_int_equal(status_of(start(words, full, fileno(err))), 1);
    read_all(err, last.err);
    check_contains(last.err, "reveille: writing the output: No space left on device");
    close(full);
}

static void test_closed_pipe(void **state)
{
    (void)state;
    char name[] = "reveille", subcommand[] = "devices";
    char *words[] = {name, subcommand, NULL};
    int ends[2];
    FILE *err = tmpfile();
    assert_non_null(err);
    assert_int_equal(pipe(ends), 0);
    close(ends[0]);
    assert_int_equal(status_of(start(words, ends[1], fileno(err))), 1);
    read_all(err, last.err);
    assert_string_equal(last.err, "");
    close(ends[1]);
}

static int make_paths(void **state)
{
    (void)state;
    int file = mkstemp(trace_path);
    if (file < 0)
        return -1;
    close(file);
    snprintf(zstd_path, sizeof zstd_path, "%s.zst", trace_path);
    return 0;
}

static int remove_paths(void **state)
{
    (void)state;
    return unlink(trace_path);
}

/* ---- On a terminal ---- */

/* The command with stdout and stderr on a terminal; the answer is in `last.out`. */
static void on_a_terminal(const char *option, const char *value)
{
    char name[] = "reveille", verb[] = "replay";
    char *words[] = {name, verb, trace_path, strdup(option), strdup(value), NULL};
    struct winsize window = {.ws_row = 50, .ws_col = 200};
    int terminal;
    pid_t child = forkpty(&terminal, NULL, NULL, &window);
    if (child == 0) {
        execv(RVL_COMMAND_PATH, words);
        _exit(127);
    }
    assert_true(child > 0);
    size_t length = 0;
    ssize_t count;
    while (length < OUTPUT_BYTES - 1 &&
           (count = read(terminal, last.out + length, OUTPUT_BYTES - 1 - length)) > 0)
        length += (size_t)count;
    last.out[length] = '\0';
    last.status = status_of(child);
    close(terminal);
    free(words[3]);
    free(words[4]);
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
    assert_int_equal(last.status, 0);
    check_contains(last.out, "\r[");
    check_contains(last.out, "[########################################] 100 %  560000 events");
    const char *cleared = strstr(last.out, "\r\x1b[K");
    assert_non_null(cleared);
    check_contains(cleared, "weights"); /* the table comes after it */
    assert_null(strstr(cleared + 4, "\x1b["));

    command("replay", "--device", "1GiB", trace_path, NULL);
    assert_int_equal(last.status, 0);
    assert_string_equal(last.err, "");
    assert_null(strchr(last.out, '\x1b'));
    assert_null(strchr(last.out, '\r'));

    write_trace(HEAD "alloc 1 e 0 1 0 2097152 weights\nend 1\n");
    on_a_terminal("--device", "1MiB"); /* does not fit: the mark is coloured */
    assert_int_equal(last.status, 3);
    assert_null(strstr(last.out, "\r[")); /* too short for a bar */
    check_contains(last.out, "\x1b[");
    command("replay", "--device", "1MiB", trace_path, NULL);
    assert_int_equal(last.status, 3);
    assert_null(strchr(last.out, '\x1b'));
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
    return cmocka_run_group_tests(tests, make_paths, remove_paths);
}
