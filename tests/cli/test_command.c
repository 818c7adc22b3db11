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
#include <sys/stat.h>
#include <unistd.h>

#include <jansson.h>
#include <zstd.h>

#include "tests/support/folder.h"
#include "tests/support/run_command.h"

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
    check_contains(answer.out, "device 0: given by size, 1000.0 MiB; peak 600.0 MiB in rollout\n");
    check_contains(answer.out, "\nfits, with 400.0 MiB to spare\n");
    check_contains(answer.out, "  stage         peak  ");
    check_contains(answer.out, "e/weights 600.0 MiB\n");
    assert_null(strstr(answer.out, "OOM"));
    assert_null(strchr(answer.out, '\x1b')); /* not a terminal: no colour */
    assert_null(strstr(answer.out, " \n"));
}

/* Of ranges each name has one row, which is that of the largest. */
static void test_a_row_for_each_name(void **state)
{
    (void)state;
    folder_write(TRACE, "reveille-trace 1.2\nclock boot=- mono_ns=0 wall_ns=0\n"
                        "device 0 profile=- capacity_bytes=1048576000 granularity_bytes=2097152\n"
                        "process e pid=0\n"
                        "enter 1 e 0 1 forward\nalloc 2 e 0 1 0 104857600 t\nleave 3 e 0 1\n"
                        "enter 4 e 0 2 forward\nalloc 5 e 0 2 0 209715200 t\nleave 6 e 0 2\n"
                        "free 7 e 0 2\nenter 8 e 0 3 forward\nleave 9 e 0 3\nend 9\n");
    RUN("replay", trace_path);
    check_status(0);
    check_contains(answer.out, "\n  forward x3, most in #2  300.0 MiB");
    assert_null(strstr(answer.out, "\n  forward#"));
    RUN("replay", trace_path, "--each-stage");
    check_status(0);
    check_contains(answer.out, "\n  forward    100.0 MiB");
    check_contains(answer.out, "\n  forward#2  300.0 MiB");
    check_contains(answer.out, "\n  forward#3  100.0 MiB");
}

/* Processes with a device each: what they hold in two ranges of forward, in units of 100 MiB. */
static void write_ranks(const char *const *names, const int *held, int count)
{
    static char text[4096];
    int at = snprintf(text, sizeof text, "reveille-trace 1.2\nclock boot=- mono_ns=0 wall_ns=0\n");
    for (int i = 0; i < count; i++)
        at += snprintf(text + at, sizeof text - (size_t)at,
                       "device %d profile=- capacity_bytes=1048576000 granularity_bytes=2097152\n",
                       i);
    for (int i = 0; i < count; i++)
        at += snprintf(text + at, sizeof text - (size_t)at, "process %s pid=0\n", names[i]);
    for (int time = 1, i = 0; i < count; i++)
        for (int k = 1; k <= 2; k++, time += 4)
            at += snprintf(text + at, sizeof text - (size_t)at,
                           "enter %d %s 0 %d forward\nalloc %d %s 0 %d %d %d t\n"
                           "free %d %s 0 %d\nleave %d %s 0 %d\n",
                           time, names[i], k, time + 1, names[i], k, i, held[i] * 104857600 / k,
                           time + 2, names[i], k, time + 3, names[i], k);
    snprintf(text + at, sizeof text - (size_t)at, "end %d\n", 8 * count);
    folder_write(TRACE, text);
}

