/* SPDX-License-Identifier: MIT */
/*
 * Recording under real processes, on the fake driver, CUDA runtime and NVML: what is in the files,
 * line by line, and what replaying them says.
 */
#include <dirent.h>
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

#include "reveille/replay.h"
#include "tests/support/run_command.h"
#include "tests/support/skip.h"

#define MIB (UINT64_C(1) << 20)
#define FILES_MAX 4
#define TEXT_BYTES 65536
#define PATH_BYTES 512
#define VARIABLES_MAX 12

#define NVML "RVL_NVML_LIBRARY=" RVL_NVML_FAKE_PATH

static char directory[] = "/tmp/reveille-record-XXXXXX";
static const char *program = RVL_RECORD_PROGRAM_PATH;

/* What the last run has left. */
static struct {
    int signal, status;
    char says[4096];
    pid_t process;
    char paths[FILES_MAX][PATH_BYTES]; /* ordered by name */
    size_t count;
    char text[TEXT_BYTES]; /* of a file: its lines without time, process and thread */
} ran;

/* ---- Running ---- */

static int compare(const void *left, const void *right)
{
    return strcmp(left, right);
}

static void list_files(void)
{
    DIR *entries = opendir(directory);
    ran.count = 0;
    for (struct dirent *each; (each = readdir(entries)) != NULL;) {
        if (each->d_name[0] == '.')
            continue;
        assert_true(ran.count < FILES_MAX);
        snprintf(ran.paths[ran.count++], PATH_BYTES, "%s/%s", directory, each->d_name);
    }
    closedir(entries);
    qsort(ran.paths, ran.count, sizeof ran.paths[0], compare);
}

static void remove_files(void)
{
    list_files();
    for (size_t i = 0; i < ran.count; i++)
        unlink(ran.paths[i]);
}

static _Noreturn void become(const char *scenario, const char *const *variables, int out)
{
    char record[PATH_BYTES];
    char *environment[VARIABLES_MAX + 6] = {"RVL_CUDA_LIBRARY=" RVL_CUDA_FAKE_PATH,
                                            "LD_PRELOAD=" RVL_PRELOAD_PATH,
                                            "RVL_RECORD_PERIOD_MS=0"};
    char *const words[] = {(char *)(uintptr_t)program, (char *)(uintptr_t)scenario, NULL};
    size_t count = 3;
    snprintf(record, sizeof record, "RVL_RECORD=%s/run.rvt", directory);
    environment[count++] = record;
    for (; *variables != NULL; variables++) { /* one that is given again is meant instead */
        size_t name = strcspn(*variables, "=") + 1;
        size_t at = 0;
        while (at < count && strncmp(environment[at], *variables, name) != 0)
            at++;
        count += at == count;
        environment[at] = (char *)(uintptr_t)*variables;
    }
    environment[count] = NULL;
    if (chdir(directory) != 0)
        _exit(126);
    dup2(out, STDOUT_FILENO);
    dup2(out, STDERR_FILENO);
    alarm(100);
    execve(words[0], words, environment);
    _exit(127);
}

static void run_with(const char *const *words)
{
    int ends[2];
    remove_files();
    assert_int_equal(pipe(ends), 0);
    ran.process = fork();
    if (ran.process == 0)
        become(words[0], words + 1, ends[1]);
    close(ends[1]);
    int status = run_read(ran.process, ends[0], ran.says, sizeof ran.says);
    ran.signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    ran.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    list_files();
}

/* RUN(scenario, variables...) */
#define RUN(...) run_with((const char *const[]){__VA_ARGS__, NULL})

/* It ended well, said nothing and left so many files. */
static void assert_clean(size_t files)
{
    assert_string_equal(ran.says, "");
    assert_int_equal(ran.signal, 0);
    assert_int_equal(ran.status, 0);
    assert_int_equal(ran.count, files);
}

/* ---- Reading ---- */

/* Without the process at the end of a cause, which must be the one of the file. */
static void cut_process(char *line, const char *path)
{
    char *colon = strncmp(line, "external ", 9) == 0 ? strrchr(line, ':') : NULL;
    char number[24];
    if (colon == NULL)
        return;
    snprintf(number, sizeof number, ".%ld.", strtol(colon + 1, NULL, 10));
    assert_non_null(strstr(path, number));
    memcpy(colon, "\n", 2);
}

