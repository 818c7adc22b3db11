/* SPDX-License-Identifier: MIT */
/*
 * The options of the subcommands, as tables. Each option has an entry with its help, its default
 * and its kind of value. The parser, `--help`, the manual pages and the shell completions are all
 * generated from these tables, so they cannot disagree.
 *
 * Texts are prose without line breaks. `Text in backquotes` is what a user types.
 */
#ifndef RVL_CLI_OPTIONS_H
#define RVL_CLI_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "reveille/replay.h"

typedef enum option_kind {
    OPTION_END,
    OPTION_GROUP,    /* a heading; help has its text */
    OPTION_FLAG,     /* bool, set to true; with bit: uint64_t, in which the bit is set */
    OPTION_STRING,   /* const char * */
    OPTION_FILE,     /* const char *; shells complete it with file names */
    OPTION_DOCUMENT, /* option_document of document.h: prints it, or writes it to the value */
    OPTION_DEVICE,   /* const char *: a profile or a size */
    OPTION_CHOICE,   /* const char *: one of the words that value lists, as "sim|cuda" */
    OPTION_WORD,     /* enum: the index of the word in value */
    OPTION_NUMBER,   /* uint32_t, from least to most */
    OPTION_SIZE,     /* uint64_t */
    OPTION_CALL,     /* calls set() with the value */
    OPTION_SETTINGS  /* all settings of a step: calls set() with each value; optional: lists */
} option_kind;

typedef struct option_spec option_spec;
typedef struct command_spec command_spec;

/* Receives the value; NULL: none. Returns 0 or, having complained, the exit status. */
typedef int (*option_set_fn)(const command_spec *command, const option_spec *option, char *value,
                             void *arguments);

struct option_spec {
    option_kind kind;
    char letter; /* 0: none */
    const char *name;
    const char *value; /* its name in --help, or words to choose from as "a|b"; NULL: no value */
    const char *help;
    const char *usual; /* the default; NULL: not mentioned */
    size_t field;      /* offset in the arguments */
    uint64_t bit;      /* for a flag; 0: the field is a bool */
    uint32_t least;
    uint32_t most;
    option_set_fn set;
    const char *expected; /* describes a valid value; NULL: the text of its kind */
    bool repeated;
    bool optional;     /* the value may be left out */
    const char *files; /* endings that completion offers: "rvt rvt.zst"; NULL: any */
};

/* A term and its meaning. Lists end with a NULL term. */
typedef struct text_entry {
    const char *term;
    const char *text;
} text_entry;

struct command_spec {
    const char *name; /* NULL: the command itself */
    const char *summary;
    const char *usage;       /* the text after the name; one form on each line */
    const char *description; /* paragraphs, separated by empty lines */
    const option_spec *options;
    const text_entry *exits;
    const text_entry *examples; /* a command line, and what it does */
    const text_entry *environment;
    const text_entry *files;
    const char *see_also; /* names of pages and documents */
    const char *operands; /* endings of the files that operands name; NULL: no files */
    bool command_follows; /* options end at the first operand */
};

/* Returns a command's i-th option. The options of all commands follow its own. NULL: no more. */
const option_spec *options_at(const command_spec *command, size_t i);

/* The maximum of options and group titles of a command. */
#define OPTIONS_MAX 128

typedef struct option_line {
    int status;              /* the exit status if options_parse() returns false */
    int first;               /* the operands start at argv[first] */
    bool given[OPTIONS_MAX]; /* by index of options_at() */
} option_line;

/*
 * Parses a command line into arguments, at the offsets that the table gives. false: stop and return
 * line_out->status, because help was printed, or an error was found and reported.
 */
bool options_parse(const command_spec *command, int argc, char **argv, void *arguments,
                   option_line *line_out);

/* Whether the command line had the option of that name. */
bool options_given(const command_spec *command, const option_line *line, const char *name);

