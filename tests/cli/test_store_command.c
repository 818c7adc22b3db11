/* SPDX-License-Identifier: MIT */
/* `reveille store` as a user meets it: a store that serves, its status, and what is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/support/folder.h"
#include "tests/support/run_command.h"

#define RUN(...) run_words(WORDS(__VA_ARGS__))

static char path[160];

/* Begins a store, and reads what it says once it can be reached. */
static pid_t start(const char *const *words)
{
    int ends[2];
    char said[256] = "", wanted[256];
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    pid_t process = run_start(words, ends[1], STDERR_FILENO);
    close(ends[1]);
    assert_true(read(ends[0], said, sizeof said - 1) > 0);
    close(ends[0]);
    snprintf(wanted, sizeof wanted, "store at %s\n", path);
    assert_string_equal(said, wanted);
    return process;
}

static void check_refused(const char *part)
{
    assert_int_equal(answer.status, 2);
    assert_string_equal(answer.out, "");
    check_contains(answer.err, "reveille: ");
    check_contains(answer.err, part);
}

static void it_serves_until_it_is_interrupted(void **state)
{
    (void)state;
    static const int signals[] = {SIGINT, SIGTERM};
    for (size_t i = 0; i < 2; i++) {
        pid_t process = start(WORDS("store", "--budget", "3GiB", path));
        RUN("store", "--status", path);
        assert_int_equal(answer.status, 0);
        assert_string_equal(answer.out, "kept        0 B of 3.0 GiB\n"
                                        "without it  0 B\n"
                                        "shared      0 B\n"
                                        "refused     0 B, 0 times\n"
                                        "segments    0\n"
                                        "users       0\n");
        RUN("store", path);
        check_refused("a store answers at this path already: use it, or name another path\n");
        kill(process, signals[i]);
        assert_int_equal(run_wait(process), 0);
        assert_false(folder_has("store"));
    }
}

static void the_budget_may_be_in_the_environment(void **state)
{
    (void)state;
    setenv("REVEILLE_HOST_BUDGET", "1MiB", 1);
    pid_t process = start(WORDS("store", path));
    RUN("store", "--status", "--json", path);
    assert_string_equal(
        answer.out,
        "{\"schema\":1,\"budget_bytes\":1048576,\"kept_bytes\":0,\"promised_bytes\":0,"
        "\"referenced_bytes\":0,\"segment_count\":0,\"user_count\":0,\"shared_bytes\":0,"
        "\"refused_bytes\":0,\"refused_count\":0}\n");
    kill(process, SIGKILL);
    assert_int_equal(run_wait(process), -1);
    assert_true(folder_has("store")); /* the next one replaces it */
    process = start(WORDS("store", "--budget", "2MiB", path));
    RUN("store", "--status", "--json", path);
    check_contains(answer.out, "\"budget_bytes\":2097152,");
    kill(process, SIGTERM);
    assert_int_equal(run_wait(process), 0);
    static const char *const wrong[] = {"much", "0", "-1"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        setenv("REVEILLE_HOST_BUDGET", wrong[i], 1);
        RUN("store", path);
        check_refused("REVEILLE_HOST_BUDGET is not a size");
    }
    unsetenv("REVEILLE_HOST_BUDGET");
}

static void what_is_refused(void **state)
{
    (void)state;
    RUN("store");
    check_refused("one PATH is needed");
    RUN("store", path, "second");
    check_refused("one PATH is needed");
    RUN("store", "--budget", "0", path);
    check_refused("--budget 0: expected a size");
    RUN("store", "--budget", "many", path);
    check_refused("many");
    RUN("store", "--status", "--budget", "1GiB", path);
    check_refused("--budget is for the start of a store");
    RUN("store", "--json", path);
    check_refused("--json is for --status");
    RUN("store", "--status", path);
    check_refused("no store of this user answers at its path");
    RUN("store", "/nowhere/at/all/store");
    check_refused("/nowhere/at/all: the folder of a store cannot be opened: name a path in a "
                  "folder that exists and that you may read and write (ENOENT)");
    RUN("store", "/proc/self/store");
    check_refused("/proc/self/store: the socket of a store cannot be made: name a path in a "
                  "folder that you may write to (");
    folder_write("store", "a file");
    RUN("store", path);
    check_refused("the path of a store is a file");
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkdir(path, 0700), 0);
    RUN("store", path);
    check_refused("the path of a store is a folder: name a file in it, to be made");
    assert_int_equal(rmdir(path), 0);
}

static int make_folder(void **state)
{
    int result = folder_make(state);
    snprintf(path, sizeof path, "%s/store", folder);
    return result;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_serves_until_it_is_interrupted),
        cmocka_unit_test(the_budget_may_be_in_the_environment),
        cmocka_unit_test(what_is_refused),
    };
    return cmocka_run_group_tests(tests, make_folder, folder_remove_empty);
}
