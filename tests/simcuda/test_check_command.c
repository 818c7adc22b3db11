/* SPDX-License-Identifier: MIT */
/* `reveille check` with commands: each runs on simulated GPUs, and its stages are checked
 * against limits. */
#include "tests/support/support.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/support/folder.h"
#include "tests/support/run_command.h"

/* CONTEXT, and a page of 2 MiB, as the driver takes them. */
#define CONTEXT "552402944"
#define CONTEXT_AND_4_MIB "556597248"

static char shown[ANSWER_BYTES];

/* Runs the check with words. stdout is in answer.out, stderr in shown. */
static int check_apart(const char *words)
{
    char line[1024];
    snprintf(line, sizeof line, COMMAND_WORD " check %s 2>err", words);
    int status = run_shell(line);
    folder_read("err", shown, sizeof shown);
    return status;
}

static void write_checks(const char *checks)
{
    char text[8192];
    snprintf(text, sizeof text, "{\"schema\": 1, \"checks\": [%s]}", checks);
    folder_write("c.json", text);
}

/* ---- Checks that pass ---- */

static void stages_are_held_to_budgets_and_a_baseline(void **state)
{
    (void)state;
    char text[4096];
    folder_write("c.json",
                 "{\"schema\": 1, \"baseline\": \"base.json\", \"checks\": [{\"name\": \"two\", "
                 "\"command\": [\"" PROGRAM "\", \"malloc\", \"4194304\", \"device\", \"1\", "
                 "\"malloc\", \"1048577\", \"stage\", \"in:late\", \"malloc\", \"4194304\"], "
                 "\"gpus\": 2, \"stages_nvtx\": \"in:\", "
                 "\"budgets\": {\"late\": \"531MiB\"}}]}");
    assert_int_equal(check_apart("c.json --update-baseline"), 3);
    check_printed("two    h200    late              530.8 MiB  531.0 MiB  530.8 MiB  0.00 %  ok\n");
    check_printed("two    h200    late (device 1)   532.8 MiB  531.0 MiB  532.8 MiB  0.00 %  OVER "
                  "BUDGET\n");
    check_printed("4 stages, 1 failed\n");
    check_printed("two on h200, stage late: over budget: the peak of 532.8 MiB is more than 531.0 "
                  "MiB; at its peak: external/CUDA context of simcuda-program[");
    folder_read("base.json", text, sizeof text);
    check_contains(text, "\"device\": \"h200\", \"index\": 0, \"stage\": \"late\", "
                         "\"peak_bytes\": " CONTEXT_AND_4_MIB "}");
    check_contains(text, "\"index\": 1, \"stage\": \"late\", \"peak_bytes\": 558694400}");
    assert_int_equal(run_shell("sed -i s/" CONTEXT_AND_4_MIB "/500000000/ base.json"), 0);
    assert_int_equal(check_apart("c.json"), 3);
    check_printed("ABOVE THE BASELINE");
}

#ifdef RVL_HAVE_TOML
/* On each named device, in addition to checks of other kinds. */
static void a_command_in_toml(void **state)
{
    (void)state;
    folder_write("c.toml", "schema = 1\n[[checks]]\nname = 'job'\n"
                           "command = ['" PROGRAM "', 'malloc', '4194304']\n"
                           "devices = ['h200', '1GiB']\nhost_memory = '1GiB'\ntimeout = 60\n"
                           "budgets.run = '531MiB'\n"
                           "[[checks]]\nname = 'step'\n"
                           "trace = '" RVL_SOURCE_DIR "/traces/llama-3.1-8b-tp2-h200.rvt'\n");
    assert_int_equal(check_apart("c.toml --junit j.xml"), 0);
    check_printed("job    h200    run");
    check_printed("job    1GiB    run");
    check_printed("step   own ");
    assert_string_equal(shown, "");
    char text[8192];
    folder_read("j.xml", text, sizeof text);
    check_contains(text,
                   "<testsuite name=\"job on 1GiB\" tests=\"1\" failures=\"0\" errors=\"0\">");
    check_contains(text, "<testcase classname=\"job on 1GiB\" name=\"run\"/>");
}
#endif