static void add_line(char *text, const char *line)
{
    char kind[16], process[64];
    unsigned long long time, thread;
    int rest = 0;
    size_t length = strlen(text);
    int words = sscanf(line, "%15s %llu %63s %llu%n", kind, &time, process, &thread, &rest);
    if (words == 4 && rest > 0)
        snprintf(text + length, TEXT_BYTES - length, "%s%s", kind, line + rest);
    else if (strncmp(line, "end ", 4) == 0 || strncmp(line, "process ", 8) == 0)
        snprintf(text + length, TEXT_BYTES - length, "%.3s\n", line);
}

/* The whole file is well-formed, as the reader sees it. */
static void read_whole(size_t index, bool partial)
{
    const char *path = ran.paths[index];
    const rvl_trace_reader_options options = {.struct_size = sizeof options,
                                              .flags = partial ? RVL_TRACE_PARTIAL : 0};
    rvl_trace_event event;
    rvl_trace_reader *reader = NULL;
    assert_int_equal(rvl_trace_reader_open(&path, 1, &options, &reader), RVL_OK);
    rvl_status status;
    while ((status = rvl_trace_reader_next(reader, &event, sizeof event)) == RVL_OK)
        ;
    assert_int_equal(status, RVL_ERR_NOT_FOUND);
    rvl_trace_reader_close(reader);
}

static const char *lines_of(size_t index, bool partial)
{
    char line[1024];
    assert_true(index < ran.count);
    read_whole(index, partial);
    FILE *file = fopen(ran.paths[index], "r");
    assert_non_null(file);
    ran.text[0] = '\0';
    while (fgets(line, sizeof line, file) != NULL) {
        cut_process(line, ran.paths[index]);
        add_line(ran.text, line);
    }
    fclose(file);
    return ran.text;
}

static bool has(const char *part)
{
    return strstr(ran.text, part) != NULL;
}

static size_t count_of(const char *part)
{
    size_t count = 0;
    for (const char *at = ran.text; (at = strstr(at, part)) != NULL; at++)
        count++;
    return count;
}

static rvl_replay *replay(bool partial)
{
    const char *paths[FILES_MAX];
    rvl_error error = {.struct_size = sizeof error};
    const rvl_replay_options options = {.struct_size = sizeof options,
                                        .flags = partial ? RVL_REPLAY_PARTIAL : 0};
    rvl_replay *result = NULL;
    for (size_t i = 0; i < ran.count; i++)
        paths[i] = ran.paths[i];
    rvl_status status = rvl_replay_run(paths, ran.count, &options, &result);
    rvl_last_error(&error);
    if (status != RVL_OK)
        fail_msg("%s:%u: %s", error.file, error.line, error.message);
    return result;
}

static uint64_t peak_of(bool partial)
{
    rvl_replay_device device = {.struct_size = sizeof device};
    rvl_replay *result = replay(partial);
    assert_int_equal(rvl_replay_get_device(result, 0, &device), RVL_OK);
    rvl_replay_close(result);
    return device.peak_bytes;
}

/* ---- Tests ---- */

static void test_every_kind(void **state)
{
    (void)state;
    RUN("kinds");
    assert_clean(1);
    char name[PATH_BYTES];
    snprintf(name, sizeof name, "%s/run.%d.rvt", directory, (int)ran.process);
    assert_string_equal(ran.paths[0], name);
    assert_string_equal(lines_of(0, false), "pro\n"
                                            "stage load\n"
                                            "alloc 1 0 2097152 -\n"
                                            "sample 0 2097152\n"
                                            "alloc 2 0 4194304 -\n"
                                            "alloc 3 0 6291456 -\n"
                                            "alloc 4 0 8388608 weights backup=host\n"
                                            "alloc 5 0 10485760 kv%20cache\n"
                                            "alloc 6 0 2097152 \"\"\n"
                                            "alloc 7 1 6291456 -\n"
                                            "free 7\n"
                                            "sample 0 33554432\n"
                                            "stage asleep\n"
                                            "pause weights\n"
                                            "pause \"\"\n"
                                            "pause kv%20cache\n"
                                            "step\n"
                                            "resume weights\n"
                                            "free 2\n"
                                            "free 3\n"
                                            "free 1\n"
                                            "free 5\n"
                                            "free 4\n"
                                            "free 6\n"
                                            "sample 0 0\n"
                                            "end\n");
    assert_int_equal(peak_of(false), 32 * MIB);
}

