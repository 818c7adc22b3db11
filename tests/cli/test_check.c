/* SPDX-License-Identifier: MIT */
/*
 * `reveille check` as a CI meets it: what passes, what each bound that is broken prints and exits
 * with, and that a file with anything unknown in it checks nothing and says so.
 */
#include "tests/support/support.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/support/folder.h"
#include "tests/support/run_command.h"
#include "tests/support/skip.h"

#define CONFIGS RVL_SOURCE_DIR "/tests/data/configs/"
#define CONFIGS_WORD SOURCE_WORD "/tests/data/configs/"
#define EXAMPLE_WORD SOURCE_WORD "/examples/ci/memory.toml"

/* A device of 1000 MiB, on which rollout takes 400 MiB and train<&> what is asked for. */
static void write_trace(const char *train_bytes)
{
    char text[1024];
    snprintf(text, sizeof text,
             "reveille-trace 1.0\n"
             "clock boot=- mono_ns=0 wall_ns=0\n"
             "device 0 profile=- capacity_bytes=1048576000 granularity_bytes=2097152\n"
             "process engine pid=0\n"
             "stage 1 engine 0 rollout\n"
             "alloc 2 engine 0 1 0 419430400 kv_cache\n"
             "free 3 engine 0 1\n"
             "stage 4 engine 0 train<&>\n"
             "alloc 5 engine 0 2 0 %s activations\n"
             "end 5\n",
             train_bytes);
    folder_write("x.rvt", text);
}

#define M600 "629145600"
#define M610 "639631360"
#define M1200 "1258291200"
#define PLAIN                                                                                      \
    "{\"schema\": 1, \"baseline\": \"base.json\", \"tolerance_percent\": 1.5, \"checks\": ["       \
    "{\"name\": \"a, step\", \"trace\": \"x.rvt\"}]}"

static void compares_with_a_baseline(void **state)
{
    (void)state;
    write_trace(M600);
    folder_write("c.json", PLAIN);
    assert_int_equal(run_command("check c.json"), 2);
    check_printed("`reveille check --update-baseline` writes a baseline");
    assert_int_equal(run_command("check c.json --update-baseline"), 0);
    check_printed("2 stages, 0 failed\n");
    char baseline[1024];
    folder_read("base.json", baseline, sizeof baseline);
    assert_string_equal(baseline, "{\n  \"schema\": 1,\n  \"stages\": [\n"
                                  "    {\"check\": \"a, step\", \"device\": \"own\", \"index\": 0, "
                                  "\"stage\": \"rollout\", \"peak_bytes\": 419430400},\n"
                                  "    {\"check\": \"a, step\", \"device\": \"own\", \"index\": 0, "
                                  "\"stage\": \"train<&>\", \"peak_bytes\": 629145600}\n"
                                  "  ]\n}\n");
    assert_int_equal(run_command("check c.json"), 0);
    check_printed("a, step  own     train<&>  600.0 MiB          600.0 MiB  0.00 %  ok\n");
    write_trace(M610); /* 1.67 % more */
    assert_int_equal(run_command("check c.json"), 3);
    check_printed("+1.67 %  ABOVE THE BASELINE\n"
                  "  a, step on own: fits, with 390.0 MiB to spare\n"
                  "2 stages, 1 failed\n"
                  "  a, step on own, stage train<&>: the peak of 610.0 MiB is 1.67 % above the "
                  "baseline of 600.0 MiB, and the tolerance is 1.5 %; at its peak: "
                  "engine/activations 610.0 MiB\n");
    write_trace("524288000");
    assert_int_equal(run_command("check c.json --github"), 0);
    check_printed("-16.67 %  ok, lower than the baseline\n");
    check_printed(
        "::notice file=c.json,title=a%2C step on own::stage train<&>: the peak of 500.0 "
        "MiB is 16.67 %25 below the baseline of 600.0 MiB, and the tolerance is 1.5 %25; at "
        "its peak: engine/activations 500.0 MiB\n");
}

static void names_what_the_baseline_lacks(void **state)
{
    (void)state;
    write_trace(M600);
    folder_write("c.json", PLAIN);
    folder_write("base.json", "{\"schema\": 1, \"stages\": []}");
    assert_int_equal(run_command("check c.json"), 3);
    check_printed("NOT IN THE BASELINE");
    check_printed("2 stages, 2 failed");
    static const char *const broken[] = {"[]", "{\"schema\": 2, \"stages\": []}", "{\"schema\": 1}",
                                         "{\"schema\": 1, \"stages\": [3]}",
                                         "{\"schema\": 1, \"stages\": [{\"peak_bytes\": -1}]}"};
    for (size_t i = 0; i < sizeof broken / sizeof broken[0]; i++) {
        folder_write("base.json", broken[i]);
        assert_int_equal(run_command("check c.json"), 2);
        check_printed("base.json: no baseline of schema 1");
    }
    folder_write("base.json", "{\n]");
    assert_int_equal(run_command("check c.json"), 2);
    check_printed("base.json:2: ");
}

