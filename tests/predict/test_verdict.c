/* SPDX-License-Identifier: MIT */
/*
 * Verdicts of traces written by hand: a device of 1000 MiB, and whole sentences compared. A row is
 * what happened and what is said of it.
 */
#include "tests/support/support.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "reveille/verdict.h"
#include "tests/support/folder.h"

#define OF(version)                                                                                \
    "reveille-trace " version "\n"                                                                 \
    "clock boot=- mono_ns=0 wall_ns=0\n"                                                           \
    "device 0 profile=- capacity_bytes=1048576000 granularity_bytes=2097152\n"
#define HEAD OF("1.2") "process p pid=0\n"
#define RAN OF("1.4") "process p pid=7 refusals=yes\nprocess q pid=8 refusals=yes\n"
#define STAGED RAN "stage 1 p 0 train\nalloc 2 p 0 1 0 943718400 weights\n"
#define ASKED "refuse 3 p 0 0 209715200 104857600 weights"

/* Lines that are events: those before them declare. */
static unsigned count_events(const char *text)
{
    static const char *const declares[] = {"reveille-trace ", "clock ", "device ", "process "};
    unsigned count = 0;
    for (const char *line = text; *line != '\0'; line = strchr(line, '\n') + 1) {
        bool event = true;
        for (size_t i = 0; i < sizeof declares / sizeof *declares; i++)
            event = event && strncmp(line, declares[i], strlen(declares[i])) != 0;
        count += event;
    }
    return count;
}

static rvl_status run(const char *text, const rvl_replay_options *options, rvl_replay **replay_out)
{
    char path[64], whole[4096];
    const char *paths = path;
    bool partial = options != NULL && options->flags & RVL_REPLAY_PARTIAL;
    int length = partial ? snprintf(whole, sizeof whole, "%s", text)
                         : snprintf(whole, sizeof whole, "%send %u\n", text, count_events(text));
    assert_in_range(length, 1, sizeof whole - 1);
    folder_write("verdict.rvt", whole);
    snprintf(path, sizeof path, "%s/verdict.rvt", folder);
    return rvl_replay_run(&paths, 1, options, replay_out);
}

static rvl_verdict verdict_with(const char *text, rvl_replay_options options, bool *fits_out)
{
    rvl_replay *replay = NULL;
    rvl_verdict verdict = {.struct_size = sizeof verdict};
    rvl_replay_device device = {.struct_size = sizeof device};
    options.struct_size = sizeof options;
    assert_int_equal(run(text, &options, &replay), RVL_OK);
    assert_int_equal(rvl_replay_get_verdict(replay, &verdict), RVL_OK);
    assert_int_equal(rvl_replay_get_device(replay, 0, &device), RVL_OK);
    if (fits_out != NULL)
        *fits_out = device.fits;
    rvl_replay_close(replay);
    verdict.process = verdict.tag = verdict.stage = verdict.where = NULL; /* the replay had them */
    return verdict;
}

typedef struct row {
    const char *trace;
    rvl_verdict_kind kind;
    const char *text;
    uint64_t refused, cured;
    bool fits;
} row;