/* NCCL's memory is one external holder, of its true size: replay knows who it is. */
static void test_nccl(void **state)
{
    (void)state;
    RUN("nccl");
    assert_clean(1);
    assert_string_equal(lines_of(0, false), "pro\n"
                                            "alloc 1 0 2097152 -\n"
                                            "sample 0 2097152\n"
                                            "external 0 8388608 nccl\n"
                                            "external 1 4194304 nccl\n"
                                            "external 0 10485760 nccl\n"
                                            "refuse 0 8388608 1061158912 nccl\n"
                                            "sample 0 12582912\n"
                                            "stage asleep\n"
                                            "external 0 2097152 nccl\n"
                                            "sample 0 4194304\n"
                                            "stage awake\n"
                                            "external 0 10485760 nccl\n"
                                            "external 0 8388608 nccl\n"
                                            "free 1\n"
                                            "sample 0 8388608\n"
                                            "external 0 0 nccl\n"
                                            "external 1 0 nccl\n"
                                            "end\n");
    assert_int_equal(peak_of(false), 12 * MIB);
}

/* The verb frames the lines that say how, as a run on simulated GPUs has it. */
static void test_sleep(void **state)
{
    (void)state;
    RUN("sleeping", NVML);
    assert_clean(1);
    assert_string_equal(lines_of(0, false), "pro\n"
                                            "alloc 1 2 8388608 weights backup=host\n"
                                            "sample 2 8388608\n"
                                            "alloc 2 2 4194304 kv\n"
                                            "sleep\n"
                                            "pause weights\n"
                                            "pause kv\n"
                                            "stage asleep\n"
                                            "resume weights\n"
                                            "resume kv\n"
                                            "wake\n"
                                            "sample 2 12582912\n"
                                            "stage awake\n"
                                            "sleep discard\n"
                                            "pause weights\n"
                                            "pause kv\n"
                                            "wake paused\n"
                                            "resume kv\n"
                                            "resume weights\n"
                                            "sleep\n"
                                            "pause weights\n"
                                            "pause kv\n"
                                            "resume weights\n"
                                            "resume kv\n"
                                            "wake\n"
                                            "free 1\n"
                                            "free 2\n"
                                            "sample 2 0\n"
                                            "end\n");
    RUN("sleeping", NVML, "RVL_RECORD_PERIOD_MS=1");
    assert_clean(1);
    (void)lines_of(0, false);
    const char *asleep = strstr(ran.text, "stage asleep\n"), *back = strstr(ran.text, "wake\n");
    const char *sampled = strstr(asleep, "sample ");
    assert_true(sampled > back); /* not for 30 periods */
    RUN("ends_asleep", NVML);
    assert_clean(1);
    assert_string_equal(lines_of(0, false), "pro\n"
                                            "alloc 1 2 8388608 weights backup=host\n"
                                            "sample 2 8388608\n"
                                            "sleep\n"
                                            "pause weights\n"
                                            "free 1\n"
                                            "end\n");
    assert_int_equal(peak_of(false), 8 * MIB);
}

static void test_what_fails(void **state)
{
    (void)state;
    RUN("refused");
    assert_non_null(strstr(ran.says, "freeing memory of a region failed"));
    assert_string_equal(lines_of(0, false), "pro\n"
                                            "alloc 1 0 4194304 weights\n"
                                            "sample 0 4194304\n"
                                            "free 1\n"
                                            "alloc 2 0 4194304 weights\n"
                                            "alloc 3 0 4194304 other\n"
                                            "pause other\n"
                                            "pause weights\n"
                                            "resume weights\n"
                                            "pause weights\n"
                                            "refuse 0 1099511627776 1073741824 other\n"
                                            "refuse 0 1099511627776 1073741824 -\n"
                                            "refuse 0 4194304 1073741824 weights\n"
                                            "refuse 0 2097152 1073741824 other\n"
                                            "free 2\n"
                                            "free 3\n"
                                            "sample 0 0\n"
                                            "end\n");
}

