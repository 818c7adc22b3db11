/* SPDX-License-Identifier: MIT */
/*
 * The hook libraries under real processes: each scenario of program.h is a process of its own, with
 * the preload library by LD_PRELOAD or the torch library by dlopen(), on the fake driver and a fake
 * CUDA runtime. Scenarios compare values; here is how the process must end and what it may say.
 */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "reveille/store.h"
#include "reveille/version.h"
#include "tests/support/folder.h"
#include "tests/support/run_command.h"

#define TIMEOUT_S 100

typedef enum mode { PRELOAD = 1, TORCH = 2, BOTH = 3 } mode;

typedef struct expectation {
    const char *scenario;
    mode modes;
    bool bare;           /* the program that has no CUDA runtime */
    int signal;          /* that ends it; 0: it ends well */
    const char *says[6]; /* each must be in what it writes; none: it must write nothing */
    const char *environment[5];
} expectation;

/* ---- Running ---- */

static _Noreturn void become(const expectation *e, mode which, int out)
{
    char library[] = "RVL_CUDA_LIBRARY=" RVL_CUDA_FAKE_PATH;
    char preload[] = "LD_PRELOAD=" RVL_PRELOAD_PATH;
    char place[64], path[64];
    snprintf(place, sizeof place, "PROGRAM_DIRECTORY=%s", folder);
    snprintf(path, sizeof path, "TMS_DISK_BACKUP_DIR=%s", folder);
    char *environment[16] = {library, place, NULL};
    size_t count = 2;
    if (which == PRELOAD)
        environment[count++] = preload;
    for (size_t i = 0; e->environment[i] != NULL; i++)
        environment[count++] = strcmp(e->environment[i], "TMS_DISK_BACKUP_DIR=here") == 0
                                   ? path
                                   : (char *)(uintptr_t)e->environment[i];
    environment[count] = NULL;
    char *program = e->bare ? RVL_BARE_PROGRAM_PATH : RVL_PROGRAM_PATH;
    char *mode_name = which == PRELOAD ? "preload" : "torch";
    char *arguments[] = {program, mode_name, (char *)(uintptr_t)e->scenario, NULL};
    dup2(out, STDOUT_FILENO);
    dup2(out, STDERR_FILENO);
    alarm(TIMEOUT_S);
    execve(program, arguments, environment);
    _exit(127);
}

/* One message, on one line, and then a line for each device that regions use. qemu's user mode adds
 * a line of its own about the signal. */
static void check_last_words(char *text)
{
    assert_int_equal(text[strlen(text) - 1], '\n');
    char *rest, *line = strtok_r(text, "\n", &rest);
    assert_non_null(strstr(line, "reveille: "));
    while ((line = strtok_r(NULL, "\n", &rest)) != NULL)
        if (strncmp(line, "qemu: ", 6) != 0)
            assert_ptr_equal(strstr(line, "reveille: CUDA driver "), line);
}

static void run(const expectation *e, mode which)
{
    char text[8192];
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0)
        become(e, which, ends[1]);
    close(ends[1]);
    int status = run_read(child, ends[0], text, sizeof text);
    int signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    int code = WIFEXITED(status) ? WEXITSTATUS(status) : 0;
    bool good = signal == e->signal && code == 0 && (e->says[0] != NULL || text[0] == '\0');
    for (size_t i = 0; i < sizeof e->says / sizeof *e->says && e->says[i] != NULL; i++)
        good = good && strstr(text, e->says[i]) != NULL;
    if (!good)
        fail_msg("%s %s: signal %d, exit %d, says: %s", which == PRELOAD ? "preload" : "torch",
                 e->scenario, signal, code, text);
    if (e->signal == SIGABRT)
        check_last_words(text);
}

static void run_all(const expectation *list, size_t count)
{
    for (size_t i = 0; i < count; i++)
        for (unsigned which = PRELOAD; which <= TORCH; which++)
            if ((unsigned)list[i].modes & which)
                run(&list[i], (mode)which);
}

#define RUN(...)                                                                                   \
    do {                                                                                           \
        const expectation list_[] = {__VA_ARGS__};                                                 \
        run_all(list_, sizeof list_ / sizeof *list_);                                              \
    } while (false)

/* ---- Tests ---- */

