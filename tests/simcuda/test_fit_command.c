/* SPDX-License-Identifier: MIT */
/* `reveille fit` on programs that allocate a given number of GiB. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "tests/support/folder.h"
#include "tests/support/run_command.h"

#define FIT COMMAND_WORD " fit --find n=1..512 "
/* Like a PyTorch program, it ends when it is refused. */
#define ASKS "-- sh -c '" PROGRAM " malloc $(({n} * 1073741824)) | grep -q ^0' 2>err"

static void the_largest_is_found_on_each_device(void **state)
{
    (void)state;
    assert_int_equal(run_shell(FIT "--device h100-80g,a100-40g " ASKS), 0);
    /* 79.2 GiB, minus 0.5 for a context and 2.4 of headroom; 39.4, 0.5 and 1.2 */
    check_printed(
        "\nn on h100-80g: at most 76, with 2.7 GiB to spare\n  with 77  tight: 1.7 GiB to "
        "spare on device 0, less than the headroom of 2.4 GiB\n  binds  stage run, most of "
        "it simcuda-program");
    check_printed("\nn on a100-40g: at most 37, with 1.9 GiB to spare\n  with 38  tight: ");
    check_printed("  128  526.8 MiB            "); /* the tried values, with their verdicts */
    check_printed("  out of memory\n");
    assert_int_equal(run_shell(FIT "--device a100-40g --headroom 0 --jobs 5 " ASKS), 0);
    check_printed("\nn on a100-40g: at most 38, with 900.5 MiB to spare\n  with 39  out of memory: "
                  "simcuda-program");
    assert_int_equal(run_shell(COMMAND_WORD " fit --find n=2..9 --device a100-40g " ASKS), 0);
    check_printed(
        "\nn on a100-40g: 9, with 29.9 GiB to spare: the largest that was asked for fits\n");
}

static void json_has_each_try(void **state)
{
    (void)state;
    json_int_t largest, edge;
    assert_int_equal(run_shell(FIT "--json --device a100-40g " ASKS), 0);
    json_t *root = json_loads(answer.out, 0, NULL);
    assert_non_null(root);
    const json_t *device = json_array_get(json_object_get(root, "devices"), 0);
    largest = json_integer_value(json_object_get(device, "largest"));
    edge = json_integer_value(json_object_get(device, "edge"));
    assert_int_equal(largest, 37);
    assert_int_equal(edge, 38);
    assert_true(json_is_null(json_object_get(device, "fits_again")));
    const json_t *first = json_array_get(json_object_get(device, "tried"), 0);
    assert_int_equal(json_integer_value(json_object_get(first, "value")), 1);
    assert_true(json_is_true(json_object_get(first, "fits")));
    assert_string_equal(json_string_value(json_object_get(first, "verdict")),
                        "fits, with 37.9 GiB to spare");
    json_decref(root);
}

/* Only the values of the list are tried, since a program may refuse others. */
static void a_list_of_values(void **state)
{
    (void)state;
    const char *const line = COMMAND_WORD
        " fit --find n=8,16,32,64 --device a100-40g -- sh -c 'case {n} in 8 | 16 | 32 "
        "| 64) ;; *) exit 4 ;; esac; " PROGRAM " malloc $(({n} * 1073741824)) | grep -q ^0' 2>err";
    assert_int_equal(run_shell(line), 0);
    check_printed("\nn on a100-40g: at most 32, with 6.9 GiB to spare\n  with 64  out of memory: ");
}

static void nothing_fits(void **state)
{
    (void)state;
    assert_int_equal(run_shell(COMMAND_WORD " fit --find n=100..200 --device a100-40g " ASKS), 3);
    check_printed("\nn on a100-40g: no value fits, from 100 on\n  with 100  out of memory: ");
}

/* A larger value may fit again, since sizes are rounded. Here, larger n stand for 1 GiB. */
static void one_that_fits_again_is_named(void **state)
{
    (void)state;
    assert_int_equal(run_shell(COMMAND_WORD
                               " fit --find n=1..64 --device a100-40g -- sh -c 'n={n}; "
                               "[ $n -lt 41 ] || n=1; " PROGRAM
                               " malloc $((n * 1073741824)) | grep -q ^0' 2>err"),
                     0);
    check_printed("  64 ");
    assert_int_equal(
        run_shell(COMMAND_WORD
                  " fit --find n=1..40 --device a100-40g -- sh -c 'n={n}; [ $n -ne 40 ] "
                  "|| n=1; " PROGRAM " malloc $((n * 1073741824)) | grep -q ^0' 2>err"),
        0);
    check_printed("\nn on a100-40g: 40, with 37.9 GiB to spare: the largest that was asked for");
    assert_int_equal(
        run_shell(COMMAND_WORD
                  " fit --find n=1..90 --device a100-40g -- sh -c 'n={n}; [ $n -ne 40 ] "
                  "|| n=1; " PROGRAM " malloc $((n * 1073741824)) | grep -q ^0' 2>err"),
        0);
    check_printed("  40 fits again, though 38 does not: its sizes round otherwise\n");
}

