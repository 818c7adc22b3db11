/* SPDX-License-Identifier: MIT */
/*
 * Runs a command with values in place of its placeholder. Each value has its own `reveille run`, so
 * that several can run at once, and a failure does not affect the others. The result of a run comes
 * from its trace.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "command.h"
#include "fit/fit.h"
#include "folder.h"
#include "interrupt.h"

#define LOOK_MS 20L
#define SAID_LINES 12
#define SAID_BYTES 8192
#define OPTION_WORDS_MAX 24

/* A running command. */
typedef struct started {
    pid_t process;
    double begin_s;
    char trace[PATH_MAX];
    char output[PATH_MAX];
    bool late; /* it was killed because of the timeout */
} started;

static double now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* ---- Words ---- */

/* Returns a word with the value in place of each placeholder. The caller frees it. NULL: no memory.
 */
static char *filled(const char *word, const char *hole, const char *value)
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    if (out == NULL)
        return NULL;
    for (const char *at; (at = strstr(word, hole)) != NULL; word = at + strlen(hole))
        fprintf(out, "%.*s%s", (int)(at - word), word, value);
    fputs(word, out);
    return fclose(out) == 0 ? text : NULL;
}

static void free_words(char **words)
{
    for (size_t i = 0; words != NULL && words[i] != NULL; i++)
        free(words[i]);
    free(words);
}

/* Returns the words of `reveille run`, followed by the command with the value. NULL: no memory. */
static char **make_words(const fit_arguments *arguments, const char *device, const char *trace,
                         uint64_t value)
{
    char number[24], gpus[16];
    size_t count = 0, made = 0;
    while (arguments->words[count] != NULL)
        count++;
    snprintf(number, sizeof number, "%" PRIu64, value);
    snprintf(gpus, sizeof gpus, "%" PRIu32, arguments->gpus);
    const char *own[OPTION_WORDS_MAX] = {
        "reveille",          "run",           "--device", device, "-o", trace, "--progress=never",
        "--attribution=off", "--color=never", "--gpus",   gpus};
    size_t own_count = 11;
    const char *more[][2] = {{"--host-memory", arguments->host_memory},
                             {"--keep-contents", arguments->keep_contents},
                             {"--stages", arguments->stages},
                             {"--response-lengths", arguments->response_lengths},
                             {"--response-seed", arguments->response_seed}};
    for (size_t i = 0; i < sizeof more / sizeof *more; i++)
        if (more[i][1] != NULL) {
            own[own_count++] = more[i][0];
            own[own_count++] = more[i][1];
        }
    own[own_count++] = "--";
    char **words = calloc(own_count + count + 1, sizeof *words);
    bool ok = words != NULL;
    for (size_t i = 0; ok && i < own_count + count; i++) {
        words[made] = i < own_count
                          ? strdup(own[i])
                          : filled(arguments->words[i - own_count], arguments->hole, number);
        ok = words[made++] != NULL;
    }
    if (ok)
        return words;
    free_words(words);
    return NULL;
}

/* ---- Processes ---- */

