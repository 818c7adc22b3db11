/* SPDX-License-Identifier: MIT */
/* reveille model: predicts the memory of one step from a model's config.json, or writes its trace.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"
#include "document.h"
#include "options.h"
#include "output.h"
#include "model_set.h"
#include "progress.h"
#include "reveille/model.h"
#include "verdict.h"

typedef struct arguments {
    rvl_model_options options;
    rvl_model_given *given; /* with room for each word of the command line */
    const char **notes;     /* with room for each word, too */
    const char *config;
    const char *output; /* NULL: print the result, and write no trace */
    option_headroom headroom;
} arguments;

static int set_setting(const command_spec *command, const option_spec *option, char *value,
                       void *user);
static int add_given(const command_spec *command, const option_spec *option, char *value,
                     void *user);
static int add_note(const command_spec *command, const option_spec *option, char *value,
                    void *user);
static int set_name(const command_spec *command, const option_spec *option, char *value,
                    void *user);

#define FIELD(name) offsetof(arguments, name)

const command_spec model_spec = {
    .name = "model",
    .summary = "predict the memory peaks of a step from a model's config.json",
    .usage = "[OPTION]... CONFIG.json [-o TRACE]",
    .description =
        "Predicts the GPU memory of a model from its Hugging Face config.json: to serve it "
        "(`--serve`), to fine-tune it (`--fine-tune`), or, without these, for one step of "
        "reinforcement learning in which a trainer and an inference engine share the GPU. Prints "
        "the terms, doubts about them, the peak of each stage and whether it fits. With `-o`, it "
        "writes a trace instead of replaying it. docs/model.md in the sources has the "
        "formulas.\n\n"
        "A setting that cannot change the trace, given the others, is refused.",
    .options =
        (const option_spec[]){
            {.kind = OPTION_FILE,
             .letter = 'o',
             .name = "output",
             .value = "TRACE",
             .help = "write a trace, for `replay`, `report`, `plan` and `check`",
             .usual = "none is written, and the result is printed",
             .files = "rvt rvt.zst",
             .field = FIELD(output)},
            OPTION_OF_DEVICE(FIELD(options.device), "h200"),
            OPTION_OF_HEADROOM(FIELD(headroom)),
            {.kind = OPTION_SETTINGS, .set = set_setting},
            {.kind = OPTION_CALL,
             .name = "given",
             .value = "TERM=SIZE",
             .help = "a term of known size, such as cuda_graph=2.5GiB; 0 leaves it out",
             .usual = "formulas",
             .expected = "TERM=SIZE, such as cuda_graph=2.5GiB",
             .set = add_given,
             .repeated = true},
            {.kind = OPTION_CALL,
             .name = "name",
             .value = "NAME",
             .help = "name of the model in comments",
             .usual = "its model_type",
             .expected = "one line of text",
             .set = set_name},
            {.kind = OPTION_CALL,
             .name = "note",
             .value = "TEXT",
             .help = "a line of comment",
             .usual = "none",
             .expected = "one line of text",
             .set = add_note,
             .repeated = true},
            {.kind = OPTION_GROUP, .help = "Other"},
            OPTION_OF_PROGRESS,
            {.kind = OPTION_END},
        },
    .exits = (const text_entry[]){{"0", "written, or everything fits"},
                                  {"3", "a stage does not fit"},
                                  {"2", "bad usage, a bad config, or a TRACE that cannot be "
                                        "written"},
                                  {"1", "an internal failure"},
                                  {NULL, NULL}},
    .examples =
        (const text_entry[]){
            {"reveille model config.json --serve --tp 2 --device h100-80g",
             "Whether two GPUs serve it, and how many tokens the KV cache holds."},
            {"reveille model config.json --fine-tune --lora 16 --device 24GiB",
             "Whether adapters of it can be trained on a card of 24 GiB."},
            {"reveille model config.json --tp 4 --train fsdp:8",
             "Whether a step of eight GPUs fits, with an engine of four."},
            {"reveille model config.json -o step.rvt --device h100-80g --given cuda_graph=2.5GiB",
             "Use a measured size in place of a formula."},
            {NULL, NULL}},
    .see_also = "reveille(1), reveille-replay(1), reveille-plan(1); docs/model.md and "
                "docs/strategies.md in the sources",
    .operands = "json",
};

/* ---- Arguments ---- */

/* value: NULL for a switch. */
static int set_setting(const command_spec *command, const option_spec *option, char *value,
                       void *user)
{
    char why[MODEL_WHY_BYTES];
    arguments *parsed = user;
    return model_set(&parsed->options, option->name, value != NULL ? value : "yes", why)
               ? 0
               : options_refuse(command, "%s", why);
}