/* A failure other than of memory gives no answer. */
static void a_command_that_fails_ends_the_search(void **state)
{
    (void)state;
    char err[4096];
    assert_int_equal(
        run_shell(FIT "-- sh -c 'echo before; echo no such file {n} >&2; exit 4' 2>err"), 2);
    check_printed(
        "n on h200: no answer: with 1 no verdict: the command failed with exit status 4\n");
    folder_read("err", err, sizeof err);
    check_contains(err, "reveille: with 1 on h200 the command said at its end:\n  | before\n  | no "
                        "such file 1\n");
    assert_null(strstr(err, "device 0: "));
    assert_int_equal(run_shell(FIT "--gpus 2 -- sh -c 'echo before {n}; exit 4' 2>err"), 2);
    folder_read("err", err, sizeof err);
    check_contains(err, "the command said at its end:\n  | before 1\n");
    assert_null(strstr(err, "devices 0-1: ")); /* the command's table does not contain ours */
    assert_int_equal(run_shell(FIT "--timeout 1 -- sh -c '" PROGRAM " malloc 1 held 30 {n}' 2>err"),
                     2);
    check_printed("no answer: with 1 no verdict: it did not end within 1 s\n");
    assert_int_equal(run_shell(FIT "-- sh -c '" PROGRAM
                                   " malloc 1; read pid name state run rest </proc/$PPID/stat; "
                                   "kill -9 $run; : {n}' 2>err"),
                     2);
    check_printed("no answer: with 1 no verdict: reveille run was ended with it\n");
}

static void bad_usage(void **state)
{
    static const struct {
        const char *line, *part;
    } wrong[] = {
        {"fit -- true {n}", "fit: say what to look for: --find batch=1..512"},
        {"fit --find n -- true {n}", "--find n: expected a name, and two whole numbers or a list"},
        {"fit --find n=1.. -- true {n}", "--find n=1..: expected a name"},
        {"fit --find n=-1..4 -- true {n}", "expected a name"},
        {"fit --find =1..4 -- true {n}", "expected a name"},
        {"fit --find n=1..99999999999999999999 -- true {n}", "expected a name"},
        {"fit --find n=1,4,4 -- true {n}", "--find n=1,4,4: expected a name"},
        {"fit --find n=1,,4 -- true {n}", "--find n=1,,4: expected a name"},
        {"fit --find n= -- true {n}", "--find n=: expected a name"},
        {"fit --find n=4..1 -- true {n}", "the first number is larger than the last"},
        {"fit --find n=1..4", "fit: name the command to run"},
        {"fit --find n=1..4 -- true {m}",
         "the command has no {n}, so every number would give the same run"},
        {"fit --find n=1..4 --device h1000 -- true {n}", "h1000"},
        {"fit --find n=1..4 --headroom much -- true {n}", "--headroom much: expected a part"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_int_equal(run_command(wrong[i].line), 2);
        check_printed(wrong[i].part);
    }
}

/* No process that it has started is left, and no file. */
static void a_signal_ends_all(void **state)
{
    (void)state;
    assert_int_equal(run_shell("mkdir t; TMPDIR=$PWD/t " FIT "-- sh -c '" PROGRAM
                               " malloc 1 held 41.5 {n}' 2>err & fit=$!; sleep 1; kill -TERM $fit; "
                               "wait $fit; echo $?; ls t | wc -l; ps -eo args | grep -c "
                               "'^[^ ]*simcuda-program malloc 1 held 41[.]5'"),
                     1); /* grep's status: no match */
    check_printed("143\n0\n0\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_largest_is_found_on_each_device),
        cmocka_unit_test(json_has_each_try),
        cmocka_unit_test(a_list_of_values),
        cmocka_unit_test(nothing_fits),
        cmocka_unit_test(one_that_fits_again_is_named),
        cmocka_unit_test(a_command_that_fails_ends_the_search),
        cmocka_unit_test(bad_usage),
        cmocka_unit_test(a_signal_ends_all),
    };
    return cmocka_run_group_tests(tests, folder_make, folder_remove);
}
