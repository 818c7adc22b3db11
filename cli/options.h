/* SPDX-License-Identifier: MIT */
/*
 * What the subcommands take, as tables: one entry an option, with its help, its default and what
 * kind of value it has. The parser, `--help`, the manual pages and the completions of the shells
 * are all made from these tables, so that none of them can lag behind.
 *
 * Texts are prose without line ends. `A word in backquotes` is what a user types.
 */
#ifndef RVL_CLI_OPTIONS_H
#define RVL_CLI_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "reveille/replay.h"

typedef enum option_kind {
    OPTION_END,
    OPTION_GROUP,    /* a heading: help has its text */
    OPTION_FLAG,     /* bool, which becomes true; with a bit: uint64_t, in which it is set */
    OPTION_STRING,   /* const char * */
    OPTION_FILE,     /* the same; completed by names of files */
    OPTION_DOCUMENT, /* option_document of document.h: printed, or with a value written there */
    OPTION_DEVICE,   /* the same; a profile or a size */
    OPTION_CHOICE,   /* the same; one of the words that value lists: "sim|cuda" */
    OPTION_WORD,     /* an enum: which of these words it is */
    OPTION_NUMBER,   /* uint32_t, from least to most */
    OPTION_SIZE,     /* uint64_t */
    OPTION_CALL,     /* set() takes the value */
    OPTION_SETTINGS  /* all settings of a step: set() takes the value; optional: they are lists */
} option_kind;

typedef struct option_spec option_spec;
typedef struct command_spec command_spec;

/* Takes a value, NULL where there is none. Returns 0 or, having complained, the exit status. */
typedef int (*option_set_fn)(const command_spec *command, const option_spec *option, char *value,
                             void *arguments);

struct option_spec {
    option_kind kind;
    char letter; /* 0: none */
    const char *name;
    const char *value; /* what --help calls it; words to choose from as "a|b"; NULL: no value */
    const char *help;
    const char *usual; /* the default; NULL: not worth a word */
    size_t field;      /* offset in the arguments */
    uint64_t bit;      /* of a flag; 0: it is a bool */
    uint32_t least;
    uint32_t most;
    option_set_fn set;
    const char *expected; /* of a value; NULL: what its kind says */
    bool repeated;
    bool optional;     /* the value may be left out */
    const char *files; /* endings that completion offers: "rvt rvt.zst"; NULL: any */
};

/* A term and what it means. Lists end with a term of NULL. */
typedef struct text_entry {
    const char *term;
    const char *text;
} text_entry;

struct command_spec {
    const char *name; /* NULL: the command itself */
    const char *summary;
    const char *usage;       /* what follows the name; several lines: several forms */
    const char *description; /* paragraphs, divided by an empty line */
    const option_spec *options;
    const text_entry *exits;
    const text_entry *examples; /* a command line, and what it does */
    const text_entry *environment;
    const text_entry *files;
    const char *see_also; /* names of pages and documents */
    const char *operands; /* endings of the files that the other words name; NULL: no files */
    bool command_follows; /* the first word that is no option ends the options */
};

/* The i-th entry of a command, those that all commands have behind its own; NULL: no more. */
const option_spec *options_at(const command_spec *command, size_t i);

/* The most options, and titles of groups, that a command has. */
#define OPTIONS_MAX 128

typedef struct option_line {
    int status;              /* where options_parse() says false: the exit status */
    int first;               /* argv[first] and on are the other words */
    bool given[OPTIONS_MAX]; /* by index in the table */
} option_line;

/*
 * Parses a command line into the arguments that the table's fields lie in. false: this is all,
 * since help was asked for, or something is wrong and has been said.
 */
bool options_parse(const command_spec *command, int argc, char **argv, void *arguments,
                   option_line *line_out);

/* Whether an option of that name was there. */
bool options_given(const command_spec *command, const option_line *line, const char *name);