static void devices_of_ranks_share_a_table(void **state)
{
    (void)state;
    static const char *const ranks[] = {"python[rank%200]", "python[rank%201]", "python[rank%202]",
                                        "python[rank%203]"};
    static const char *const roles[] = {"engine", "trainer"};
    write_ranks(ranks, (const int[]){7, 8, 7, 8}, 4);
    RUN("replay", trace_path);
    check_status(0);
    assert_string_equal(
        answer.out,
        "devices 0-3: given by size, 1000.0 MiB each; peak 800.0 MiB in forward of device 1\n"
        "  stage                        peak  on device  elsewhere from  end  free at peak  host  "
        "seconds  who holds the peak\n"
        "  forward x2, most in #1  800.0 MiB       1, 3       700.0 MiB  0 B     200.0 MiB   0 B  "
        "  0.000  python[rank 1]/t 800.0 MiB\n"
        "fits, with 200.0 MiB to spare\n");
    RUN("replay", trace_path, "--each-stage");
    check_contains(answer.out,
                   "\n\ndevice 3: given by size, 1000.0 MiB; peak 800.0 MiB in forward");
    write_ranks(ranks, (const int[]){8, 8, 8, 9}, 3);
    RUN("replay", trace_path);
    check_contains(answer.out, "  800.0 MiB       each ");
    RUN("replay", trace_path, "--device", "750MiB");
    check_status(3);
    check_contains(answer.out, "\n  device 2: does not fit from ");
    /* Ranks that differ by more, and those who do something else, keep their own. */
    write_ranks(ranks, (const int[]){8, 8, 5, 8}, 4);
    RUN("replay", trace_path);
    check_contains(answer.out, "devices 0-1, 3: ");
    check_contains(answer.out,
                   "\n\ndevice 2: given by size, 1000.0 MiB; peak 500.0 MiB in forward");
    write_ranks(roles, (const int[]){8, 8}, 2);
    RUN("replay", trace_path);
    check_contains(answer.out, "device 0: ");
    check_contains(answer.out, "\n\ndevice 1: ");
}

