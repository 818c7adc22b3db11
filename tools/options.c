/* SPDX-License-Identifier: MIT */
#include "options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"

void options_begin(void)
{
    opterr = 0;
    optind = 1;
}

int options_next(int argc, char **argv, const char *letters, const struct option *options,
                 int *index_out, char **word_out)
{
    int at = optind;
    int option = getopt_long(argc, argv, letters, options, index_out);
    /* Options may stand behind other words: getopt has then moved the word to before optind. */
    *word_out = option == ':' || option == '?' ? argv[optind > at ? optind - 1 : at] : NULL;
    return option;
}

int options_snapshot_device(const char *subcommand, const char *text, uint32_t *device_out)
{
    char *end;
    unsigned long device = strtoul(text, &end, 10);
    if (*text < '0' || *text > '9' || *end != '\0' || device >= RVL_MAX_DEVICES)
        return options_bad_usage(
            subcommand, "--snapshot-device %s: expected a whole number from 0 to 63", text);
    *device_out = (uint32_t)device;
    return 0;
}

bool options_wake(const char *text, rvl_wake *wake_out)
{
    bool together = strcmp(text, "together") == 0;
    if (!together && strcmp(text, "staged") != 0)
        return false;
    *wake_out = together ? RVL_WAKE_TOGETHER : RVL_WAKE_STAGED;
    return true;
}

int options_bad_usage(const char *subcommand, const char *format, const char *what)
{
    complain(EXIT_BAD_INPUT, format, what);
    fprintf(stderr, "Try `reveille %s --help`.\n", subcommand);
    return EXIT_BAD_INPUT;
}

int options_bad_option(const char *subcommand, int option, const char *word)
{
    return options_bad_usage(subcommand,
                             option == ':' ? "option %s needs a value" : "unknown option %s", word);
}