/* What was paused in part is written as it is: every sample is what the trace says until then. */
static void test_parts(void **state)
{
    (void)state;
    RUN("parts");
    assert_clean(1);
    assert_string_equal(lines_of(0, false), "pro\n"
                                            "alloc 1 0 4194304 weights backup=host\n"
                                            "sample 0 4194304\n"
                                            "alloc 2 1 6291456 weights backup=host\n"
                                            "sample 1 6291456\n"
                                            "pause weights\n"
                                            "free 2\n"
                                            "resume weights\n"
                                            "alloc 3 1 6291456 weights backup=host flags=paused\n"
                                            "sample 0 4194304\n"
                                            "sample 1 0\n"
                                            "stage part\n"
                                            "free 3\n"
                                            "resume weights\n"
                                            "alloc 4 1 6291456 weights backup=host flags=paused\n"
                                            "sample 0 4194304\n"
                                            "sample 1 0\n"
                                            "stage the%20same\n"
                                            "resume weights\n"
                                            "pause weights\n"
                                            "free 1\n"
                                            "resume weights\n"
                                            "alloc 5 0 4194304 weights backup=host flags=paused\n"
                                            "sample 0 0\n"
                                            "sample 1 6291456\n"
                                            "stage by%20hand\n"
                                            "pause weights\n"
                                            "sample 0 0\n"
                                            "sample 1 0\n"
                                            "stage all\n"
                                            "free 4\n"
                                            "resume weights\n"
                                            "alloc 6 1 6291456 weights backup=host flags=paused\n"
                                            "sample 0 4194304\n"
                                            "sample 1 0\n"
                                            "stage back\n"
                                            "resume weights\n"
                                            "free 5\n"
                                            "free 6\n"
                                            "sample 0 0\n"
                                            "sample 1 0\n"
                                            "end\n");
    assert_int_equal(peak_of(false), 4 * MIB);
}

static void test_disk_full(void **state)
{
    (void)state;
    RUN("disk_full");
    assert_int_equal(ran.status, 0);
    assert_non_null(strstr(ran.says, "reveille: recording failed: the trace is larger than a file "
                                     "may be: raise ulimit -f"));
    assert_non_null(strstr(ran.says, "EFBIG"));
    assert_string_equal(lines_of(0, true), "pro\n"); /* which was written at once */
}

static void test_threads(void **state)
{
    (void)state;
    RUN("threads");
    assert_clean(1);
    lines_of(0, false);
    assert_int_equal(count_of("alloc "), 801);
    assert_int_equal(count_of("free "), 801);
    assert_int_equal(count_of(" 4194304 t3\n"), 100);
    assert_true(has("alloc 801 "));
    uint64_t peak = peak_of(false);
    assert_true(peak >= 6 * MIB && peak <= 24 * MIB);
}

static void test_ends(void **state)
{
    (void)state;
    RUN("exit_in_thread");
    assert_clean(1);
    /* The process takes with it what it has not freed. */
    assert_string_equal(lines_of(0, false), "pro\nalloc 1 0 2097152 -\nsample 0 2097152\n"
                                            "sample 0 2097152\nfree 1\nend\n");
    RUN("exit_at_once");
    assert_clean(1);
    assert_true(strstr(lines_of(0, false), "free 1\nend\n") != NULL);
    RUN("nothing");
    assert_clean(0);
    RUN("only_marks", "RVL_RECORD_NAME=the driver");
    assert_clean(1);
    assert_string_equal(lines_of(0, false), "pro\nstage alone\nstep\nend\n");
}

static void test_killed(void **state)
{
    (void)state;
    RUN("killed");
    assert_int_equal(ran.signal, SIGKILL);
    assert_string_equal(lines_of(0, true), "pro\nalloc 1 0 2097152 -\nsample 0 2097152\n"
                                           "sample 0 2097152\nstage one\n");
    assert_int_equal(peak_of(true), 2 * MIB);
    RUN("killed_later");
    assert_int_equal(ran.signal, SIGKILL);
    assert_string_equal(lines_of(0, true), "pro\nalloc 1 0 2097152 -\nsample 0 2097152\n"
                                           "alloc 2 0 4194304 -\nfree 1\n");
    assert_int_equal(peak_of(true), 6 * MIB);
}