static void test_does_not_fit(void **state)
{
    (void)state;
    char expected[256];
    folder_write(TRACE, good);
    RUN("replay", "--device", "500MiB", trace_path);
    check_status(3);
    assert_string_equal(answer.err, "");
    check_contains(answer.out, "\nout of memory: e/weights asked for 600.0 MiB of device 0 with "
                               "500.0 MiB free, in rollout\n");
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
    check_contains(answer.out, "in rollout, over budget\n");
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
    check_contains(answer.out, "peak 2.0 MiB in start\n");
    check_contains(answer.out, "1 of the files breaks off before its end record\n"
                               "no verdict: a recording breaks off; what is in it fits, with ");
    RUN("replay", "--partial", "--json", trace_path);
    check_contains(answer.out, "\"fits\":null,");
    check_contains(answer.out, "\"verdict\":{\"kind\":\"cut off\",");
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
    check_bad_usage("unknown command repaly: did you mean replay?\n");
    RUN("snap");
    check_bad_usage("unknown command snap: did you mean snapshot?\n");
    RUN("frobnicate");
    check_bad_usage("unknown command frobnicate\n");
    RUN("-x");
    check_bad_usage("unknown option -x\nTry `reveille --help`.\n");
    RUN("--verison");
    check_bad_usage("unknown option --verison: did you mean --version?");
    RUN("help", "repaly");
    check_bad_usage("unknown command repaly");
    RUN("replay");
    check_bad_usage("name at least one trace");
    RUN("replay", trace_path, "-");
    check_bad_usage("replay: -: name /dev/stdin to read what is piped in\n");
    RUN("model", "-", "-o", "x.rvt");
    check_bad_usage("model: -: name /dev/stdin to read what is piped in\n");
    RUN("model", "config.json", "-o", "-");
    check_bad_usage("-o -: name a file; ./- is one of that name\n");
    RUN("replay", trace_path, "--frobnicate");
    check_bad_usage("unknown option --frobnicate\n");
    RUN("replay", trace_path, "--devcie=h200");
    check_bad_usage("unknown option --devcie: did you mean --device?\n");
    RUN("replay", trace_path, "-json");
    check_bad_usage("unknown option -json: did you mean --json?\n");
    RUN("replay", trace_path, "--partial=1");
    check_bad_usage("option --partial takes no value: leave =1 out\n");
    RUN("replay", trace_path, "--part=1");
    check_bad_usage("option --partial takes no value: leave =1 out\n");
    RUN("replay", "--snapshot", "1", trace_path);
    check_bad_usage("option --snapshot is ambiguous: did you mean --snapshot-process or "
                    "--snapshot-device?\n");
    RUN("replay", trace_path, "--color=red");
    check_bad_usage("--color red: expected auto, always or never\n");
    RUN("replay", trace_path, "--progress=no");
    check_bad_usage("--progress no: expected auto, always or never\n");
    RUN("replay", trace_path, "--settle", "10");
    check_bad_usage("--settle: only with --backend cuda");
    RUN("replay", trace_path, "--snapshot-process", "p");
    check_bad_usage("--snapshot-process: no PyTorch snapshot (.pickle, .pickle.gz) is among");
    RUN("replay", trace_path, "--snapshot-device", "0");
    check_bad_usage("--snapshot-device: no PyTorch snapshot");
    RUN("replay", trace_path, "--settle", "1s");
    check_bad_usage("--settle 1s: expected milliseconds");
    RUN("replay", trace_path, "--settle", "60001");
    check_bad_usage("--settle 60001");
    RUN("replay", trace_path, "--device");
    check_bad_usage("option --device needs a value: a profile that `reveille devices` lists, the "
                    "file of one, or a size such as 80GiB\n");
    RUN("replay", trace_path, "--wake");
    check_bad_usage("option --wake needs a value: staged or together\n");
    RUN("replay", trace_path, "--settle");
    check_bad_usage("option --settle needs a value: milliseconds, at most 60000\n");
    RUN("replay", trace_path, "--snapshot-device");
    check_bad_usage("option --snapshot-device needs a value: a whole number from 0 to 63\n");
    RUN("replay", trace_path, "--wake", "early");
    check_bad_usage("--wake early");
    RUN("replay", trace_path, "--backend", "abacus");
    check_bad_usage("--backend abacus");
    RUN("replay", trace_path, "--backend", "cuda", "--device", "h100-80g");
    check_bad_usage("--device h100-80g: not with --backend cuda: the card in this machine is the "
                    "device, whatever a profile says: leave one of them out\n");
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

/* A kind of GPU by a name that is nearly one, and by sizes as people write them. */
static void devices_are_understood(void **state)
{
    (void)state;
    static const struct {
        const char *device;
        const char *answer;
    } cases[] = {
        {"h100", "lists: did you mean h100-80g or h100-94g?\n"},
        {"H100", "lists: did you mean h100-80g or h100-94g?\n"},
        {"a100", "lists: did you mean a100-80g or a100-40g?\n"},
        {"H100_80GB", "lists: did you mean h100-80g?\n"},
        {"H200-141GB", "lists: did you mean h200?\n"},
        {"h2", "lists: did you mean h200 or h20?\n"},
        {"rtx-4090", "lists: did you mean rtx4090?\n"},
        {"4090", "no GPU has: did you mean 4090GiB or rtx4090?\n"},
        {"80", "--device 80: less than 1 MiB, which no GPU has: did you mean 80GiB?\n"},
        {"1023KiB", "did you mean 1023GiB?\n"},
        {"quantum", "lists\n"},
        {"", "lists\n"},
    };
    folder_write(TRACE, good);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        RUN("replay", trace_path, "--device", cases[i].device);
        check_bad_usage(cases[i].answer);
    }
    RUN("replay", trace_path, "--device", "80gib");
    check_status(0);
    assert_string_equal(answer.err, "");
    check_contains(answer.out, "device 0: given by size, 80.0 GiB;");
    RUN("replay", trace_path, "--device", "H100-80G");
    check_status(0);
    check_contains(answer.out, "device 0: h100-80g, 79.2 GiB;");
    /* Understood, and said what it is. */
    RUN("replay", trace_path, "--device", "80gb");
    check_status(0);
    check_contains(answer.out, "device 0: given by size, 74.5 GiB;");
    check_contains(answer.err, "reveille: --device 80gb is 74.5 GiB, since GB counts in powers of "
                               "ten: for a card that is sold as 80 GB, name its profile");
}

