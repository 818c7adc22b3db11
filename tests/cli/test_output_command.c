/* SPDX-License-Identifier: MIT */
/*
 * What the command leaves behind when something goes wrong while it writes: links in the place of
 * its files, signals, kill -9, limits, too little memory, and outputs that are inputs.
 *
 * With --without-nameless and a command as arguments, this program becomes that command in a
 * kernel without nameless files.
 */
#include "tests/support/support.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "reveille/version.h"
#include "tests/support/folder.h"
#include "tests/support/no_files.h"
#include "tests/support/run_command.h"

/* Paths as words of a shell, however deep it is quoted: main() puts them into the environment. */
#define COMMAND "\"$COMMAND\""
#define OWN "\"$OWN\""
#define CONFIG "\"$CONFIG\""
#define CARD "\"$CARD\""
#define TRACE_HEAD                                                                                 \
    "reveille-trace 1.0\n"                                                                         \
    "clock boot=- mono_ns=0 wall_ns=0\n"                                                           \
    "device 0 profile=- capacity_bytes=1048576000 granularity_bytes=2097152\n"                     \
    "process engine pid=0\n"
#define KILLS 20
#define SETTLE_MS 20000
#define LINE_BYTES (3 * PATH_MAX)

static char own_path[PATH_MAX];

/* The same report from many stages, which takes a while to write. */
static void write_trace(const char *name, unsigned stages)
{
    char *text;
    size_t size;
    FILE *file = open_memstream(&text, &size);
    assert_non_null(file);
    fputs(TRACE_HEAD, file);
    for (unsigned i = 0; i < stages; i++)
        fprintf(file,
                "stage %u engine 0 s%u\nalloc %u engine 0 %u 0 2097152 t\nfree %u engine 0 %u\n",
                3 * i, i, 3 * i + 1, i + 1, 3 * i + 2, i + 1);
    fprintf(file, "end %u\n", 3 * stages);
    fclose(file);
    folder_write_bytes(name, text, size);
    free(text);
}

static void assert_holds(const char *name, const char *text)
{
    char held[4096];
    folder_read(name, held, sizeof held);
    assert_string_equal(held, text);
}

static double now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

static void sleep_ms(double ms)
{
    const struct timespec length = {(time_t)(ms / 1e3), (long)(ms * 1e6) % 1000000000L};
    nanosleep(&length, NULL);
}

/* A line of a shell in the folder, which becomes its last command: begun, and not waited for. */
static pid_t start_line(const char *line)
{
    pid_t child = fork();
    if (child == 0) {
        int nowhere = open("/dev/null", O_WRONLY);
        dup2(nowhere, STDOUT_FILENO);
        alarm(100);
        if (chdir(folder) == 0)
            execl("/bin/sh", "sh", "-c", line, (char *)NULL);
        _exit(127);
    }
    assert_true(child > 0);
    return child;
}

static bool has_ended(pid_t child, int *status)
{
    return waitpid(child, status, WNOHANG) == child;
}

/* ---- Links in the place of files ---- */

/* Anybody may know the process's number, and so the names that were made of it. */
static void writes_through_no_planted_link(void **state)
{
    (void)state;
    char line[LINE_BYTES];
    folder_write("victim", "old");
    snprintf(line, sizeof line,
             "sh -c 'ln -s victim x.rvt.$$-0.tmp; exec %s model %s -o x.rvt' && test -s x.rvt -a ! "
             "-L x.rvt",
             COMMAND, CONFIG);
    assert_int_equal(run_shell(line), 0);
    assert_holds("victim", "old");
    write_trace("t.rvt", 1);
    folder_write("c.json", "{\"schema\": 1, \"baseline\": \"base.json\", \"checks\": [{\"name\": "
                           "\"c\", \"trace\": \"t.rvt\"}]}");
    snprintf(line, sizeof line,
             "sh -c 'ln -s victim base.json.$$.tmp; exec %s check c.json --update-baseline' && "
             "test -s base.json -a ! -L base.json",
             COMMAND);
    assert_int_equal(run_shell(line), 0);
    assert_holds("victim", "old");
}

