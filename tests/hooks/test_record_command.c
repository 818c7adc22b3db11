/* SPDX-License-Identifier: MIT */
/* `reveille record` as a user meets it: what it runs, what it says, its exit status, its files. */
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "reveille/version.h"
#include "tests/support/folder.h"
#include "tests/support/run_command.h"
#include "tests/support/skip.h"

#define PROGRAM RVL_RECORD_PROGRAM_PATH
#define RUN(...) run_words_as_one(WORDS(__VA_ARGS__))

static int clear(void **state)
{
    (void)state;
    return system("rm -f -- *");
}

static void write_file(const char *name, const char *text, mode_t mode)
{
    folder_write(name, text);
    assert_int_equal(chmod(name, mode), 0);
}

/* ---- Tests ---- */

static void test_one_process(void **state)
{
    (void)state;
    RUN("record", "--period", "0", "-o", "run.rvt", "--", PROGRAM, "plain");
    assert_int_equal(answer.status, 0);
    assert_string_equal(answer.out, "reveille: run.rvt: 4 events\n");
    assert_int_equal(folder_count(), 1);
    RUN("replay", "run.rvt");
    assert_int_equal(answer.status, 0);
    check_printed("peak 4.0 MiB in start\n");
    check_printed("last reading in start: 0 B, predicted 0 B (0.00 %)");
    /* Again over it, without an extension, and elsewhere. */
    RUN("record", "--name", "my engine", PROGRAM, "exit_at_once");
    assert_string_equal(answer.out, "reveille: run.rvt: 4 events\n");
    RUN("replay", "run.rvt");
    check_printed("my engine/untagged 2.0 MiB");
    RUN("record", "-o", "a%b", PROGRAM, "plain");
    assert_string_equal(answer.out, "reveille: a%b: 4 events\n");
    char path[128], line[256];
    snprintf(path, sizeof path, "%s/c.rvt", folder);
    snprintf(line, sizeof line, "reveille: %s: 4 events\n", path);
    RUN("record", "-o", path, PROGRAM, "plain");
    assert_string_equal(answer.out, line);
    assert_int_equal(folder_count(), 3);
}

static void test_several_processes(void **state)
{
    (void)state;
    write_file("run.rvt", "of an earlier run", 0600);
    write_file("run.1.rvt", "too", 0600);
    write_file("run.2.3.rvt", "too", 0600);
    RUN("record", "--period", "0", PROGRAM, "forked");
    assert_int_equal(answer.status, 0);
    check_printed(".rvt: 6 events\n");
    check_printed(".rvt: 5 events\n");
    check_printed("reveille: run.rvt was of an earlier run, and is removed\n");
    check_printed("reveille: of earlier runs: run.1.rvt and 1 more like it: remove them before a "
                  "pattern names them with these\n");
    assert_int_equal(access("run.rvt", F_OK), -1);
    assert_int_equal(unlink("run.1.rvt"), 0);
    assert_int_equal(unlink("run.2.3.rvt"), 0);
    assert_int_equal(folder_count(), 2);
    assert_int_equal(system(COMMAND_WORD " replay run.*.rvt >table"), 0);
    assert_int_equal(system("grep -q 'peak 28.0 MiB' table"), 0);
}

/* What an earlier run has left is not replayed for this one. */
static void test_nothing_over_an_old_file(void **state)
{
    (void)state;
    write_file("run.rvt", "of an earlier run", 0600);
    RUN("record", "sh", "-c", "exit 7");
    assert_int_equal(answer.status, 7);
    assert_string_equal(answer.out,
                        "reveille: run.rvt was of an earlier run, and is removed\n"
                        "reveille: nothing was recorded: no process used a GPU in a way that "
                        "is seen (docs/hooks.md says in which); on a machine without one, "
                        "`reveille run` simulates it\n");
    assert_int_equal(folder_count(), 0);
    /* Another recording's of the same name stays. */
    write_file("run.rvt", "of an earlier run", 0600);
    RUN("record", "sh", "-c", "echo new >new; mv new run.rvt");
    assert_int_equal(answer.status, 0);
    assert_int_equal(folder_count(), 1);
    RUN("record", "-o", "/dev/null", "true");
    assert_int_equal(answer.status, 2);
    check_printed("/dev/null: no regular file: name a file");
}

