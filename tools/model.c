/* SPDX-License-Identifier: MIT */
/* reveille model: writes the trace of one step from a model's config.json. */
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"
#include "reveille/model.h"

#define NUMBER_MAX 16777216

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
          "  --weights-dtype bf16|fp8|int4\n"
          "                       (default: what the config's quantization_config says, or bf16)\n"
          "  --kv-dtype bf16|fp8  (default: bf16)\n"
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
    complain(EXIT_BAD_INPUT, format, what);
    fputs("Try `reveille model --help`.\n", stderr);
    return EXIT_BAD_INPUT;
}

static bool parse_number(const char *text, uint32_t *number_out)
{
    char *end;
    if (*text < '0' || *text > '9')
        return false;
    unsigned long value = strtoul(text, &end, 10);
    if (*end != '\0' || value > NUMBER_MAX)
        return false;
    *number_out = (uint32_t)value;
    return true;
}

static int parse_count(const char *name, const char *text, uint32_t min, uint32_t *number_out)
{
    if (parse_number(text, number_out) && *number_out >= min)
        return 0;
    complain(EXIT_BAD_INPUT, "--%s %s: expected a whole number from %" PRIu32 " to %d", name, text,
             min, NUMBER_MAX);
    fputs("Try `reveille model --help`.\n", stderr);
    return EXIT_BAD_INPUT;
}

/* A fraction in millionths, without a detour through a double. */
static int parse_fraction(const char *text, uint32_t *ppm_out)
{
    uint32_t ppm = 0, unit = 1000000;
    const char *c = text;
    if (*c == '0' || *c == '1')
        ppm = *c++ == '1' ? unit : 0;
    if (c != text && *c == '.')
        for (c++; *c >= '0' && *c <= '9' && unit > 1; c++) {
            unit /= 10;
            ppm += unit * (uint32_t)(*c - '0');
        }
    if (*c != '\0' || c[-(c != text)] == '.' || ppm == 0 || ppm > 1000000)
        return usage("--mem-fraction %s: expected more than 0 and at most 1, such as 0.9, with at "
                     "most six decimals",
                     text);
    *ppm_out = ppm;
    return 0;
}

static int parse_train(const char *text, rvl_model_options *options)
{
    if (strcmp(text, "none") == 0)
        options->train = RVL_MODEL_TRAIN_NONE;
    else if (strcmp(text, "ddp") == 0)
        options->train = RVL_MODEL_TRAIN_DDP;
    else if (strncmp(text, "fsdp:", 5) == 0 && parse_number(text + 5, &options->train_ranks) &&
             options->train_ranks > 0)
        options->train = RVL_MODEL_TRAIN_FSDP;
    else
        return usage("--train %s: expected fsdp:N, ddp or none", text);
    return 0;
}

/* Index of a word in a list that ends with NULL; -1: not there. */
static int index_of(const char *word, const char *const *list)
{
    for (int i = 0; list[i] != NULL; i++) {
        if (strcmp(word, list[i]) == 0)
            return i;
    }
    return -1;
}

static int parse_strategy(const char *text, rvl_model_options *options)
{
    static const char *const words[] = {"v3", "v0", "v1", "v2", NULL};
    int index = index_of(text, words);
    if (index < 0)
        return usage("--strategy %s: expected v0, v1, v2 or v3", text);
    options->strategy = (rvl_model_strategy)index;
    return 0;
}

static int parse_wake(const char *text, rvl_model_options *options)
{
    static const char *const words[] = {"staged", "together", NULL};
    int index = index_of(text, words);
    if (index < 0)
        return usage("--wake %s: expected staged or together", text);
    options->wake = (rvl_wake)index;
    return 0;
}

static int parse_optimizer(const char *text, rvl_model_options *options)
{
    static const char *const words[] = {
#define WORD(name, word, states, bytes, blocks, master) word,
        RVL_MODEL_OPTIMIZER_MAP(WORD)
#undef WORD
            NULL};
    int index = index_of(text, words);
    if (index < 0)
        return usage("--optimizer %s: expected adamw, adamw-bf16, adamw-8bit, sgd-momentum or sgd",
                     text);
    options->optimizer = (rvl_model_optimizer)index;
    return 0;
}