static const row rows[] = {
    {HEAD "alloc 1 p 0 1 0 524288000 a\n", RVL_VERDICT_FITS, "fits, with 500.0 MiB to spare", 0, 0,
     true},
    {HEAD "alloc 1 p 0 1 0 1027604480 a\n", RVL_VERDICT_TIGHT,
     "tight: 20.0 MiB to spare on device 0, less than the headroom of 30.0 MiB", 0, 0, true},
    {HEAD "stage 1 p 0 s\nalloc 2 p 0 1 0 1050673152 a\n", RVL_VERDICT_OUT_OF_MEMORY,
     "out of memory: p/a asked for 1002.0 MiB of device 0 with 1000.0 MiB free, in s", 0, 0, false},
    /* A program that ran without refusals; one with a writer that could not record them. */
    {RAN "alloc 1 p 0 1 0 524288000 a\n", RVL_VERDICT_FITS, "fits, with 500.0 MiB to spare", 0, 0,
     true},
    {OF("1.1") "process p pid=7\nalloc 1 p 0 1 0 524288000 a\n", RVL_VERDICT_UNRECORDED,
     "no refusals recorded: what was allocated fits, with 500.0 MiB to spare", 0, 0, true},
    /* The program dies of it, with its line and without; or nothing more is known of it. */
    {STAGED ASKED " at=train.py:23\nended 4 p 0 exit=1\n", RVL_VERDICT_OUT_OF_MEMORY,
     "out of memory: p/weights asked for 200.0 MiB of device 0 with 100.0 MiB free, in train, at "
     "train.py:23; the command failed with exit status 1",
     1, 0, false},
    {STAGED ASKED "\nended 4 p 0 signal=6\n", RVL_VERDICT_OUT_OF_MEMORY,
     "out of memory: p/weights asked for 200.0 MiB of device 0 with 100.0 MiB free, in train; the "
     "command was killed by signal 6 (SIGABRT)",
     1, 0, false},
    {STAGED ASKED "\n", RVL_VERDICT_OUT_OF_MEMORY,
     "out of memory: p/weights asked for 200.0 MiB of device 0 with 100.0 MiB free, in train", 1, 0,
     false},
    {RAN "refuse 1 p 0 host 209715200 1048576 pinned\nended 4 p 0 exit=1\n",
     RVL_VERDICT_OUT_OF_MEMORY,
     "out of memory: p/pinned asked for 200.0 MiB of host memory with 1.0 MiB free, in "
     "start; the command failed with exit status 1",
     1, 0, false},
    /* It asks for less, marks a stage, or ends well: it has survived. */
    {STAGED ASKED "\nalloc 4 p 0 2 0 52428800 weights\nended 5 p 0 exit=0\n", RVL_VERDICT_SURVIVED,
     "fits after 1 refusal that the program survived, with 50.0 MiB to spare: p/weights asked for "
     "200.0 MiB of device 0 with 100.0 MiB free, in train",
     1, 0, true},
    {STAGED ASKED "\nstage 4 p 0 next\nended 5 p 0 exit=5\n", RVL_VERDICT_FAILED,
     "no verdict: the command failed with exit status 5", 1, 0, false},
    {STAGED ASKED "\nrefuse 4 p 0 0 199229440 104857600 weights\nended 5 p 0 exit=0\n",
     RVL_VERDICT_SURVIVED,
     "fits after 2 refusals that the program survived, with 100.0 MiB to spare; the first: "
     "p/weights asked for 200.0 MiB of device 0 with 100.0 MiB free, in train",
     2, 0, true},
    /* Granted at the next try; the allocator's word is the end of the driver's refusals. */
    {STAGED ASKED "\nfree 4 p 0 1\nalloc 5 p 0 2 0 209715200 weights\nended 6 p 0 exit=0\n",
     RVL_VERDICT_FITS, "fits, with 100.0 MiB to spare", 0, 1, true},
    {STAGED ASKED "\n" ASKED "\nrefuse 3 p 0 0 209000000 104857600 - by=allocator at=a.py:1\n"
                  "ended 4 p 0 exit=1\n",
     RVL_VERDICT_OUT_OF_MEMORY,
     "out of memory: p/weights asked for 199.3 MiB of device 0 with 100.0 MiB free, in train, at "
     "a.py:1; the command failed with exit status 1",
     1, 0, false},
    {STAGED "refuse 3 p 0 0 10485760 104857600 - by=allocator at=a.py:1\nended 4 p 0 exit=1\n",
     RVL_VERDICT_OUT_OF_MEMORY,
     "out of memory: p asked for 10.0 MiB of device 0 with 100.0 MiB free, in train, at a.py:1: "
     "refused by a limit of its own; the command failed with exit status 1",
     1, 0, false},
    /* Of two ranks the one that died first is named, not the one that was refused first. */
    {STAGED ASKED "\nrefuse 4 q 0 0 524288000 104857600 grads\nalloc 5 p 0 2 0 2097152 weights\n"
                  "ended 6 p 0 exit=1\n",
     RVL_VERDICT_OUT_OF_MEMORY,
     "out of memory: q/grads asked for 500.0 MiB of device 0 with 100.0 MiB free, in train; the "
     "command failed with exit status 1",
     2, 0, false},
    /* It ended a process, and the command went on, or ended in another way. */
    {STAGED ASKED "\nfail 4 p 0 how=exit%20status%201\nended 5 q 0 exit=0\n",
     RVL_VERDICT_OUT_OF_MEMORY,
     "out of memory: p/weights asked for 200.0 MiB of device 0 with 100.0 MiB free, in train; the "
     "process failed (exit status 1), and the command ended with exit status 0",
     1, 0, false},
    {STAGED "alloc 3 q 0 2 0 2097152 weights\n" ASKED
            "\nfail 4 p 0 how=exit%20status%201\nalloc 5 q 0 3 0 2097152 weights\n"
            "ended 6 q 0 exit=1\n",
     RVL_VERDICT_OUT_OF_MEMORY,
     "out of memory: p/weights asked for 200.0 MiB of device 0 with 100.0 MiB free, in train; the "
     "command failed with exit status 1",
     1, 0, false},
    /* One that began later got memory, and the command failed all the same: as ranks do, of which
     * the first asked before the second had begun. */
    {STAGED ASKED "\nfail 4 p 0 how=exit%20status%201\nprocess r pid=3\n"
                  "alloc 5 r 0 2 0 2097152 weights\nended 6 q 0 exit=1\n",
     RVL_VERDICT_OUT_OF_MEMORY,
     "out of memory: p/weights asked for 200.0 MiB of device 0 with 100.0 MiB free, in train; the "
     "command failed with exit status 1",
     1, 0, false},
    /* So did one, and it was ended in its turn. */
    {STAGED ASKED "\nfail 4 p 0 how=exit%20status%201\nprocess r pid=3\n"
                  "alloc 5 r 0 2 0 2097152 weights\nrefuse 6 r 0 0 199229440 102760448 grads\n"
                  "fail 7 r 0 how=no%20room\nended 8 q 0 exit=0\n",
     RVL_VERDICT_OUT_OF_MEMORY,
     "out of memory: r/grads asked for 190.0 MiB of device 0 with 98.0 MiB free, in train; the "
     "process failed (no room), and the command ended with exit status 0",
     2, 0, false},
    /* Another has taken its place; it was ended on purpose; or it had gone on. */
    {STAGED ASKED "\nfail 4 p 0 how=exit%20status%201\nprocess r pid=3\n"
                  "alloc 5 r 0 2 0 2097152 weights\nended 6 q 0 exit=0\n",
     RVL_VERDICT_SURVIVED, NULL, 1, 0, true},
    {STAGED ASKED "\nfail 4 p 0\nended 5 q 0 exit=0\n", RVL_VERDICT_SURVIVED, NULL, 1, 0, true},
    {STAGED ASKED "\nstage 4 p 0 next\nfail 5 p 0 how=no%20weights\nended 6 q 0 exit=0\n",
     RVL_VERDICT_SURVIVED, NULL, 1, 0, true},
    /* It failed, and not of memory; or it never used a GPU. */
    {STAGED "ended 3 p 0 exit=5\n", RVL_VERDICT_FAILED,
     "no verdict: the command failed with exit status 5", 0, 0, false},
    {STAGED "ended 3 p 0 signal=9\n", RVL_VERDICT_FAILED,
     "no verdict: the command was killed by signal 9 (SIGKILL)", 0, 0, false},
    {STAGED "ended 3 p 0 signal=40\n", RVL_VERDICT_FAILED,
     "no verdict: the command was killed by signal 40", 0, 0, false},
    {STAGED "ended 3 p 0 exit=0 missed=3\n", RVL_VERDICT_FAILED,
     "no verdict: the command had 3 processes that found no simulated GPU", 0, 0, false},
    {STAGED "ended 3 p 0 exit=0 waits=rank%200%20waits\n", RVL_VERDICT_FAILED,
     "no verdict: rank 0 waits", 0, 0, false},
    {STAGED "ended 3 p 0 exit=1 waits=rank%200%20waits\n", RVL_VERDICT_FAILED,
     "no verdict: the command failed with exit status 1; rank 0 waits", 0, 0, false},
    {STAGED "ended 3 p 0 exit=0 missed=1 waits=rank%200%20waits\n", RVL_VERDICT_FAILED,
     "no verdict: the command had 1 process that found no simulated GPU; rank 0 waits", 0, 0,
     false},
    {STAGED ASKED "\nended 4 p 0 exit=1 waits=rank%200%20waits\n", RVL_VERDICT_OUT_OF_MEMORY, NULL,
     1, 0, false},
    /* The first that failed is named, where the command did. */
    {STAGED "fail 3 q 0 how=exit%20status%201\nfail 4 p 0\nended 5 p 0 exit=7\n",
     RVL_VERDICT_FAILED,
     "no verdict: the command failed with exit status 7; q failed first, in train: exit status 1",
     0, 0, false},
    {STAGED "fail 3 q 0\nfail 4 q 0\nended 5 p 0 exit=7\n", RVL_VERDICT_FAILED,
     "no verdict: the command failed with exit status 7; q failed first, in train: killed, "
     "crashed, "
     "or left by _exit()",
     0, 0, false},
    {STAGED "fail 3 q 0\nfail 4 p 0 how=no%20weights\nended 5 p 0 exit=7\n", RVL_VERDICT_FAILED,
     "no verdict: the command failed with exit status 7; q failed first, in train: killed, "
     "crashed, "
     "or left by _exit(); then p, in train: no weights",
     0, 0, false},
    {STAGED "fail 3 p 0\nended 5 p 0 exit=0\n", RVL_VERDICT_FITS, "fits, with 100.0 MiB to spare",
     0, 0, true},
    {STAGED ASKED "\nfail 3 q 0\nended 5 p 0 exit=1\n", RVL_VERDICT_OUT_OF_MEMORY, NULL, 1, 0,
     false},
    {RAN "stage 1 p 0 s\nended 3 p 0 exit=0\n", RVL_VERDICT_NO_GPU, "no verdict: it used no GPU", 0,
     0, true},
    {RAN "stage 1 p 0 s\nended 3 p 0 exit=5\n", RVL_VERDICT_FAILED,
     "no verdict: the command failed with exit status 5", 0, 0, false},
};

