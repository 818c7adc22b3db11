/* SPDX-License-Identifier: MIT */
/* reveille model: writes the trace of one step from a model's config.json. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"
#include "options.h"
#include "output.h"
#include "model_set.h"
#include "reveille/model.h"

typedef struct arguments {
    rvl_model_options options;
    rvl_model_given *given; /* room for one a word of the command line */
    const char **notes;     /* the same */
    const char *config;
    const char *output;
    bool help;
} arguments;

void help_model(void)
{
    fputs("usage: reveille model [OPTION]... CONFIG.json -o TRACE\n"
          "\n"
          "Works out what one step of reinforcement learning asks of a GPU that a trainer and an\n"
          "inference engine share, from a model's Hugging Face config.json, writes it as a trace,\n"
          "and prints its terms. docs/model.md has the formulas.\n"
          "\n"
          "  -o, --output TRACE   where the trace goes (needed)\n"
          "  --device DEVICE      profile (see `reveille devices`) or size, such as 80GiB\n"
          "                       (default: h200)\n"
          "Engine:\n"
          "  --tp N               tensor parallel (default: 1)\n"
          "  --pp N               pipeline stages (default: 1)\n"
          "  --pp-rank N          the stage that is predicted (default: 0)\n"
          "  --ep N               expert parallel, within tp (default: 1)\n"
          "  --mem-fraction X     part of the memory that weights and KV cache take\n"
          "                       (default: 0.9)\n"
          "  --weights-dtype bf16|fp8|int4|int8\n"
          "                       (default: what the config's quantization_config says, or bf16)\n"
          "  --kv-dtype bf16|fp8  (default: what the config says, else bf16)\n"
          "Trainer:\n"
          "  --train fsdp:N|ddp|none\n"
          "                       fsdp:N: sharded over N GPUs; none: a whole copy of the new\n"
          "                       weights arrives for the update (default: none)\n"
          "  --reshard            gathered layers are freed after use (default: all are kept)\n"
          "  --micro-batch N      sequences (default: 1)\n"
          "  --seq-len N          tokens of a sequence (default: 4096)\n"
          "  --recompute          activations are computed anew, layer by layer (default: kept)\n"
          "  --optimizer adamw|adamw-bf16|adamw-8bit|sgd-momentum|sgd\n"
          "                       (default: adamw)\n"
          "Both:\n"
          "  --strategy v0|v1|v2|v3\n"
          "                       how they share the GPU, see docs/strategies.md (default: v3)\n"
          "  --wake staged|together\n"
          "                       together: v3 resumes all of the engine at once\n"
          "                       (default: staged)\n"
          "  --given TERM=SIZE    a term whose size is known, such as cuda_graph=2.5GiB; 0 leaves\n"
          "                       it out; may be repeated (default: formulas)\n"
          "  --name NAME          of the model, in comments (default: its model_type)\n"
          "  --note TEXT          a line of comment; may be repeated (default: none)\n"
          "  --help               print this\n"
          "\n"
          "Exit status: 0 written; 2 bad usage or bad config; 1 an internal failure.\n",
          stdout);
}

/* ---- Arguments ---- */

static int usage(const char *format, const char *what)
{
    return options_bad_usage("model", format, what);
}

/* One of the options that every command with a step has. */
static int set_option(const char *name, const char *value, arguments *parsed)
{
    char why[MODEL_WHY_BYTES];
    return model_set(&parsed->options, name, value, why) ? 0 : usage("%s", why);
}

static int parse_given(char *text, arguments *parsed)
{
    char why[MODEL_WHY_BYTES];
    char *equals = strchr(text, '=');
    if (equals == NULL)
        return usage("--given %s: expected TERM=SIZE", text);
    *equals = '\0';
    if (!model_set_given(text, equals + 1, &parsed->given[parsed->options.given_count], why))
        return usage("%s", why);
    parsed->options.given_count++;
    return 0;
}

/* A line of its own, as a comment in a trace is. */
static int parse_note(const char *text, arguments *parsed)
{
    if (strchr(text, '\n') != NULL)
        return usage("--note %s: expected one line", text);
    parsed->notes[parsed->options.note_count++] = text;
    return 0;
}

static int parse_name(const char *text, rvl_model_options *options)
{
    if (strchr(text, '\n') != NULL)
        return usage("--name %s: expected one line", text);
    options->name = text;
    return 0;
}

/* SETTING: an option whose name model_set() knows. SWITCH: one of these, with the value yes. */
enum { SETTING = 256, SWITCH, GIVEN, NAME, NOTE, HELP };

static const struct option long_options[] = {
    {"output", required_argument, NULL, 'o'},
    {"device", required_argument, NULL, SETTING},
    {"tp", required_argument, NULL, SETTING},
    {"pp", required_argument, NULL, SETTING},
    {"pp-rank", required_argument, NULL, SETTING},
    {"ep", required_argument, NULL, SETTING},
    {"mem-fraction", required_argument, NULL, SETTING},
    {"weights-dtype", required_argument, NULL, SETTING},
    {"kv-dtype", required_argument, NULL, SETTING},
    {"train", required_argument, NULL, SETTING},
    {"reshard", no_argument, NULL, SWITCH},
    {"micro-batch", required_argument, NULL, SETTING},
    {"seq-len", required_argument, NULL, SETTING},
    {"recompute", no_argument, NULL, SWITCH},
    {"optimizer", required_argument, NULL, SETTING},
    {"strategy", required_argument, NULL, SETTING},
    {"wake", required_argument, NULL, SETTING},
    {"given", required_argument, NULL, GIVEN},
    {"name", required_argument, NULL, NAME},
    {"note", required_argument, NULL, NOTE},
    {"help", no_argument, NULL, HELP},
    {NULL, 0, NULL, 0},
};

