/* SPDX-License-Identifier: MIT */
/* reveille record: runs a command with the preload library, which writes the trace. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "command.h"
#include "options.h"
#include "record.h"

#define OUTPUT_USUAL "run.rvt"
#define NAME_BYTES_MAX 255u
#define PERIOD_MAX_MS 3600000ull

typedef struct arguments {
    const char *output;
    const char *nvtx;
    const char *period;
    const char *name;
    char **command; /* ended by NULL */
} arguments;

static int set_period(const command_spec *command, const option_spec *option, char *value,
                      void *user);
static int set_name(const command_spec *command, const option_spec *option, char *value,
                    void *user);

#define FIELD(name) offsetof(arguments, name)

const command_spec record_spec = {
    .name = "record",
    .summary = "run a command and record its memory as a trace",
    .usage = "[OPTION]... [--] COMMAND [ARGUMENT]...",
    .description =
        "Runs COMMAND and records its use of device memory, as a trace that you can replay. The "
        "command is not changed: a library is loaded into it. At the end, stderr names the files "
        "that were written.",
    .options =
        (const option_spec[]){
            {.kind = OPTION_FILE,
             .letter = 'o',
             .name = "output",
             .value = "FILE",
             .help = "the trace; each of several processes writes its own, with its number before "
                     "the extension",
             .usual = OUTPUT_USUAL,
             .files = "rvt",
             .field = FIELD(output)},
            OPTION_OF_STAGES(
                FIELD(nvtx),
                "NVTX ranges with a name that starts with this are stages, named by the rest",
                "none"),
            OPTION_OF_STAGES_NVTX(FIELD(nvtx)),
            {.kind = OPTION_CALL,
             .name = "period",
             .value = "MS",
             .help = "milliseconds between samples of the true use; 0: only at stages",
             .usual = "1000",
             .expected = "milliseconds, up to an hour",
             .set = set_period},
            {.kind = OPTION_CALL,
             .name = "name",
             .value = "NAME",
             .help = "what the trace calls the processes",
             .usual = "the program's name",
             .expected = "a name of 1 to 255 bytes",
             .set = set_name},
            {.kind = OPTION_END},
        },
    .exits = (const text_entry[]){{"N", "that of COMMAND; 128 plus the signal's number if a "
                                        "signal ended it"},
                                  {"2", "bad usage, or the command cannot be recorded"},
                                  {"1", "an internal failure"},
                                  {NULL, NULL}},
    .examples =
        (const text_entry[]){
            {"reveille record -o run.rvt python train.py", "Record a program."},
            {"reveille record --stages stage: -o step.rvt -- ./engine --port 8000",
             "Its NVTX ranges stage:rollout, stage:train, ... become the stages."},
            {"reveille record true && reveille replay run.rvt", "Record, then predict."},
            {NULL, NULL}},
    .environment =
        (const text_entry[]){{"RVL_PRELOAD", "Another libreveille-preload.so to load."},
                             {"LD_PRELOAD", "Libraries that it names stay, before ours."},
                             {NULL, NULL}},
    .files = (const text_entry[]){{OUTPUT_USUAL, "The trace, if `-o` does not name another file."},
                                  {NULL, NULL}},
    .see_also = "reveille(1), reveille-replay(1), reveille-report(1); docs/record.md in the "
                "sources",
    .command_follows = true,
};

/* ---- Arguments ---- */

static int set_period(const command_spec *command, const option_spec *option, char *value,
                      void *user)
{
    (void)option;
    char *end = NULL;
    errno = 0;
    unsigned long long number = strtoull(value, &end, 10);
    if (value[0] < '0' || value[0] > '9' || *end != '\0' || errno != 0 || number > PERIOD_MAX_MS)
        return options_refuse(command, "--period %s: expected milliseconds, up to an hour", value);
    ((arguments *)user)->period = value;
    return 0;
}

