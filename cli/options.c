/* SPDX-License-Identifier: MIT */
/* The parser for the tables of options.h: uses getopt_long(), and explains why it failed. */
#include "options.h"

#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "command.h"
#include "document.h"
#include "model_set.h"
#include "reveille/version.h"

#define FIRST_OPTION 256

static int answer_help(const command_spec *command, const option_spec *option, char *value,
                       void *arguments)
{
    (void)option, (void)value, (void)arguments;
    help_print(command);
    return -1;
}

static int answer_version(const command_spec *command, const option_spec *option, char *value,
                          void *arguments)
{
    (void)command, (void)option, (void)value, (void)arguments;
    printf("reveille %s\n", rvl_version());
    return -1;
}

static const option_spec common[] = {
    {.kind = OPTION_CALL, .letter = 'h', .name = "help", .help = "print this", .set = answer_help},
    {.kind = OPTION_CALL,
     .letter = 'V',
     .name = "version",
     .help = "print the version",
     .set = answer_version},
    {.kind = OPTION_END},
};

/* OPTION_SETTINGS stands for several options. */
const option_spec *options_at(const command_spec *command, size_t i)
{
    for (const option_spec *own = command->options; own->kind != OPTION_END; own++) {
        const option_spec *setting;
        if (own->kind != OPTION_SETTINGS && i-- == 0)
            return own;
        for (size_t k = 0; own->kind == OPTION_SETTINGS; k++) {
            if ((setting = model_option_at(own, k)) == NULL)
                break;
            if (i-- == 0)
                return setting;
        }
    }
    return common[i].kind != OPTION_END ? &common[i] : NULL;
}

/* ---- Complaints ---- */

static const char *name_of(const command_spec *command)
{
    return command->name != NULL ? command->name : "";
}

int options_refuse(const command_spec *command, const char *format, ...)
{
    char *message = NULL;
    va_list arguments;
    va_start(arguments, format);
    int length = vasprintf(&message, format, arguments);
    va_end(arguments);
    complain(EXIT_BAD_INPUT, "%s", length >= 0 ? message : "out of host memory");
    if (length >= 0)
        free(message);
    fprintf(stderr, "Try `reveille %s%s--help`.\n", name_of(command),
            command->name != NULL ? " " : "");
    return EXIT_BAD_INPUT;
}

/* ---- Words to choose from ---- */

/* A value that is a list is described as "a|b,...": stops at the comma. */
bool options_word_at(const char *value, size_t i, char text[OPTION_WORDS_BYTES])
{
    for (const char *at = value; at != NULL && *at != '\0';) {
        size_t length = strcspn(at, "|,");
        bool is_word = islower((unsigned char)*at) != 0;
        for (size_t k = 0; k < length; k++)
            is_word = is_word && isupper((unsigned char)at[k]) == 0;
        if (is_word && i-- == 0) {
            snprintf(text, OPTION_WORDS_BYTES, "%.*s", (int)length, at);
            return true;
        }
        at += length;
        at += *at == '|';
        if (*at == ',')
            break;
    }
    return false;
}

int options_find_word(const char *value, const char *word)
{
    char text[OPTION_WORDS_BYTES];
    for (size_t i = 0; options_word_at(value, i, text); i++) {
        if (strcmp(text, word) == 0)
            return (int)i;
    }
    return -1;
}

void options_list_words(const char *value, char text[OPTION_WORDS_BYTES])
{
    char word[OPTION_WORDS_BYTES], next[OPTION_WORDS_BYTES];
    size_t length = 0;
    text[0] = '\0';
    for (size_t i = 0; options_word_at(value, i, word) && length < OPTION_WORDS_BYTES; i++) {
        bool last = !options_word_at(value, i + 1, next);
        const char *between = i == 0 ? "" : (last ? " or " : ", ");
        length +=
            (size_t)snprintf(text + length, OPTION_WORDS_BYTES - length, "%s%s", between, word);
    }
}

