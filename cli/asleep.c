/* SPDX-License-Identifier: MIT */
/*
 * reveille sleep and reveille wake: move another process off its devices, and back.
 */
#include <errno.h>
#include <limits.h>
#include <stddef.h>
#include <stdlib.h>

#include "command.h"
#include "options.h"
#include "reveille/control.h"

#define SECOND_NS UINT64_C(1000000000)

typedef struct arguments {
    uint64_t flags;
    uint32_t timeout_s;
} arguments;

#define OPTION_OF_TIMEOUT(text, default_text)                                                      \
    {                                                                                              \
        .kind = OPTION_NUMBER, .name = "timeout", .value = "SECONDS", .least = 0, .most = 86400,   \
        .usual = (default_text), .field = offsetof(arguments, timeout_s), .help = (text),          \
    }
#define OPTION_OF_FLAG(named, mask, text, default_text)                                            \
    {                                                                                              \
        .kind = OPTION_FLAG, .name = (named), .bit = (mask), .field = offsetof(arguments, flags),  \
        .usual = (default_text), .help = (text),                                                   \
    }

#define EXITS                                                                                      \
    (const text_entry[])                                                                           \
    {                                                                                              \
        {"0", "done, or already in that state"},                                                   \
            {"2", "bad usage, no such process, or it does not listen to this user"},               \
            {"3",                                                                                  \
             "the process refused, or has no room: a line says why, and nothing has changed"},     \
            {"1", "the process ended, did not answer, or was lost"},                               \
        {                                                                                          \
            NULL, NULL                                                                             \
        }                                                                                          \
    }

const command_spec sleep_spec = {
    .name = "sleep",
    .summary = "take another process off its GPUs",
    .usage = "[--timeout SECONDS] [--discard] PID",
    .description =
        "Puts a process to sleep: all its tags are paused, and the driver takes the rest of its "
        "memory off its GPUs, with contexts and graphs. It uses no GPU memory until `reveille "
        "wake`.\n\n"
        "The process must listen: it calls `rvl_control_open()` or `reveille.control.open()`, or "
        "runs under Reveille's hooks with `REVEILLE_CONTROL=1`. It should be idle: while it "
        "sleeps, a CUDA call waits or ends the process. Only processes of the same user can be "
        "put to sleep.",
    .options =
        (const option_spec[]){
            OPTION_OF_TIMEOUT("how long to wait for its running calls, and then for its GPUs",
                              "10"),
            OPTION_OF_FLAG("discard", RVL_SLEEP_DISCARD, "discard all contents",
                           "keep contents that have a backup"),
            {.kind = OPTION_END},
        },
    .exits = EXITS,
    .examples = (const text_entry[]){{"reveille sleep 4711 && reveille wake 4712",
                                      "Hand a card from one engine to another."},
                                     {NULL, NULL}},
    .see_also = "reveille-wake(1), rvl_sleep(3), rvl_control_open(3)",
};

const command_spec wake_spec = {
    .name = "wake",
    .summary = "bring a sleeping process back to its GPUs",
    .usage = "[--timeout SECONDS] [--paused] PID",
    .description =
        "Brings a sleeping process back, and resumes the tags that the sleep has paused. "
        "Addresses, graphs and streams are as before. If its GPUs have no room for it, it keeps "
        "sleeping.",
    .options =
        (const option_spec[]){
            OPTION_OF_TIMEOUT("how long to wait for others to free memory", "do not wait"),
            OPTION_OF_FLAG("paused", RVL_WAKE_UP_PAUSED, "leave its tags paused", "resume them"),
            {.kind = OPTION_END},
        },
    .exits = EXITS,
    .examples = (const text_entry[]){{"reveille wake --timeout 30 4712",
                                      "Wait up to half a minute for room."},
                                     {NULL, NULL}},
    .see_also = "reveille-sleep(1), rvl_sleep(3), rvl_control_open(3)",
};

static int status_of(rvl_status status)
{
    switch (status) {
    case RVL_ERR_NOT_FOUND:
    case RVL_ERR_INVALID:
        return EXIT_BAD_INPUT;
    case RVL_ERR_IO:
    case RVL_ERR_DEVICE_LOST:
    case RVL_ERR_HOST_OOM:
        return EXIT_INTERNAL;
    default:
        return EXIT_DOES_NOT_FIT;
    }
}

static int explain(const command_spec *command, rvl_status status)
{
    rvl_error error = {.struct_size = sizeof error};
    (void)rvl_last_error(&error);
    complain(EXIT_DOES_NOT_FIT, "%s: %s", command->name, error.message);
    return status_of(status);
}

static bool read_process(const char *text, int *process_out)
{
    char *end = NULL;
    errno = 0;
    long value = strtol(text, &end, 10);
    *process_out = (int)value;
    return errno == 0 && end != text && *end == '\0' && value > 0 && value <= INT_MAX;
}

static int ask(const command_spec *command, rvl_control_verb verb, int argc, char **argv)
{
    arguments parsed = {0};
    option_line line;
    int process = 0;
    rvl_control_answer answer = {.struct_size = sizeof answer};
    if (!options_parse(command, argc, argv, &parsed, &line))
        return line.status;
    if (line.first != argc - 1 || !read_process(argv[line.first], &process))
        return options_refuse(command, "%s: name one process by its PID", command->name);
    const rvl_control_request request = {.struct_size = sizeof request,
                                         .verb = verb,
                                         .flags = parsed.flags,
                                         .timeout_ns = parsed.timeout_s * SECOND_NS};
    rvl_status status = rvl_control_ask(process, &request, &answer);
    if (status != RVL_OK)
        return explain(command, status);
    const char *now = verb == RVL_CONTROL_SLEEP ? "asleep" : "awake";
    if (answer.changed)
        say("process %d is %s after %.2f s\n", process, now,
            (double)answer.time_ns / (double)SECOND_NS);
    else
        say("process %d is %s already\n", process, now);
    return EXIT_FITS;
}

int command_sleep(int argc, char **argv)
{
    return ask(&sleep_spec, RVL_CONTROL_SLEEP, argc, argv);
}

int command_wake(int argc, char **argv)
{
    return ask(&wake_spec, RVL_CONTROL_WAKE_UP, argc, argv);
}
