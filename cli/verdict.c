/* SPDX-License-Identifier: MIT */
/* Prints the verdict, and parses the headroom that it is compared with. */
#include "verdict.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"

#define GREEN "\033[32m"
#define RED "\033[31m"
#define YELLOW "\033[33m"
#define PLAIN "\033[0m"

bool verdict_read_headroom(const char *text, option_headroom *headroom_out)
{
    size_t length = strlen(text);
    option_headroom headroom = {.flag = RVL_REPLAY_HEADROOM_BYTES, .text = text};
    if (length == 0 || text[length - 1] != '%') {
        if (strcmp(text, "0") != 0 && rvl_size_parse(text, &headroom.bytes) != RVL_OK)
            return false;
    } else {
        char *end;
        headroom.flag = RVL_REPLAY_HEADROOM_PERCENT;
        headroom.percent = strtod(text, &end);
        if (end != text + length - 1 || end == text || !(headroom.percent >= 0) ||
            headroom.percent > 100)
            return false;
    }
    *headroom_out = headroom;
    return true;
}

int verdict_set_headroom(const command_spec *command, const option_spec *option, char *value,
                         void *user)
{
    option_headroom *headroom = (option_headroom *)(void *)((char *)user + option->field);
    if (verdict_read_headroom(value, headroom))
        return 0;
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

bool verdict_is_of_failure(const rvl_replay *replay)
{
    rvl_verdict verdict = {.struct_size = sizeof verdict};
    return rvl_replay_get_verdict(replay, &verdict) == RVL_OK &&
           (verdict.waits != NULL || verdict.kind == RVL_VERDICT_OUT_OF_MEMORY);
}

bool verdict_has_refusals(const rvl_replay *replay)
{
    rvl_verdict verdict = {.struct_size = sizeof verdict};
    return rvl_replay_get_verdict(replay, &verdict) == RVL_OK && verdict.refused_count > 0;
}