bool options_wake(const char *text, rvl_wake *wake_out)
{
    int index = options_find_word("staged|together", text);
    if (index >= 0)
        *wake_out = index == 0 ? RVL_WAKE_STAGED : RVL_WAKE_TOGETHER;
    return index >= 0;
}

/* ---- Values ---- */

/* Describes the values that this option takes. */
static void expect(const option_spec *option, char text[OPTION_WORDS_BYTES])
{
    char first[OPTION_WORDS_BYTES];
    if (option->expected != NULL) {
        snprintf(text, OPTION_WORDS_BYTES, "%s", option->expected);
        return;
    }
    switch (option->kind) {
    case OPTION_DEVICE:
        snprintf(text, OPTION_WORDS_BYTES,
                 "a profile that `reveille devices` lists, the file of one, or a size such as "
                 "80GiB");
        break;
    case OPTION_SIZE:
        snprintf(text, OPTION_WORDS_BYTES, "a size such as 80GiB");
        break;
    case OPTION_NUMBER:
        snprintf(text, OPTION_WORDS_BYTES, "a whole number from %" PRIu32 " to %" PRIu32,
                 option->least, option->most);
        break;
    case OPTION_FILE:
    case OPTION_DOCUMENT:
        snprintf(text, OPTION_WORDS_BYTES, "the name of a file");
        break;
    default:
        if (options_word_at(option->value, 0, first))
            options_list_words(option->value, text);
        else
            snprintf(text, OPTION_WORDS_BYTES, "%s", option->value);
    }
}

static int refuse_value(const command_spec *command, const option_spec *option, const char *value)
{
    char expected[OPTION_WORDS_BYTES];
    expect(option, expected);
    return options_refuse(command, "--%s %s: expected %s", option->name, value, expected);
}

static bool parse_number(const option_spec *option, const char *value, uint32_t *number_out)
{
    char *end;
    errno = 0;
    unsigned long number = strtoul(value, &end, 10);
    if (*value < '0' || *value > '9' || *end != '\0' || errno != 0 || number < option->least ||
        number > option->most)
        return false;
    *number_out = (uint32_t)number;
    return true;
}

static int set_device(const command_spec *command, const option_spec *option, const char *value,
                      const char **field)
{
    char why[DEVICE_WHY_BYTES];
    if (!options_check_device(value, why))
        return options_refuse(command, "--%s %s: %s", option->name, value, why);
    options_warn_of_decimal(option->name, value);
    *field = value;
    return 0;
}

static int set_word(const command_spec *command, const option_spec *option, const char *value,
                    int *field)
{
    int index = options_find_word(option->value, value);
    if (index < 0)
        return refuse_value(command, option, value);
    *field = index;
    return 0;
}

int options_set_when(const command_spec *command, const option_spec *option, const char *value,
                     option_when *when_out)
{
    int index = value != NULL ? options_find_word(option->value, value) : WHEN_ALWAYS;
    if (index < 0)
        return refuse_value(command, option, value);
    *when_out = (option_when)index;
    return 0;
}

/* "-" means the standard output, as does no value. */
static int set_document(const command_spec *command, const option_spec *option, const char *value,
                        option_document *field)
{
    if (value != NULL && *value == '\0')
        return options_refuse(command,
                              "--%s=: expected the name of a file after the =", option->name);
    bool printed = value == NULL || strcmp(value, "-") == 0;
    *field = (option_document){.wanted = true, .path = printed ? NULL : value};
    return 0;
}

static int set_value(const command_spec *command, const option_spec *option, char *value,
                     void *arguments)
{
    void *field = (char *)arguments + option->field;
    _Static_assert(sizeof(rvl_wake) == sizeof(int), "an enum is as large as an int");
    switch (option->kind) {
    case OPTION_FLAG:
        if (option->bit != 0)
            *(uint64_t *)field |= option->bit;
        else
            *(bool *)field = true;
        return 0;
    case OPTION_DEVICE:
        return set_device(command, option, value, field);
    case OPTION_WORD:
        return set_word(command, option, value, field);
    case OPTION_NUMBER:
        return parse_number(option, value, field) ? 0 : refuse_value(command, option, value);
    case OPTION_SIZE:
        return rvl_size_parse(value, field) == RVL_OK ? 0 : refuse_value(command, option, value);
    case OPTION_CALL:
        return option->set(command, option, value, arguments);
    case OPTION_DOCUMENT:
        return set_document(command, option, value, field);
    case OPTION_CHOICE:
        if (options_find_word(option->value, value) < 0)
            return refuse_value(command, option, value);
        break;
    default:
        break;
    }
    *(const char **)field = value;
    return 0;
}

