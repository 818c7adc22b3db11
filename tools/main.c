/* SPDX-License-Identifier: MIT */
/* The `reveille` command: picks the subcommand, and sees to it that what was printed has arrived.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "command.h"
#include "reveille/version.h"

typedef struct subcommand {
    const char *name;
    const char *summary;
    int (*run)(int argc, char **argv);
    void (*help)(void);
} subcommand;

static const subcommand subcommands[] = {
    {"replay", "predict the memory peak of every stage of a trace", command_replay, help_replay},
    {"record", "run a command and record its memory as a trace", command_record, help_record},
    {"model", "write the trace of a step from a model's config.json", command_model, help_model},
    {"plan", "find what fits: the largest size of a tag, the cheapest settings", command_plan,
     help_plan},
    {"check", "hold stages against budgets and a baseline, in CI", command_check, help_check},
    {"report", "show memory over time: a page, a picture, a chart here", command_report,
     help_report},
    {"snapshot", "predict the memory of a PyTorch snapshot, stage by stage", command_snapshot,
     help_snapshot},
    {"devices", "list the devices that can be simulated", command_devices, help_devices},
};

#define SUBCOMMAND_COUNT (sizeof subcommands / sizeof subcommands[0])

static const subcommand *find(const char *name)
{
    for (size_t i = 0; i < SUBCOMMAND_COUNT; i++) {
        if (strcmp(subcommands[i].name, name) == 0)
            return &subcommands[i];
    }
    return NULL;
}

static int help(void)
{
    puts("usage: reveille COMMAND [ARGUMENT]...\n"
         "       reveille help COMMAND\n"
         "       reveille --version\n"
         "\n"
         "Commands:");
    for (size_t i = 0; i < SUBCOMMAND_COUNT; i++)
        printf("  %-8s  %s\n", subcommands[i].name, subcommands[i].summary);
    return EXIT_FITS;
}

static int unknown(const char *name)
{
    complain(EXIT_BAD_INPUT, "unknown command %s", name);
    fputs("Try `reveille --help`.\n", stderr);
    return EXIT_BAD_INPUT;
}

static int help_on(const char *name)
{
    const subcommand *found = find(name);
    if (found == NULL)
        return unknown(name);
    found->help();
    return EXIT_FITS;
}

static int dispatch(int argc, char **argv)
{
    if (argc < 2) {
        fputs("reveille: name a command\nTry `reveille --help`.\n", stderr);
        return EXIT_BAD_INPUT;
    }
    if (strcmp(argv[1], "--version") == 0) {
        printf("reveille %s\n", rvl_version());
        return EXIT_FITS;
    }
    if (strcmp(argv[1], "--help") == 0)
        return help();
    if (strcmp(argv[1], "help") == 0)
        return argc > 2 ? help_on(argv[2]) : help();
    const subcommand *found = find(argv[1]);
    return found != NULL ? found->run(argc - 1, argv + 1) : unknown(argv[1]);
}

/* A reader that has gone away has seen enough; anything else that was not written is told. */
static int flush_output(int status)
{
    errno = 0;
    bool failed = fflush(stdout) != 0 || ferror(stdout) != 0;
    if (!failed)
        return status;
    if (errno != EPIPE)
        return complain(EXIT_INTERNAL, "writing the output: %s",
                        errno != 0 ? strerror(errno) : "failed");
    return EXIT_INTERNAL;
}

int main(int argc, char **argv)
{
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN); /* past ulimit -f a write answers an error instead */
    return flush_output(dispatch(argc, argv));
}
