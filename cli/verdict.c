/* SPDX-License-Identifier: MIT */
/* The verdict as the commands print it, and the headroom that it is held against. */
#include "verdict.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"

#define GREEN "\033[32m"
#define RED "\033[31m"
#define YELLOW "\033[33m"
#define PLAIN "\033[0m"

/* A size, or a number with a percent sign. */
int verdict_set_headroom(const command_spec *command, const option_spec *option, char *value,
                         void *user)
{
    option_headroom *headroom = (option_headroom *)(void *)((char *)user + option->field);
    size_t length = strlen(value);
    char *end = value;
    *headroom = (option_headroom){.flag = RVL_REPLAY_HEADROOM_BYTES};
    if (strcmp(value, "0") == 0)
        return 0;
    if (length == 0 || value[length - 1] != '%') {
        if (rvl_size_parse(value, &headroom->bytes) == RVL_OK)
            return 0;
    } else {
        headroom->flag = RVL_REPLAY_HEADROOM_PERCENT;
        headroom->percent = strtod(value, &end);
        if (end == value + length - 1 && end > value && headroom->percent >= 0 &&
            headroom->percent <= 100)
            return 0;
    }
    return options_refuse(command, "--%s %s: expected %s", option->name, value, option->expected);
}

void verdict_ask(const option_headroom *headroom, rvl_replay_options *options)
{
    options->flags |= headroom->flag;
    options->headroom_bytes = headroom->bytes;
    options->headroom_percent = headroom->percent;
}

static const char *colour_of(rvl_verdict_kind kind)
{
    if (kind == RVL_VERDICT_FITS)
        return GREEN;
    return kind == RVL_VERDICT_OUT_OF_MEMORY || kind == RVL_VERDICT_FAILED ? RED : YELLOW;
}

bool verdict_print(const rvl_replay *replay)
{
    rvl_verdict verdict = {.struct_size = sizeof verdict};
    if (rvl_replay_get_verdict(replay, &verdict) != RVL_OK)
        return false;
    char *text = printable(verdict.text);
    bool colours = wants_colour();
    if (text != NULL)
        printf("%s%s%s\n", colours ? colour_of(verdict.kind) : "", text, colours ? PLAIN : "");
    free(text);
    return text != NULL;
}

bool verdict_has_refusals(const rvl_replay *replay)
{
    rvl_verdict verdict = {.struct_size = sizeof verdict};
    return rvl_replay_get_verdict(replay, &verdict) == RVL_OK && verdict.refused_count > 0;
}