/* In the file's folder, with or without a shell, and with no output before the command's. */
static void a_command_runs_in_the_files_folder(void **state)
{
    (void)state;
    assert_int_equal(run_shell("mkdir -p sub"), 0);
    folder_write("sub/go.sh", "#!/bin/sh\ntest -e c.json && exec " PROGRAM " malloc \"$1\"\n");
    assert_int_equal(run_shell("chmod +x sub/go.sh"), 0);
    folder_write("sub/c.json",
                 "{\"schema\": 1, \"checks\": ["
                 "{\"name\": \"list\", \"command\": [\"./go.sh\", \"4194304\"], \"rank\": 1, "
                 "\"world\": 2}, "
                 "{\"name\": \"shell\", \"command\": \"test -z \\\"$RANK\\\" && case "
                 "$LD_AUDIT in *:*) exit 9;; esac; ./go.sh 2097152\"}]}");
    assert_int_equal(check_apart("sub/c.json"), 0);
    check_printed("list   h200    run    530.8 MiB");
    check_printed("shell  h200    run    528.8 MiB");
    assert_string_equal(shown, "");
}

/* Running out of memory is not a failure of a command that continues, but it is reported. */
static void what_is_told_of_one_that_is_well(void **state)
{
    (void)state;
    write_checks("{\"name\": \"pins\", \"command\": [\"" PROGRAM "\", \"pin\", \"2097152\"], "
                 "\"host_memory\": \"1MiB\"}, "
                 "{\"name\": \"reads\", \"command\": [\"" PROGRAM "\", \"malloc\", \"2097152\", "
                 "\"read\"]}");
    assert_int_equal(check_apart("c.json"), 0);
    check_printed("2 stages, 0 failed\n");
    check_printed("  pins on h200: fits after 1 refusal that the program survived, with ");
    check_printed("/pinned asked for 2.0 MiB of host memory with 1.0 MiB free, in run\n");
    check_contains(shown, "reveille: check reads on h200: the program read once what only a kernel "
                          "would have written");
}

/* ---- Checks that fail ---- */

/* Memory that does not fit is an exceeded limit, not a broken check. */
static void one_that_does_not_fit(void **state)
{
    (void)state;
    char text[4096];
    folder_write("base.json", "{\"schema\": 1, \"stages\": []}");
    folder_write("c.json", "{\"schema\": 1, \"baseline\": \"base.json\", \"checks\": ["
                           "{\"name\": \"big\", \"command\": [\"" PROGRAM "\", \"malloc\", "
                           "\"1073741824\", \"exit\", \"5\"], \"devices\": \"1GiB\"}]}");
    assert_int_equal(check_apart("c.json --junit j.xml --update-baseline"), 3);
    check_printed("OOM: out of memory: simcuda-program[");
    check_printed("/cudaMalloc asked for 1.0 GiB of device 0 with 497.2 MiB free, in run; the "
                  "command failed with exit status 5\n");
    check_printed("1 stage, 1 failed\n");
    check_contains(shown, "base.json: stays as it is, since a check failed as a whole\n");
    check_contains(shown, "reveille: check big on 1GiB: the command said at its end:\n  | 2\n");
    folder_read("base.json", text, sizeof text);
    assert_string_equal(text, "{\"schema\": 1, \"stages\": []}");
    folder_read("j.xml", text, sizeof text);
    check_contains(text, "tests=\"1\" failures=\"1\" errors=\"0\"");
    check_contains(text, "<failure message=\"out of memory: simcuda-program[");
}