/* What is written is what the name says. */
static void endings_say_the_format(void **state)
{
    (void)state;
    static const char *const refused[][3] = {
        {"-o", "x.pdf", "-o x.pdf: this writes .html, and the name says .pdf: end it in .html\n"},
        {"-o", "x.svg", "-o x.svg: this writes .html, and the name says .svg: end it in .html\n"},
        {"--svg", "x.PNG", "--svg x.PNG: this writes .svg, and the name says .PNG"},
        {"--chrome", "x.html", "--chrome x.html: this writes .json, and the name says .html"},
    };
    folder_write(TRACE, good);
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        RUN("report", trace_path, refused[i][0], refused[i][1]);
        check_bad_usage(refused[i][2]);
        assert_int_not_equal(access(refused[i][1], F_OK), 0);
    }
    RUN("report", trace_path, "--svg", "-");
    check_status(0);
    RUN("report", trace_path, "--svg", "/dev/null");
    check_status(0);
    RUN("report", trace_path, "--index", "0");
    check_bad_usage("--index: only with --svg");
    RUN("report", trace_path, "--against-wake", "staged");
    check_bad_usage("--against-wake: as --wake has it, so that both runs are the same");
}

/* ---- Help, version, devices ---- */

/* "--help says what holds without it", of the option at the beginning of text. */
static void check_default(const char *command, const char *text)
{
    static const char *const without[] = {"-h, --help ", "-V, --version "};
    const char *option = strchr(text, '-');
    const char *next = text;
    do
        next = strchr(next, '\n') + 1;
    while (strncmp(next, "          ", 10) == 0); /* its explanation goes on */
    char entry[2048];
    snprintf(entry, sizeof entry, "%.*s", (int)(next - text), text);
    bool said = strstr(entry, "(default:") != NULL || strstr(entry, "(needed)") != NULL;
    for (size_t i = 0; i < 2 && !said; i++)
        said = strncmp(option, without[i], strlen(without[i])) == 0;
    if (!said)
        print_error("%s: no default of\n%s", command, entry);
    assert_true(said);
}

static void test_each_option_has_its_default(void **state)
{
    static const char *const commands[] = {
        "replay", "record",   "run",     "fit",       "model", "plan",       "check",
        "report", "snapshot", "devices", "calibrate", "store", "completion", "manual"};
    (void)state;
    size_t count = 0;
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) {
        RUN("help", commands[i]);
        check_status(0);
        for (const char *at = answer.out; (at = strstr(at, "\n  -")) != NULL; at++) {
            check_default(commands[i], at + 1);
            count++;
        }
    }
    assert_true(count > 100);
}

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
    strcpy(text, answer.out);
    RUN("help", "--help");
    check_status(0);
    assert_string_equal(answer.out, text);
    RUN("help", "help");
    check_status(0);
    assert_string_equal(answer.out, text);
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

/* Whether a line begins with a text, and has others behind it, with only blanks between. */
static bool has_line(const char *begin, const char *const *parts, size_t count)
{
    for (const char *line = answer.out; line != NULL; line = strchr(line, '\n')) {
        line += *line == '\n';
        const char *at = strncmp(line, begin, strlen(begin)) == 0 ? line + strlen(begin) : NULL;
        for (size_t i = 0; i < count && at != NULL; i++) {
            at += strspn(at, " ");
            at = strncmp(at, parts[i], strlen(parts[i])) == 0 ? at + strlen(parts[i]) : NULL;
        }
        if (at != NULL)
            return true;
    }
    return false;
}

#define CHECK_LINE(begin, ...)                                                                     \
    do {                                                                                           \
        static const char *const parts[] = {__VA_ARGS__};                                          \
        if (!has_line(begin, parts, sizeof parts / sizeof *parts))                                 \
            fail_msg("no such line as %s in\n%s", begin, answer.out);                              \
    } while (0)

/* Where each figure is from, and how sure it is: of all profiles, of a built-in one, of a file. */
static void devices_say_where_figures_are_from(void **state)
{
    (void)state;
    RUN("devices");
    CHECK_LINE("h200", "139.8 GiB", "2.0 MiB", "measured", "NVIDIA H200");
    CHECK_LINE("a100-40g", "39.4 GiB", "2.0 MiB", "the H200's", "NVIDIA A100");
    CHECK_LINE("l40s", "at most 45.0 GiB", "2.0 MiB", "the H200's", "NVIDIA L40S");

    RUN("devices", "--device", "l40s");
    check_status(0);
    CHECK_LINE("capacity", "48305799168 bytes", "smi: ");
    CHECK_LINE("its doubt", "programs may get 460.7 MiB less", "an upper bound\n");
    check_contains(answer.out, "estimated from the H200\n");
    RUN("devices", "--device", "h200");
    check_status(0);
    CHECK_LINE("its doubt", "none", "what programs get\n");
    assert_null(strstr(answer.out, "estimated"));
    RUN("devices", "--device", RVL_SOURCE_DIR "/tests/corpus/profile/spread.json");
    check_status(0);
    CHECK_LINE("create ", "10.0 us a call, 6.4 us a GiB", "estimated from the H200\n");
    CHECK_LINE("driver: context", "0 B", "measured\n");
    CHECK_LINE("measured", "of bytes", "in", "least", "median", "most", "count\n");
    CHECK_LINE("create ", "2097152", "ns", "1", "2", "3", "4\n"); /* the spread */
}