/* A recording's name is made of the process' number, so others can put something there first. */
static void test_planted_files(void **state)
{
    (void)state;
    char text[64];
    struct stat facts;
    write_file("victim", "old", 0600);
    RUN("record", "sh", "-c", "ln -s victim run.$$.rvt; exec " PROGRAM " plain");
    assert_int_equal(answer.status, 128 + SIGABRT);
    check_printed(".rvt: is a symbolic link where a new file is expected: remove it");
    check_printed("reveille: nothing was recorded");
    folder_read("victim", text, sizeof text);
    assert_string_equal(text, "old");
    /* A link of another run that is to be seen as one of this run's files. */
    RUN("record", "sh", "-c", "ln -s victim run.1.rvt");
    assert_int_equal(answer.status, 0);
    check_printed("reveille: nothing was recorded");
    assert_int_equal(lstat("run.1.rvt", &facts), 0);
    assert_int_equal(unlink("run.1.rvt"), 0);
    /* An own link to the output stays, and the recording goes where it leads. */
    assert_int_equal(symlink("victim", "run.rvt"), 0);
    RUN("record", PROGRAM, "plain");
    assert_int_equal(answer.status, 0);
    assert_int_equal(lstat("run.rvt", &facts), 0);
    assert_true(S_ISLNK(facts.st_mode));
    RUN("replay", "victim");
    assert_int_equal(answer.status, 0);
}

static void test_files_of_others(void **state)
{
    (void)state;
    char text[64];
    if (geteuid() != 0) {
        print_message("SKIP: only root makes files of other users\n");
        skip();
    }
    write_file("victim", "old", 0600);
    RUN("record", "sh", "-c",
        "mv victim run.$$.rvt; chown 65534 run.$$.rvt; ln run.$$.rvt victim; exec " PROGRAM
        " plain");
    assert_int_equal(answer.status, 128 + SIGABRT);
    check_printed(".rvt: belongs to another user: remove it, or name another file");
    check_printed(".rvt belongs to another user, and is left alone\n");
    check_printed("reveille: nothing was recorded");
    folder_read("victim", text, sizeof text);
    assert_string_equal(text, "old");
    assert_int_equal(symlink("victim", "run.rvt"), 0);
    assert_int_equal(lchown("run.rvt", 65534, 65534), 0);
    RUN("record", PROGRAM, "plain");
    assert_int_equal(answer.status, 2);
    check_printed("reveille: run.rvt: is a symbolic link of another user");
    folder_read("victim", text, sizeof text);
    assert_string_equal(text, "old");
}

