/* SPDX-License-Identifier: MIT */
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "actions.h"
#include "adversary.h"
#include "random.h"
#include "reveille/replay.h"
#include "round.h"

#define WORDS_MAX 8
#define VICTIM_MS 300
#define TEXT_BYTES (4u << 20)

/* ---- Starting and killing ---- */

static pid_t start(const char *const *words)
{
    pid_t child = fork();
    if (child < 0)
        calls_give_up("fork");
    if (child > 0)
        return child;
    adversary_forget();
    int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
    dup2(null, STDOUT_FILENO);
    execv(words[0], (char *const *)(uintptr_t)words);
    _exit(127);
}

/* Which process it was. It may have ended before. */
static pid_t kill_after(caller *by, const char *const *words, uint64_t after_us)
{
    pid_t child = start(words);
    nanosleep(&(struct timespec){.tv_sec = (time_t)(after_us / 1000000),
                                 .tv_nsec = (long)(after_us % 1000000) * 1000},
              NULL);
    kill(child, SIGKILL);
    int status = wait_for_child(child);
    bool killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
    if (!killed)
        EXPECT(by, status, 0);
    counts->kills += killed;
    return child;
}

/* ---- What is left ---- */

/* Fails for a name in the folder that is none of those up to NULL. */
static void expect_only(caller *by, const char *folder, const char *const *names)
{
    DIR *entries = opendir(folder);
    if (entries == NULL)
        calls_give_up(folder);
    for (const struct dirent *each; (each = readdir(entries)) != NULL;) {
        bool known = strcmp(each->d_name, ".") == 0 || strcmp(each->d_name, "..") == 0;
        for (size_t i = 0; names[i] != NULL; i++)
            known = known || strcmp(each->d_name, names[i]) == 0;
        if (!known)
            fprintf(stderr, "stress: a killed program has left %s/%s\n", folder, each->d_name);
        EXPECT(by, known, true);
    }
    closedir(entries);
}

/* Whether a file has a line, or a folder a name, with these words. */
static bool has_line(const char *path, const char *words)
{
    char line[512];
    bool found = false;
    FILE *file = fopen(path, "re");
    while (file != NULL && !found && fgets(line, sizeof line, file) != NULL)
        found = strstr(line, words) != NULL;
    if (file != NULL)
        fclose(file);
    return found;
}

static bool has_name(const char *path, const char *words)
{
    bool found = false;
    DIR *entries = opendir(path);
    for (const struct dirent *each; entries != NULL && (each = readdir(entries)) != NULL;)
        found = found || strstr(each->d_name, words) != NULL;
    if (entries != NULL)
        closedir(entries);
    return found;
}

/* What lies in no folder of the test: sockets (hooks/export/wire.c), shared memory. */
static void expect_nothing_of(caller *by, pid_t process)
{
    char socket[64];
    snprintf(socket, sizeof socket, "reveille-ipc-%d-", (int)process);
    EXPECT(by, has_line("/proc/net/unix", socket), false);
    EXPECT(by, has_name("/dev/shm", "reveille"), false);
}

static void remove_folder(const char *path)
{
    char line[400];
    snprintf(line, sizeof line, "rm -rf '%s'", path);
    if (system(line) != 0)
        calls_give_up(path);
}

/* ---- A recorder ---- */

/* Reads it to its last whole line, and replays as much. */
static void read_what_is_there(caller *by, const char *path)
{
    rvl_trace_reader *reader = NULL;
    rvl_trace_event event;
    const rvl_trace_reader_options partial = {.struct_size = sizeof partial,
                                              .flags = RVL_TRACE_PARTIAL};
    if (access(path, F_OK) != 0)
        return; /* it was killed before */
    ANSWER(by, MAY_OK, rvl_trace_reader_open, &path, 1, &partial, &reader);
    while (calls_next_event(by, reader, &event))
        continue;
    CALL(by, rvl_trace_reader_close, reader);
    rvl_replay *replay = NULL;
    const rvl_replay_options options = {.struct_size = sizeof options, .flags = RVL_REPLAY_PARTIAL};
    ANSWER(by, MAY_OK, rvl_replay_run, &path, 1, &options, &replay);
    CALL(by, rvl_replay_close, replay);
}