/* A peak within what is not sure fits in doubt. 400 MiB are left of 45 GiB, and 460.7 in doubt. */
static void a_verdict_says_its_doubt(void **state)
{
    char trace[1024];
    (void)state;
    snprintf(trace, sizeof trace, HEAD "stage 1 e 0 run\nalloc 2 e 0 1 0 %llu weights\nend 2\n",
             48305799168ULL - (400ULL << 20));
    folder_write(TRACE, trace);
    RUN("replay", trace_path, "--device", "l40s");
    check_status(0);
    check_contains(answer.out, "device 0: l40s, 45.0 GiB; peak 44.6 GiB in run (in doubt: "
                               "programs may get 460.7 MiB less)\n");
    check_contains(answer.out, "\ntight: 400.0 MiB to spare on device 0, less than the headroom of "
                               "1.3 GiB\n");
    RUN("replay", trace_path, "--device", "46068MiB"); /* the same, as bytes, which are sure */
    check_status(0);
    check_contains(answer.out, " peak 44.6 GiB in run\n");
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
    check_contains(answer.out, "1 request did not fit; the first is entry 1, 3.0 MiB\n");
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
    RUN("snapshot", "a", "--capacity", "80");
    check_bad_usage("--capacity: 80 bytes, which no GPU has: write the unit, such as 80GiB");
    RUN("snapshot", "a", "--set", "capacity=1048575");
    check_bad_usage("--capacity: 1048575 bytes, which no GPU has");
    RUN("snapshot", "a", "--device", "x");
    check_bad_usage("--device x: neither a size nor a profile that `reveille devices` lists");
    RUN("snapshot", "a", "--device", "4096");
    check_bad_usage("--device 4096: expected the index of a device");
    RUN("snapshot", "a", "--quick");
    check_bad_usage("unknown option --quick");
    RUN("snapshot", "a", "--set");
    check_bad_usage("option --set needs a value");
    RUN("snapshot", SNAPSHOTS "default.pickle", "--set", "colour=red");
    check_status(2);
    check_contains(answer.err, "setting colour=red: the model follows expandable_segments");
    RUN("snapshot", "a", "--tensors", "--verify");
    check_bad_usage("--verify: not with --tensors, which lists what was recorded");
    RUN("snapshot", "a", "--tensors", "--set", "max_split_size_mb=64");
    check_bad_usage("--set: not with --tensors");
    RUN("snapshot", "a", "--tensors", "--capacity=1GiB");
    check_bad_usage("--capacity: not with --tensors");
    RUN("snapshot", "a", "--empty-cache-at-stages", "--tensors");
    check_bad_usage("--empty-cache-at-stages: not with --tensors");
    RUN("snapshot", "a", "--tensors", "--device", "h200");
    check_bad_usage("--device h200: with --tensors only the index of a device in the file");
    RUN("snapshot", "--verify", "--empty-cache-at-stages", SNAPSHOTS "default.pickle");
    check_status(2);
    check_contains(answer.err, "a verification runs what was recorded");
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
    assert_string_equal(answer.err, "reveille: writing the output: No space left on device: free "
                                    "some, or write to another disk\n");
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

/* The command with stdout and stderr on a terminal; what it prints is in `answer.out`. */
static void on_a_terminal(unsigned short columns, const char *const *words)
{
    char *line[16] = {RVL_COMMAND_PATH};
    struct winsize window = {.ws_row = 50, .ws_col = columns};
    int terminal;
    for (size_t i = 0; words[i] != NULL; i++)
        line[i + 1] = (char *)(uintptr_t)words[i];
    pid_t child = forkpty(&terminal, NULL, NULL, &window);
    if (child == 0) {
        execv(RVL_COMMAND_PATH, line);
        _exit(127);
    }
    assert_true(child > 0);
    run_finish(child, terminal);
}

#define ON_A_TERMINAL(columns, ...) on_a_terminal(columns, WORDS(__VA_ARGS__))

/* More than the eye can follow. */
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

static void progress_is_for_terminals(void **state)
{
    (void)state;
    write_long_trace();
    ON_A_TERMINAL(120, "replay", trace_path, "--device", "1GiB", "--progress", "--color=never");
    check_status(0);
    check_contains(answer.out, "\rreplay: [####");
    check_contains(answer.out, " events, ");
    const char *last = strstr(answer.out, "\r\x1b[K");
    assert_non_null(last);
    check_contains(last, "weights"); /* the table comes after it */
    assert_null(strstr(last + 4, "\x1b["));

    ON_A_TERMINAL(120, "replay", trace_path, "--device", "1GiB", "--progress=never");
    check_status(0);
    assert_null(strstr(answer.out, "replay: "));
    RUN("replay", trace_path, "--device", "1GiB");
    check_status(0);
    assert_string_equal(answer.err, "");
    assert_null(strchr(answer.out, '\r'));
    RUN("replay", trace_path, "--device", "1GiB", "--progress");
    check_status(0);
    check_contains(answer.err, "replay: 100 %  560000 events, ");
    assert_null(strchr(answer.err, '\x1b'));
    assert_null(strchr(answer.err, '\r'));
}

/* What takes more than two seconds says so on a terminal, though nobody asked. */
static void slow_work_is_seen(void **state)
{
    (void)state;
    char command[256];
    folder_write(TRACE, good);
    snprintf(command, sizeof command, "%s.fifo", trace_path);
    assert_int_equal(mkfifo(command, 0600), 0);
    pid_t writer = fork();
    if (writer == 0) {
        int end = open(command, O_WRONLY);
        sleep(3);
        _exit(write(end, good, sizeof good - 1) == (ssize_t)(sizeof good - 1) ? 0 : 1);
    }
    ON_A_TERMINAL(80, "replay", command);
    check_status(0);
    check_contains(answer.out, "\rreplay: 2 s\x1b[K");
    assert_int_equal(run_wait(writer), 0);
    ON_A_TERMINAL(80, "replay", trace_path);
    check_status(0);
    assert_null(strstr(answer.out, "replay: ")); /* short work does not flash */
    assert_int_equal(unlink(command), 0);
}

/* Except for the sentences around a table, which a terminal wraps where it likes. */
static void check_lines_within(size_t columns)
{
    static const char sentence[] = "device 0: ";
    for (const char *line = answer.out; *line != '\0';) {
        size_t length = strcspn(line, "\r\n");
        bool of_table = strncmp(line, sentence, strlen(sentence)) != 0;
        if (of_table && length > columns)
            print_error("%.*s\n", (int)length, line);
        assert_true(!of_table || length <= columns);
        line += length;
        line += strspn(line, "\r\n");
    }
}

static const char wide[] = HEAD "stage 1 e 1 rollout_with_a_long_name\n"
                                "alloc 2 e 1 1 0 62914560 weights_of_the_engine backup=host\n"
                                "alloc 2 e 1 2 0 62914560 kv_cache_of_the_engine backup=host\n"
                                "alloc 2 e 1 3 0 62914560 gradients_of_the_trainer backup=host\n"
                                "alloc 2 e 1 4 0 62914560 optimizer_of_the_trainer backup=host\n"
                                "end 5\n";

static void tables_fit_the_terminal(void **state)
{
    (void)state;
    static const char *const names[] = {"weights_of_the_engine", "kv_cache_of_the_engine",
                                        "gradients_of_the_trainer", "optimizer_of_the_trainer",
                                        "who holds the peak"};
    static const unsigned short widths[] = {80, 100, 132, 200};
    unsetenv("COLUMNS");
    folder_write(TRACE, wide);
    for (size_t i = 0; i < sizeof widths / sizeof widths[0]; i++) {
        ON_A_TERMINAL(widths[i], "replay", trace_path, "--color=never");
        check_status(0);
        check_lines_within(widths[i]);
        for (size_t k = 0; k < sizeof names / sizeof names[0]; k++)
            check_contains(answer.out, names[k]); /* no word is broken */
    }
    setenv("COLUMNS", "90", 1);
    ON_A_TERMINAL(200, "replay", trace_path, "--color=never");
    unsetenv("COLUMNS");
    check_status(0);
    check_lines_within(90);
    ON_A_TERMINAL(80, "devices", "--help");
    check_status(0);
    check_lines_within(80);
    ON_A_TERMINAL(80, "devices");
    check_status(0);
    check_lines_within(80);
    check_contains(answer.out, "fastfetch-cli/fastfetch#1658");
    ON_A_TERMINAL(80, "snapshot", SNAPSHOTS "default.pickle");
    check_status(0);
    check_lines_within(80);
    /* A pipe has whole lines, whatever COLUMNS says. */
    setenv("COLUMNS", "40", 1);
    RUN("replay", trace_path);
    unsetenv("COLUMNS");
    check_status(0);
    check_contains(answer.out,
                   "e/gradients_of_the_trainer 60.0 MiB, e/kv_cache_of_the_engine 60.0 MiB, "
                   "e/optimizer_of_the_trainer 60.0 MiB, e/weights_of_the_engine 60.0 MiB\n");
}

static void colours_are_for_terminals(void **state)
{
    (void)state;
    unsetenv("NO_COLOR");
    setenv("TERM", "xterm", 1);
    folder_write(TRACE, HEAD "alloc 1 e 0 1 0 2097152 weights\nend 1\n");
    ON_A_TERMINAL(120, "replay", trace_path, "--device", "1MiB");
    check_status(3); /* does not fit: the mark is coloured */
    check_contains(answer.out, "\x1b[31m");
    ON_A_TERMINAL(120, "replay", trace_path, "--device", "1MiB", "--color=never");
    assert_null(strchr(answer.out, '\x1b'));
    setenv("NO_COLOR", "1", 1);
    ON_A_TERMINAL(120, "replay", trace_path, "--device", "1MiB");
    assert_null(strchr(answer.out, '\x1b'));
    ON_A_TERMINAL(120, "replay", trace_path, "--device", "1MiB", "--color=always");
    check_contains(answer.out, "\x1b[31m");
    unsetenv("NO_COLOR");
    setenv("TERM", "dumb", 1);
    ON_A_TERMINAL(120, "replay", trace_path, "--device", "1MiB");
    assert_null(strchr(answer.out, '\x1b'));
    setenv("TERM", "xterm", 1);
    RUN("replay", "--device", "1MiB", trace_path);
    check_status(3);
    assert_null(strchr(answer.out, '\x1b'));
    RUN("replay", "--device", "1MiB", trace_path, "--color");
    check_contains(answer.out, "\x1b[31m");
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
        cmocka_unit_test(test_a_row_for_each_name),
        cmocka_unit_test(devices_of_ranks_share_a_table),
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
        cmocka_unit_test(devices_are_understood),
        cmocka_unit_test(endings_say_the_format),
        cmocka_unit_test(test_each_option_has_its_default),
        cmocka_unit_test(test_help),
        cmocka_unit_test(test_version),
        cmocka_unit_test(test_devices),
        cmocka_unit_test(devices_say_where_figures_are_from),
        cmocka_unit_test(a_verdict_says_its_doubt),
        cmocka_unit_test(test_snapshot_table),
        cmocka_unit_test(test_snapshot_json),
        cmocka_unit_test(test_bad_snapshots),
        cmocka_unit_test(test_full_disk),
        cmocka_unit_test(test_closed_pipe),
        cmocka_unit_test(progress_is_for_terminals),
        cmocka_unit_test(slow_work_is_seen),
        cmocka_unit_test(tables_fit_the_terminal),
        cmocka_unit_test(colours_are_for_terminals),
    };
    return cmocka_run_group_tests(tests, setup, folder_remove);
}