/* ---- Unknown options ---- */

/* Lists the options that start with the word as "--a or --b". Returns their number. An exact match
 * counts as the only one. */
static size_t list_beginning(const command_spec *command, const char *word, size_t length,
                             char list[OPTION_WORDS_BYTES], const option_spec **last_out)
{
    size_t count = 0, used = 0;
    const option_spec *option;
    list[0] = '\0';
    for (size_t i = 0; (option = options_at(command, i)) != NULL; i++) {
        if (option->kind == OPTION_GROUP || strncmp(option->name, word, length) != 0)
            continue;
        *last_out = option;
        if (strlen(option->name) == length)
            return 1;
        if (used < OPTION_WORDS_BYTES)
            used += (size_t)snprintf(list + used, OPTION_WORDS_BYTES - used, "%s--%s",
                                     count > 0 ? " or " : "", option->name);
        count++;
    }
    return count;
}

/* Returns the option name that is most similar to a word. NULL: none is similar. */
static const char *nearest_option(const command_spec *command, const char *word)
{
    const char *best = NULL;
    size_t least = SIZE_MAX;
    const option_spec *option;
    for (size_t i = 0; (option = options_at(command, i)) != NULL; i++) {
        if (option->kind == OPTION_GROUP || !suggest_matches(word, option->name))
            continue;
        size_t distance = suggest_distance(word, option->name);
        if (best == NULL || distance < least) {
            best = option->name;
            least = distance;
        }
    }
    return best;
}

static int refuse_unknown(const command_spec *command, const char *word)
{
    char list[OPTION_WORDS_BYTES], name[OPTION_WORDS_BYTES];
    const option_spec *found = NULL;
    bool is_long = word[0] == '-' && word[1] == '-';
    size_t length = strcspn(word, "=");
    snprintf(name, sizeof name, "%.*s", (int)length, word);
    const char *bare = name + strspn(name, "-");
    size_t count = is_long ? list_beginning(command, bare, strlen(bare), list, &found) : 0;
    if (count > 1)
        return options_refuse(command, "option %s is ambiguous: did you mean %s?", name, list);
    if (count == 1)
        return options_refuse(command, "option --%s takes no value: leave %s out", found->name,
                              word + length);
    const char *meant = strlen(bare) > 1 ? nearest_option(command, bare) : NULL;
    if (meant != NULL)
        return options_refuse(command, "unknown option %s: did you mean --%s?", name, meant);
    return options_refuse(command, "unknown option %s", name);
}

/* word: the option as typed: its letter, last in a group of letters, or an unambiguous prefix. */
static int refuse_missing(const command_spec *command, const char *word)
{
    char list[OPTION_WORDS_BYTES], expected[OPTION_WORDS_BYTES];
    const option_spec *option = NULL;
    if (word[1] == '-') {
        list_beginning(command, word + 2, strlen(word + 2), list, &option);
    } else {
        char letter = word[strlen(word) - 1];
        for (size_t i = 0; (option = options_at(command, i)) != NULL; i++) {
            if (option->kind != OPTION_GROUP && option->letter == letter)
                break;
        }
    }
    if (option == NULL)
        return options_refuse(command, "option %s needs a value", word);
    expect(option, expected);
    return options_refuse(command, "option %s needs a value: %s", word, expected);
}

/* ---- Endings ---- */