static void test_output_that_is_read(void **state)
{
    (void)state;
    char text[64];
    write_file("job.sh", "#!/bin/sh\nexit 0\n", 0700);
    static const char *const rows[][5] = {{"record", "-o", "job.sh", "./job.sh"},
                                          {"record", "-o", "./job.sh", "sh", "job.sh"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const char *words[6] = {rows[i][0], rows[i][1], rows[i][2], rows[i][3], rows[i][4]};
        run_words_as_one(words);
        assert_int_equal(answer.status, 2);
        check_printed("job.sh, which is read: name another file");
        folder_read("job.sh", text, sizeof text);
        assert_string_equal(text, "#!/bin/sh\nexit 0\n");
    }
}

static void test_stages(void **state)
{
    (void)state;
    RUN("record", "--stages-nvtx", "stage:", PROGRAM, "nvtx_by_hand");
    assert_int_equal(answer.status, 0);
    RUN("replay", "run.rvt");
    check_printed("  five x2, most in ");
    assert_int_equal(setenv("NVTX_INJECTION64_PATH", "profiler.so", 1), 0);
    RUN("record", "--stages-nvtx", "stage:", PROGRAM, "nvtx_by_hand");
    assert_int_equal(answer.status, 2);
    check_printed(
        "NVTX_INJECTION64_PATH is set to profiler.so, and NVTX serves one tool: unset it");
    RUN("record", PROGRAM, "nvtx_by_hand");
    assert_int_equal(answer.status, 0);
    unsetenv("NVTX_INJECTION64_PATH");
}

/* The command itself is a program on libreveille. */
static void test_replay_on_a_device(void **state)
{
    (void)state;
    write_file("load.rvt",
               "reveille-trace 1.0\n"
               "clock boot=- mono_ns=0 wall_ns=0\n"
               "device 0 profile=- capacity_bytes=1073741824 granularity_bytes=2097152\n"
               "process engine pid=1\n"
               "stage 0 engine 1 load\n"
               "alloc 1 engine 1 1 0 6291456 weights\n"
               "stage 2 engine 1 asleep\n"
               "pause 3 engine 1 weights\n"
               "end 4\n",
               0600);
    RUN("record", RVL_COMMAND_PATH, "replay", "--backend", "cuda", "load.rvt");
    assert_int_equal(answer.status, 0);
    check_printed("reveille: run.rvt: ");
    RUN("replay", "run.rvt");
    assert_int_equal(answer.status, 0);
    check_printed("  load  ");
    check_printed("  asleep  ");
    check_printed("peak 6.0 MiB in load\n");
}

static void test_exit_status(void **state)
{
    (void)state;
    RUN("record", "sh", "-c", "exit 7");
    assert_int_equal(answer.status, 7);
    assert_string_equal(answer.out,
                        "reveille: nothing was recorded: no process used a GPU in a way that "
                        "is seen (docs/hooks.md says in which); on a machine without one, "
                        "`reveille run` simulates it\n");
    RUN("record", PROGRAM, "killed");
    assert_int_equal(answer.status, 128 + SIGKILL);
    check_printed(
        "run.rvt: 4 events, breaks off (the process was killed): replay it with --partial");
    RUN("replay", "run.rvt");
    assert_int_equal(answer.status, 2);
    RUN("replay", "--partial", "run.rvt");
    assert_int_equal(answer.status, 0);
    RUN("record", PROGRAM, "unknown scenario");
    assert_int_equal(answer.status, 64);
}

/* The signal reaches the command. Its own answer counts. */
static void test_signals(void **state)
{
    (void)state;
    static const char *const words[] = {
        "record", "sh", "-c",
        "trap 'echo caught; exit 5' TERM; echo ready; while :; do sleep 0.1; "
        "done",
        NULL};
    int ends[2];
    char ready[6] = "";
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    pid_t child = run_start(words, ends[1], ends[1]);
    close(ends[1]);
    assert_int_equal(read(ends[0], ready, sizeof ready), sizeof ready);
    assert_int_equal(kill(child, SIGTERM), 0);
    run_finish(child, ends[0]);
    assert_int_equal(answer.status, 5);
    check_printed("caught\n");
}

/* What was to be preloaded before still is, and before ours. */
static void test_environment(void **state)
{
    (void)state;
    assert_int_equal(setenv("LD_PRELOAD", "libm.so.6", 1), 0);
    RUN("record", "--period", "20", "sh", "-c",
        "echo $LD_PRELOAD $RVL_RECORD_PERIOD_MS $RVL_RECORD_NAME");
    unsetenv("LD_PRELOAD");
    check_printed("libm.so.6:" RVL_PRELOAD_PATH " 20\n");
    assert_int_equal(setenv("RVL_PRELOAD", RVL_PRELOAD_PATH, 1), 0);
    RUN("record", PROGRAM, "plain");
    check_printed("run.rvt: 4 events");
    assert_int_equal(setenv("RVL_PRELOAD", "/nowhere/lib.so", 1), 0);
    RUN("record", PROGRAM, "plain");
    assert_int_equal(answer.status, 2);
    check_printed("RVL_PRELOAD names /nowhere/lib.so, which cannot be read");
    unsetenv("RVL_PRELOAD");
    /* The command where no library is. */
    assert_int_equal(system("cp " COMMAND_WORD " ."), 0);
    assert_int_equal(system("./reveille record true 2>says"), 2 << 8);
    assert_int_equal(
        system("grep -q 'there is no libreveille-preload.so beside this command' says"), 0);
}

/* LD_PRELOAD is a list between spaces and colons. */
static void test_folder_of_any_name(void **state)
{
    (void)state;
    assert_int_equal(system("mkdir 'a b:c' && cp " RVL_PRELOAD_PATH " 'a b:c'/p.so && "
                            "cp \"$(dirname " RVL_PRELOAD_PATH ")/libreveille.so.0\" 'a b:c'"),
                     0);
    assert_int_equal(setenv("RVL_PRELOAD", "a b:c/p.so", 1), 0);
    RUN("record", PROGRAM, "plain");
    unsetenv("RVL_PRELOAD");
    assert_int_equal(system("rm -r 'a b:c'"), 0);
    assert_int_equal(answer.status, 0);
    check_printed("run.rvt: 4 events");
}

/* The hook library of one version beside the library of another, and beside one that is none. */
static void test_mixed_versions(void **state)
{
    static const char *const made[] = {"sed 's/" RVL_VERSION_STRING
                                       "/9.9.9/g' \"$(dirname " RVL_PRELOAD_PATH
                                       ")/libreveille.so.0\" >mixed/libreveille.so.0",
                                       "cp " RVL_CUDA_FAKE_PATH " mixed/libreveille.so.0"};
    (void)state;
    assert_int_equal(system("mkdir mixed && cp " RVL_PRELOAD_PATH " mixed/p.so"), 0);
    assert_int_equal(setenv("RVL_PRELOAD", "mixed/p.so", 1), 0);
    for (size_t i = 0; i < sizeof made / sizeof *made; i++) {
        assert_int_equal(system(made[i]), 0);
        RUN("record", PROGRAM, "plain");
        assert_int_equal(answer.status, 128 + SIGABRT);
        check_printed("mixed/libreveille.so.0 is of another version than the hook library "
                      "(" RVL_VERSION_STRING "): install both from one package");
    }
    unsetenv("RVL_PRELOAD");
    assert_int_equal(system("rm -r mixed"), 0);
}

static void assert_refused(const char *command, const char *says)
{
    RUN("record", command);
    assert_int_equal(answer.status, 2);
    check_printed(says);
}

#define FAKE_ELF                                                                                   \
    "\x7f"                                                                                         \
    "ELF"

static void test_commands_that_cannot_be_recorded(void **state)
{
    (void)state;
    char program[128] = FAKE_ELF "\x02";
    memset(program + 5, '.', sizeof program - 6);
    write_file("static", program, 0700);
    program[4] = 1;
    write_file("narrow", program, 0700);
    write_file("text", "no program", 0700);
    write_file("empty", "", 0700);
    write_file("data", "no program", 0600);
    write_file("script", "#! /bin/sh -e\nexit 3\n", 0700);
    write_file("outer", "#!./script\n", 0700);
    write_file("lost", "#!/nowhere/sh\n", 0700);
    assert_refused("nosuchcommand", "nosuchcommand is not found in PATH");
    assert_refused("./nosuchcommand", "./nosuchcommand does not exist");
    assert_refused("./", "./ is a directory: name the program itself");
    assert_refused("./data", "./data may not be executed: chmod +x makes it a program");
    assert_refused("./text", "./text is neither a program nor a script");
    assert_refused("./empty", "./empty is neither a program nor a script");
    assert_refused("./static", "./static is statically linked: nothing can be loaded into it");
    assert_refused("./narrow", "./narrow is not a 64-bit program");
    assert_refused("./outer", "interpreter is a script, too");
    assert_refused("./lost", "/nowhere/sh No such file");
    RUN("record", "./script");
    assert_int_equal(answer.status, 3);
    assert_int_equal(folder_count(), 8);
}

static void test_rights(void **state)
{
    (void)state;
    if (geteuid() != 0)
        SKIP_TEST("only root makes files of others");
    assert_int_equal(system("cp /bin/true mine && chmod u+s mine && cp /bin/true other && "
                            "chown 65534 other && chmod u+s other && cp /bin/true group && "
                            "chgrp 65534 group && chmod g+s group"),
                     0);
    assert_refused("./other", "./other runs with more rights than its caller");
    assert_refused("./group", "./group runs with more rights than its caller");
    RUN("record", "./mine");
    assert_int_equal(answer.status, 0);
}

static void test_bad_usage(void **state)
{
    (void)state;
    static const struct {
        const char *words[5];
        const char *says;
    } rows[] = {
        {{"record"}, "name the command to run"},
        {{"record", "--"}, "name the command to run"},
        {{"record", "-o"}, "option -o needs a value"},
        {{"record", "--wrong", "true"}, "unknown option --wrong"},
        {{"record", "--period", "1s", "true"}, "--period 1s: expected milliseconds"},
        {{"record", "--period", "3600001", "true"}, "--period 3600001: expected milliseconds"},
        {{"record", "--name", "", "true"}, "--name : expected 1 to 255 bytes"},
        {{"record", "-o", "/nowhere/run.rvt", "true"},
         "/nowhere/run.rvt: No such file or directory: name a file in a directory that exists"},
        {{"record", "-o", "/tmp/", "true"}, "/tmp/: names no file"},
        {{"record", "-o", "/tmp", "true"}, "/tmp: Is a directory"},
        {{"record", "-o", "run.rvt.zst", "true"}, "compress it afterwards"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        run_words_as_one(rows[i].words);
        assert_int_equal(answer.status, 2);
        check_printed(rows[i].says);
    }
    assert_int_equal(folder_count(), 0);
    RUN("record", "--help");
    assert_int_equal(answer.status, 0);
    check_printed("usage: reveille record");
    RUN("help", "record");
    assert_int_equal(answer.status, 0);
    RUN("--help");
    check_printed("  record      run a command");
}

static int setup(void **state)
{
    return setenv("RVL_CUDA_LIBRARY", RVL_CUDA_FAKE_PATH, 1) == 0 &&
                   setenv("RVL_RECORD_PERIOD_MS", "0", 1) == 0 &&
                   unsetenv("NVTX_INJECTION64_PATH") == 0 && folder_make(state) == 0
               ? chdir(folder)
               : -1;
}

static int teardown(void **state)
{
    return chdir("/") == 0 ? folder_remove_empty(state) : -1;
}

int main(void)
{
#define TEST(name) cmocka_unit_test_teardown(name, clear)
    const struct CMUnitTest tests[] = {
        TEST(test_one_process),
        TEST(test_several_processes),
        TEST(test_planted_files),
        TEST(test_files_of_others),
        TEST(test_output_that_is_read),
        TEST(test_stages),
        TEST(test_exit_status),
        TEST(test_signals),
        TEST(test_environment),
        TEST(test_folder_of_any_name),
        TEST(test_mixed_versions),
        TEST(test_rights),
        TEST(test_commands_that_cannot_be_recorded),
        TEST(test_bad_usage),
        TEST(test_replay_on_a_device),
        TEST(test_nothing_over_an_old_file),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