static void breaks_on_budgets_and_devices(void **state)
{
    (void)state;
    write_trace(M1200);
    folder_write("c.json",
                 "{\"schema\": 1, \"checks\": [{\"name\": \"step\", \"trace\": [\"x.rvt\"], "
                 "\"devices\": [\"1000MiB\", \"2000MiB\"], \"wake\": \"together\", "
                 "\"conductor\": \"engine\", "
                 "\"budgets\": {\"rollout\": \"300MiB\", \"train<&>\": 2097152000}}]}");
    assert_int_equal(run_command("check c.json --junit j.xml --github"), 3);
    check_printed(
        "step   1000MiB  rollout   400.0 MiB  300.0 MiB                    OVER BUDGET\n"
        "step   1000MiB  train<&>    1.2 GiB    2.0 GiB                    OOM\n"
        "step   2000MiB  rollout   400.0 MiB  300.0 MiB                    OVER BUDGET\n"
        "step   2000MiB  train<&>    1.2 GiB    2.0 GiB                    ok\n"
        "  step on 1000MiB: out of memory: engine/activations asked for 1.2 GiB of device "
        "0 with 1000.0 MiB free, in train<&>\n"
        "  step on 2000MiB: fits, with 800.0 MiB to spare\n"
        "4 stages, 3 failed\n");
    check_printed("::error file=c.json,title=step on 1000MiB::stage train<&>: does not fit: the "
                  "peak of 1.2 GiB is more than the device's 1000.0 MiB; at its peak: "
                  "engine/activations 1.2 GiB\n");
    char junit[4096];
    folder_read("j.xml", junit, sizeof junit);
    check_contains(junit,
                   "<testsuites name=\"reveille check\" tests=\"4\" failures=\"3\" errors=\"0\">");
    check_contains(junit,
                   "<testsuite name=\"step on 2000MiB\" tests=\"2\" failures=\"1\" errors=\"0\">");
    check_contains(junit,
                   "<testcase classname=\"step on 2000MiB\" name=\"train&#60;&#38;&#62;\"/>");
    check_contains(junit,
                   "<failure message=\"over budget: the peak of 400.0 MiB is more than 300.0 "
                   "MiB\">at its peak: engine/kv_cache 400.0 MiB</failure>");
}

/* Names that forge an annotation, steer a terminal, and are no characters of XML. */
static void names_do_no_harm_where_they_are_shown(void **state)
{
    (void)state;
    static char junit[8192];
    write_trace(M1200);
    folder_write("c.json",
                 "{\"schema\": 1, \"checks\": [{\"name\": \"a\\n::error::b\\u001b[31m\\ufffe\", "
                 "\"trace\": \"x.rvt\"}, {\"name\": \"g\\n::error::h\", \"trace\": "
                 "\"g\\n::error::h\"}]}");
    assert_int_equal(run_command("check c.json --github --junit j.xml"), 2);
    assert_null(strchr(answer.out, '\x1b'));
    assert_null(strstr(answer.out, "\n::error::"));
    check_printed("a%0A::error::b%1B[31m%EF%BF%BE  own     train<&>");
    check_printed(
        "::error file=c.json,title=a%0A%3A%3Aerror%3A%3Ab%251B[31m%25EF%25BF%25BE on own::");
    check_printed("reveille: check g%0A::error::h on own: g%0A::error::h: no such file");
    folder_read("j.xml", junit, sizeof junit);
    check_contains(junit, "<testsuite name=\"a%0A::error::b%1B[31m%EF%BF%BE on own\"");
    assert_null(strstr(junit, "\xef\xbf\xbe"));
}

static void annotates_where_github_runs_it(void **state)
{
    (void)state;
    write_trace(M1200);
    folder_write("c.json",
                 "{\"schema\": 1, \"checks\": [{\"name\": \"step\", \"trace\": \"x.rvt\"}]}");
    assert_int_equal(run_command("check c.json"), 3);
    assert_null(strstr(answer.out, "::error"));
    assert_int_equal(
        run_command("--version; cd . && GITHUB_ACTIONS=true " COMMAND_WORD " check c.json"), 3);
    check_printed("::error file=c.json");
}

static void checks_steps_of_models(void **state)
{
    (void)state;
    folder_write("c.json",
                 "{\"schema\": 1, \"checks\": [{\"name\": \"7b\", \"model\": \"" CONFIGS
                 "qwen2.5-7b.json\", \"devices\": \"b200\", \"wake\": \"together\", \"settings\": "
                 "{\"tp\": 2, \"train\": \"fsdp:8\", \"mem-fraction\": 0.65, \"recompute\": true, "
                 "\"given\": {\"cuda_graph\": \"2GiB\", \"buffers\": 0}}}]}");
    assert_int_equal(run_command("check c.json"), 0);
    check_printed("7b     b200    update_weights");
    char peak[32];
    assert_int_equal(sscanf(strstr(answer.out, "rollout"), "rollout %31[0-9.]", peak), 1);
    assert_int_equal(run_command("model " CONFIGS_WORD
                                 "qwen2.5-7b.json --device b200 --wake together --tp "
                                 "2 --train fsdp:8 --mem-fraction 0.65 --recompute --given "
                                 "cuda_graph=2GiB --given buffers=0 -o m.rvt"),
                     0);
    assert_int_equal(run_command("replay m.rvt"), 0);
    check_printed(peak);
}