static void check(const row *expected, const rvl_verdict *verdict, bool fits)
{
    if (expected->text != NULL)
        assert_string_equal(verdict->text, expected->text);
    assert_int_equal(verdict->kind, expected->kind);
    assert_int_equal(verdict->refused_count, expected->refused);
    assert_int_equal(verdict->cured_count, expected->cured);
    assert_int_equal(fits, expected->fits);
}

static void what_happened_is_what_is_said(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        bool fits;
        rvl_verdict verdict = verdict_with(rows[i].trace, (rvl_replay_options){0}, &fits);
        check(&rows[i], &verdict, fits);
    }
}

/* What a card refused says nothing of one with more memory, and the run did not go on. */
static void another_device_decides_for_itself(void **state)
{
    (void)state;
    const rvl_replay_options larger = {.device = "2000MiB"};
    bool fits;
    rvl_verdict verdict = verdict_with(STAGED ASKED "\nended 4 p 0 exit=1\n", larger, &fits);
    assert_string_equal(verdict.text, "no verdict: the command ran out of memory where it was "
                                      "recorded, and did not go on");
    assert_false(fits);
    verdict = verdict_with(STAGED ASKED "\nalloc 4 p 0 2 0 52428800 weights\nended 5 p 0 exit=0\n",
                           larger, &fits);
    assert_string_equal(verdict.text, "fits, with 1.0 GiB to spare");
    assert_true(fits);
}

