/* SPDX-License-Identifier: MIT */
/* Prints the verdict (reveille/verdict.h), and has the options for it. */
#ifndef RVL_CLI_VERDICT_H
#define RVL_CLI_VERDICT_H

#include "options.h"
#include "reveille/verdict.h"

/* The value of --headroom. */
typedef struct option_headroom {
    uint64_t flag; /* RVL_REPLAY_HEADROOM_*; 0: the default headroom */
    uint64_t bytes;
    double percent;
    const char *text; /* as typed; NULL: not given */
} option_headroom;

/* Parses "3%", "2GiB" or "0". Keeps a pointer to text. false: invalid. */
bool verdict_read_headroom(const char *text, option_headroom *headroom_out);

int verdict_set_headroom(const command_spec *command, const option_spec *option, char *value,
                         void *user);

/* Copies the headroom to the options of a replay. */
void verdict_ask(const option_headroom *headroom, rvl_replay_options *options);

/* Prints the verdict, as the last line of a result. false: no memory. */
bool verdict_print(const rvl_replay *replay);

/* Whether a command failed even if its exit status is 0: a process ran out of memory, or waited for
 * something that never came, so that on cards the command would have hung. */
bool verdict_is_of_failure(const rvl_replay *replay);

/* Whether a request was refused, and not granted when it was retried. */
bool verdict_has_refusals(const rvl_replay *replay);

#define OPTION_OF_HEADROOM(offset)                                                                 \
    {                                                                                              \
        .kind = OPTION_CALL, .name = "headroom", .value = "PERCENT%|SIZE", .field = (offset),      \
        .help = "memory that must stay free on each device: with less, the verdict is `tight`",    \
        .usual = "3%", .expected = "a part such as 3%, a size such as 2GiB, or 0",                 \
        .set = verdict_set_headroom,                                                               \
    }

#define OPTION_OF_NO_REFUSALS(offset)                                                              \
    {                                                                                              \
        .kind = OPTION_FLAG, .name = "no-refusals", .field = (offset),                             \
        .help = "exit with 3 if a request for memory was refused, even if the program "            \
                "survived it",                                                                     \
        .usual = "a refusal that the program survives is not a failure",                           \
    }

#endif