static bool ends_with(const char *path, const char *ending, size_t length)
{
    size_t whole = strlen(path);
    return whole > length + 1 && path[whole - length - 1] == '.' &&
           strncasecmp(path + whole - length, ending, length) == 0;
}

/* Whether a path has one of the endings, listed as "html htm". */
static bool has_ending(const char *path, const char *endings)
{
    for (const char *at = endings; *at != '\0'; at += strspn(at, " ")) {
        size_t length = strcspn(at, " ");
        if (ends_with(path, at, length))
            return true;
        at += length;
    }
    return false;
}

/* ---- Command lines ---- */

typedef struct getopt_lists {
    struct option longs[OPTIONS_MAX + 1];
    char letters[3 * OPTIONS_MAX + 3];
} getopt_lists;

static void make_lists(const command_spec *command, getopt_lists *lists)
{
    const option_spec *option;
    char *letter = lists->letters;
    size_t count = 0;
    if (command->command_follows)
        *letter++ = '+';
    *letter++ = ':';
    for (size_t i = 0; (option = options_at(command, i)) != NULL && i < OPTIONS_MAX; i++) {
        if (option->kind == OPTION_GROUP)
            continue;
        int takes = option->value == NULL
                        ? no_argument
                        : (option->optional ? optional_argument : required_argument);
        lists->longs[count++] = (struct option){option->name, takes, NULL, FIRST_OPTION + (int)i};
        if (option->letter != '\0')
            *letter++ = option->letter;
        if (option->letter != '\0' && takes == required_argument)
            *letter++ = ':';
    }
    lists->longs[count] = (struct option){0};
    *letter = '\0';
}

static size_t index_of_letter(const command_spec *command, int letter)
{
    const option_spec *option;
    size_t i = 0;
    while ((option = options_at(command, i)) != NULL &&
           (option->kind == OPTION_GROUP || option->letter != letter))
        i++;
    return i;
}

/* Handles a result of getopt_long(). Returns 0, the exit status, or -1: help was printed, stop. */
static int take_option(const command_spec *command, int answer, const char *word, void *arguments,
                       option_line *line)
{
    if (answer == ':')
        return refuse_missing(command, word);
    if (answer == '?')
        return refuse_unknown(command, word);
    size_t index =
        answer >= FIRST_OPTION ? (size_t)(answer - FIRST_OPTION) : index_of_letter(command, answer);
    line->given[index] = true;
    return set_value(command, options_at(command, index), optarg, arguments);
}

/*
 * Returns the word that getopt's result is about. Options can follow operands; getopt then moves
 * them to the front. Its optind is after the word, or still at it if letters remain in it.
 */
static const char *word_at_fault(char **argv, int before, int answer)
{
    if (answer != '?' || optopt <= 0 || optopt >= FIRST_OPTION)
        return argv[optind > before ? optind - 1 : before];
    const char *whole = argv[optind - 1];
    bool ended = whole[0] == '-' && whole[1] != '-' && whole[strlen(whole) - 1] == optopt;
    return ended ? whole : argv[optind];
}

/* Refuses "-", which other programs take for their input. Here it would be the name of a file. */
static int check_operands(const command_spec *command, char **operands)
{
    for (char **each = operands; command->operands != NULL && *each != NULL; each++)
        if (strcmp(*each, "-") == 0)
            return options_refuse(command, "%s: -: name /dev/stdin to read what is piped in",
                                  command->name);
    return 0;
}

/* Refuses "--json out.json": an optional value must be joined with '='. */
static int check_next(const command_spec *command, const option_spec *option, const char *next)
{
    if (option->kind != OPTION_DOCUMENT || next == NULL || !has_ending(next, option->files) ||
        access(next, F_OK) == 0)
        return 0;
    return options_refuse(command, "--%s %s: join them by =, as --%s=%s", option->name, next,
                          option->name, next);
}