static int set_name(const command_spec *command, const option_spec *option, char *value, void *user)
{
    (void)option;
    size_t length = strlen(value);
    if (length == 0 || length > NAME_BYTES_MAX)
        return options_refuse(command, "--name %s: expected 1 to 255 bytes", value);
    ((arguments *)user)->name = value;
    return 0;
}

/* ---- Environment of the command ---- */

static bool set_if(const char *variable, const char *value)
{
    return value == NULL || setenv(variable, value, 1) == 0;
}

static bool set_environment(const arguments *parsed, const char *library, const char *pattern)
{
    return record_add_path("LD_PRELOAD", library, false) && setenv("RVL_RECORD", pattern, 1) == 0 &&
           set_if("RVL_RECORD_PERIOD_MS", parsed->period) &&
           set_if("RVL_RECORD_NAME", parsed->name) && set_if("RVL_RECORD_NVTX", parsed->nvtx) &&
           set_if("NVTX_INJECTION64_PATH", parsed->nvtx != NULL ? library : NULL);
}

/* ---- Running ---- */

static const int passed_on[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};
static volatile pid_t running;

/* Passes a signal on, unless the terminal sent it: then the command has received it, too. */
static void pass_on(int number, siginfo_t *info, void *unused)
{
    (void)unused;
    if (info->si_code != SI_KERNEL)
        kill(running, number);
}

static void handle_signals(void)
{
    struct sigaction action = {.sa_sigaction = pass_on, .sa_flags = SA_SIGINFO | SA_RESTART};
    for (size_t i = 0; i < sizeof passed_on / sizeof *passed_on; i++) {
        struct sigaction before;
        if (sigaction(passed_on[i], NULL, &before) == 0 && before.sa_handler != SIG_IGN)
            sigaction(passed_on[i], &action, NULL);
    }
}

static _Noreturn void become(const char *path, char **command, const sigset_t *mask)
{
    signal(SIGPIPE, SIG_DFL);
    signal(SIGXFSZ, SIG_DFL);
    sigprocmask(SIG_SETMASK, mask, NULL);
    execv(path, command);
    _exit(complain(EXIT_BAD_INPUT, "%s: %s", path, strerror(errno)));
}

static int run(const char *path, char **command)
{
    sigset_t all, before;
    int status = 0;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, &before); /* blocked until the command runs */
    running = fork();
    if (running == 0)
        become(path, command, &before);
    if (running > 0)
        handle_signals();
    sigprocmask(SIG_SETMASK, &before, NULL);
    if (running < 0)
        return complain(EXIT_INTERNAL, "%s: %s", path, strerror(errno));
    while (waitpid(running, &status, 0) < 0 && errno == EINTR)
        ;
    return record_exit_status(status);
}

static int record(const arguments *parsed)
{
    char library[PATH_MAX], path[PATH_MAX], pattern[PATH_MAX];
    static record_files files;
    if ((parsed->nvtx != NULL && !record_good_injection()) || !record_find_library(library) ||
        !record_find_command(parsed->command[0], path) ||
        !record_good_output(parsed->output, path, parsed->command) ||
        !record_files_begin(&files, parsed->output))
        return EXIT_BAD_INPUT;
    int status;
    if (!record_files_pattern(&files, pattern)) {
        status = complain(EXIT_BAD_INPUT, "%s: too long a path", parsed->output);
    } else if (!set_environment(parsed, library, pattern)) {
        status = complain(EXIT_INTERNAL, "no memory for the environment of the command");
    } else {
        status = run(path, parsed->command);
        record_files_tell(&files);
    }
    record_files_end(&files);
    return status;
}

int command_record(int argc, char **argv)
{
    arguments parsed = {.output = OUTPUT_USUAL};
    option_line line;
    if (!options_parse(&record_spec, argc, argv, &parsed, &line))
        return line.status;
    parsed.command = argv + line.first;
    if (line.first == argc)
        return options_refuse(&record_spec, "record: name the command to run");
    int status = options_check_trace(&record_spec, parsed.output, "rvt zst");
    return status == 0 ? record(&parsed) : status;
}