static void test_exec(void **state)
{
    (void)state;
    RUN("executes");
    assert_clean(2);
    char name[PATH_BYTES];
    snprintf(name, sizeof name, "%s/run.%d.2.rvt", directory, (int)ran.process);
    assert_string_equal(ran.paths[0], name);
    assert_string_equal(lines_of(0, false), "pro\nalloc 1 0 4194304 -\nsample 0 4194304\nfree 1\n"
                                            "sample 0 0\nend\n");
    assert_true(strstr(lines_of(1, true), "stage before\n") != NULL);
}

static void test_forks(void **state)
{
    (void)state;
    RUN("forked");
    assert_clean(2);
    assert_int_equal(peak_of(false), 28 * MIB);
    RUN("forked_after");
    assert_clean(1);
    assert_string_equal(lines_of(0, false), "pro\nalloc 1 0 8388608 -\nsample 0 8388608\nfree 1\n"
                                            "sample 0 0\nend\n");
}

static void check_nvtx(const char *scenario)
{
    RUN(scenario, "RVL_RECORD_NVTX=stage:", "NVTX_INJECTION64_PATH=" RVL_PRELOAD_PATH);
    assert_clean(1);
    lines_of(0, false);
    assert_int_equal(count_of("enter "), 6);
    assert_true(has("enter 4294967296 one\nalloc 1 0 2097152 -\n"));
    assert_true(has("enter 4294967297 two\n"));
    assert_true(has("enter 4294967298 three\n"));
    assert_true(has("enter 4294967299 four\n"));
    assert_int_equal(count_of(" five\n"), 2);
    if (strcmp(scenario, "nvtx_by_hand") != 0)
        assert_int_equal(count_of("leave "), 4); /* three, and the five that is pushed, stay open */
    RUN(scenario, "RVL_RECORD_NVTX=", "NVTX_INJECTION64_PATH=" RVL_PRELOAD_PATH);
    lines_of(0, false);
    assert_int_equal(count_of("enter "), 8);
    assert_int_equal(count_of(" other\n"), 1);
    RUN(scenario, "NVTX_INJECTION64_PATH=" RVL_PRELOAD_PATH);
    assert_clean(1);
    lines_of(0, false);
    assert_int_equal(count_of("enter "), 0);
}

static void test_nvtx_by_hand(void **state)
{
    (void)state;
    check_nvtx("nvtx_by_hand");
}

static void test_nvtx_of_its_headers(void **state)
{
    (void)state;
#ifdef RVL_HAVE_NVTX
    check_nvtx("nvtx");
#else
    SKIP_TEST("built without nvtx3/nvToolsExt.h");
#endif
}

static void test_torch(void **state)
{
    (void)state;
    RUN("torch", NVML, "FAKE_NVML_CONTEXT=52428800");
    assert_clean(1);
    assert_string_equal(lines_of(0, false), "pro\n"
                                            "stage load\n"
                                            "external 2 52428800 cuda_context\n"
                                            "sample 2 52428800\n"
                                            "alloc 1 2 4194304 weights\n"
                                            "alloc 2 2 2097152 -\n"
                                            "pause weights\n"
                                            "step\n"
                                            "resume weights\n"
                                            "pause weights\n"
                                            "resume weights\n"
                                            "free 1\n"
                                            "free 2\n"
                                            "sample 2 52428800\n"
                                            "external 2 0 cuda_context\n"
                                            "end\n");
    RUN("torch", "RVL_RECORD_PERIOD_MS=0", "RVL_RECORD_NAME=beside");
    assert_clean(1);
}

/* The first launch of a kernel counts, the others do not: what is taken then is somebody else's. */
static void test_growth(void **state)
{
    (void)state;
    RUN("growth", NVML, "RVL_RECORD_PERIOD_MS=0", "FAKE_NVML_CONTEXT=52428800",
        "FAKE_NVML_STREAM=2097152", "FAKE_NVML_KERNELS=94371840");
    assert_clean(1);
    assert_string_equal(lines_of(0, false), "pro\n"
                                            "external 2 52428800 cuda_context\n"
                                            "sample 2 52428800\n"
                                            "alloc 1 2 2097152 -\n"
                                            "external 2 2097152 streams\n"
                                            "external 2 4194304 streams\n"
                                            "sample 2 58720256\n"
                                            "stage kernels\n"
                                            "external 2 94371840 kernels\n"
                                            "sample 2 157286400\n"
                                            "stage end\n"
                                            "free 1\n"
                                            "sample 2 155189248\n"
                                            "external 2 0 cuda_context\n"
                                            "external 2 0 kernels\n"
                                            "external 2 0 streams\n"
                                            "end\n");
}

