/* SPDX-License-Identifier: MIT */
/* What small copies leave in the memory of simulated GPUs, and what is reported for unknown
 * content. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "tests/support/folder.h"
#include "tests/support/run_command.h"

static char err[8192];

/* Runs the program with words, and compares all its output. */
static void check_on(const char *options, const char *words, const char *printed)
{
    char line[4096];
    snprintf(line, sizeof line,
             COMMAND_WORD " run %s -- sh -c '" PROGRAM " \"$@\" >got' sh %s "
                          "2>err >table && cat got",
             options, words);
    assert_int_equal(run_shell(line), 0);
    folder_read("err", err, sizeof err);
    assert_string_equal(answer.out, printed);
}

static void check(const char *words, const char *printed)
{
    check_on("", words, printed);
}

static void a_copy_can_be_read_back(void **state)
{
    (void)state;
    check("alloc 4096 put 0 abcdef get 0 6 get 2 3", "abcdef\ncde\n");
    assert_null(strstr(err, "only a kernel"));
    check("alloc 8388608 put 8388602 abcdef get 8388602 6", "abcdef\n");
    check("vmm 4194304 put 2097149 abcdef get 2097149 6", "abcdef\n");
}

/* Content is kept in pieces of 512 bytes. Writes may cross their ends. */
static void later_writes_replace_what_they_cover(void **state)
{
    (void)state;
    check("alloc 4096 put 508 abcdefgh put 510 XY get 508 8", "abXYefgh\n");
    check("alloc 4096 fill 500 z 30 put 510 abcd get 498 8 get 508 8 get 526 6",
          "..zzzzzz\nzzabcdzz\nzzzz..\n");
    check("alloc 4096 fill 0 a 2000 put 1000 X get 998 5 get 1999 2", "aaXaa\na.\n");
}

static void what_overlaps_is_moved_whole(void **state)
{
    (void)state;
    check("alloc 4096 put 0 abcdefgh move 2 0 8 get 0 10", "ababcdefgh\n");
    check("alloc 4096 put 2 abcdefgh move 0 2 8 get 0 10", "abcdefghgh\n");
    /* Copying unknown content makes the target unknown. */
    check("alloc 4096 put 0 abcd put 1000 WXYZABCD move 1001 0 6 get 1000 8", "Wabcd..D\n");
    check("alloc 4096 put 1000 WXYZ move 1000 0 4 get 1000 4", "....\n");
    check("alloc 4096 put 510 abcd put 1534 qqqqq move 1533 509 6 get 1532 8", "..abcd..\n");
}

static void freed_memory_has_nothing(void **state)
{
    (void)state;
    check("alloc 512 put 0 abcd free get 0 4", "....\n");
    check("alloc 4194304 put 0 abcd free get 0 4", "....\n");
    check("vmm 2097152 put 4 abcd remap get 4 4", "....\n");
    check("async 4096 put 0 abcd get 0 4 again get 0 4", "abcd\n....\n");
}

static void what_is_too_large_is_not_kept(void **state)
{
    (void)state;
    check_on("--keep-contents 4B", "alloc 4096 put 0 abcd put 100 abcde get 0 4 get 100 5",
             "abcd\n.....\n");
    /* The earlier content is not kept either. */
    check_on("--keep-contents 4B", "alloc 4096 put 2 ab put 0 XY big 1 2000 get 0 4", "X...\n");
    check_on("--keep-contents 4B", "alloc 4096 put 0 abcd fill 1 z 2 get 0 4 fill 0 z 5 get 0 4",
             "azzd\n....\n");
    check_on("--keep-contents 0", "alloc 4096 put 0 a get 0 1", ".\n");
    check("alloc 4194304 big 0 1048576 get 1048573 5 big 0 1048577 get 1048573 5",
          "BBB..\n.....\n");
}

/* Copies of all the memory, which are too large to keep, restore its known content. */
static void a_backup_brings_back_what_was_known(void **state)
{
    (void)state;
    check("vmm 4194304 put 510 abcd put 3000000 xyz backup get 510 4 restore get 508 8 "
          "get 3000000 3",
          "....\n..abcd..\nxyz\n");
    /* What the host has written there, where content was known. */
    check("vmm 4194304 put 510 abcd backup scribble 512 XYZ restore get 510 6", "abXY..\n");
    /* What was copied there since then is unknown. */
    check("vmm 4194304 put 510 abcd backup peek 512 restore get 510 6", "ab....\n");
}

/* Kept content is bounded: the oldest is dropped. 64 MiB are 64 copies of 1 MiB. */
static void the_oldest_goes(void **state)
{
    char words[3000] = "alloc 104857600 put 0 first";
    (void)state;
    for (int i = 1; i <= 64; i++) {
        size_t used = strlen(words);
        snprintf(words + used, sizeof words - used, " big %d 1048576", i * 1048576);
    }
    size_t used = strlen(words);
    snprintf(words + used, sizeof words - used, " get 0 5 get %d 3", 64 * 1048576);
    check(words, ".....\nBBB\n");
    assert_non_null(strstr(err, "the program read once what"));
}