static _Noreturn void become(const char *own, char **words, const char *output, pid_t parent)
{
    int file = open(output, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
    prctl(PR_SET_PDEATHSIG, SIGTERM); /* on SIGTERM it ends the processes that it has started */
    if (getppid() == parent && file >= 0 && nothing >= 0 && dup2(nothing, STDIN_FILENO) >= 0 &&
        dup2(file, STDOUT_FILENO) >= 0 && dup2(file, STDERR_FILENO) >= 0)
        execv(own, words);
    _exit(127);
}

static int start(const fit_arguments *arguments, const char *device, const char *folder,
                 size_t number, uint64_t value, started *one)
{
    char own[PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", own, sizeof own - 1);
    snprintf(one->trace, sizeof one->trace, "%.4000s/%zu.rvt", folder, number);
    snprintf(one->output, sizeof one->output, "%.4000s/%zu.out", folder, number);
    char **words = make_words(arguments, device, one->trace, value);
    if (length <= 0 || words == NULL) {
        free_words(words);
        return complain(EXIT_INTERNAL, "out of host memory");
    }
    own[length] = '\0';
    pid_t parent = getpid();
    one->begin_s = now_s();
    fflush(NULL);
    one->process = fork();
    if (one->process == 0)
        become(own, words, one->output, parent);
    free_words(words);
    return one->process > 0 ? 0 : complain(EXIT_INTERNAL, "no process: %s", strerror(errno));
}

/* Waits until all runs have ended. Ends those that exceed the timeout; on Ctrl-C ends all. */
static void wait_for_all(started *all, size_t count, uint32_t timeout_s, fit_run *runs)
{
    const struct timespec moment = {.tv_nsec = LOOK_MS * 1000000};
    for (size_t left = count; left > 0;) {
        for (size_t i = 0; i < count; i++) {
            started *each = &all[i];
            if (each->process == 0)
                continue;
            double ran_s = now_s() - each->begin_s;
            if (waitpid(each->process, NULL, WNOHANG) == each->process) {
                runs[i].seconds = ran_s;
                each->process = 0;
                left--;
            } else if (interrupt_came() || (timeout_s > 0 && ran_s > timeout_s)) {
                each->late = !interrupt_came();
                kill(each->process, SIGTERM);
            }
        }
        if (left > 0)
            nanosleep(&moment, NULL);
    }
}

/* ---- Results ---- */

/* Finds the table that `reveille run` prints after the command's output: it starts with "device 0:
 * " or "devices 0-3: ". NULL: there is none. */
static char *find_table(char *text)
{
    for (char *at = text; (at = strstr(at, "\ndevice")) != NULL; at++) {
        const char *number = at + strlen("\ndevice");
        number += *number == 's';
        if (strncmp(number, " 0", 2) == 0 && strcspn(number + 2, ":-,") == 0)
            return at;
    }
    return NULL;
}

/* Returns the command's last lines from a file. The caller frees them. NULL: there are none, or no
 * memory. */
static char *last_lines(const char *path)
{
    char text[SAID_BYTES + 1];
    FILE *file = fopen(path, "r");
    if (file == NULL)
        return NULL;
    if (fseek(file, -(long)SAID_BYTES, SEEK_END) != 0)
        rewind(file);
    size_t length = fread(text, 1, SAID_BYTES, file);
    fclose(file);
    while (length > 0 && text[length - 1] == '\n')
        length--;
    text[length] = '\0';
    char *own = find_table(text); /* the lines after this are our own */
    if (own != NULL)
        length = (size_t)(own - text);
    text[length] = '\0';
    const char *at = text + length;
    for (int lines = 0; at > text && lines < SAID_LINES; at--)
        lines += at[-1] == '\n';
    return length > 0 ? strdup(at > text ? at + 1 : at) : NULL;
}

/* Finds the device with the largest peak, the stage of that peak, and its largest holder. */
static void find_peak(const rvl_replay *replay, fit_run *run)
{
    for (size_t i = 0; i < rvl_replay_device_count(replay); i++) {
        rvl_replay_device device = {.struct_size = sizeof device};
        rvl_stage_stats stage = {.struct_size = sizeof stage};
        rvl_holder holder = {0};
        size_t count = 0;
        if (rvl_replay_get_device(replay, i, &device) != RVL_OK ||
            device.peak_bytes < run->peak_bytes)
            continue;
        run->peak_bytes = device.peak_bytes;
        if (rvl_replay_get_stage(replay, i, device.peak_stage, &stage, NULL) != RVL_OK)
            continue;
        snprintf(run->stage, sizeof run->stage, "%s", stage.name);
        if (rvl_replay_get_holders(replay, i, device.peak_stage, &holder, sizeof holder, 1,
                                   &count) == RVL_OK &&
            count > 0)
            snprintf(run->holder, sizeof run->holder, "%.80s/%.70s", holder.process,
                     holder.tag != NULL ? holder.tag : "untagged");
    }
}

static bool read_trace(const fit_arguments *arguments, const char *path, fit_run *run)
{
    rvl_replay_options options = {.struct_size = sizeof options, .flags = RVL_REPLAY_PARTIAL};
    rvl_replay *replay = NULL;
    run->verdict.struct_size = sizeof run->verdict;
    verdict_ask(&arguments->headroom, &options);
    bool read = access(path, R_OK) == 0 && rvl_replay_run(&path, 1, &options, &replay) == RVL_OK &&
                rvl_replay_get_verdict(replay, &run->verdict) == RVL_OK;
    if (read)
        find_peak(replay, run);
    rvl_replay_close(replay);
    run->verdict.process = run->verdict.tag = run->verdict.stage = run->verdict.where = NULL;
    return read;
}

static void judge(const fit_arguments *arguments, const started *one, fit_run *run)
{
    bool read = read_trace(arguments, one->trace, run);
    rvl_verdict_kind kind = run->verdict.kind;
    bool whole =
        read && run->verdict.ended; /* false: the run was killed, and its trace is cut off */
    run->broken = one->late || !whole || kind == RVL_VERDICT_FAILED || kind == RVL_VERDICT_NO_GPU;
    if (one->late)
        snprintf(run->verdict.text, sizeof run->verdict.text,
                 "no verdict: it did not end within %" PRIu32 " s", arguments->timeout_s);
    else if (!whole)
        snprintf(run->verdict.text, sizeof run->verdict.text, "no verdict: %s",
                 read ? "reveille run was ended with it" : "it could not be run");
    run->fits = !run->broken && kind == RVL_VERDICT_FITS;
    if (run->broken)
        run->said = last_lines(one->output);
}

void fit_run_free(fit_run *run)
{
    free(run->said);
    run->said = NULL;
}

/* ---- Several runs at once ---- */

int fit_run_all(const fit_arguments *arguments, const char *device, const uint64_t *values,
                size_t count, fit_run *runs_out)
{
    char folder[PATH_MAX];
    int code = 0;
    size_t begun = 0;
    if (!folder_make("fit", folder))
        return complain(EXIT_INTERNAL, "%s: no folder for the traces: %s", folder, strerror(errno));
    started *all = calloc(count, sizeof *all);
    if (all == NULL) {
        folder_remove(folder);
        return complain(EXIT_INTERNAL, "out of host memory");
    }
    for (; begun < count && code == 0; begun++) {
        runs_out[begun] = (fit_run){.value = values[begun]};
        code = start(arguments, device, folder, begun, values[begun], &all[begun]);
    }
    if (code != 0) /* end the runs that have started */
        for (size_t i = 0; i < begun; i++)
            if (all[i].process > 0)
                kill(all[i].process, SIGTERM);
    wait_for_all(all, code == 0 ? count : begun - 1, arguments->timeout_s, runs_out);
    for (size_t i = 0; i < count && code == 0 && !interrupt_came(); i++)
        judge(arguments, &all[i], &runs_out[i]);
    folder_remove(folder);
    free(all);
    return code;
}
