/* SPDX-License-Identifier: MIT */
/* reveille record: runs a command under the preload library, which writes what it does. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "command.h"
#include "options.h"
#include "output.h"
#include "record.h"

#define OUTPUT_USUAL "run.rvt"
#define NAME_BYTES_MAX 255u
#define PERIOD_MAX_MS 3600000ull
#define BY_SIGNAL 128 /* exit status of a command that a signal ended, as shells have it */

typedef struct arguments {
    const char *output;
    const char *nvtx;
    const char *period;
    const char *name;
    char **command; /* ends with NULL */
    bool help;
} arguments;

void help_record(void)
{
    fputs(
        "usage: reveille record [OPTION]... [--] COMMAND [ARGUMENT]...\n"
        "\n"
        "Runs COMMAND and records what it does with device memory, as a trace to be replayed.\n"
        "\n"
        "  -o FILE                the trace; of several processes, each has its own, with its\n"
        "                         number before the extension (default: run.rvt)\n"
        "  --stages-nvtx PREFIX   NVTX ranges whose name begins so are stages, named by the rest\n"
        "                         (default: none)\n"
        "  --period MS            milliseconds between samples of the true use; 0: at stages\n"
        "                         alone (default: 1000)\n"
        "  --name NAME            of the processes in the trace (default: the program's)\n"
        "  --help                 print this\n"
        "\n"
        "RVL_PRELOAD names another libreveille-preload.so. What was written is told on stderr.\n"
        "\n"
        "Exit status: that of COMMAND, 128 and more if a signal ended it; 2 bad usage, or it\n"
        "cannot be recorded; 1 an internal failure.\n",
        stdout);
}

/* ---- Arguments ---- */

static int usage(const char *format, const char *what)
{
    return options_bad_usage("record", format, what);
}

static int check_period(const char *text)
{
    char *end = NULL;
    errno = 0;
    unsigned long long number = strtoull(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || *end != '\0' || errno != 0 || number > PERIOD_MAX_MS)
        return usage("--period %s: expected milliseconds, up to an hour", text);
    return 0;
}

static int check_name(const char *text)
{
    size_t length = strlen(text);
    if (length == 0 || length > NAME_BYTES_MAX)
        return usage("--name %s: expected 1 to 255 bytes", text);
    return 0;
}

enum { NVTX = 256, PERIOD, NAME, HELP };

static const struct option long_options[] = {
    {"stages-nvtx", required_argument, NULL, NVTX},
    {"period", required_argument, NULL, PERIOD},
    {"name", required_argument, NULL, NAME},
    {"help", no_argument, NULL, HELP},
    {NULL, 0, NULL, 0},
};

static int parse_option(int option, const char *word, arguments *parsed)
{
    switch (option) {
    case 'o':
        parsed->output = optarg;
        return 0;
    case NVTX:
        parsed->nvtx = optarg;
        return 0;
    case PERIOD:
        parsed->period = optarg;
        return check_period(optarg);
    case NAME:
        parsed->name = optarg;
        return check_name(optarg);
    case HELP:
        parsed->help = true;
        return 0;
    default:
        return options_bad_option("record", option, word);
    }
}

/* The first word that is no option begins the command. */
static int parse(int argc, char **argv, arguments *parsed)
{
    options_begin();
    for (;;) {
        char *word;
        int option = options_next(argc, argv, "+:o:", long_options, NULL, &word);
        if (option == -1)
            break;
        int status = parse_option(option, word, parsed);
        if (status != 0 || parsed->help)
            return status;
    }
    parsed->command = argv + optind;
    return optind < argc ? 0 : usage("%s: name the command to run", argv[0]);
}

/* ---- The environment of the command ---- */

static bool preload(const char *library)
{
    const char *before = getenv("LD_PRELOAD");
    char *list = NULL;
    if (before == NULL || before[0] == '\0')
        return setenv("LD_PRELOAD", library, 1) == 0;
    if (asprintf(&list, "%s:%s", before, library) < 0)
        return false;
    bool good = setenv("LD_PRELOAD", list, 1) == 0;
    free(list);
    return good;
}

static bool set_if(const char *variable, const char *value)
{
    return value == NULL || setenv(variable, value, 1) == 0;
}

static bool set_environment(const arguments *parsed, const char *library, const char *pattern)
{
    return preload(library) && setenv("RVL_RECORD", pattern, 1) == 0 &&
           set_if("RVL_RECORD_PERIOD_MS", parsed->period) &&
           set_if("RVL_RECORD_NAME", parsed->name) && set_if("RVL_RECORD_NVTX", parsed->nvtx) &&
           set_if("NVTX_INJECTION64_PATH", parsed->nvtx != NULL ? library : NULL);
}

/* Of several tools that want NVTX's calls, one gets them. */
static bool good_injection(const arguments *parsed)
{
    const char *taken = getenv("NVTX_INJECTION64_PATH");
    if (parsed->nvtx == NULL || taken == NULL || taken[0] == '\0')
        return true;
    complain(
        0, "--stages-nvtx: NVTX_INJECTION64_PATH is set to %s, and NVTX serves one tool: unset it",
        taken);
    return false;
}

/* ---- Running ---- */

static const int passed_on[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};
static volatile pid_t running;

/* A terminal's own signals reach the command without us. */
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
    sigprocmask(SIG_SETMASK, &all, &before); /* until there is somebody to pass them to */
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
    return WIFSIGNALED(status) ? BY_SIGNAL + WTERMSIG(status) : WEXITSTATUS(status);
}

/* The recording must not replace the program or what it is given: `record -o train.py train.py`. */
static bool good_output(const arguments *parsed, const char *program)
{
    const output_name written = {"-o", parsed->output};
    bool good = outputs_check_input(&written, 1, program) == 0;
    for (char **word = parsed->command + 1; good && *word != NULL; word++)
        good = outputs_check_input(&written, 1, *word) == 0;
    return good;
}

static int record(const arguments *parsed)
{
    char library[PATH_MAX], path[PATH_MAX], pattern[PATH_MAX];
    static record_files files;
    if (!good_injection(parsed) || !record_find_library(library) ||
        !record_find_command(parsed->command[0], path) || !good_output(parsed, path) ||
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
    int status = parse(argc, argv, &parsed);
    if (status != 0)
        return status;
    if (parsed.help) {
        help_record();
        return EXIT_FITS;
    }
    return record(&parsed);
}