void kill_a_recorder(caller *by)
{
    char folder[300], seed[24], self[256], trace[400];
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    if (length < 0)
        calls_give_up("/proc/self/exe");
    self[length] = '\0';
    snprintf(folder, sizeof folder, "%s/victim", stress_folder);
    snprintf(seed, sizeof seed, "%llu", (unsigned long long)random_next(&by->random));
    if (mkdir(folder, 0700) != 0)
        calls_give_up(folder);
    const char *const words[] = {self, "--victim", folder, "--seed", seed, NULL};
    pid_t victim = kill_after(by, words, random_below(&by->random, VICTIM_MS * 1000));
    expect_only(by, folder, (const char *const[]){"run.rvt", "disk", "story-0", NULL});
    snprintf(trace, sizeof trace, "%s/disk", folder);
    if (access(trace, F_OK) == 0)
        expect_only(by, trace, (const char *const[]){NULL});
    snprintf(trace, sizeof trace, "%s/run.rvt", folder);
    read_what_is_there(by, trace);
    expect_nothing_of(by, victim);
    remove_folder(folder);
}

/* ---- A command ---- */

static size_t read_file(const char *path, char *text_out)
{
    FILE *file = fopen(path, "re");
    if (file == NULL)
        calls_give_up(path);
    size_t length = fread(text_out, 1, TEXT_BYTES - 1, file);
    fclose(file);
    text_out[length] = '\0';
    return length;
}

static uint64_t elapsed_us(const struct timespec *begin)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)(now.tv_sec - begin->tv_sec) * 1000000 + (uint64_t)now.tv_nsec / 1000 -
           (uint64_t)begin->tv_nsec / 1000;
}

/* Runs it to its end; how long that takes. */
static uint64_t run_whole(caller *by, const char *const *words)
{
    struct timespec begin;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    EXPECT(by, wait_for_child(start(words)), 0);
    return elapsed_us(&begin);
}

/* Ends as whole files of its kind end, and is as long as another one. */
static bool is_whole(const char *path, const char *end, size_t whole_size, char *text)
{
    size_t length = read_file(path, text);
    size_t end_size = strlen(end);
    return length == whole_size && length >= end_size &&
           memcmp(text + length - end_size, end, end_size) == 0;
}

void kill_a_command(caller *by)
{
    static const char trace[] = RVL_SOURCE_DIR "/traces/qwen2.5-7b-fsdp8-v3.rvt";
    char folder[300], path[340], check[340], *text = malloc(TEXT_BYTES);
    if (text == NULL)
        calls_give_up("no memory");
    snprintf(folder, sizeof folder, "%s/command", stress_folder);
    bool junit = STRESS_HAS_TOML && random_one_in(&by->random, 2);
    const char *name = junit ? "out.xml" : "out.svg"; /* a page needs its chart library */
    snprintf(path, sizeof path, "%s/%s", folder, name);
    snprintf(check, sizeof check, "%s/memory.toml", folder);
    if (mkdir(folder, 0700) != 0)
        calls_give_up(folder);
    FILE *file = fopen(check, "we");
    if (file == NULL)
        calls_give_up(check);
    fprintf(file,
            "schema = 1\n\n[[checks]]\nname = \"step\"\ntrace = \"%s\"\n"
            "budgets = { rollout = \"140GiB\" }\n",
            trace);
    fclose(file);

    const char *const report[] = {RVL_COMMAND_PATH, "report", trace, "--svg", path, NULL};
    const char *const checks[] = {RVL_COMMAND_PATH, "check", check, "--junit", path, NULL};
    const char *const *words = junit ? checks : report;
    uint64_t takes_us = run_whole(by, words);
    size_t size = read_file(path, text);
    unlink(path);
    pid_t victim = kill_after(by, words, random_below(&by->random, takes_us + takes_us / 4));
    expect_nothing_of(by, victim);
    expect_only(by, folder, (const char *const[]){"memory.toml", name, NULL});
    if (access(path, F_OK) == 0)
        EXPECT(by, is_whole(path, junit ? "</testsuites>\n" : "</svg>\n", size, text), true);
    free(text);
    remove_folder(folder);
}