static void test_settings(void **state)
{
    (void)state;
    RUN({.scenario = "settings", .modes = BOTH},
        {.scenario = "environment",
         .modes = BOTH,
         .environment = {"TMS_INIT_ENABLE=1", "TMS_INIT_ENABLE_CPU_BACKUP=yes",
                         "TMS_INIT_CPU_BACKUP_BACKEND=mmap", "TMS_RETAIN_CPU_BACKUP=TRUE"}},
        {.scenario = "disk_environment",
         .modes = BOTH,
         .environment = {"TMS_INIT_ENABLE=true", "TMS_INIT_ENABLE_DISK_BACKUP=YES",
                         "TMS_INIT_ENABLE_CPU_BACKUP=0", "TMS_DISK_BACKUP_CHUNK_MB=1"}},
        {.scenario = "settings",
         .modes = BOTH,
         .environment = {"TMS_INIT_ENABLE=no", "TMS_INIT_ENABLE_CPU_BACKUP=FALSE",
                         "TMS_INIT_CPU_BACKUP_BACKEND=", "TMS_RETAIN_CPU_BACKUP=NO"}});
}

#define REFUSED(assignment, name)                                                                  \
    {                                                                                              \
        "nothing", PRELOAD, false, SIGABRT, {name, "not understood"},                              \
        {                                                                                          \
            assignment                                                                             \
        }                                                                                          \
    }

static void test_environment_that_is_not_understood(void **state)
{
    (void)state;
    RUN(REFUSED("TMS_INIT_ENABLE=on", "TMS_INIT_ENABLE has the value \"on\""),
        REFUSED("TMS_INIT_ENABLE=", "TMS_INIT_ENABLE"),
        REFUSED("TMS_INIT_ENABLE_CPU_BACKUP=2", "TMS_INIT_ENABLE_CPU_BACKUP"),
        REFUSED("TMS_INIT_CPU_BACKUP_BACKEND=numa", "TMS_INIT_CPU_BACKUP_BACKEND"),
        REFUSED("TMS_INIT_ENABLE_DISK_BACKUP=True", "TMS_INIT_ENABLE_DISK_BACKUP"),
        REFUSED("TMS_RETAIN_CPU_BACKUP=y", "TMS_RETAIN_CPU_BACKUP"),
        REFUSED("TMS_DISK_BACKUP_DIR=", "TMS_DISK_BACKUP_DIR"),
        REFUSED("TMS_DISK_BACKUP_CHUNK_MB=-1", "TMS_DISK_BACKUP_CHUNK_MB"),
        REFUSED("TMS_DISK_BACKUP_CHUNK_MB=1G", "TMS_DISK_BACKUP_CHUNK_MB"),
        REFUSED("TMS_DISK_BACKUP_CHUNK_MB=0", "TMS_DISK_BACKUP_CHUNK_MB has the value \"0\""),
        REFUSED("RVL_RECORD_PERIOD_MS=abc", "RVL_RECORD_PERIOD_MS"),
        REFUSED("RVL_RECORD_NAME=", "RVL_RECORD_NAME"),
        {.scenario = "nothing",
         .modes = PRELOAD,
         .signal = SIGABRT,
         .says = {"TMS_INIT_ENABLE_DISK_BACKUP has the value \"yes\"",
                  "TMS_INIT_ENABLE_CPU_BACKUP"},
         .environment = {"TMS_INIT_ENABLE_CPU_BACKUP=1", "TMS_INIT_ENABLE_DISK_BACKUP=yes"}},
        REFUSED("RVL_HOST_KEEP=some", "RVL_HOST_KEEP"),
        REFUSED("RVL_IPC_TIMEOUT_MS=2s", "RVL_IPC_TIMEOUT_MS"),
        REFUSED("RVL_IPC_TIMEOUT_MS=3600001", "RVL_IPC_TIMEOUT_MS"),
        /* PyTorch opens the torch library late: the first to ask can go on. */
        {.scenario = "settings",
         .modes = TORCH,
         .signal = SIGABRT,
         .says = {"TMS_INIT_ENABLE"},
         .environment = {"TMS_INIT_ENABLE=maybe"}},
        {.scenario = "settings_asked", .modes = TORCH, .environment = {"TMS_INIT_ENABLE=maybe"}},
        {.scenario = "settings_good", .modes = BOTH});
}

static void test_pausing(void **state)
{
    (void)state;
    RUN({.scenario = "cycle", .modes = BOTH}, {.scenario = "tags", .modes = BOTH},
        {.scenario = "devices", .modes = BOTH}, {.scenario = "freeing", .modes = BOTH});
}