/* ---- The verdict of the whole run ---- */

/* 600 of 1000 MiB, by a program. Its recording ends with these lines. */
static void write_recording(const char *process, const char *last)
{
    char text[1024];
    snprintf(text, sizeof text,
             "reveille-trace 1.2\n"
             "clock boot=- mono_ns=0 wall_ns=0\n"
             "device 0 profile=- capacity_bytes=1048576000 granularity_bytes=2097152\n"
             "process engine pid=7%s\n"
             "stage 1 engine 0 train\n"
             "alloc 5 engine 0 2 0 " M600 " activations\n"
             "%s",
             process, last);
    folder_write("x.rvt", text);
}

#define REFUSED "refuse 6 engine 0 0 524288000 419430400 activations at=train.py:23\n"

static void the_verdict_of_a_run_that_is_well(void **state)
{
    (void)state;
    write_trace(M600);
    folder_write("c.json", "{\"schema\": 1, \"headroom\": \"39%\", \"checks\": ["
                           "{\"name\": \"a\", \"trace\": \"x.rvt\"}, "
                           "{\"name\": \"b\", \"trace\": \"x.rvt\", \"headroom\": \"401MiB\"}, "
                           "{\"name\": \"c\", \"trace\": \"x.rvt\", \"headroom\": 419430400}]}");
    assert_int_equal(run_command("check c.json --github"), 0);
    check_printed("  a on own: fits, with 400.0 MiB to spare\n"
                  "  b on own: tight: 400.0 MiB to spare on device 0, less than the headroom of "
                  "401.0 MiB\n"
                  "  c on own: fits, with 400.0 MiB to spare\n"
                  "6 stages, 0 failed\n"
                  "::notice file=c.json,title=b on own::tight: 400.0 MiB to spare on device 0, "
                  "less than the headroom of 401.0 MiB\n");
}

static void a_refusal_fails_where_none_is_allowed(void **state)
{
    (void)state;
    char text[4096];
    write_recording(" refusals=yes",
                    REFUSED "stage 7 engine 0 eval\nended 8 engine 0 exit=0\nend 5\n");
    folder_write("c.json", "{\"schema\": 1, \"no_refusals\": true, \"checks\": ["
                           "{\"name\": \"strict\", \"trace\": \"x.rvt\"}, "
                           "{\"name\": \"lax\", \"trace\": \"x.rvt\", \"no_refusals\": false}]}");
    assert_int_equal(run_command("check c.json --junit j.xml --github"), 3);
#define SURVIVED                                                                                   \
    "fits after 1 refusal that the program survived, with 400.0 MiB to spare: engine/activations " \
    "asked for 500.0 MiB of device 0 with 400.0 MiB free, in train, at train.py:23"
    check_printed("  strict on own: REFUSED: " SURVIVED "\n  lax on own: " SURVIVED "\n"
                  "4 stages, 1 failed\n");
    check_printed("::error file=c.json,title=strict on own::fits after 1 refusal");
    check_printed("::notice file=c.json,title=lax on own::fits after 1 refusal");
    folder_read("j.xml", text, sizeof text);
    check_contains(text,
                   "<testsuites name=\"reveille check\" tests=\"5\" failures=\"1\" errors=\"0\">");
    check_contains(text, "<property name=\"verdict\" value=\"" SURVIVED "\"/>");
    check_contains(text, "<testcase classname=\"strict on own\" name=\"verdict\">\n"
                         "      <failure message=\"" SURVIVED "\"/>");
    assert_null(strstr(text, "classname=\"lax on own\" name=\"verdict\""));
}

/* Every stage is within its bounds, and the program is dead. */
static void a_run_that_died_is_not_ok(void **state)
{
    (void)state;
    char text[4096];
    folder_write("c.json", "{\"schema\": 1, \"baseline\": \"base.json\", \"checks\": ["
                           "{\"name\": \"a\", \"trace\": \"x.rvt\"}]}");
    folder_write("base.json", "{\"schema\": 1, \"stages\": []}");
    write_recording(" refusals=yes", REFUSED "ended 8 engine 0 exit=1\nend 4\n");
    assert_int_equal(run_command("check c.json --update-baseline"), 3);
    check_printed("base.json: stays as it is, since a check failed as a whole\n");
    check_printed(
        "  a on own: OOM: out of memory: engine/activations asked for 500.0 MiB of device "
        "0 with 400.0 MiB free, in train, at train.py:23; the command failed with exit "
        "status 1\n1 stage, 1 failed\n");
    write_recording(" refusals=yes", "ended 8 engine 0 signal=9\nend 3\n");
    assert_int_equal(run_command("check c.json --update-baseline --junit j.xml"), 2);
    check_printed("reveille: check a on own: no verdict: the command was killed by signal 9 "
                  "(SIGKILL)\n");
    check_printed("1 stage, 0 failed, 1 in error\n");
    folder_read("j.xml", text, sizeof text);
    check_contains(text, "tests=\"2\" failures=\"0\" errors=\"1\"");
    check_contains(text, "<error message=\"no verdict: the command was killed by signal 9");
    folder_read("base.json", text, sizeof text);
    assert_string_equal(text, "{\"schema\": 1, \"stages\": []}");
    /* Its writer could not have said so. */
    write_recording("", "end 2\n");
    assert_int_equal(run_command("check c.json --update-baseline"), 0);
    check_printed("  a on own: no refusals recorded: what was allocated fits, with 400.0 MiB to "
                  "spare\n");
}