/* Complains, refers to the command's help, and returns EXIT_BAD_INPUT. */
int options_refuse(const command_spec *command, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Formats "staged|together" as "staged or together", cut to the size of text. */
#define OPTION_WORDS_BYTES 256
void options_list_words(const char *value, char text[OPTION_WORDS_BYTES]);

/* Returns the index of a word in "staged|together"; -1: not found. */
int options_find_word(const char *value, const char *word);

/* Copies the i-th word that value lists. false: no more. A placeholder such as N is not a word. */
bool options_word_at(const char *value, size_t i, char text[OPTION_WORDS_BYTES]);

/* Parses "staged" or "together", for options and for settings of a step or a check. false: neither.
 */
bool options_wake(const char *text, rvl_wake *wake_out);

/* Refuses an output name that has the ending of another format, and suggests a remedy. Returns 0 or
 * the exit status. */
int options_check_ending(const command_spec *command, const char *option, const char *path,
                         const char *endings);

/* Checks the ending of -o, which names a trace (NULL: none). Refuses "-", because the text goes to
 * stdout. Returns 0 or the exit status. */
int options_check_trace(const command_spec *command, const char *path, const char *endings);

/* The budgets of a command line. */
typedef struct option_budgets {
    rvl_budget *list; /* with room for each word of the command line */
    size_t count;
} option_budgets;

/* Allocates the list, which the caller frees. false: no memory. */
bool options_make_budgets(int argc, option_budgets *budgets_out);

/* Adds the budget STAGE=SIZE, and keeps a pointer into value. The option's field is an
 * option_budgets. */
int options_add_budget(const command_spec *command, const option_spec *option, char *value,
                       void *arguments);

/* Whether a path has the ending of a PyTorch snapshot. */
bool options_is_snapshot(const char *path);

/* Refuses options for snapshots if no path is a snapshot. Returns 0 or the exit status. */
int options_check_snapshots(const command_spec *command, const option_line *line,
                            const char *const *paths, size_t path_count);

/* ---- device_option.c ---- */

/*
 * Whether a device can be simulated: a profile, or a size that a GPU may have. If not, stores the
 * reason in why, with similar names.
 */
#define DEVICE_WHY_BYTES 320
bool options_check_device(const char *text, char why[DEVICE_WHY_BYTES]);

/* Warns that 80GB is less than a card has that is sold as 80 GB. */
void options_warn_of_decimal(const char *option, const char *text);

/* ---- help.c ---- */

/* Prints the help of a command, in lines of at most 80 columns. */
void help_print(const command_spec *command);

/* ---- suggest.c ---- */

/* Returns the edit distance of two words, ignoring case: letters changed, added, removed or
 * swapped. */
size_t suggest_distance(const char *a, const char *b);

/* Whether word may be a misspelling of name. */
bool suggest_matches(const char *word, const char *name);

/* ---- Options of several commands ---- */

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
        .usual = "staged", .help = "together: all resumes of a step happen at the first one",      \
    }

#define OPTION_OF_CONDUCTOR(offset)                                                                \
    {                                                                                              \
        .kind = OPTION_STRING, .name = "conductor", .value = "PROCESS", .field = (offset),         \
        .usual = "each marks its own stages",                                                      \
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
        .help = "the process that owns the memory of a PyTorch snapshot (.pickle, .pickle.gz) "    \
                "among the traces",                                                                \
    }

#define OPTION_OF_SNAPSHOT_DEVICE(offset)                                                          \
    {                                                                                              \
        .kind = OPTION_NUMBER, .name = "snapshot-device", .value = "N", .field = (offset),         \
        .usual = "0", .least = 0, .most = RVL_MAX_DEVICES - 1,                                     \
        .help = "the device of this memory",                                                       \
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

/* The values of --color and --progress. Without a value: always. */
typedef enum option_when { WHEN_AUTO, WHEN_ALWAYS, WHEN_NEVER } option_when;

/* Parses such a value. Returns 0 or, having complained, the exit status. */
int options_set_when(const command_spec *command, const option_spec *option, const char *value,
                     option_when *when_out);

/* ---- terminal.c and progress.c ---- */

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
        .help = "show progress on stderr; without a value: always, with a line every ten "         \
                "seconds if stderr is not a terminal",                                             \
    }

int terminal_set_colour(const command_spec *command, const option_spec *option, char *value,
                        void *arguments);
int progress_set(const command_spec *command, const option_spec *option, char *value,
                 void *arguments);

#endif