static void refuses_a_link_of_another_user(void **state)
{
    (void)state;
    char victim[PATH_MAX], planted[PATH_MAX];
    if (geteuid() != 0) {
        print_message("SKIP: only root makes files of other users\n");
        skip();
    }
    folder_write("victim", "old");
    snprintf(victim, sizeof victim, "%s/victim", folder);
    snprintf(planted, sizeof planted, "%s/x", folder);
    assert_int_equal(symlink(victim, planted), 0);
    assert_int_equal(lchown(planted, 65534, 65534), 0);
    write_trace("t.rvt", 1);
    static const char *const words[] = {"report t.rvt --svg x", "report t.rvt --chrome x",
                                        "model " CONFIG " -o x", "check c.json --junit x"};
    folder_write("c.json",
                 "{\"schema\": 1, \"checks\": [{\"name\": \"c\", \"trace\": \"t.rvt\"}]}");
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        assert_int_equal(run_command(words[i]), 2);
        check_printed("reveille: x: is a symbolic link of another user: name the file that is");
        assert_holds("victim", "old");
    }
}

/* ---- Places where no file can be made ---- */

/* Bad input, as a trace that is not there: exit status 1 is of files that fail while written. */
static void a_place_for_no_file_is_bad_input(void **state)
{
    (void)state;
    static const struct {
        const char *words, *path;
    } rows[] = {
        {"report t.rvt --svg none/x", "none/x"},
        {"report t.rvt --chrome none/x", "none/x"},
        {"model " CONFIG " -o none/x", "none/x"},
        {"check c.json --junit none/x", "none/x"},
        {"check held.json --update-baseline", "none/base.json"},
        {"calibrate --fit card.json -o none/x", "none/x"},
    };
    char says[128];
    write_trace("t.rvt", 1);
    folder_write("c.json",
                 "{\"schema\": 1, \"checks\": [{\"name\": \"c\", \"trace\": \"t.rvt\"}]}");
    folder_write("held.json", "{\"schema\": 1, \"baseline\": \"none/base.json\", \"checks\": ["
                              "{\"name\": \"c\", \"trace\": \"t.rvt\"}]}");
    assert_int_equal(run_shell("cp " CARD " card.json"), 0);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_int_equal(run_command(rows[i].words), 2);
        snprintf(says, sizeof says, "reveille: %s: No such file or directory: name a file in a dir",
                 rows[i].path);
        check_printed(says);
        assert_int_equal(folder_count(), 4);
    }
}

/* ---- Ends ---- */

/* Waits until something in the folder has changed, or the command has ended. */
static bool await_change(pid_t child, const struct stat *before, int *status)
{
    char path[PATH_MAX];
    struct stat now;
    snprintf(path, sizeof path, "%s/j.xml", folder);
    for (double until = now_ms() + SETTLE_MS; now_ms() < until;) {
        if (stat(path, &now) != 0 || now.st_ino != before->st_ino ||
            now.st_size != before->st_size || now.st_mtim.tv_nsec != before->st_mtim.tv_nsec)
            return true;
        if (has_ended(child, status))
            return false;
    }
    fail_msg("nothing was written in %d ms", SETTLE_MS);
    return false;
}

/* Half of the kills come when the report changes, the others spread over the time it takes. */
static void kill_9_leaves_a_whole_report(void **state)
{
    (void)state;
    char path[PATH_MAX], line[PATH_MAX + 64], *whole;
    struct stat facts;
    write_trace("t.rvt", 4000);
    folder_write("c.json",
                 "{\"schema\": 1, \"checks\": [{\"name\": \"c\", \"trace\": \"t.rvt\"}]}");
    snprintf(line, sizeof line, "exec %s check c.json --junit j.xml", COMMAND);
    double began_ms = now_ms();
    assert_int_equal(run_wait(start_line(line)), 0);
    double took_ms = now_ms() - began_ms;
    snprintf(path, sizeof path, "%s/j.xml", folder);
    assert_int_equal(stat(path, &facts), 0);
    size_t size = (size_t)facts.st_size + 1;
    whole = malloc(size);
    char *left = malloc(size);
    assert_true(whole != NULL && left != NULL);
    folder_read("j.xml", whole, size);
    for (int i = 0; i < KILLS; i++) {
        int status = 0;
        assert_int_equal(stat(path, &facts), 0);
        pid_t child = start_line(line);
        bool running = i % 2 == 1 || await_change(child, &facts, &status);
        if (i % 2 == 1)
            sleep_ms(took_ms * i / KILLS);
        if (running) {
            assert_int_equal(kill(child, SIGKILL), 0);
            assert_int_equal(waitpid(child, &status, 0), child);
        }
        folder_read("j.xml", left, size);
        assert_string_equal(left, whole);
        assert_true(folder_count() <=
                    4); /* killed in the instant in which the report was replaced */
    }
    assert_int_equal(run_wait(start_line(line)), 0);
    assert_int_equal(folder_count(), 3);
    free(whole);
    free(left);
}