#ifdef RVL_HAVE_TOML
/* The checked-in example passes against its checked-in baseline. */
static void the_example_passes(void **state)
{
    (void)state;
    assert_int_equal(run_command("check " EXAMPLE_WORD " --junit e.xml"), 0);
    check_printed("15 stages, 0 failed\n");
}

/* Everything that a check can have, keys in an order of their own. */
static void toml_and_json_give_the_same(void **state)
{
    (void)state;
    static char from_json[ANSWER_BYTES], junit[ANSWER_BYTES];
    write_trace(M600);
    folder_write(
        "c.json",
        "{\"schema\": 1, \"tolerance_percent\": 0.5, \"checks\": [{\"name\": \"caf\\u00e9\", "
        "\"trace\": [\"x.rvt\"], \"wake\": \"together\", \"conductor\": \"engine\", "
        "\"budgets\": {\"train<&>\": 524288000, \"rollout\": \"300MiB\"}}, {\"name\": \"7b\", "
        "\"model\": \"" CONFIGS "qwen2.5-7b.json\", \"devices\": [\"b200\", \"h200\"], "
        "\"settings\": {\"tp\": 2, \"train\": \"fsdp:8\", \"mem-fraction\": 0.65, \"recompute\": "
        "true, \"given\": {\"cuda_graph\": \"2GiB\", \"buffers\": 0}}}]}");
    folder_write("c.toml", "schema = 1 # the first\n"
                           "tolerance_percent = 0.5\n"
                           "[[checks]]\n"
                           "name = \"caf\\u00e9\"\n"
                           "trace = ['x.rvt']\n"
                           "wake = \"together\"\n"
                           "conductor = 'engine'\n"
                           "budgets = {\"train<&>\" = 524_288_000, rollout = \"300MiB\"}\n"
                           "[[checks]]\n"
                           "name = '7b'\n"
                           "model = '" CONFIGS "qwen2.5-7b.json'\n"
                           "devices = [\n  'b200', # a comment\n  'h200',\n]\n"
                           "[checks.settings]\n"
                           "tp = 2\ntrain = 'fsdp:8'\nmem-fraction = 0.65\nrecompute = true\n"
                           "given.cuda_graph = '2GiB'\ngiven.buffers = 0\n");
    assert_int_equal(run_command("check c.json --junit j.xml"), 3);
    strcpy(from_json, answer.out);
    check_printed("12 stages, 2 failed\n");
    folder_read("j.xml", answer.out, sizeof answer.out);
    strcpy(junit, answer.out);
    assert_int_equal(run_command("check c.toml --junit j.xml"), 3);
    assert_string_equal(answer.out, from_json);
    folder_read("j.xml", answer.out, sizeof answer.out);
    assert_string_equal(answer.out, junit);
}