/* With the context goes what had been taken in it, which the fake device keeps; the next is
 * measured again. */
static void test_context_gone(void **state)
{
    (void)state;
    RUN("context_gone", NVML, "FAKE_NVML_CONTEXT=52428800", "FAKE_NVML_STREAM=2097152");
    assert_clean(1);
    assert_string_equal(lines_of(0, false), "pro\n"
                                            "external 2 52428800 cuda_context\n"
                                            "sample 2 52428800\n"
                                            "alloc 1 2 2097152 -\n"
                                            "external 2 2097152 streams\n"
                                            "sample 2 56623104\n"
                                            "stage held\n"
                                            "free 1\n"
                                            "external 2 0 cuda_context\n"
                                            "external 2 0 streams\n"
                                            "sample 2 4194304\n"
                                            "stage gone\n"
                                            "external 2 52428800 cuda_context\n"
                                            "sample 2 56623104\n"
                                            "external 2 0 cuda_context\n"
                                            "end\n");
}

/*
 * What a program does through libreveille itself is recorded by tag, its marks with it. A simulated
 * device has no part in it.
 */
static void test_libreveille(void **state)
{
    (void)state;
    program = RVL_LIBRARY_PROGRAM_PATH;
    RUN("cuda", NVML, "FAKE_NVML_CONTEXT=52428800");
    assert_clean(1);
    assert_string_equal(lines_of(0, false), "pro\n"
                                            "external 2 52428800 cuda_context\n"
                                            "sample 2 52428800\n"
                                            "external 3 52428800 cuda_context\n"
                                            "sample 3 52428800\n"
                                            "sample 2 52428800\n"
                                            "sample 3 52428800\n"
                                            "stage load\n"
                                            "alloc 1 2 4194304 weights backup=host\n"
                                            "pause weights\n"
                                            "sample 2 52428800\n"
                                            "sample 3 52428800\n"
                                            "stage asleep\n"
                                            "resume weights\n"
                                            "step\n"
                                            "free 1\n"
                                            "external 2 0 cuda_context\n"
                                            "external 3 0 cuda_context\n"
                                            "sample 2 0\n"
                                            "sample 3 0\n"
                                            "end\n");
    RUN("sim");
    assert_clean(0);
    program = RVL_RECORD_PROGRAM_PATH;
    RUN("marks_of_a_context");
    assert_clean(1);
    assert_string_equal(lines_of(0, false), "pro\nalloc 1 0 4194304 kv\nsample 0 4194304\n"
                                            "sample 0 4194304\nstage of%20the%20process\n"
                                            "free 1\nsample 0 0\nend\n");
}

/* NVML's numbers, what others hold, the context, and a period. */
static void test_samples(void **state)
{
    (void)state;
    RUN("sampled", NVML, "RVL_RECORD_PERIOD_MS=50", "FAKE_NVML_OTHERS=104857600",
        "FAKE_NVML_CONTEXT=52428800");
    assert_clean(1);
    lines_of(0, false);
    const char *begins = "pro\nexternal 2 52428800 cuda_context\nsample 2 157286400\n"
                         "alloc 1 2 8388608 -\n";
    assert_ptr_equal(strstr(ran.text, begins), ran.text);
    assert_true(count_of("sample 2 165675008\n") >= 2);
    assert_true(has("sample 2 165675008\nstage two\n"));
    assert_non_null(
        strstr(strstr(ran.text, "stage two\n"), "free 1\n")); /* samples may be between */
    assert_true(has("alloc 2 3 2097152 -\n"));
    assert_true(has("external 2 0 cuda_context\n"));
    rvl_replay_device device = {.struct_size = sizeof device};
    rvl_replay *result = replay(false);
    assert_int_equal(rvl_replay_device_count(result), 2);
    assert_int_equal(rvl_replay_get_device(result, 0, &device), RVL_OK);
    assert_int_equal(device.peak_bytes, 158 * MIB);
    rvl_replay_close(result);

    RUN("region_first", NVML, "FAKE_NVML_CONTEXT=52428800");
    assert_clean(1);
    assert_true(strstr(lines_of(0, false), "external 2 52428800 cuda_context\n") != NULL);
    RUN("plain", NVML, "FAKE_NVML_BROKEN=1");
    assert_clean(1);
    assert_true(strstr(lines_of(0, false), "alloc 1 0 4194304 -\nsample 0 4194304\n") != NULL);
}