static void one_that_cannot_be_checked(void **state)
{
    (void)state;
    static const struct {
        const char *keys;
        const char *message;
    } cases[] = {
        {"\"command\": \"echo one; echo two >&2; exit 7\"",
         "check n on h200: no verdict: the command failed with exit status 7\n"},
        {"\"command\": \"kill -9 $$\"",
         "no verdict: the command was killed by signal 9 (SIGKILL)\n"},
        {"\"command\": \"echo fine\"",
         "no verdict: it used no GPU; no process of the command has used CUDA. Does it run on"},
        {"\"command\": [\"./none\"]", "./none does not exist\n"},
        {"\"command\": [\"nowhere-to-be-found\"]", "is not found in PATH: check its spelling\n"},
        {"\"command\": [\"" PROGRAM "\", \"malloc\", \"1\"], \"budgets\": {\"late\": \"1GiB\"}",
         "budget for unknown stage \"late\"; the trace has: run\n"},
        {"\"command\": [\"" PROGRAM "\", \"malloc\", \"1\"], \"stages_nvtx\": \"in:\"",
         "the command has marked no stage: mark them with NVTX ranges that begin with in:"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[4096];
        snprintf(text, sizeof text,
                 "{\"name\": \"n\", %s}, {\"name\": \"good\", \"command\": [\"" PROGRAM
                 "\", \"malloc\", \"1\"]}",
                 cases[i].keys);
        write_checks(text);
        assert_int_equal(check_apart("c.json --junit j.xml"), 2);
        check_contains(shown, "reveille: check n on h200: ");
        check_contains(shown, cases[i].message);
        check_printed("ERROR: ");
        check_printed("good   h200    run    528.8 MiB");
        check_printed("1 stage, 0 failed, 1 in error\n");
        folder_read("j.xml", text, sizeof text);
        check_contains(text, "<error message=\"");
        if (i == 0) {
            check_contains(shown, "the command said at its end:\n  | one\n  | two\n");
            check_contains(text, "the command said at its end:\n  | one\n  | two\n</error>");
        }
    }
}

/* Its command ends with 0, but on cards it would not. */
static void a_job_that_a_rank_has_left(void **state)
{
    (void)state;
    char text[4096];
    write_checks("{\"name\": \"left\", \"gpus\": 2, \"command\": \"rm -f id; " PROGRAM
                 " nccl id id; rank() { n=$1; shift; " PROGRAM
                 " nccl device $n init id $n 2 put i32 1 $*; }; rank 1 held 1 & rank 0 allreduce "
                 "sum; wait\"}");
    assert_int_equal(check_apart("c.json --junit j.xml"), 2);
    check_contains(shown,
                   "no verdict: rank 0 of 2 calls ncclAllReduce, and rank 1 has left without "
                   "calling it");
    folder_read("j.xml", text, sizeof text);
    check_contains(text, "errors=\"1\"");
}

/* Only the end of its output is shown, from the beginning of a line. */
static void the_end_of_what_it_said(void **state)
{
    (void)state;
    write_checks("{\"name\": \"n\", \"command\": \"seq 1000; exit 1\"}, "
                 "{\"name\": \"long\", \"command\": \"head -c 9000 /dev/zero | tr '\\\\0' x; echo; "
                 "echo last; exit 1\"}");
    assert_int_equal(check_apart("c.json"), 2);
    check_contains(shown, "the command said at its end:\n  | 981\n  | 982\n");
    check_contains(shown, "  | 1000\n");
    check_contains(shown, "on h200: the command said at its end:\n  | last\n");
    assert_null(strstr(shown, "  | 980\n"));
}

/* ---- Timeouts ---- */

static int count_held(void)
{
    char line[128];
    snprintf(line, sizeof line, "pgrep -f 'held 6%ld$' | wc -l", (long)getpid());
    assert_int_equal(run_shell(line), 0);
    return atoi(answer.out);
}

/* This includes processes that it has started in another session. */
static void one_that_does_not_end_is_killed(void **state)
{
    (void)state;
    char text[1024];
    time_t begun = time(NULL);
    snprintf(text, sizeof text,
             "{\"name\": \"slow\", \"command\": \"setsid " PROGRAM " held 6%ld & exec " PROGRAM
             " malloc 1 held 6%ld\", \"timeout\": 1.5}",
             (long)getpid(), (long)getpid());
    write_checks(text);
    assert_int_equal(check_apart("c.json"), 2);
    assert_true(time(NULL) - begun < 120);
    check_contains(shown,
                   "check slow on h200: no verdict: the command did not end within 1.5 s, and was "
                   "killed: see what it waits for, or raise \"timeout\"\n");
    assert_int_equal(count_held(), 0);
}

static void read_whole(FILE *file, char *text_out)
{
    rewind(file);
    text_out[fread(text_out, 1, ANSWER_BYTES - 1, file)] = '\0';
    fclose(file);
}

/* Finished checks are shown. Nothing is written. */
static void an_interrupt_ends_it_at_once(void **state)
{
    (void)state;
    const struct timespec moment = {.tv_nsec = 20000000};
    char text[2048], file[256], junit[256];
    int status = 0;
    FILE *out = tmpfile(), *err = tmpfile();
    assert_true(out != NULL && err != NULL);
    assert_int_equal(run_shell("rm -f j.xml begun"), 0);
    snprintf(text, sizeof text,
             "{\"name\": \"good\", \"command\": [\"" PROGRAM "\", \"malloc\", \"1\"]}, "
             "{\"name\": \"slow\", \"command\": \"touch begun; exec " PROGRAM " held 6%ld\"}",
             (long)getpid());
    write_checks(text);
    snprintf(file, sizeof file, "%s/c.json", folder);
    snprintf(junit, sizeof junit, "%s/j.xml", folder);
    pid_t child = run_start(WORDS("check", file, "--junit", junit), fileno(out), fileno(err));
    for (int i = 0; i < 1500 && !folder_has("begun"); i++)
        nanosleep(&moment, NULL);
    assert_true(folder_has("begun"));
    assert_int_equal(kill(child, SIGINT), 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGINT);
    read_whole(out, answer.out);
    read_whole(err, shown);
    check_printed("good   h200    run    528.8 MiB");
    assert_string_equal(shown,
                        "reveille: interrupted: done with 1 of 2 checks; no file is written\n");
    assert_false(folder_has("j.xml"));
    assert_int_equal(count_held(), 0);
}

/* ---- Refused checks ---- */

static void refuses_what_does_nothing(void **state)
{
    (void)state;
    static const struct {
        const char *keys;
        const char *message;
    } cases[] = {
        {"\"command\": [\"x\"], \"trace\": \"x\"",
         "expected \"trace\", \"model\" or \"command\", and one of them"},
        {"\"command\": []", "\"command\": an empty list"},
        {"\"command\": \"\"", "\"command\": expected a string, or a list of them"},
        {"\"command\": [\"x\", 3]", "\"command\": expected a string, or a list of them"},
        {"\"command\": \"x\", \"wake\": \"staged\"",
         "\"wake\" is for traces and models, and this check has a command: leave it out"},
        {"\"command\": \"x\", \"conductor\": \"a\"", "\"conductor\" is for traces and models"},
        {"\"trace\": \"x\", \"gpus\": 2",
         "\"gpus\" is for commands, and this check has none: leave it out"},
        {"\"model\": \"x\", \"timeout\": 2", "\"timeout\" is for commands"},
        {"\"command\": \"x\", \"settings\": {}", "this check has a command"},
        {"\"command\": \"x\", \"device\": \"h200\"",
         "unknown key \"device\" in a check: is it \"devices\"? docs/check.md lists them"},
        {"\"command\": \"x\", \"devices\": \"h900\"", "device h900: neither a size nor a profile"},
        {"\"command\": \"x\", \"gpus\": 0", "\"gpus\": expected a number from 1 to 64"},
        {"\"command\": \"x\", \"gpus\": 65", "\"gpus\": expected a number from 1 to 64"},
        {"\"command\": \"x\", \"gpus\": \"2\"", "\"gpus\": expected a number from 1 to 64"},
        {"\"command\": \"x\", \"rank\": 1", "\"rank\": of how many? Add \"world\""},
        {"\"command\": \"x\", \"rank\": 2, \"world\": 2",
         "\"rank\" 2: a \"world\" of 2 has ranks from 0 to 1"},
        {"\"command\": \"x\", \"host_memory\": \"lots\"",
         "\"host_memory\": expected a size such as \"90GiB\", or bytes"},
        {"\"command\": \"x\", \"host_memory\": 0", "\"host_memory\": expected a size"},
        {"\"command\": \"x\", \"keep_contents\": -1", "\"keep_contents\": expected a size"},
        {"\"command\": \"x\", \"stages_nvtx\": 3", "\"stages_nvtx\": expected a string"},
        {"\"command\": \"x\", \"stages_nvtx\": \"a\", \"stages\": \"b\"",
         "\"stages_nvtx\" is the older name of \"stages\": leave it out"},
        {"\"command\": \"x\", \"timeout\": 0", "\"timeout\": expected seconds, more than 0"},
        {"\"command\": \"x\", \"timeout\": \"1\"", "\"timeout\": expected seconds, more than 0"},
        {"\"command\": \"x\", \"response_lengths\": \"uniform:9..4\"",
         "\"response_lengths\": uniform:9..4: 9 is more than 4"},
        {"\"command\": \"x\", \"response_lengths\": \"none.txt\"",
         "\"response_lengths\": none.txt: no rule, and no file (No such file or directory)"},
        {"\"command\": \"x\", \"response_seed\": 1",
         "\"response_seed\": of which lengths? Add \"response_lengths\""},
        {"\"command\": \"x\", \"response_lengths\": \"uniform:1..4\", \"response_seed\": -1",
         "\"response_seed\": expected a number from 0 to 4294967295"},
        {"\"command\": \"x\", \"kv_tokens\": 0",
         "\"kv_tokens\": expected a number of tokens, more than 0"},
        {"\"command\": \"x\", \"kv_tokens\": \"many\"",
         "\"kv_tokens\": expected a number of tokens, more than 0"},
        {"\"trace\": \"x\", \"kv_tokens\": 5", "\"kv_tokens\" is for commands"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[1024];
        snprintf(text, sizeof text, "{\"name\": \"n\", %s}", cases[i].keys);
        write_checks(text);
        assert_int_equal(check_apart("c.json --junit none.xml"), 2);
        check_contains(shown, "reveille: c.json: check n: ");
        check_contains(shown, cases[i].message);
        assert_string_equal(answer.out, "");
        assert_false(folder_has("none.xml"));
    }
    write_checks("{\"name\": \"n\", \"command\": [\"./go\", \"j.xml\"]}");
    folder_write("j.xml", "what the command reads");
    assert_int_equal(check_apart("c.json --junit j.xml"), 2);
    check_contains(shown, "--junit j.xml");
    folder_read("j.xml", shown, sizeof shown);
    assert_string_equal(shown, "what the command reads");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stages_are_held_to_budgets_and_a_baseline),
#ifdef RVL_HAVE_TOML
        cmocka_unit_test(a_command_in_toml),
#endif
        cmocka_unit_test(a_command_runs_in_the_files_folder),
        cmocka_unit_test(what_is_told_of_one_that_is_well),
        cmocka_unit_test(one_that_does_not_fit),
        cmocka_unit_test(one_that_cannot_be_checked),
        cmocka_unit_test(a_job_that_a_rank_has_left),
        cmocka_unit_test(the_end_of_what_it_said),
        cmocka_unit_test(one_that_does_not_end_is_killed),
        cmocka_unit_test(an_interrupt_ends_it_at_once),
        cmocka_unit_test(refuses_what_does_nothing),
    };
    return cmocka_run_group_tests(tests, folder_make, folder_remove);
}