bool options_parse(const command_spec *command, int argc, char **argv, void *arguments,
                   option_line *line_out)
{
    getopt_lists lists;
    make_lists(command, &lists);
    *line_out = (option_line){0};
    opterr = 0;
    optind = 0; /* restarts getopt, which then reads the '+' again */
    for (;;) {
        int at = optind > 0 ? optind : 1;
        int answer = getopt_long(argc, argv, lists.letters, lists.longs, NULL);
        if (answer == -1)
            break;
        const char *word = word_at_fault(argv, at, answer);
        int status = take_option(command, answer, word, arguments, line_out);
        if (status == 0 && answer >= FIRST_OPTION && optarg == NULL)
            status = check_next(command, options_at(command, (size_t)(answer - FIRST_OPTION)),
                                argv[optind]);
        if (status != 0) {
            line_out->status = status > 0 ? status : EXIT_FITS;
            return false;
        }
    }
    line_out->first = optind;
    line_out->status = check_operands(command, argv + optind);
    return line_out->status == 0;
}

bool options_given(const command_spec *command, const option_line *line, const char *name)
{
    const option_spec *option;
    for (size_t i = 0; (option = options_at(command, i)) != NULL; i++) {
        if (option->kind != OPTION_GROUP && strcmp(option->name, name) == 0)
            return line->given[i];
    }
    return false;
}

/* ---- Names of files ---- */

static bool is_special(const char *path)
{
    struct stat found;
    return strcmp(path, "-") == 0 || (stat(path, &found) == 0 && !S_ISREG(found.st_mode));
}

int options_check_ending(const command_spec *command, const char *option, const char *path,
                         const char *endings)
{
    /* Endings of known formats. Any other ending is allowed, such as the date of a run. */
    static const char others[] =
        "html htm svg json rvt zst gz pickle pdf png jpg jpeg gif webp xml csv txt md toml yaml";
    if (path == NULL || is_special(path) || has_ending(path, endings) || !has_ending(path, others))
        return 0;
    const char *slash = strrchr(path, '/');
    const char *base = slash != NULL ? slash + 1 : path;
    return options_refuse(command,
                          "%s %s: this writes .%.*s, and the name says %s: end it in .%.*s", option,
                          path, (int)strcspn(endings, " "), endings, strrchr(base, '.'),
                          (int)strcspn(endings, " "), endings);
}

int options_check_trace(const command_spec *command, const char *path, const char *endings)
{
    if (path != NULL && strcmp(path, "-") == 0)
        return options_refuse(command, "-o -: name a file; ./- is one of that name");
    return options_check_ending(command, "-o", path, endings);
}

bool options_is_snapshot(const char *path)
{
    return has_ending(path, "pickle pickle.gz");
}

int options_check_snapshots(const command_spec *command, const option_line *line,
                            const char *const *paths, size_t path_count)
{
    static const char *const names[] = {"snapshot-process", "snapshot-device"};
    for (size_t i = 0; i < path_count; i++) {
        if (options_is_snapshot(paths[i]))
            return 0;
    }
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (options_given(command, line, names[i]))
            return options_refuse(command,
                                  "--%s: no PyTorch snapshot (.pickle, .pickle.gz) is among the "
                                  "inputs: name one, or leave the option out",
                                  names[i]);
    }
    return 0;
}

bool options_make_budgets(int argc, option_budgets *budgets_out)
{
    *budgets_out = (option_budgets){.list = calloc((size_t)argc, sizeof *budgets_out->list)};
    return budgets_out->list != NULL;
}

/* Splits at the last '=', because the name of a stage may contain one. */
int options_add_budget(const command_spec *command, const option_spec *option, char *value,
                       void *arguments)
{
    option_budgets *budgets = (option_budgets *)((char *)arguments + option->field);
    char *equals = strrchr(value, '=');
    rvl_budget budget = {.stage = value};
    if (equals == NULL || equals == value)
        return options_refuse(command, "--budget %s: expected STAGE=SIZE", value);
    if (rvl_size_parse(equals + 1, &budget.bytes) != RVL_OK)
        return options_refuse(command,
                              "--budget %s: expected a size such as 90GiB after the =", value);
    *equals = '\0';
    budgets->list[budgets->count++] = budget;
    return 0;
}