static void test_host_backups(void **state)
{
    (void)state;
    RUN({.scenario = "retain", .modes = BOTH}, {.scenario = "retained_free", .modes = BOTH},
        {.scenario = "reclaim", .modes = BOTH},
        {.scenario = "keep_none", .modes = BOTH, .environment = {"RVL_HOST_KEEP=none"}},
        {.scenario = "pageable", .modes = BOTH, .environment = {"RVL_HOST_PAGEABLE=1"}});
}

static void test_sleep_from_outside(void **state)
{
    (void)state;
    RUN({.scenario = "control", .modes = BOTH},
        {.scenario = "control", .modes = BOTH, .environment = {"REVEILLE_CONTROL=1"}},
        REFUSED("REVEILLE_CONTROL=maybe", "REVEILLE_CONTROL"),
        {.scenario = "poison", .modes = BOTH},
        {.scenario = "poison", .modes = BOTH, .environment = {"REVEILLE_POISON=1"}},
        REFUSED("REVEILLE_POISON=maybe", "REVEILLE_POISON"),
        {.scenario = "imported_pool", .modes = PRELOAD});
}

/* A store in the test's folder. Answers its process. */
static pid_t start_store(const char *path, uint64_t budget_bytes)
{
    const rvl_store_options options = {
        .struct_size = sizeof options, .path = path, .budget_bytes = budget_bytes};
    int ready[2];
    char byte;
    assert_int_equal(pipe(ready), 0);
    pid_t owner = fork();
    if (owner == 0) {
        rvl_store *store = NULL;
        if (rvl_store_open(&options, &store) != RVL_OK || write(ready[1], "r", 1) != 1)
            _exit(1);
        _exit(rvl_store_serve(store, -1) == RVL_OK ? 0 : 1);
    }
    assert_int_equal(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    close(ready[1]);
    return owner;
}

static void end_store(pid_t owner)
{
    kill(owner, SIGKILL);
    assert_int_equal(waitpid(owner, NULL, 0), owner);
}

static void test_backups_in_a_store(void **state)
{
    (void)state;
    char path[80], variable[100];
    snprintf(path, sizeof path, "%s/store", folder);
    snprintf(variable, sizeof variable, "REVEILLE_STORE=%s", path);
    pid_t owner = start_store(path, UINT64_C(32) << 20);
    RUN({.scenario = "in_store", .modes = BOTH, .environment = {variable}},
        {.scenario = "settings", .modes = BOTH, .environment = {"REVEILLE_STORE="}},
        REFUSED("REVEILLE_STORE_FULL=never", "REVEILLE_STORE_FULL"));
    rvl_store_stats stats = {.struct_size = sizeof stats};
    assert_int_equal(rvl_store_get_stats(path, &stats), RVL_OK);
    end_store(owner);
    owner = start_store(path, 1);
    RUN({.scenario = "store_full",
         .modes = BOTH,
         .environment = {variable, "REVEILLE_STORE_FULL=disk", "TMS_DISK_BACKUP_DIR=here"}},
        {.scenario = "store_full",
         .modes = BOTH,
         .signal = SIGABRT,
         .says = {"the store has no room: 0 bytes in use of a budget of 1", "RVL_ERR_HOST_OOM"},
         .environment = {variable}});
    end_store(owner);
    assert_int_equal(unlink(path), 0);
}

static void test_disk_backups(void **state)
{
    (void)state;
    RUN({.scenario = "disk", .modes = BOTH}, {.scenario = "disk_directories", .modes = BOTH},
        {.scenario = "disk_retained",
         .modes = BOTH,
         .environment = {"TMS_DISK_BACKUP_DIR=here", "TMS_RETAIN_CPU_BACKUP=1"}});
    assert_int_equal(folder_count(), 0);
    /* A link to nothing is all that is left of a process that was killed. */
    RUN({.scenario = "killed", .modes = BOTH, .signal = SIGKILL});
    assert_int_equal(folder_count(), 2);
    char command[128];
    snprintf(command, sizeof command, "rm %s/reveille-*", folder);
    assert_int_equal(system(command), 0);
}

static void test_memory_that_is_short(void **state)
{
    (void)state;
    RUN({.scenario = "margin", .modes = BOTH}, {.scenario = "out_of_memory", .modes = BOTH},
        {.scenario = "both_backups",
         .modes = BOTH,
         .says = {"allocating in a region failed", "not both"}},
        {.scenario = "bad_directory", .modes = BOTH, .says = {"the backup directory /proc/none"}},
        {.scenario = "free_fails",
         .modes = BOTH,
         .says = {"freeing memory of a region failed", "RVL_ERR"}});
}

static void test_failures_end_the_process(void **state)
{
    (void)state;
    RUN({.scenario = "pause_fails",
         .modes = BOTH,
         .signal = SIGABRT,
         .says = {"reveille: tms_pause(\"weights\") failed: pause of \"weights\"", "step unmap",
                  "code 999", ", Reveille " RVL_VERSION_STRING ")"}},
        {.scenario = "resume_fails",
         .modes = BOTH,
         .signal = SIGABRT,
         .says =
             {"tms_resume(\"kv_cache\") failed: resume of \"kv_cache\" needs 4.0 MiB, 2.0 MiB free",
              "RVL_ERR_DEVICE_OOM", "asked for 4194304 bytes, free 2097152 bytes",
              "\nreveille: CUDA driver ", ", Reveille " RVL_VERSION_STRING ", device 0 (",
              " 2.0 MiB free; held here: kv_cache 4.0 MiB paused"}},
        {.scenario = "resume_told", .modes = BOTH},
        {.scenario = "bad_kind",
         .modes = BOTH,
         .signal = SIGABRT,
         .says = {"\"numa\"", "pinned or mmap"}},
        {.scenario = "bad_tag", .modes = BOTH, .signal = SIGABRT, .says = {"tms_set_current_tag"}},
        {.scenario = "long_tag", .modes = BOTH, .signal = SIGABRT, .says = {"255 bytes"}},
        {.scenario = "no_directory",
         .modes = BOTH,
         .signal = SIGABRT,
         .says = {"tms_set_disk_backup_dir"}});
}

static void test_threads_and_forks(void **state)
{
    (void)state;
    RUN({.scenario = "threads", .modes = BOTH}, {.scenario = "fork_before", .modes = BOTH},
        {.scenario = "fork_after", .modes = BOTH, .says = {"RVL_ERR_FORKED"}},
        {.scenario = "fork_busy", .modes = BOTH});
}

static void test_captures(void **state)
{
    (void)state;
    RUN({.scenario = "capture",
         .modes = PRELOAD,
         .says = {"cannot be freed while a stream is captured"}},
        {.scenario = "capture_threads",
         .modes = PRELOAD,
         .says = {"cannot be freed while a stream is captured"}},
        {.scenario = "capture_context", .modes = PRELOAD},
        {.scenario = "capture_pause",
         .modes = PRELOAD,
         .signal = SIGABRT,
         .says = {"tms_pause failed", "being captured"}});
}

static void test_runtimes(void **state)
{
    (void)state;
    RUN({.scenario = "local_runtime", .modes = PRELOAD, .bare = true},
        {.scenario = "looked_up_runtime", .modes = PRELOAD, .bare = true},
        {.scenario = "no_runtime", .modes = PRELOAD, .bare = true},
        {.scenario = "no_runtime", .modes = TORCH, .bare = true, .says = {"no CUDA runtime"}},
        {.scenario = "next_of_caller", .modes = PRELOAD});
}

static void test_beginning_and_end(void **state)
{
    (void)state;
    RUN({.scenario = "before_main",
         .modes = PRELOAD,
         .environment = {"PROGRAM_BEFORE_MAIN=1", "TMS_INIT_ENABLE=1"}},
        {.scenario = "nothing", .modes = PRELOAD, .environment = {"PROGRAM_BEFORE_MAIN=1"}},
        {.scenario = "nothing", .modes = PRELOAD, .bare = true},
        {.scenario = "nothing", .modes = TORCH}, {.scenario = "closed", .modes = TORCH},
        {.scenario = "freed_after_driver", .modes = PRELOAD},
        {.scenario = "paused_after_driver", .modes = PRELOAD});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_settings),
        cmocka_unit_test(test_environment_that_is_not_understood),
        cmocka_unit_test(test_pausing),
        cmocka_unit_test(test_host_backups),
        cmocka_unit_test(test_sleep_from_outside),
        cmocka_unit_test(test_backups_in_a_store),
        cmocka_unit_test(test_disk_backups),
        cmocka_unit_test(test_memory_that_is_short),
        cmocka_unit_test(test_failures_end_the_process),
        cmocka_unit_test(test_threads_and_forks),
        cmocka_unit_test(test_captures),
        cmocka_unit_test(test_runtimes),
        cmocka_unit_test(test_beginning_and_end),
    };
    return cmocka_run_group_tests(tests, folder_make, folder_remove_empty);
}