static void refuses_toml_by_line_and_column(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        const char *message;
    } cases[] = {
        {"schema = 1\nbaseline = base.json\n", "reveille: c.toml:2:12: "},
        {"schema = 1\nschema = 1\n", "c.toml:2:"},
        {"schema = 1\n[[checks]\n", "c.toml:2:"},
        {"schema = \"\xff\"\n", "c.toml:1:10: "},
        {"schema = 1\n[=", "c.toml:2:2: "},
        {"schema = 1\n[[\xc3\xa9]]\n[[=]]\n", "c.toml:2:3: "},
        {"schema = 1 # \xc3\xa9\n[[= 1]]\n", "c.toml:2:3: "},
        {"e=\"\"\xc6\xb6", "c.toml:1:5: "}, /* no white space, and no table of toml++ has it */
        {"\xc6\xb6 = 1", "c.toml:1:1: "},
        {"e = [\xc3\xa9", "c.toml:1:6: "},
        {"e = \"\"\"\\\n\xc6\xb6\"\"\"", "unknown key \"e\" in the file"},
        {"\"\xc6\xb6\xe2\x82\xac\xf0\x9f\x98\x80\" = 1",
         "unknown key \"\xc6\xb6\xe2\x82\xac\xf0\x9f\x98\x80\" in the file"},
        {"e = '\xf3\xb0\x86\xb6'", "c.toml: characters of private use (U+F0000 to U+FFFFF)"},
        {"e = \"\\U000F01B6\"", "c.toml: characters of private use (U+F0000 to U+FFFFF)"},
        {"schema = 1\nbaseline = 2026-11-21\n",
         "c.toml:2:12: \"baseline\": a date or time, and nothing in a check is one\n"},
        {"[[checks]]\nname = [07:32:00]", "c.toml:2:9: \"name\": a date or time"},
        {"a.b = [{c = 2026-11-21T07:32:00Z}]", "c.toml:1:13: \"c\": a date or time"},
        {"tolerance_percent = inf", "c.toml:1:21: \"tolerance_percent\": neither infinite"},
        {"[a]\nb = -nan", "c.toml:2:5: \"b\": neither infinite numbers nor nan are taken\n"},
        {"baseline = \"a\\u0000b\"", "c.toml:1:12: \"baseline\": a zero byte in a string\n"},
        {"\"a\\u0000b\" = 1", "c.toml:1:1: \"a\": a zero byte in a string\n"},
        {"a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.b.c = 1",
         "\"b\": tables or lists in far too many others\n"},
        {"", "c.toml: \"schema\": expected 1\n"},
        {"schema = 1.0", "c.toml: \"schema\": expected 1\n"},
        {"schema = 1\n[[checks]]\nname = 'n'\n[checks.setings]\n",
         "c.toml:4:9: check n: unknown key \"setings\" in a check"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        folder_write("c.toml", cases[i].text);
        assert_int_equal(run_command("check c.toml --junit none.xml"), 2);
        check_printed(cases[i].message);
        assert_false(folder_has("none.xml"));
    }
    assert_int_equal(run_command("check none.toml"), 2);
    assert_string_equal(answer.out, "reveille: none.toml: No such file or directory\n");
    assert_int_equal(run_command("--version; mkdir d.toml && " COMMAND_WORD " check d.toml"), 2);
    check_printed("reveille: d.toml: this is a folder: name the file of checks in it\n");
    assert_int_equal(run_command("check ."), 2);
    check_printed("reveille: .: this is a folder: name the file of checks in it\n");
    /* As deep as a tree of toml++ may become, and deeper. */
    static char dots[2 * 4097 + 16];
    for (size_t i = 0; i < 4097; i++)
        memcpy(dots + 2 * i, "a.", 2);
    strcpy(dots + 2 * 4096, "a = 1\n!");
    folder_write("c.toml", dots);
    assert_int_equal(run_command("check c.toml"), 2);
    check_printed("c.toml:2:");
    strcpy(dots + 2 * 4096, "a.a = 1\n");
    folder_write("c.toml", dots);
    assert_int_equal(run_command("check c.toml"), 2);
    check_printed("c.toml: more than 4096 dots in TOML: write so many checks as JSON\n");
    assert_int_equal(
        run_command("--version; truncate -s 1048577 big.toml && " COMMAND_WORD " check big.toml"),
        2);
    check_printed("reveille: big.toml: more than 1 MiB of TOML: write so many checks as JSON\n");
}
#else
static void says_what_toml_needs(void **state)
{
    (void)state;
    assert_int_equal(run_command("check " EXAMPLE_WORD), 2);
    check_printed("memory.toml: this build reads no TOML: write JSON, or build reveille with a C++ "
                  "compiler and toml++ (Debian: libtomlplusplus-dev)\n");
}

static void reads_toml(void **state)
{
    (void)state;
    SKIP_TEST("built without toml++");
}
#endif