static int add_given(const command_spec *command, const option_spec *option, char *value,
                     void *user)
{
    (void)option;
    char why[MODEL_WHY_BYTES];
    arguments *parsed = user;
    char *equals = strchr(value, '=');
    if (equals == NULL)
        return options_refuse(command, "--given %s: expected TERM=SIZE", value);
    *equals = '\0';
    if (!model_set_given(value, equals + 1, &parsed->given[parsed->options.given_count], why))
        return options_refuse(command, "%s", why);
    parsed->options.given_count++;
    return 0;
}

/* A note is one line, because it becomes a comment in the trace. */
static int add_note(const command_spec *command, const option_spec *option, char *value, void *user)
{
    (void)option;
    arguments *parsed = user;
    if (strchr(value, '\n') != NULL)
        return options_refuse(command, "--note %s: expected one line", value);
    parsed->notes[parsed->options.note_count++] = value;
    return 0;
}

static int set_name(const command_spec *command, const option_spec *option, char *value, void *user)
{
    (void)option;
    if (strchr(value, '\n') != NULL)
        return options_refuse(command, "--name %s: expected one line", value);
    ((arguments *)user)->options.name = value;
    return 0;
}

static int check(const arguments *parsed, const option_line *line, int words)
{
    const option_spec *option;
    if (words != 1)
        return options_refuse(&model_spec, "model: name one config.json");
    if (parsed->output != NULL && parsed->headroom.text != NULL)
        return options_refuse(&model_spec, "--headroom: only without -o: a trace has none, and "
                                           "`reveille replay` takes it");
    for (size_t i = 0; (option = options_at(&model_spec, i)) != NULL; i++) {
        if (!line->given[i])
            continue;
        char why[MODEL_WHY_BYTES];
        if (model_setting_idle(&parsed->options, option->name, why))
            return options_refuse(&model_spec, "--%s %s", option->name, why);
    }
    return parsed->output == NULL ? 0 : options_check_trace(&model_spec, parsed->output, "rvt zst");
}

/* ---- Running ---- */

static void add_term(table *rows, const rvl_model_step *step, rvl_model_term term)
{
    char size[SIZE_TEXT_BYTES], bytes[24], count[24];
    if (rvl_model_step_bytes(step, term) == 0)
        return;
    format_size(rvl_model_step_bytes(step, term), size);
    snprintf(bytes, sizeof bytes, "%" PRIu64, rvl_model_step_bytes(step, term));
    snprintf(count, sizeof count, "%zu", rvl_model_step_allocation_count(step, term));
    table_add(rows, (const char *const[]){rvl_model_step_tag(step, term), size, bytes, count});
}

/* Prints the terms with this doubt, and the sizes of assumed ones. false: no memory. */
static bool print_doubt(const rvl_model_step *step, rvl_model_doubt doubt, const char *before,
                        const char *behind)
{
    char size[SIZE_TEXT_BYTES];
    char *text = NULL;
    size_t length = 0;
    FILE *out = open_memstream(&text, &length);
    if (out == NULL)
        return false;
    for (int i = 0; i < RVL_MODEL_TERM_COUNT; i++) {
        rvl_model_term term = (rvl_model_term)i;
        if (rvl_model_step_doubt(step, term) != doubt)
            continue;
        fprintf(out, "%s%s", ftell(out) > 0 ? ", " : "", rvl_model_step_tag(step, term));
        if (doubt == RVL_MODEL_DOUBT_ASSUMED)
            fprintf(out, " %s", format_size(rvl_model_step_bytes(step, term), size));
    }
    bool written = fclose(out) == 0;
    if (written && length > 0)
        say("in doubt: %s%s%s\n", before, text, behind);
    free(text);
    return written;
}

static bool print_doubts(const rvl_model_step *step)
{
    return print_doubt(step, RVL_MODEL_DOUBT_ASSUMED, "",
                       ", as other programs had; --given says yours") &&
           print_doubt(step, RVL_MODEL_DOUBT_LEFT_OUT, "without ", "; --nccl counts it");
}