/* Nobody knows what came behind the last line; what stands in it stays true. */
static void a_recording_that_breaks_off_is_no_verdict(void **state)
{
    (void)state;
    const row cut[] = {
        {STAGED, RVL_VERDICT_CUT_OFF,
         "no verdict: a recording breaks off; what is in it fits, with 100.0 MiB to spare", 0, 0,
         true},
        {STAGED ASKED "\nalloc 4 p 0 2 0 52428800 weights\n", RVL_VERDICT_CUT_OFF,
         "no verdict: a recording breaks off; what is in it fits, with 50.0 MiB to spare", 1, 0,
         true},
        {STAGED ASKED "\n", RVL_VERDICT_OUT_OF_MEMORY,
         "out of memory: p/weights asked for 200.0 MiB of device 0 with 100.0 MiB free, in train",
         1, 0, false},
        {STAGED "alloc 3 p 0 2 0 209715200 weights\n", RVL_VERDICT_OUT_OF_MEMORY,
         "out of memory: p/weights asked for 200.0 MiB of device 0 with 100.0 MiB free, in train",
         0, 0, false},
    };
    for (size_t i = 0; i < sizeof cut / sizeof *cut; i++) {
        bool fits;
        rvl_verdict verdict =
            verdict_with(cut[i].trace, (rvl_replay_options){.flags = RVL_REPLAY_PARTIAL}, &fits);
        check(&cut[i], &verdict, fits);
    }
}