static int parse_weights_dtype(const char *text, rvl_model_options *options)
{
    static const char *const words[] = {"", "bf16", "fp8", "int4", NULL};
    int index = index_of(text, words);
    if (index < 1)
        return usage("--weights-dtype %s: expected bf16, fp8 or int4", text);
    options->weights_dtype = (rvl_model_dtype)index;
    return 0;
}

static int parse_kv_dtype(const char *text, rvl_model_options *options)
{
    static const char *const words[] = {"", "bf16", "fp8", NULL};
    int index = index_of(text, words);
    if (index < 1)
        return usage("--kv-dtype %s: expected bf16 or fp8", text);
    options->kv_dtype = (rvl_model_dtype)index;
    return 0;
}

static int parse_given(char *text, arguments *parsed)
{
    static const char *const tags[] = {
#define TAG(name, tag, meaning) tag,
        RVL_MODEL_TERM_MAP(TAG)
#undef TAG
            NULL};
    char *equals = strchr(text, '=');
    rvl_model_given given = {0};
    if (equals == NULL)
        return usage("--given %s: expected TERM=SIZE", text);
    if (strcmp(equals + 1, "0") != 0 && rvl_size_parse(equals + 1, &given.bytes) != RVL_OK)
        return usage("--given %s: expected a size such as 2.5GiB, or 0, after the =", text);
    *equals = '\0';
    int index = index_of(text, tags);
    if (index < 0)
        return usage("--given %s: no such term; a step's terms are what the command prints", text);
    given.term = (rvl_model_term)index;
    parsed->given[parsed->options.given_count++] = given;
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

enum {
    DEVICE = 256,
    TP,
    PP,
    PP_RANK,
    EP,
    MEM_FRACTION,
    WEIGHTS_DTYPE,
    KV_DTYPE,
    TRAIN,
    RESHARD,
    MICRO_BATCH,
    SEQ_LEN,
    RECOMPUTE,
    OPTIMIZER,
    STRATEGY,
    WAKE,
    GIVEN,
    NAME,
    NOTE,
    HELP
};

static const struct option long_options[] = {
    {"output", required_argument, NULL, 'o'},
    {"device", required_argument, NULL, DEVICE},
    {"tp", required_argument, NULL, TP},
    {"pp", required_argument, NULL, PP},
    {"pp-rank", required_argument, NULL, PP_RANK},
    {"ep", required_argument, NULL, EP},
    {"mem-fraction", required_argument, NULL, MEM_FRACTION},
    {"weights-dtype", required_argument, NULL, WEIGHTS_DTYPE},
    {"kv-dtype", required_argument, NULL, KV_DTYPE},
    {"train", required_argument, NULL, TRAIN},
    {"reshard", no_argument, NULL, RESHARD},
    {"micro-batch", required_argument, NULL, MICRO_BATCH},
    {"seq-len", required_argument, NULL, SEQ_LEN},
    {"recompute", no_argument, NULL, RECOMPUTE},
    {"optimizer", required_argument, NULL, OPTIMIZER},
    {"strategy", required_argument, NULL, STRATEGY},
    {"wake", required_argument, NULL, WAKE},
    {"given", required_argument, NULL, GIVEN},
    {"name", required_argument, NULL, NAME},
    {"note", required_argument, NULL, NOTE},
    {"help", no_argument, NULL, HELP},
    {NULL, 0, NULL, 0},
};

static int parse_engine_option(int option, rvl_model_options *o)
{
    switch (option) {
    case TP:
        return parse_count("tp", optarg, 1, &o->tp);
    case PP:
        return parse_count("pp", optarg, 1, &o->pp);
    case PP_RANK:
        return parse_count("pp-rank", optarg, 0, &o->pp_rank);
    case EP:
        return parse_count("ep", optarg, 1, &o->ep);
    case MEM_FRACTION:
        return parse_fraction(optarg, &o->mem_fraction_ppm);
    case WEIGHTS_DTYPE:
        return parse_weights_dtype(optarg, o);
    default:
        return parse_kv_dtype(optarg, o);
    }
}

static int parse_trainer_option(int option, rvl_model_options *o)
{
    switch (option) {
    case TRAIN:
        return parse_train(optarg, o);
    case RESHARD:
        o->reshard = true;
        return 0;
    case MICRO_BATCH:
        return parse_count("micro-batch", optarg, 1, &o->micro_batch);
    case SEQ_LEN:
        return parse_count("seq-len", optarg, 1, &o->seq_len);
    case RECOMPUTE:
        o->recompute = true;
        return 0;
    default:
        return parse_optimizer(optarg, o);
    }
}

static int parse_option(int option, char *word, arguments *parsed)
{
    if (option >= TP && option <= KV_DTYPE)
        return parse_engine_option(option, &parsed->options);
    if (option >= TRAIN && option <= OPTIMIZER)
        return parse_trainer_option(option, &parsed->options);
    switch (option) {
    case 'o':
        parsed->output = optarg;
        return 0;
    case DEVICE:
        parsed->options.device = optarg;
        return 0;
    case STRATEGY:
        return parse_strategy(optarg, &parsed->options);
    case WAKE:
        return parse_wake(optarg, &parsed->options);
    case GIVEN:
        return parse_given(optarg, parsed);
    case NAME:
        return parse_name(optarg, &parsed->options);
    case NOTE:
        return parse_note(optarg, parsed);
    case HELP:
        parsed->help = true;
        return 0;
    case ':':
        return usage("option %s needs a value", word);
    default:
        return usage("unknown option %s", word);
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
    opterr = 0;
    optind = 1;
    for (;;) {
        int at = optind;
        int option = getopt_long(argc, argv, ":o:", long_options, NULL);
        if (option == -1)
            return check_words(argc, argv, parsed);
        /* Options may stand behind the config: getopt has then moved the word before optind. */
        char *word = option == ':' || option == '?' ? argv[optind > at ? optind - 1 : at] : NULL;
        int status = parse_option(option, word, parsed);
        if (status != 0 || parsed->help)
            return status;
    }
}

/* ---- Running ---- */

static int explain(rvl_status status, const char *config, const rvl_model_error *error)
{
    int code = status == RVL_ERR_HOST_OOM ? EXIT_INTERNAL : EXIT_BAD_INPUT;
    if (error->line > 0)
        return complain(code, "%s:%" PRIu32 ": %s", config, error->line, error->message);
    if (error->key[0] == '\0')
        return complain(code, "%s: %s", config, error->message);
    return complain(code, "%s: %s: %s", config, error->key, error->message);
}

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
    printf("%s: %s, %" PRIu64 " parameters; %zu events", output, rvl_model_type(model),
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

static int write_step(const arguments *parsed, const rvl_model *model, const rvl_model_step *step)
{
    rvl_error error = {.struct_size = sizeof error};
    if (rvl_model_step_write(step, parsed->output) != RVL_OK) {
        rvl_last_error(&error);
        return complain(EXIT_BAD_INPUT, "%s: %s%s%s", parsed->output, error.message,
                        error.native_name[0] != '\0' ? ": " : "", error.native_name);
    }
    return print_step(model, step, parsed->output) ? EXIT_FITS
                                                   : complain(EXIT_INTERNAL, "out of host memory");
}

static int run(const arguments *parsed)
{
    rvl_model_error error = {.struct_size = sizeof error};
    rvl_model *model;
    rvl_model_step *step;
    rvl_status status = rvl_model_open(parsed->config, &error, &model);
    if (status != RVL_OK)
        return explain(status, parsed->config, &error);
    status = rvl_model_step_make(model, &parsed->options, &error, &step);
    int code;
    if (status != RVL_OK) {
        code = explain(status, parsed->config, &error);
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