static bool print_step(const rvl_model *model, const rvl_model_step *step, const char *output)
{
    static const char *const titles[] = {"term", "size", "bytes", "allocations"};
    static const bool right[] = {false, true, true, true};
    size_t event_count = 0;
    char text[COUNT_TEXT_BYTES];
    table *rows = table_new(titles, right, 4);
    if (rows == NULL || rvl_model_step_get_events(step, NULL, 0, 0, &event_count) != RVL_OK) {
        table_free(rows);
        return false;
    }
    if (output != NULL)
        say("%s: ", output);
    say("%s, %" PRIu64 " parameters; %s", rvl_model_type(model), rvl_model_parameter_count(model),
        format_count(event_count, "event", "events", text));
    if (rvl_model_step_token_count(step) > 0)
        printf("; the KV cache holds %s",
               format_count(rvl_model_step_token_count(step), "token", "tokens", text));
    puts("");
    for (int term = 0; term < RVL_MODEL_TERM_COUNT; term++)
        add_term(rows, step, (rvl_model_term)term);
    bool printed = table_print(rows, "  ");
    table_free(rows);
    return printed && print_doubts(step);
}

/* Has the library write to the output's draft file, which a signal removes. */
static int write_trace(const rvl_model_step *step, const char *path)
{
    output_file trace;
    char draft[RVLI_OUTPUT_PATH_BYTES];
    rvl_error error = {.struct_size = sizeof error};
    int code = output_open(path, &trace);
    if (code != 0)
        return code;
    rvli_output_path(&trace.file, draft);
    if (rvl_model_step_write(step, draft) == RVL_OK)
        return output_finish(&trace, true);
    rvl_last_error(&error);
    code = complain_of_file("%s: %s%s%s", path, error.message,
                            error.native_name[0] != '\0' ? ": " : "", error.native_name);
    output_abandon(&trace);
    return code;
}

static int write_step(const arguments *parsed, const rvl_model *model, const rvl_model_step *step)
{
    int code = write_trace(step, parsed->output);
    if (code == 0 && !print_step(model, step, parsed->output))
        code = complain(EXIT_INTERNAL, "out of host memory");
    if (code == 0)
        output_tell(parsed->output, "reveille replay %s");
    return code;
}

/* Replays the step and prints the result, without writing a trace. */
static int show_step(const arguments *parsed, const rvl_model *model, const rvl_model_step *step)
{
    rvl_replay_options options = {.struct_size = sizeof options};
    const rvl_trace_progress progress = {.struct_size = sizeof progress};
    const replay_view view = {.each_stage = false};
    rvl_replay *replay = NULL;
    verdict_ask(&parsed->headroom, &options);
    rvl_status status = rvl_model_step_replay(step, &options, &replay);
    if (status != RVL_OK)
        return explain_replay(status);
    int code = print_step(model, step, NULL) ? 0 : complain(EXIT_INTERNAL, "out of host memory");
    if (code == 0)
        code = replay_show(replay, &progress, &view, NULL);
    if (code == 0)
        code = replay_fits(replay) ? EXIT_FITS : EXIT_DOES_NOT_FIT;
    rvl_replay_close(replay);
    return code;
}

static int run(const arguments *parsed)
{
    rvl_model *model;
    rvl_model_step *step;
    const output_name written = {"-o", parsed->output};
    if (parsed->output != NULL && outputs_check_input(&written, 1, parsed->config) != 0)
        return EXIT_BAD_INPUT;
    rvl_status status = rvl_model_open(parsed->config, &model);
    if (status != RVL_OK)
        return model_explain(status, parsed->config);
    rvl_model_options options = parsed->options;
    options.flags |= RVL_MODEL_SEGMENTS;
    progress_begin("model", NULL);
    status = rvl_model_step_make(model, &options, &step);
    progress_end();
    int code;
    if (status != RVL_OK) {
        code = model_explain(status, parsed->config);
    } else {
        code = parsed->output != NULL ? write_step(parsed, model, step)
                                      : show_step(parsed, model, step);
        rvl_model_step_close(step);
    }
    rvl_model_close(model);
    return code;
}

int command_model(int argc, char **argv)
{
    arguments parsed = {.options = {.struct_size = sizeof parsed.options}};
    option_line line = {0};
    parsed.given = calloc((size_t)argc, sizeof *parsed.given);
    parsed.notes = calloc((size_t)argc, sizeof *parsed.notes);
    if (parsed.given == NULL || parsed.notes == NULL) {
        line.status = complain(EXIT_INTERNAL, "out of host memory");
    } else if (options_parse(&model_spec, argc, argv, &parsed, &line)) {
        parsed.config = argv[line.first];
        parsed.options.given = parsed.given;
        parsed.options.given_size = sizeof *parsed.given;
        parsed.options.notes = parsed.notes;
        line.status = check(&parsed, &line, argc - line.first);
        if (line.status == 0)
            line.status = run(&parsed);
    }
    free(parsed.given);
    free(parsed.notes);
    return line.status;
}