static void the_headroom_is_a_size_or_a_part(void **state)
{
    (void)state;
    static const char half[] = HEAD "alloc 1 p 0 1 0 524288000 a\n";
    rvl_replay_options options = {.flags = RVL_REPLAY_HEADROOM_PERCENT, .headroom_percent = 50};
    assert_int_equal(verdict_with(half, options, NULL).kind, RVL_VERDICT_FITS);
    options.headroom_percent = 50.1;
    rvl_verdict verdict = verdict_with(half, options, NULL);
    assert_string_equal(verdict.text, "tight: 500.0 MiB to spare on device 0, less than the "
                                      "headroom of 501.0 MiB");
    options = (rvl_replay_options){.flags = RVL_REPLAY_HEADROOM_BYTES, .headroom_bytes = 524288001};
    assert_int_equal(verdict_with(half, options, NULL).kind, RVL_VERDICT_TIGHT);
    options.headroom_bytes = 0;
    assert_int_equal(verdict_with(HEAD "alloc 1 p 0 1 0 1048576000 a\n", options, NULL).kind,
                     RVL_VERDICT_FITS);
}

static void a_headroom_out_of_range_is_refused(void **state)
{
    (void)state;
    static const rvl_replay_options wrong[] = {
        {.flags = RVL_REPLAY_HEADROOM_PERCENT, .headroom_percent = 100.1},
        {.flags = RVL_REPLAY_HEADROOM_PERCENT, .headroom_percent = -1},
        {.flags = RVL_REPLAY_HEADROOM_PERCENT, .headroom_percent = NAN},
        {.flags = RVL_REPLAY_HEADROOM_PERCENT | RVL_REPLAY_HEADROOM_BYTES},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        rvl_replay_options options = wrong[i];
        rvl_replay *replay = NULL;
        options.struct_size = sizeof options;
        assert_int_equal(run(HEAD, &options, &replay), RVL_ERR_INVALID);
        assert_null(replay);
    }
}

static void calls_without_a_result_are_refused(void **state)
{
    (void)state;
    rvl_verdict verdict = {.struct_size = sizeof verdict};
    rvl_replay *replay = NULL;
    assert_int_equal(rvl_replay_get_verdict(NULL, &verdict), RVL_ERR_INVALID);
    assert_int_equal(run(HEAD, NULL, &replay), RVL_OK);
    assert_int_equal(rvl_replay_get_verdict(replay, NULL), RVL_ERR_INVALID);
    rvl_replay_close(replay);
    assert_string_equal(rvl_verdict_keyword(RVL_VERDICT_SURVIVED), "survived refusals");
    assert_string_equal(rvl_verdict_keyword(RVL_VERDICT_KIND_COUNT), "?");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_happened_is_what_is_said),
        cmocka_unit_test(another_device_decides_for_itself),
        cmocka_unit_test(a_recording_that_breaks_off_is_no_verdict),
        cmocka_unit_test(the_headroom_is_a_size_or_a_part),
        cmocka_unit_test(a_headroom_out_of_range_is_refused),
        cmocka_unit_test(calls_without_a_result_are_refused),
    };
    return cmocka_run_group_tests(tests, folder_make, folder_remove);
}