/* Complains, names the help of the command, and returns EXIT_BAD_INPUT. */
int options_refuse(const command_spec *command, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* "staged or together" of "staged|together", cut where the room ends. */
#define OPTION_WORDS_BYTES 256
void options_list_words(const char *value, char text[OPTION_WORDS_BYTES]);

/* Index of a word in "staged|together"; -1: it is none of them. */
int options_find_word(const char *value, const char *word);

/* The i-th word that value lists; false: no more. Names of values, such as N, are no words. */
bool options_word_at(const char *value, size_t i, char text[OPTION_WORDS_BYTES]);

/* "staged" or "together", also as a setting of a step or of a check. false: it is neither. */
bool options_wake(const char *text, rvl_wake *wake_out);

/* Refuses a name with the ending of another format than what is written, and names the remedy. */
int options_check_ending(const command_spec *command, const char *option, const char *path,
                         const char *endings);

/* The same of -o, which names a trace (NULL: none). "-" is refused: stdout has what people read. */
int options_check_trace(const command_spec *command, const char *path, const char *endings);

/* Budgets as they are named on a command line. */
typedef struct option_budgets {
    rvl_budget *list; /* room for one a word of the command line */
    size_t count;
} option_budgets;

/* Makes that room. false: there is no memory. */
bool options_make_budgets(int argc, option_budgets *budgets_out);

/* Takes STAGE=SIZE, which the budget then points into; the table's field is an option_budgets. */
int options_add_budget(const command_spec *command, const option_spec *option, char *value,
                       void *arguments);

/* Whether a path is of a PyTorch snapshot, by its ending. */
bool options_is_snapshot(const char *path);

/* Refuses options of snapshots where no path is one. */
int options_check_snapshots(const command_spec *command, const option_line *line,
                            const char *const *paths, size_t path_count);

/* ---- device_option.c ---- */

/*
 * Whether a device can be simulated: a profile, or a size that a GPU may have. If not, why has what
 * is wrong and what may have been meant.
 */
#define DEVICE_WHY_BYTES 320
bool options_check_device(const char *text, char why[DEVICE_WHY_BYTES]);

/* Says that 80GB is less than a card that is sold so has. */
void options_warn_of_decimal(const char *option, const char *text);

/* ---- help.c ---- */

/* `--help` of a command, in lines of at most 80 columns. */
void help_print(const command_spec *command);

/* ---- suggest.c ---- */

/* How far apart two words are, case aside: letters changed, added, left out, or swapped. */
size_t suggest_distance(const char *a, const char *b);

/* Whether a mistyped word may have meant that name. */
bool suggest_matches(const char *word, const char *name);

/* ---- Options that several commands have ---- */

#define OPTION_TRACE_FILES "rvt rvt.zst pickle pickle.gz"

#define OPTION_OF_DEVICE(offset, default_text)                                                     \
    {                                                                                              \
        .kind = OPTION_DEVICE, .name = "device", .value = "DEVICE", .field = (offset),             \
        .usual = (default_text),                                                                   \
        .help = "a profile (`reveille devices` lists them), a file that `reveille calibrate` "     \
                "wrote, or a size, such as 80GiB",                                                 \
    }

#define OPTION_OF_WAKE(offset)                                                                     \
    {                                                                                              \
        .kind = OPTION_WORD, .name = "wake", .value = "staged|together", .field = (offset),        \
        .usual = "staged",                                                                         \
        .help = "together: within a step every resume happens at the first one",                   \
    }

#define OPTION_OF_CONDUCTOR(offset)                                                                \
    {                                                                                              \
        .kind = OPTION_STRING, .name = "conductor", .value = "PROCESS", .field = (offset),         \
        .usual = "each its own stages",                                                            \
        .help = "the process that marks stages and steps; marks of others are ignored",            \
    }

#define OPTION_OF_BUDGET(offset)                                                                   \
    {                                                                                              \
        .kind = OPTION_CALL, .name = "budget", .value = "STAGE=SIZE", .field = (offset),           \
        .help = "upper bound on the peak of every stage of that name", .usual = "none",            \
        .expected = "STAGE=SIZE, such as train=90GiB", .set = options_add_budget,                  \
        .repeated = true,                                                                          \
    }

#define OPTION_OF_SNAPSHOT_PROCESS(offset)                                                         \
    {                                                                                              \
        .kind = OPTION_STRING, .name = "snapshot-process", .value = "NAME", .field = (offset),     \
        .usual = "trainer",                                                                        \
        .help = "the process that the memory of a PyTorch snapshot among the traces (.pickle, "    \
                ".pickle.gz) belongs to",                                                          \
    }

#define OPTION_OF_SNAPSHOT_DEVICE(offset)                                                          \
    {                                                                                              \
        .kind = OPTION_NUMBER, .name = "snapshot-device", .value = "N", .field = (offset),         \
        .usual = "0", .least = 0, .most = RVL_MAX_DEVICES - 1,                                     \
        .help = "the device that this memory is on",                                               \
    }

#define OPTION_OF_STAGES(offset, text, default_text)                                               \
    {                                                                                              \
        .kind = OPTION_STRING, .name = "stages", .value = "PREFIX", .field = (offset),             \
        .usual = (default_text), .expected = "the beginning of a range's name", .help = (text),    \
    }

#define OPTION_OF_STAGES_NVTX(offset)                                                              \
    {                                                                                              \
        .kind = OPTION_STRING, .name = "stages-nvtx", .value = "PREFIX", .field = (offset),        \
        .usual = "as --stages", .expected = "the beginning of a range's name",                     \
        .help = "the older name of --stages",                                                      \
    }

#define OPTION_OF_PARTIAL(offset, mask)                                                            \
    {                                                                                              \
        .kind = OPTION_FLAG, .name = "partial", .field = (offset), .bit = (mask),                  \
        .usual = "refuse it", .help = "read a trace that is cut off up to its last whole line",    \
    }

/* What --color and --progress say; without a value: always. */
typedef enum option_when { WHEN_AUTO, WHEN_ALWAYS, WHEN_NEVER } option_when;

/* Returns 0 or, having complained, the exit status. */
int options_set_when(const command_spec *command, const option_spec *option, const char *value,
                     option_when *when_out);

/* ---- terminal.c and progress.c have these two ---- */

#define OPTION_OF_COLOR                                                                            \
    {                                                                                              \
        .kind = OPTION_CALL, .name = "color", .value = "auto|always|never", .optional = true,      \
        .set = terminal_set_colour, .usual = "auto: on a terminal, unless NO_COLOR is set",        \
        .help = "colours on the standard output; without a value: always",                         \
    }

#define OPTION_OF_PROGRESS                                                                         \
    {                                                                                              \
        .kind = OPTION_CALL, .name = "progress", .value = "auto|always|never", .optional = true,   \
        .set = progress_set, .usual = "auto: on a terminal, for what takes more than two seconds", \
        .help = "how far the work is, on stderr; without a value: always, a line every ten "       \
                "seconds where stderr is no terminal",                                             \
    }

int terminal_set_colour(const command_spec *command, const option_spec *option, char *value,
                        void *arguments);
int progress_set(const command_spec *command, const option_spec *option, char *value,
                 void *arguments);

#endif