static void refuses_what_it_does_not_know(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        const char *message;
    } cases[] = {
        {"{\n\"schema\": 1,,}", "c.json:2:13: "},
        {"{\"schema\": 1, \"schema\": 1}", "duplicate"},
        {"[]", "expected an object"},
        {"{\"checks\": []}", "\"schema\": expected 1"},
        {"{\"schema\": 2}", "\"schema\": expected 1"},
        {"{\"schema\": 1, \"cheks\": []}", "unknown key \"cheks\" in the file"},
        {"{\"schema\": 1}", "\"checks\": expected a list of at least one"},
        {"{\"schema\": 1, \"checks\": []}", "\"checks\": expected a list of at least one"},
        {"{\"schema\": 1, \"checks\": [3]}", "expected a list of objects"},
        {"{\"schema\": 1, \"baseline\": 3}", "\"baseline\": expected a string"},
        {"{\"schema\": 1, \"tolerance_percent\": -1}", "expected a number from 0 to 100"},
        {"{\"schema\": 1, \"checks\": [{\"trace\": \"x\"}]}", "a check without a \"name\""},
        {"{\"schema\": 1, \"checks\": [{\"name\": \"\"}]}", "\"name\": expected a string"},
#define CHECK(keys) "{\"schema\": 1, \"checks\": [{\"name\": \"n\", " keys "}]}"
        {CHECK("\"trac\": \"x\""), "check n: unknown key \"trac\" in a check"},
        {CHECK("\"wake\": \"staged\""), "check n: expected \"trace\", \"model\" or"},
        {CHECK("\"trace\": \"x\", \"model\": \"y\""),
         "expected \"trace\", \"model\" or \"command\", and one of them"},
        {CHECK("\"trace\": []"), "\"trace\": an empty list"},
        {CHECK("\"trace\": [3]"), "\"trace\": expected a string, or a list of them"},
        {CHECK("\"trace\": \"x\", \"wake\": \"up\""), "\"wake\": expected"},
        {CHECK("\"trace\": \"x\", \"settings\": {}"), "this check has traces"},
        {CHECK("\"trace\": \"x\", \"devices\": [\"h900\"]"), "device h900: neither a size"},
        {CHECK("\"trace\": \"x\", \"budgets\": 3"), "\"budgets\": expected an object"},
        {CHECK("\"trace\": \"x\", \"budgets\": {\"a\": \"lots\"}"), "budget of a: expected"},
        {CHECK("\"trace\": \"x\", \"budgets\": {\"a\": 0}"), "budget of a: expected"},
        {CHECK("\"trace\": \"x\", \"tolerance_percent\": \"1\""), "expected a number"},
        {CHECK("\"trace\": \"x\", \"conductor\": 1"), "\"conductor\": expected a string"},
        {CHECK("\"trace\": \"x\", \"headroom\": \"3 percent\""),
         "\"headroom\": expected a part such as"},
        {CHECK("\"trace\": \"x\", \"headroom\": \"101%\""), "\"headroom\": expected"},
        {CHECK("\"trace\": \"x\", \"headroom\": -1"), "\"headroom\": expected"},
        {CHECK("\"trace\": \"x\", \"no_refusals\": 1"), "\"no_refusals\": expected true or"},
        {"{\"schema\": 1, \"headroom\": true, \"checks\": []}", "\"headroom\": expected"},
        {CHECK("\"model\": \"x\", \"settings\": 3"), "\"settings\": expected an object"},
        {CHECK("\"model\": \"x\", \"settings\": {\"tp\": []}"), "setting tp: expected a string"},
        {CHECK("\"model\": \"x\", \"settings\": {\"tp\": 0}"), "--tp 0: expected a whole number"},
        {CHECK("\"model\": \"x\", \"settings\": {\"pt\": 1}"), "no such setting of a step: pt"},
        {CHECK("\"model\": \"x\", \"settings\": {\"device\": \"l4\"}"),
         "a key of the check itself"},
        {CHECK("\"model\": \"x\", \"settings\": {\"micro-batch\": 1}"),
         "setting micro-batch changes nothing with --train none"},
        {CHECK("\"trace\": \"x\", \"devices\": [\"h100\"]"),
         "device h100: neither a size nor a profile that `reveille devices` lists: did you mean "
         "h100-80g or h100-94g?"},
        {CHECK("\"trace\": \"x\", \"devices\": \"80\""), "did you mean 80GiB?"},
        {CHECK("\"model\": \"x\", \"settings\": {\"given\": 3}"), "\"given\": expected an object"},
        {CHECK("\"model\": \"x\", \"settings\": {\"given\": {\"a\": []}}"), "expected sizes"},
        {CHECK("\"model\": \"x\", \"settings\": {\"given\": {\"a\": 0}}"), "no such term"},
        {CHECK("\"trace\": \"x.rvt\"}, {\"name\": \"n\", \"trace\": \"x.rvt\""),
         "two checks of the name n"},
    };
    write_trace(M600);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        folder_write("c.json", cases[i].text);
        assert_int_equal(run_command("check c.json --junit none.xml"), 2);
        check_printed(cases[i].message);
        assert_false(folder_has("none.xml"));
    }
}

#define HEAD                                                                                       \
    "reveille-trace 1.0\nclock boot=- mono_ns=0 wall_ns=0\n"                                       \
    "device 0 profile=- capacity_bytes=1048576000 granularity_bytes=2097152\n"                     \
    "process engine pid=0\n"
#define BESIDE(keys) CHECK(keys "}, {\"name\": \"good\", \"trace\": \"x.rvt\"")

