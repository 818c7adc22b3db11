/* SPDX-License-Identifier: MIT */
/* reveille check: memory peaks as a gate in continuous integration. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check/check.h"
#include "options.h"
#include "output.h"

typedef struct arguments {
    const char *path;
    const char *junit;
    bool update;
    bool github;
    bool help;
} arguments;

void help_check(void)
{
    fputs("usage: reveille check [OPTION]... FILE.toml|FILE.json\n"
          "\n"
          "Replays the traces and models' steps that the file lists on the devices that it lists,\n"
          "and holds the peak of every stage against the device, the file's budgets, and the\n"
          "baseline that is checked in beside it. docs/check.md has the file's schema.\n"
          "\n"
          "  --update-baseline    write the peaks as they are to the baseline (default: compare)\n"
          "  --junit FILE         write the results as JUnit, too (default: none)\n"
          "  --github             print annotations for GitHub, too (default: where\n"
          "                       GITHUB_ACTIONS is true)\n"
          "  --help               print this\n"
          "\n"
          "Exit status: 0 all is well; 3 a stage does not fit, is over budget, above its baseline\n"
          "or not in it, or gone; 2 bad usage, or a bad file, trace, config or setting (the other\n"
          "checks are run and shown); 1 an internal failure.\n",
          stdout);
}

static int usage(const char *format, const char *what)
{
    return options_bad_usage("check", format, what);
}

enum { UPDATE = 256, JUNIT, GITHUB, HELP };

static const struct option long_options[] = {
    {"update-baseline", no_argument, NULL, UPDATE},
    {"junit", required_argument, NULL, JUNIT},
    {"github", no_argument, NULL, GITHUB},
    {"help", no_argument, NULL, HELP},
    {NULL, 0, NULL, 0},
};

static int parse_option(int option, char *word, arguments *parsed)
{
    switch (option) {
    case UPDATE:
        parsed->update = true;
        return 0;
    case JUNIT:
        parsed->junit = optarg;
        return 0;
    case GITHUB:
        parsed->github = true;
        return 0;
    case HELP:
        parsed->help = true;
        return 0;
    default:
        return options_bad_option("check", option, word);
    }
}

static int parse(int argc, char **argv, arguments *parsed)
{
    const char *actions = getenv("GITHUB_ACTIONS");
    parsed->github = actions != NULL && strcmp(actions, "true") == 0;
    options_begin();
    for (;;) {
        char *word;
        int option = options_next(argc, argv, ":", long_options, NULL, &word);
        if (option == -1)
            break;
        int status = parse_option(option, word, parsed);
        if (status != 0 || parsed->help)
            return status;
    }
    if (argc - optind != 1)
        return usage("%s: name one file of checks", argv[0]);
    parsed->path = argv[optind];
    return 0;
}

static check_verdict worst_of(const check_results *results)
{
    check_verdict worst = CHECK_OK;
    for (size_t i = 0; i < results->count; i++) {
        for (size_t k = 0; k < results->results[i].stage_count; k++) {
            check_verdict verdict = results->results[i].stages[k].verdict;
            worst = verdict > worst ? verdict : worst;
        }
    }
    return worst;
}

static int code_of(const check_results *results)
{
    check_verdict worst = worst_of(results);
    if (worst == CHECK_BROKEN)
        return EXIT_BAD_INPUT;
    return worst >= CHECK_UNKNOWN ? EXIT_DOES_NOT_FIT : EXIT_FITS;
}

static int hold_against_baseline(const arguments *parsed, const check_file *file,
                                 check_results *results)
{
    if (parsed->update && file->baseline == NULL)
        return complain(EXIT_BAD_INPUT, "%s: --update-baseline: the file has no \"baseline\"",
                        file->path);
    if (parsed->update && worst_of(results) >= CHECK_NO_ROOM)
        return complain(0, "%s: stays as it is, since a check came to no stages", file->baseline);
    int code = parsed->update ? check_update(file, results) : 0;
    if (code == 0 && file->baseline != NULL)
        code = check_compare(file, results);
    return code;
}

static void tell_broken(const check_results *results)
{
    for (size_t i = 0; i < results->count; i++) {
        const check_result *result = &results->results[i];
        if (result->stages[0].verdict == CHECK_BROKEN)
            complain(EXIT_BAD_INPUT, "check %s on %s: %s", result->item->name, result->device,
                     result->stages[0].why);
    }
}

static int tell(const arguments *parsed, const check_file *file, const check_results *results)
{
    if (parsed->junit != NULL) {
        int code = check_write_junit(parsed->junit, results);
        if (code != 0)
            return code;
    }
    if (!check_print_table(results))
        return complain(EXIT_INTERNAL, "out of host memory");
    if (parsed->github)
        check_print_github(file, results);
    tell_broken(results);
    return code_of(results);
}

/* What is written must not be what is read. */
static int check_outputs(const arguments *parsed, const check_file *file)
{
    const output_name outputs[] = {
        {"--junit", parsed->junit},
        {"--update-baseline", parsed->update ? file->baseline : NULL},
    };
    int code = outputs_check_each_other(outputs, 2);
    if (code == 0)
        code = outputs_check_input(outputs, 2, file->path);
    if (code == 0)
        code = outputs_check_input(outputs, 1, file->baseline);
    for (size_t i = 0; code == 0 && i < file->item_count; i++) {
        const check_item *item = &file->items[i];
        code = outputs_check_input(outputs, 2, item->model);
        for (size_t k = 0; code == 0 && k < item->trace_count; k++)
            code = outputs_check_input(outputs, 2, item->traces[k]);
    }
    return code;
}

static int run(const arguments *parsed)
{
    check_file file = {0};
    check_results results = {0};
    int code = check_read(parsed->path, &file);
    if (code != 0)
        return code;
    code = check_outputs(parsed, &file);
    if (code == 0)
        code = check_run(&file, &results);
    if (code == 0)
        code = hold_against_baseline(parsed, &file, &results);
    if (code == 0)
        code = tell(parsed, &file, &results);
    check_results_free(&results);
    check_file_free(&file);
    return code;
}

int command_check(int argc, char **argv)
{
    arguments parsed = {0};
    int status = parse(argc, argv, &parsed);
    if (status == 0 && parsed.help)
        help_check();
    else if (status == 0)
        status = run(&parsed);
    return status;
}
