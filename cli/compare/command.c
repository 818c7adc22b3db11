/* SPDX-License-Identifier: MIT */
/* reveille compare: shows what changed between two runs, by stage, holder and line. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "compare/compare.h"
#include "document.h"
#include "options.h"

typedef struct arguments {
    const char *device;
    bool fails; /* over_percent was given */
    double over_percent;
    option_document json;
    option_document markdown;
} arguments;

static int set_over(const command_spec *command, const option_spec *option, char *value,
                    void *user);

#define FIELD(name) offsetof(arguments, name)

const command_spec compare_spec = {
    .name = "compare",
    .summary = "show what changed between two runs",
    .usage = "[OPTION]... A B",
    .description =
        "Compares the memory peaks of two runs, from A to B: by stage, by holder of the peak, and "
        "by line of the program if both runs have lines.\n\n"
        "A run is a trace (.rvt, .rvt.zst), a PyTorch memory snapshot (.pickle, .pickle.gz), or "
        "the result that `run`, `replay` or `snapshot` wrote with `--json=FILE`. Of several stages "
        "with one name, the largest counts.",
    .options =
        (const option_spec[]){
            OPTION_OF_DEVICE(FIELD(device), "the trace's own"),
            {.kind = OPTION_CALL,
             .name = "fail-over",
             .value = "PERCENT",
             .help = "exit with 3 if the peak of a stage, or of a device, grew by more",
             .usual = "growth is not a failure",
             .expected = "a number such as 2, from 0 on",
             .set = set_over},
            OPTION_OF_JSON(FIELD(json)),
            OPTION_OF_MARKDOWN(FIELD(markdown)),
            OPTION_OF_COLOR,
            OPTION_OF_PROGRESS,
            {.kind = OPTION_END},
        },
    .exits = (const text_entry[]){{"0", "compared"},
                                  {"3", "a peak grew by more than `--fail-over`"},
                                  {"2", "bad usage, or a bad trace, snapshot or result"},
                                  {"1", "an internal failure"},
                                  {NULL, NULL}},
    .examples =
        (const text_entry[]){
            {"reveille compare before.rvt after.rvt", "What changed between two recorded runs."},
            {"reveille compare main.json branch.json --fail-over 2 --markdown=memory.md",
             "In CI: the results of two runs, with a file for a comment on the pull request."},
            {NULL, NULL}},
    .see_also = "reveille(1), reveille-run(1), reveille-replay(1), reveille-check(1), "
                "reveille-report(1); docs/compare.md in the sources",
    .operands = "rvt rvt.zst pickle pickle.gz json",
};

static int set_over(const command_spec *command, const option_spec *option, char *value, void *user)
{
    arguments *parsed = user;
    char *end;
    errno = 0;
    parsed->over_percent = strtod(value, &end);
    parsed->fails = true;
    if (end != value && *end == '%')
        end++;
    if (end == value || *end != '\0' || errno != 0 || !isfinite(parsed->over_percent) ||
        parsed->over_percent < 0)
        return options_refuse(command, "--fail-over %s: expected %s", value, option->expected);
    return 0;
}

static uint64_t device_peak(const comparison *made, int device, int side)
{
    uint64_t most = 0;
    for (size_t i = 0; i < made->count; i++)
        if (made->rows[i].device == device && made->rows[i].peak_bytes[side] > most)
            most = made->rows[i].peak_bytes[side];
    return most;
}

/* Whether a stage or a device grew by more than this. A stage that only B has can raise the peak of
 * its device. */
static bool grew(const comparison *made, double over_percent)
{
    for (size_t i = 0; i < made->count; i++) {
        const compare_row *row = &made->rows[i];
        double before = (double)device_peak(made, row->device, COMPARE_A);
        double after = (double)device_peak(made, row->device, COMPARE_B);
        if (compare_percent(row) > over_percent || after > before * (1 + over_percent / 100))
            return true;
    }
    return false;
}

static int show(const arguments *parsed, const comparison *made)
{
    bool printed = document_is_printed(&parsed->json) || document_is_printed(&parsed->markdown);
    if (!printed && !compare_print(made))
        return complain(EXIT_INTERNAL, "out of host memory");
    int status = document_write(&parsed->json, compare_write_json, made);
    if (status == 0)
        status = document_write(&parsed->markdown, compare_write_markdown, made);
    if (status == 0 && parsed->fails && grew(made, parsed->over_percent))
        return EXIT_DOES_NOT_FIT;
    return status;
}

static int run(const arguments *parsed, const char *const paths[COMPARE_SIDES])
{
    json_t *runs[COMPARE_SIDES] = {NULL, NULL};
    comparison made;
    int status = compare_read(paths[COMPARE_A], parsed->device, &runs[COMPARE_A]);
    if (status == 0)
        status = compare_read(paths[COMPARE_B], parsed->device, &runs[COMPARE_B]);
    if (status != 0) {
        json_decref(runs[COMPARE_A]);
        return status;
    }
    status = compare_make(paths, runs, &made);
    if (status == 0)
        status = show(parsed, &made);
    compare_free(&made);
    return status;
}

int command_compare(int argc, char **argv)
{
    arguments parsed = {0};
    option_line line;
    if (!options_parse(&compare_spec, argc, argv, &parsed, &line))
        return line.status;
    const char *const *paths = (const char *const *)(argv + line.first);
    if (argc - line.first != COMPARE_SIDES)
        return options_refuse(&compare_spec, "compare: name two runs, the one before first");
    int status = documents_check(&compare_spec, &parsed.json, &parsed.markdown);
    if (status == 0)
        status = documents_check_inputs(&parsed.json, &parsed.markdown, paths, COMPARE_SIDES);
    return status != 0 ? status : run(&parsed, paths);
}