/* The other check is run and shown, whatever is wrong with the first. */
static void a_broken_check_breaks_itself_alone(void **state)
{
    (void)state;
    char text[4096];
    static const struct {
        const char *text;
        const char *message;
    } cases[] = {
        {BESIDE("\"trace\": \"none.rvt\""), "none.rvt: "},
        {BESIDE("\"trace\": \"bad.rvt\""), "bad.rvt:5:1: not a kind of line"},
        {BESIDE("\"trace\": \"unmarked.rvt\""), "unmarked.rvt: the trace has no stage: mark them "},
        {BESIDE("\"trace\": \"empty.rvt\""), "empty.rvt: the trace has no stage: mark them "},
        {BESIDE("\"model\": \"none.json\""), "none.json: "},
        {BESIDE("\"model\": \"" CONFIGS "qwen2.5-7b.json\", \"settings\": {\"tp\": 3}"),
         "num_attention_heads: 28 does not divide by tp = 3"},
        {BESIDE("\"trace\": \"x.rvt\", \"budgets\": {\"trane\": \"1GiB\"}"),
         "budget for unknown stage \"trane\""},
    };
    write_trace(M600);
    folder_write("bad.rvt", HEAD "what 1 engine 0 a\nend 1\n");
    folder_write("unmarked.rvt", HEAD "alloc 2 engine 0 1 0 419430400 kv_cache\nend 1\n");
    folder_write("empty.rvt", HEAD "end 0\n");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        folder_write("c.json", cases[i].text);
        assert_int_equal(run_command("check c.json --github --junit j.xml"), 2);
        check_printed("reveille: check n on own: ");
        check_printed(cases[i].message);
        check_printed("ERROR: ");
        check_printed("good   own     train<&>  600.0 MiB                            ok\n");
        check_printed("2 stages, 0 failed, 1 in error\n");
        check_printed("::error file=c.json,title=n on own::");
        folder_read("j.xml", text, sizeof text);
        check_contains(
            text, "<testsuites name=\"reveille check\" tests=\"3\" failures=\"0\" errors=\"1\">");
        check_contains(text,
                       "<testsuite name=\"n on own\" tests=\"1\" failures=\"0\" errors=\"1\">");
        check_contains(text,
                       "<testcase classname=\"n on own\" name=\"-\">\n      <error message=\"");
        check_contains(text,
                       "<testsuite name=\"good on own\" tests=\"2\" failures=\"0\" errors=\"0\">");
    }
}

/* A regression as any other, and not a fault of the file. */
static void no_room_for_a_cache_fails_a_check(void **state)
{
    (void)state;
    char text[4096];
    write_trace(M600);
    folder_write("c.json", BESIDE("\"model\": \"" CONFIGS
                                  "qwen2.5-72b.json\", \"settings\": {\"mem-fraction\": 0.5}"));
    assert_int_equal(run_command("check c.json --github --junit j.xml"), 3);
    check_printed("n      own     -                                              NO ROOM: " CONFIGS
                  "qwen2.5-72b.json: --mem-fraction: no room for a KV cache: the weights of a rank "
                  "take 135.4 GiB of 69.6 GiB; raise it, or --tp\n");
    check_printed("3 stages, 1 failed\n");
    check_printed("::error file=c.json,title=n on own::" CONFIGS
                  "qwen2.5-72b.json: --mem-fraction: "
                  "no room");
    folder_read("j.xml", text, sizeof text);
    check_contains(text,
                   "<testsuites name=\"reveille check\" tests=\"3\" failures=\"1\" errors=\"0\">");
    check_contains(text, "<failure message=\"" CONFIGS "qwen2.5-72b.json: --mem-fraction: no room");
}

static void a_stage_that_is_gone_fails(void **state)
{
    (void)state;
    char text[4096];
    write_trace(M600);
    folder_write("c.json", PLAIN);
    assert_int_equal(run_command("check c.json --update-baseline"), 0);
    folder_write("x.rvt", HEAD "stage 1 engine 0 rollout\nalloc 2 engine 0 1 0 419430400 kv_cache\n"
                               "end 2\n");
    assert_int_equal(run_command("check c.json --github --junit j.xml"), 3);
    check_printed(
        "a, step  own     rollout   400.0 MiB          400.0 MiB  0.00 %  ok\n"
        "a, step  own     train<&>                     600.0 MiB          IN THE BASELINE "
        "ALONE\n"
        "  a, step on own: fits, with 600.0 MiB to spare\n"
        "2 stages, 1 failed\n");
    check_printed(
        "::error file=c.json,title=a%2C step on own::stage train<&>: in the baseline, "
        "with a peak of 600.0 MiB, and not in this run: see why, then run `reveille check "
        "--update-baseline`\n");
    folder_read("j.xml", text, sizeof text);
    check_contains(text, "<failure message=\"in the baseline, with a peak of 600.0 MiB, and not");
    assert_int_equal(run_command("check c.json --update-baseline"), 0);
    check_printed("1 stage, 0 failed\n");
    assert_int_equal(run_command("check c.json"), 0);
}

/* What a check could not say stays as it was agreed to. */
static void a_broken_check_leaves_the_baseline(void **state)
{
    (void)state;
    char text[4096], before[4096];
    write_trace(M600);
    folder_write("c.json", PLAIN);
    assert_int_equal(run_command("check c.json --update-baseline"), 0);
    folder_read("base.json", text, sizeof text);
    strcpy(before, text);
    folder_write("x.rvt", HEAD "end 0\n");
    assert_int_equal(run_command("check c.json"), 2);
    assert_null(strstr(answer.out, "ALONE"));
    assert_int_equal(run_command("check c.json --update-baseline"), 2);
    check_printed("base.json: stays as it is, since a check failed as a whole\n");
    folder_read("base.json", text, sizeof text);
    assert_string_equal(text, before);
    folder_write("base.json", "[]");
    assert_int_equal(run_command("check c.json"), 2);
    check_printed("base.json: no baseline of schema 1");
}