/* The pages that are left are the first, the last, and the one with known content. */
static void a_backup_of_what_is_not_known_takes_no_memory(void **state)
{
    (void)state;
    check("alloc 67108864 put 33554432 ab put 67108863 z out pinned 67108864",
          "P 33554432:a 33554433:b 67108863:z P 4\n");
    check("alloc 67108864 out pinned 67108864 out private 67108864", "P P 2\nP P 2\n");
    check("alloc 4096 put 4090 q out pinned 4096", "P 4090:q P 2\n");
}

/* Zeros are written where dropped pages would keep their content. */
static void a_backup_overwrites_files_and_shared_memory(void **state)
{
    (void)state;
    check("alloc 4194304 put 7 a out shared 4194304 out file 4194304",
          "P 7:a P 1025\nP 7:a P 1025\n");
}

static void a_size_that_is_none(void **state)
{
    (void)state;
    assert_int_equal(run_command("run --keep-contents much -- true"), 2);
    check_printed("--keep-contents much: expected a size such as 1MiB, or 0");
}

/* ---- Content for operators on the host ---- */

static void elements_may_lie_apart(void **state)
{
    (void)state;
    check("alloc 4096 apart 508 get 508 14", "adbecf!ab?\na.b.c...d.e.f.\n");
}

/* 25185 is "ab". A read longer than a number gets zeros, and nothing is counted. */
static void a_number_can_be_given(void **state)
{
    (void)state;
    check("alloc 4096 put 0 xyz given 25185 get 0 3 get 8 2 get 0 9", "ab.\nab\n.........\n");
    assert_null(strstr(err, "only a kernel"));
}

/* Python starts with our sitecustomize, which runs the one that it hides. The status is that of a
 * run without a GPU. */
static void sitecustomize_is_not_lost(void **state)
{
    (void)state;
    assert_int_equal(run_shell("mkdir -p own && echo 'print(\"mine\")' >own/sitecustomize.py && "
                               "PYTHONPATH=own " COMMAND_WORD " run -- python3 -c 'import os; "
                               "print(os.environ[\"PYTHONPATH\"].split(\":\")[-1])' 2>err"),
                     2);
    check_printed("mine\nown\n");
}

/* A module that is only named torch is reported once, even if a program first checks whether it
 * exists, as vLLM does. The status is that of a run without a GPU. */
static void torch_is_met_when_it_runs(void **state)
{
    (void)state;
    assert_int_equal(run_shell("mkdir -p own && echo 'print(\"runs\")' >own/torch.py && "
                               "PYTHONPATH=own " COMMAND_WORD " run -- python3 -c 'import "
                               "importlib.util; print(importlib.util.find_spec(\"torch\").name); "
                               "import torch' 2>err"),
                     2);
    check_printed("torch\nruns\n");
    folder_read("err", err, sizeof err);
    const char *told = strstr(err, "reveille: small tensors are not computed: ");
    assert_non_null(told);
    assert_null(strstr(told + 1, "reveille: small tensors are not computed: "));
}

/* ---- Reports ---- */

static void unknown_reads_are_counted(void **state)
{
    (void)state;
    check("alloc 4096 put 0 abcd get 0 4 get 0 5 get 10 1 get 4 1", "abcd\nabcd.\n.\n.\n");
    assert_non_null(strstr(err, "the program read 3 times what only a kernel would have written"));
    assert_non_null(strstr(err, "       3  cudaMemcpy, called by simcuda-contents\n"));
}

/* They are counted separately from what is read as zero. */
static void assumed_values_are_counted(void **state)
{
    (void)state;
    check("alloc 4096 put 0 abcd assume 4 assume 4 get 0 4", "abcd\n");
    assert_non_null(
        strstr(err, "a kernel would have chosen 2 times by numbers that are not known"));
    assert_non_null(strstr(err, "       2  sample.py:3 in choose\n"));
    assert_null(strstr(err, "only a kernel"));
}

/* The program has ended before the machine receives its last reads. */
static void the_last_reads_are_counted(void **state)
{
    (void)state;
    assert_int_equal(run_shell(COMMAND_WORD " run -- " PROGRAM " alloc 512 stop get 0 1 get 1 1 "
                                            "get 2 1 get 3 1 get 4 1 2>err"),
                     0);
    folder_read("err", err, sizeof err);
    assert_non_null(strstr(err, "the program read 5 times what"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_copy_can_be_read_back),
        cmocka_unit_test(later_writes_replace_what_they_cover),
        cmocka_unit_test(what_overlaps_is_moved_whole),
        cmocka_unit_test(freed_memory_has_nothing),
        cmocka_unit_test(what_is_too_large_is_not_kept),
        cmocka_unit_test(a_backup_brings_back_what_was_known),
        cmocka_unit_test(the_oldest_goes),
        cmocka_unit_test(a_backup_of_what_is_not_known_takes_no_memory),
        cmocka_unit_test(a_backup_overwrites_files_and_shared_memory),
        cmocka_unit_test(a_size_that_is_none),
        cmocka_unit_test(elements_may_lie_apart),
        cmocka_unit_test(a_number_can_be_given),
        cmocka_unit_test(sitecustomize_is_not_lost),
        cmocka_unit_test(torch_is_met_when_it_runs),
        cmocka_unit_test(unknown_reads_are_counted),
        cmocka_unit_test(assumed_values_are_counted),
        cmocka_unit_test(the_last_reads_are_counted),
    };
    return cmocka_run_group_tests(tests, folder_make, folder_remove);
}
