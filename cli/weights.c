/* SPDX-License-Identifier: MIT */
/*
 * reveille weights: makes a checkpoint of zeros for a model's config, which uses no disk space. The
 * names and shapes come from transformers, so the program's own Python makes it.
 */
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "command.h"
#include "options.h"
#include "simulate.h"

typedef struct arguments {
    const char *dtype;
    const char *shard;
    const char *python;
} arguments;

#define FIELD(name) offsetof(arguments, name)

const command_spec weights_spec = {
    .name = "weights",
    .summary = "make a checkpoint of zeros for a model's config",
    .usage = "[OPTION]... CONFIG DIR",
    .description =
        "Makes a checkpoint of a model from its config, as transformers' save_pretrained() does, "
        "with safetensors files and their index. All weights are zeros, stored as holes in the "
        "files, which use no disk space. Programs under `reveille run` load it like any other "
        "checkpoint.\n\n"
        "The transformers package that `python3` finds makes the model, without memory for it, so "
        "names and shapes are its own.",
    .options =
        (const option_spec[]){
            {.kind = OPTION_STRING,
             .name = "dtype",
             .value = "TYPE",
             .help = "type of the weights, such as bfloat16 or float32",
             .usual = "the config's, or bfloat16",
             .field = FIELD(dtype)},
            {.kind = OPTION_STRING,
             .name = "shard",
             .value = "SIZE",
             .help = "maximum size of a file, in transformers' notation",
             .usual = "5GB",
             .field = FIELD(shard)},
            {.kind = OPTION_STRING,
             .name = "python",
             .value = "PROGRAM",
             .help = "the Python that has transformers",
             .usual = "python3",
             .field = FIELD(python)},
            {.kind = OPTION_END},
        },
    .exits = (const text_entry[]){{"0", "made"},
                                  {"2", "bad usage, a bad config, DIR is in use, or there is no "
                                        "transformers"},
                                  {NULL, NULL}},
    .examples = (const text_entry[]){{"reveille weights config.json zeros",
                                      "Then `from_pretrained(\"zeros\")` in a program."},
                                     {NULL, NULL}},
    .see_also = "reveille-run(1), reveille-model(1); docs/run.md in the sources",
    .operands = "json",
};

static int become(const arguments *parsed, const char *config, const char *folder)
{
    char library[PATH_MAX] = "", script[PATH_MAX + 32];
    if (!simulate_find_library(library))
        return EXIT_BAD_INPUT;
    *strrchr(library, '/') = '\0';
    snprintf(script, sizeof script, "%s/python/weights.py", library);
    const char *words[16] = {parsed->python, script, "--shard", parsed->shard};
    size_t count = 4;
    if (parsed->dtype != NULL) {
        words[count++] = "--dtype";
        words[count++] = parsed->dtype;
    }
    words[count++] = "--";
    words[count++] = config;
    words[count++] = folder;
    words[count] = NULL;
    execvp(parsed->python, (char **)(uintptr_t)words);
    return complain(EXIT_BAD_INPUT,
                    "weights: %s: %s: name the Python that has transformers by "
                    "--python",
                    parsed->python, strerror(errno));
}

int command_weights(int argc, char **argv)
{
    arguments parsed = {.shard = "5GB", .python = "python3"};
    option_line line;
    if (!options_parse(&weights_spec, argc, argv, &parsed, &line))
        return line.status;
    if (argc - line.first != 2)
        return options_refuse(&weights_spec, "weights: name a config.json and a new folder");
    return become(&parsed, argv[line.first], argv[line.first + 1]);
}