/* The second of three checks is waiting for its trace when Ctrl-C comes. */
static void an_interrupt_keeps_what_is_done(void **state)
{
    (void)state;
    char path[128], fifo[128], text[2048];
    write_trace(M600);
    folder_read("x.rvt", text, sizeof text);
    snprintf(path, sizeof path, "%s/c.json", folder);
    snprintf(fifo, sizeof fifo, "%s/f.rvt", folder);
    folder_write("base.json", "{\"schema\": 1, \"stages\": [{\"check\": \"c\", \"device\": "
                              "\"own\", \"index\": 0, \"stage\": \"s\", \"peak_bytes\": 1}]}");
    folder_write("c.json", "{\"schema\": 1, \"baseline\": \"base.json\", \"checks\": ["
                           "{\"name\": \"a\", \"trace\": \"x.rvt\"},"
                           "{\"name\": \"b\", \"trace\": \"f.rvt\"},"
                           "{\"name\": \"c\", \"trace\": \"x.rvt\"}]}");
    assert_int_equal(mkfifo(fifo, 0600), 0);
    run_interrupted(WORDS("check", path, "--junit", "never.xml"), fifo, text);
    assert_int_equal(answer.signal, SIGINT);
    check_contains(answer.out, "4 stages, 4 failed\n"); /* none is in the baseline */
    check_contains(answer.out, "\na      own     rollout");
    check_contains(answer.out, "\nb      own     rollout");
    assert_null(strstr(answer.out, "\nc "));
    assert_string_equal(answer.err,
                        "reveille: interrupted: done with 2 of 3 checks; no file is written\n");
    assert_int_not_equal(access("never.xml", F_OK), 0);
    folder_read("base.json", text, sizeof text);
    write_trace(M600);
    char after[2048], whole[1024];
    folder_read("x.rvt", whole, sizeof whole);
    run_interrupted(WORDS("check", path, "--update-baseline"), fifo, whole);
    assert_int_equal(answer.signal, SIGINT);
    folder_read("base.json", after, sizeof after);
    assert_string_equal(after, text);
    assert_int_equal(unlink(fifo), 0);
}

static void bad_usage_is_named(void **state)
{
    (void)state;
    assert_int_equal(run_command("check"), 2);
    check_printed("check: name one file of checks");
    assert_int_equal(run_command("check a b"), 2);
    assert_int_equal(run_command("check --what"), 2);
    check_printed("unknown option --what");
    assert_int_equal(run_command("check a --junit"), 2);
    check_printed("option --junit needs a value: the name of a file");
    assert_int_equal(run_command("check a --junit x.json"), 2);
    check_printed("--junit x.json: this writes .xml, and the name says .json: end it in .xml");
    assert_int_equal(run_command("check none.json"), 2);
    check_printed("none.json");
    assert_int_equal(run_command("check --help"), 0);
    check_printed("usage: reveille check [OPTION]... FILE.toml|FILE.json\n");
    write_trace(M600);
    folder_write("c.json", CHECK("\"trace\": \"x.rvt\""));
    assert_int_equal(run_command("check c.json --update-baseline"), 2);
    check_printed("--update-baseline: the file has no \"baseline\"");
    assert_int_equal(run_command("check c.json --junit no/such/folder.xml"), 2);
    folder_write("c.json", "{\"schema\": 1, \"baseline\": \"no/such/base.json\", \"checks\": "
                           "[{\"name\": \"n\", \"trace\": \"x.rvt\"}]}");
    assert_int_equal(run_command("check c.json --update-baseline"), 2);
    check_printed("no/such/base.json: No such file or directory: name a file in a directory");
}

/* A CI that runs this test is not the one of the checks. */
static int setup(void **state)
{
    unsetenv("GITHUB_ACTIONS");
    return folder_make(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(compares_with_a_baseline),
        cmocka_unit_test(names_what_the_baseline_lacks),
        cmocka_unit_test(breaks_on_budgets_and_devices),
        cmocka_unit_test(the_verdict_of_a_run_that_is_well),
        cmocka_unit_test(a_refusal_fails_where_none_is_allowed),
        cmocka_unit_test(a_run_that_died_is_not_ok),
        cmocka_unit_test(names_do_no_harm_where_they_are_shown),
        cmocka_unit_test(annotates_where_github_runs_it),
        cmocka_unit_test(checks_steps_of_models),
#ifdef RVL_HAVE_TOML
        cmocka_unit_test(the_example_passes),
        cmocka_unit_test(toml_and_json_give_the_same),
        cmocka_unit_test(refuses_toml_by_line_and_column),
#else
        cmocka_unit_test(says_what_toml_needs),
        cmocka_unit_test(reads_toml),
#endif
        cmocka_unit_test(refuses_what_it_does_not_know),
        cmocka_unit_test(a_broken_check_breaks_itself_alone),
        cmocka_unit_test(no_room_for_a_cache_fails_a_check),
        cmocka_unit_test(a_stage_that_is_gone_fails),
        cmocka_unit_test(a_broken_check_leaves_the_baseline),
        cmocka_unit_test(an_interrupt_keeps_what_is_done),
        cmocka_unit_test(bad_usage_is_named),
    };
    return cmocka_run_group_tests(tests, setup, folder_remove);
}