static void assert_refused(const char *variable, const char *says)
{
    RUN("plain", variable);
    assert_int_equal(ran.signal, SIGABRT);
    assert_int_equal(ran.count, 0);
    if (strstr(ran.says, says) == NULL)
        fail_msg("%s: %s", variable, ran.says);
}

static void test_refused(void **state)
{
    (void)state;
    assert_refused("RVL_RECORD=/nowhere/run.rvt",
                   ".rvt: No such file or directory: name a file in a directory that exists "
                   "(ENOENT), or unset the variable to run without recording");
    assert_refused("RVL_RECORD=/proc/run.rvt", "/proc/run.");
    assert_refused("RVL_RECORD=", "names no file");
    assert_refused("RVL_RECORD=run/", "names no file");
    assert_refused("RVL_RECORD=run%x.rvt", "neither %p");
    assert_refused("RVL_RECORD=run.rvt.zst", "compress it afterwards");
    assert_refused("RVL_RECORD_PERIOD_MS=1s", "RVL_RECORD_PERIOD_MS has the value \"1s\"");
    assert_refused("RVL_RECORD_PERIOD_MS=3600001", "RVL_RECORD_PERIOD_MS");
    assert_refused("RVL_RECORD_NAME=", "RVL_RECORD_NAME");
    assert_refused("RVL_NVML_LIBRARY=/nowhere/nvml.so", "RVL_NVML_LIBRARY has the value");
    assert_refused("RVL_RECORD_NVTX=stage:", "NVTX_INJECTION64_PATH to the path of the preload");
    RUN("plain", "RVL_RECORD_NVTX=stage:", "NVTX_INJECTION64_PATH=" RVL_NVML_FAKE_PATH);
    assert_int_equal(ran.signal, SIGABRT);
    /* What no path is: seen when a device is used, and gone on without. */
    RUN("plain", "RVL_NVML_LIBRARY=libm.so.6");
    assert_int_equal(ran.status, 0);
    assert_int_equal(ran.count, 1);
    assert_non_null(strstr(ran.says, "what RVL_NVML_LIBRARY names is not NVML"));
}

/* A relative path, one with %p, and one without an extension. */
static void test_names(void **state)
{
    (void)state;
    char name[PATH_BYTES];
    RUN("plain", "RVL_RECORD=a.b.rvt");
    assert_clean(1);
    snprintf(name, sizeof name, "%s/a.b.%d.rvt", directory, (int)ran.process);
    assert_string_equal(ran.paths[0], name);
    RUN("plain", "RVL_RECORD=%p%%run");
    assert_clean(1);
    snprintf(name, sizeof name, "%s/%d%%run", directory, (int)ran.process);
    assert_string_equal(ran.paths[0], name);
    RUN("plain", "RVL_RECORD=run", "RVL_RECORD_NAME=engine");
    assert_clean(1);
    snprintf(name, sizeof name, "%s/run.%d", directory, (int)ran.process);
    assert_string_equal(ran.paths[0], name);
}

static int make_directory(void **state)
{
    (void)state;
    return mkdtemp(directory) != NULL ? 0 : -1;
}

static int remove_directory(void **state)
{
    (void)state;
    remove_files();
    return rmdir(directory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nccl),         cmocka_unit_test(test_sleep),
        cmocka_unit_test(test_every_kind),   cmocka_unit_test(test_what_fails),
        cmocka_unit_test(test_disk_full),    cmocka_unit_test(test_threads),
        cmocka_unit_test(test_ends),         cmocka_unit_test(test_killed),
        cmocka_unit_test(test_exec),         cmocka_unit_test(test_forks),
        cmocka_unit_test(test_nvtx_by_hand), cmocka_unit_test(test_nvtx_of_its_headers),
        cmocka_unit_test(test_samples),      cmocka_unit_test(test_growth),
        cmocka_unit_test(test_context_gone), cmocka_unit_test(test_torch),
        cmocka_unit_test(test_refused),      cmocka_unit_test(test_names),
        cmocka_unit_test(test_libreveille),  cmocka_unit_test(test_parts),
    };
    return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