static int parse_option(int option, int index, char *word, arguments *parsed)
{
    switch (option) {
    case 'o':
        parsed->output = optarg;
        return 0;
    case SETTING:
        return set_option(long_options[index].name, optarg, parsed);
    case SWITCH:
        return set_option(long_options[index].name, "yes", parsed);
    case GIVEN:
        return parse_given(optarg, parsed);
    case NAME:
        return parse_name(optarg, &parsed->options);
    case NOTE:
        return parse_note(optarg, parsed);
    case HELP:
        parsed->help = true;
        return 0;
    default:
        return options_bad_option("model", option, word);
    }
}

static int check_words(int argc, char **argv, arguments *parsed)
{
    if (argc - optind != 1)
        return usage("%s: name one config.json", argv[0]);
    if (parsed->output == NULL)
        return usage("%s: say where the trace goes with -o TRACE", argv[0]);
    parsed->config = argv[optind];
    parsed->options.given = parsed->given;
    parsed->options.notes = parsed->notes;
    return 0;
}

static int parse(int argc, char **argv, arguments *parsed)
{
    options_begin();
    for (;;) {
        char *word;
        int index = 0;
        int option = options_next(argc, argv, ":o:", long_options, &index, &word);
        if (option == -1)
            return check_words(argc, argv, parsed);
        int status = parse_option(option, index, word, parsed);
        if (status != 0 || parsed->help)
            return status;
    }
}

/* ---- Running ---- */

static void add_term(table *rows, const rvl_model_step *step, rvl_model_term term)
{
    char size[SIZE_TEXT_BYTES], bytes[24], count[24];
    if (rvl_model_step_bytes(step, term) == 0)
        return;
    format_size(rvl_model_step_bytes(step, term), size);
    snprintf(bytes, sizeof bytes, "%" PRIu64, rvl_model_step_bytes(step, term));
    snprintf(count, sizeof count, "%zu", rvl_model_step_allocations(step, term));
    table_add(rows, (const char *const[]){rvl_model_step_tag(step, term), size, bytes, count});
}

static bool print_step(const rvl_model *model, const rvl_model_step *step, const char *output)
{
    static const char *const titles[] = {"term", "size", "bytes", "allocations"};
    static const bool right[] = {false, true, true, true};
    const rvl_trace_event *events;
    table *rows = table_new(titles, right, 4);
    if (rows == NULL)
        return false;
    say("%s: %s, %" PRIu64 " parameters; %zu events", output, rvl_model_type(model),
        rvl_model_parameters(model), rvl_model_step_events(step, &events));
    if (rvl_model_step_tokens(step) > 0)
        printf("; the KV cache holds %" PRIu64 " tokens", rvl_model_step_tokens(step));
    puts("");
    for (int term = 0; term < RVL_MODEL_TERM_COUNT; term++)
        add_term(rows, step, (rvl_model_term)term);
    bool printed = table_print(rows, "  ", NULL, NULL);
    table_free(rows);
    return printed;
}

/* The library writes to the draft, so that a signal removes it. */
static int write_trace(const rvl_model_step *step, const char *path)
{
    output_file trace;
    char draft[RVLI_OUTPUT_PATH_BYTES];
    rvl_error error = {.struct_size = sizeof error};
    if (!output_open(path, &trace))
        return EXIT_INTERNAL;
    rvli_output_path(&trace.file, draft);
    if (rvl_model_step_write(step, draft) == RVL_OK)
        return output_finish(&trace, true);
    rvl_last_error(&error);
    complain(EXIT_INTERNAL, "%s: %s%s%s", path, error.message,
             error.native_name[0] != '\0' ? ": " : "", error.native_name);
    output_abandon(&trace);
    return EXIT_INTERNAL;
}

static int write_step(const arguments *parsed, const rvl_model *model, const rvl_model_step *step)
{
    int code = write_trace(step, parsed->output);
    if (code == 0 && !print_step(model, step, parsed->output))
        code = complain(EXIT_INTERNAL, "out of host memory");
    return code;
}

static int run(const arguments *parsed)
{
    rvl_model_error error = {.struct_size = sizeof error};
    rvl_model *model;
    rvl_model_step *step;
    const output_name written = {"-o", parsed->output};
    if (outputs_check_input(&written, 1, parsed->config) != 0)
        return EXIT_BAD_INPUT;
    rvl_status status = rvl_model_open(parsed->config, &error, &model);
    if (status != RVL_OK)
        return model_explain(status, parsed->config, &error);
    status = rvl_model_step_make(model, &parsed->options, &error, &step);
    int code;
    if (status != RVL_OK) {
        code = model_explain(status, parsed->config, &error);
    } else {
        code = write_step(parsed, model, step);
        rvl_model_step_close(step);
    }
    rvl_model_close(model);
    return code;
}

int command_model(int argc, char **argv)
{
    arguments parsed = {.options = {.struct_size = sizeof parsed.options}};
    parsed.given = calloc((size_t)argc, sizeof *parsed.given);
    parsed.notes = calloc((size_t)argc, sizeof *parsed.notes);
    int status = parsed.given == NULL || parsed.notes == NULL
                     ? complain(EXIT_INTERNAL, "out of host memory")
                     : parse(argc, argv, &parsed);
    if (status == 0 && parsed.help)
        help_model();
    else if (status == 0)
        status = run(&parsed);
    free(parsed.given);
    free(parsed.notes);
    return status;
}