/* Waits until there is a draft. false: the command has ended first. */
static bool await_draft(pid_t child)
{
    int status;
    for (double until = now_ms() + SETTLE_MS; now_ms() < until;) {
        if (folder_count() > 2)
            return true;
        if (has_ended(child, &status))
            return false;
    }
    fail_msg("there was no draft in %d ms", SETTLE_MS);
    return false;
}

/* Sends a signal, which may come too late. Answers whether it has ended the process. */
static bool end_by(pid_t child, int number)
{
    int status;
    assert_int_equal(kill(child, number), 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    if (WIFEXITED(status))
        assert_int_equal(WEXITSTATUS(status), 0);
    else
        assert_int_equal(WTERMSIG(status), number);
    assert_int_equal(folder_count(), 2);
    return WIFSIGNALED(status);
}

static off_t size_of(const char *name)
{
    char path[PATH_MAX];
    struct stat facts;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    assert_int_equal(stat(path, &facts), 0);
    return facts.st_size;
}

static void a_signal_leaves_no_draft(void **state)
{
    (void)state;
    char line[LINE_BYTES];
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
    write_trace("t.rvt", 20000);
    folder_write("k", "old");
    snprintf(line, sizeof line, "ulimit -c 0; exec %s report t.rvt --chrome k", COMMAND);
    double began_ms = now_ms();
    assert_int_equal(run_wait(start_line(line)), 0);
    double took_ms = now_ms() - began_ms;
    off_t whole_bytes = size_of("k");
    for (size_t i = 0; i < 8; i++) {
        pid_t child = start_line(line);
        sleep_ms(took_ms * (double)i / 8);
        end_by(child, signals[i % 4]);
    }
    /* Where the draft has a name, it is there to be seen. */
    folder_write("k", "old");
    snprintf(line, sizeof line,
             "ulimit -c 0; exec %s --without-nameless %s report t.rvt --chrome k", OWN, COMMAND);
    for (size_t i = 0, tries = 0; i < 8; tries++) {
        assert_true(tries < 200);
        pid_t child = start_line(line);
        bool ended = await_draft(child) && end_by(child, signals[i % 4]);
        /* A signal may also come between the new name and the end: the report is whole then. */
        if (ended && size_of("k") != whole_bytes) {
            assert_holds("k", "old");
            i++;
        } else {
            folder_write("k", "old");
        }
    }
}

/* ---- What runs out ---- */

static void a_limit_leaves_no_draft(void **state)
{
    (void)state;
    char line[LINE_BYTES];
    write_trace("t.rvt", 2000);
    folder_write("x", "old");
    folder_write("c.json",
                 "{\"schema\": 1, \"checks\": [{\"name\": \"c\", \"trace\": \"t.rvt\"}]}");
    static const char *const words[] = {"report t.rvt --svg x", "report t.rvt --chrome x",
                                        "model " CONFIG " -o x", "check c.json --junit x"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        snprintf(line, sizeof line, "ulimit -f 4; exec %s %s 2>&1", COMMAND, words[i]);
        assert_int_equal(run_shell(line), 1);
        check_printed("reveille: x: ");
        check_printed(i == 2 ? "EFBIG" : "File too large: raise ulimit -f");
        snprintf(line, sizeof line, "ulimit -f 4; exec %s --without-nameless %s %s 2>&1", OWN,
                 COMMAND, words[i]);
        assert_int_equal(run_shell(line), 1);
        assert_holds("x", "old");
        assert_int_equal(folder_count(), 3);
    }
}

/* For a report of what failed: the message does not have the version and the system. */
static bool names_version(void)
{
    char version[256];
    struct utsname system;
    assert_int_equal(uname(&system), 0);
    snprintf(version, sizeof version, "\nreveille: version %s, %.60s %.60s %.60s\n", rvl_version(),
             system.sysname, system.release, system.machine);
    return strstr(answer.out, version) != NULL;
}

static void too_little_memory_leaves_no_draft(void **state)
{
    (void)state;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    print_message("SKIP: sanitizers need more addresses than ulimit -v would leave\n");
    skip();
#endif
    char line[LINE_BYTES];
    int failed = 0, done = 0, told = 0;
    write_trace("t.rvt", 20000);
    for (unsigned kib = 8192; done == 0; kib += 4096) {
        assert_true(kib < (1u << 20));
        folder_write("x", "old");
        snprintf(line, sizeof line,
                 "ulimit -v %u; exec %s --without-nameless %s report t.rvt "
                 "--svg x 2>&1",
                 kib, OWN, COMMAND);
        bool good = run_shell(line) == 0;
        done += good;
        failed += !good;
        if (strstr(answer.out, "no host memory") != NULL) {
            assert_true(names_version());
            told++;
        }
        if (!good)
            assert_holds("x", "old");
        assert_int_equal(folder_count(), 2);
    }
    assert_true(failed > 0 && told > 0);
}

static void a_disk_that_is_full_keeps_the_old_report(void **state)
{
    (void)state;
    char line[LINE_BYTES];
    write_trace("t.rvt", 2000);
    folder_write("c.json",
                 "{\"schema\": 1, \"checks\": [{\"name\": \"c\", \"trace\": \"t.rvt\"}]}");
    assert_int_equal(run_shell("mkdir d"), 0);
    if (run_shell("unshare -m mount -t tmpfs none d 2>/dev/null") != 0) {
        print_message("SKIP: a small file system cannot be mounted here\n");
        skip();
    }
    snprintf(line, sizeof line,
             "unshare -m sh -c 'mount -t tmpfs -o size=64k none d; echo old >d/j.xml; "
             "%s check c.json --junit d/j.xml 2>&1; echo status $?; cat d/j.xml; ls -A d'",
             COMMAND);
    run_shell(line);
    assert_string_equal(answer.out, "reveille: d/j.xml: No space left on device: free some, or "
                                    "name a file on another disk\nstatus 1\nold\nj.xml\n");
}

/*
 * What is printed in one piece is written when it is printed, and not at the end: the cause is told
 * all the same. A reader that has gone away has seen enough.
 */
static void an_output_that_fails_early_has_its_cause(void **state)
{
    (void)state;
    static const struct {
        const char *line, *says;
    } rows[] = {
        {"exec 1>/dev/full", "1\nreveille: writing the output: No space left on device: free some, "
                             "or write to another disk\n"},
        {"mkfifo p; (: <p) & exec 1>p; wait", "1\n"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char line[LINE_BYTES];
        snprintf(line, sizeof line, "%s; %s calibrate --fit %s --json 2>err; echo $? >status",
                 rows[i].line, COMMAND, CARD);
        run_shell(line);
        run_shell("cat status err");
        assert_string_equal(answer.out, rows[i].says);
    }
}

/* ---- Outputs that are inputs ---- */

static void refuses_to_replace_what_it_reads(void **state)
{
    (void)state;
    static const struct {
        const char *words, *says;
    } rows[] = {
        {"report t --svg t", "--svg t: would replace t, which is read: name another"},
        {"report t --svg ./t", "--svg ./t: would replace t, which is read"},
        {"report t --chrome hard", "--chrome hard: would replace t"},
        {"report soft --svg t", "--svg t: would replace soft"},
        {"report t --against u --svg u", "--svg u: would replace u"},
        {"report t --svg new --chrome ./new",
         "--chrome ./new: would replace what --svg new writes: name another file"},
        {"report t --svg - >>t", "--svg /dev/stdout: would replace t"},
        {"model m -o m", "-o m: would replace m"},
        {"check c.json --junit c", "--junit c: would replace c.json"},
        {"check c.json --junit t", "--junit t: would replace t"},
        {"check c.json --junit m", "--junit m: would replace m"},
        {"check c.json --junit base", "--junit base: would replace base"},
        {"check c.json --update-baseline --junit base",
         "--update-baseline base: would replace what --junit base writes"},
        {"check trace.json --update-baseline", "--update-baseline t: would replace t"},
        {"check own.json --update-baseline", "--update-baseline own.json: would replace own.json"},
        /* A name that says another format is refused before that. */
        {"report t --svg own.json", "--svg own.json: this writes .svg, and the name says .json"},
    };
    write_trace("t", 1);
    write_trace("u", 2);
    assert_int_equal(run_shell("ln t hard; ln -s t soft; cp " CONFIG " m"), 0);
    folder_write("base", "{\"schema\": 1, \"stages\": []}");
    folder_write("c.json", "{\"schema\": 1, \"baseline\": \"base\", \"checks\": ["
                           "{\"name\": \"t\", \"trace\": \"t\"},"
                           "{\"name\": \"m\", \"model\": \"m\"}]}");
    folder_write("trace.json", "{\"schema\": 1, \"baseline\": \"t\", \"checks\": ["
                               "{\"name\": \"t\", \"trace\": \"t\"}]}");
    folder_write("own.json", "{\"schema\": 1, \"baseline\": \"own.json\", \"checks\": ["
                             "{\"name\": \"t\", \"trace\": \"t\"}]}");
    assert_int_equal(run_shell("ln c.json c"), 0);
    size_t count = folder_count();
    run_shell("cksum t u m base *.json");
    char *before = strdup(answer.out);
    assert_non_null(before);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char line[LINE_BYTES];
        /* stderr first: the words may send stdout elsewhere. */
        snprintf(line, sizeof line, "%s 2>&1 %s", COMMAND, rows[i].words);
        assert_int_equal(run_shell(line), 2);
        check_printed(rows[i].says);
        assert_int_equal(folder_count(), count);
        run_shell("cksum t u m base *.json");
        assert_string_equal(answer.out, before);
    }
    free(before);
    /* A device is no file that is replaced. */
    assert_int_equal(run_command("report t --svg /dev/null --chrome /dev/null"), 0);
    assert_int_equal(run_command("report t --svg /dev/stdout | grep -c '</svg>'"), 0);
    assert_string_equal(answer.out, "1\n");
    assert_int_equal(run_command("report t --svg /dev/stdout >new; tail -c 7 new"), 0);
    assert_string_equal(answer.out, "</svg>\n");
}

static int clear(void **state)
{
    (void)state;
    char line[PATH_MAX + 64];
    snprintf(line, sizeof line, "find %s -mindepth 1 -delete", folder);
    return system(line);
}

/*
 * With coverage, a program that is killed as it ends, or may write only so much, leaves half a file
 * of counts, which every later one complains of. So such programs count elsewhere.
 */
static int count_elsewhere(void **state)
{
    (void)state;
    char counts[PATH_MAX + 8];
    snprintf(counts, sizeof counts, "%s-counts", folder);
    return setenv("GCOV_PREFIX", counts, 1) + setenv("GCOV_ERROR_FILE", "/dev/null", 1);
}

static int clear_counts(void **state)
{
    char line[PATH_MAX + 64];
    snprintf(line, sizeof line, "rm -rf %s-counts", folder);
    unsetenv("GCOV_PREFIX");
    unsetenv("GCOV_ERROR_FILE");
    return system(line) == 0 ? clear(state) : -1;
}

int main(int count, char **words)
{
#define TEST(name) cmocka_unit_test_teardown(name, clear)
#define TEST_CUT_OFF(name) cmocka_unit_test_setup_teardown(name, count_elsewhere, clear_counts)
    const struct CMUnitTest tests[] = {
        TEST(writes_through_no_planted_link),
        TEST(refuses_a_link_of_another_user),
        TEST(a_place_for_no_file_is_bad_input),
        TEST_CUT_OFF(kill_9_leaves_a_whole_report),
        TEST_CUT_OFF(a_signal_leaves_no_draft),
        TEST_CUT_OFF(a_limit_leaves_no_draft),
        TEST_CUT_OFF(too_little_memory_leaves_no_draft),
        TEST(a_disk_that_is_full_keeps_the_old_report),
        TEST(an_output_that_fails_early_has_its_cause),
        TEST(refuses_to_replace_what_it_reads),
    };
    if (count > 2 && strcmp(words[1], "--without-nameless") == 0) {
        if (no_nameless_files())
            execv(words[2], words + 2);
        return 126;
    }
    if (realpath(words[0], own_path) == NULL)
        return 1;
    setenv("COMMAND", RVL_COMMAND_PATH, 1);
    setenv("OWN", own_path, 1);
    setenv("CONFIG", RVL_SOURCE_DIR "/tests/data/configs/qwen2.5-0.5b.json", 1);
    setenv("CARD", RVL_SOURCE_DIR "/bench/results/2026-11-23-h200/times_in_turns/card.json", 1);
    unsetenv("GITHUB_ACTIONS");
    return cmocka_run_group_tests(tests, folder_make, folder_remove_empty);
}
