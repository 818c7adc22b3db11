/* SPDX-License-Identifier: MIT */
/* reveille manual: the pages of section 1, generated from the tables of the commands. */
#include <ctype.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "command.h"
#include "commands.h"
#include "reveille/version.h"

#define PAGES_DATE "2026-11-28" /* update it when the texts change */
#define LINE_BYTES 76

const command_spec manual_spec = {
    .name = "manual",
    .summary = "show the manual page of a command",
    .usage = "[COMMAND]",
    .description = "Shows the manual page of a command, or that of reveille itself. On a terminal, "
                   "man(1) or mandoc(1) renders it; if neither is installed, the help is shown. "
                   "Elsewhere, such as in a pipe or a file, it is troff. Packages install these "
                   "pages; use this command where they do not, such as after `pip install`.",
    .options = (const option_spec[]){{.kind = OPTION_END}},
    .exits =
        (const text_entry[]){{"0", "printed"}, {"2", "there is no such command"}, {NULL, NULL}},
    .examples =
        (const text_entry[]){{"reveille manual replay", "Read a page."},
                             {"reveille manual replay > reveille-replay.1", "Keep it, as troff."},
                             {NULL, NULL}},
    .see_also = "reveille(1), man(1)",
};

/* ---- Text as troff ---- */

/* Whether the reader types this hyphen, which makes it a minus sign. Hyphens of prose stay. */
static bool is_typed_hyphen(const char *text, const char *at, bool quoted)
{
    return quoted || at[1] == '-' || (at > text && at[-1] == '-') ||
           (at > text && strchr(" ([=`", at[-1]) != NULL) || at == text;
}

static void put_char(const char *text, const char *at, bool quoted)
{
    if (*at == '\\')
        fputs("\\e", stdout);
    else if (*at == '-' && is_typed_hyphen(text, at, quoted))
        fputs("\\-", stdout);
    else if (*at == '~')
        fputs("\\(ti", stdout);
    else if (*at == '^')
        fputs("\\(ha", stdout);
    else
        putchar(*at);
}

/* Wraps text into lines short enough for the tools. Escapes a dot or a quote at the start of a
 * line, which would be a request. */
static void print_text(const char *text)
{
    size_t column = 0;
    bool quoted = false;
    for (const char *at = text; *at != '\0'; at++) {
        if (*at == '`') {
            quoted = !quoted;
            fputs(quoted ? "\\fB" : "\\fR", stdout);
            column += 3;
            continue;
        }
        if (*at == ' ' && column + strcspn(at + 1, " ") + 8 > LINE_BYTES) {
            putchar('\n');
            column = 0;
            continue;
        }
        if (column == 0 && (*at == '.' || *at == '\''))
            fputs("\\&", stdout);
        put_char(text, at, quoted);
        column++;
    }
    putchar('\n');
}

static void print_paragraphs(const char *text)
{
    char paragraph[2048];
    for (bool first = true; *text != '\0'; first = false) {
        const char *end = strstr(text, "\n\n");
        size_t length = end != NULL ? (size_t)(end - text) : strlen(text);
        snprintf(paragraph, sizeof paragraph, "%.*s", (int)length, text);
        if (!first)
            puts(".PP");
        print_text(paragraph);
        text += length;
        text += strspn(text, "\n");
    }
}

/* Prints text that the reader types, in the current font, without a line break. */
static void print_literal(const char *text, size_t length)
{
    for (size_t i = 0; i < length; i++)
        put_char(text, &text[i], true);
}

/* ---- A page ---- */

static void print_head(const command_spec *command)
{
    const char *name = command->name != NULL ? command->name : "";
    fputs(".TH REVEILLE", stdout);
    if (*name != '\0')
        fputs("\\-", stdout);
    for (const char *at = name; *at != '\0'; at++)
        putchar(toupper((unsigned char)*at));
    printf(" 1 \"" PAGES_DATE "\" \"reveille %s\" \"User Commands\"\n", rvl_version());
    puts(".nh\n.ad l"); /* no hyphenation, so that a search finds words */
    printf(".SH NAME\nreveille%s%s \\- %s\n", *name != '\0' ? "\\-" : "", name, command->summary);
}

static void print_synopsis(const command_spec *command)
{
    puts(".SH SYNOPSIS");
    bool first = true;
    for (const char *at = command->usage; *at != '\0' || first; first = false) {
        size_t length = strcspn(at, "\n");
        if (!first)
            puts(".br");
        fputs(".B reveille", stdout);
        if (command->name != NULL)
            printf(" %s", command->name);
        putchar('\n');
        if (length > 0) {
            print_literal(at, length);
            putchar('\n');
        }
        at += length;
        at += *at == '\n';
    }
}

static void print_option(const option_spec *option)
{
    fputs(".TP\n", stdout);
    if (option->letter != '\0')
        printf("\\fB\\-%c\\fR, ", option->letter);
    fputs("\\fB\\-\\-", stdout);
    print_literal(option->name, strlen(option->name));
    fputs("\\fR", stdout);
    if (option->value != NULL) {
        fputs(option->optional ? "[=\\fI" : " \\fI", stdout);
        print_literal(option->value, strlen(option->value));
        fputs(option->optional ? "\\fR]" : "\\fR", stdout);
    }
    char text[1024];
    /* "together: ..." starts with a value, which keeps its lower case. */
    bool is_value = option->help[strcspn(option->help, ": ")] == ':';
    int first = is_value ? option->help[0] : toupper((unsigned char)option->help[0]);
    snprintf(text, sizeof text, "%c%s%s.%s%s%s", first, option->help + 1,
             option->repeated ? "; may be repeated" : "", option->usual != NULL ? " Default: " : "",
             option->usual != NULL ? option->usual : "", option->usual != NULL ? "." : "");
    putchar('\n');
    print_text(text);
}

static void print_options(const command_spec *command)
{
    const option_spec *option;
    puts(".SH OPTIONS");
    for (size_t i = 0; (option = options_at(command, i)) != NULL; i++) {
        if (option->kind == OPTION_GROUP) {
            fputs(".SS ", stdout);
            print_literal(option->help, strlen(option->help));
            putchar('\n');
        } else {
            print_option(option);
        }
    }
}

static void print_entries(const char *title, const text_entry *entry)
{
    if (entry == NULL)
        return;
    printf(".SH %s\n", title);
    for (; entry->term != NULL; entry++) {
        fputs(".TP\n\\fB", stdout);
        print_literal(entry->term, strlen(entry->term));
        puts("\\fR");
        print_text(entry->text);
    }
}

static void print_examples(const text_entry *entry)
{
    puts(".SH EXAMPLES");
    for (bool first = true; entry->term != NULL; entry++, first = false) {
        if (!first)
            puts(".PP");
        print_text(entry->text);
        fputs(".PP\n.RS 4\n.EX\n", stdout);
        print_literal(entry->term, strlen(entry->term));
        puts("\n.EE\n.RE");
    }
}

static void print_commands(void)
{
    puts(".SH COMMANDS");
    for (const subcommand *each = commands; each->spec != NULL; each++) {
        printf(".TP\n\\fBreveille\\-%s\\fR(1)\n", each->spec->name);
        print_text(each->spec->summary);
    }
}

static void print_page(const command_spec *command)
{
    print_head(command);
    print_synopsis(command);
    puts(".SH DESCRIPTION");
    print_paragraphs(command->description);
    if (command->name == NULL)
        print_commands();
    print_options(command);
    print_entries("EXIT STATUS", command->exits);
    print_examples(command->examples);
    print_entries("ENVIRONMENT", command->environment);
    print_entries("FILES", command->files);
    puts(".SH SEE ALSO");
    print_text(command->see_also);
}

/* ---- On a terminal ---- */

/* Commands that render a page from their standard input and show it in a pager. */
static const char *const renderers[] = {"command -v man >/dev/null 2>&1 && exec man -l -",
                                        "command -v mandoc >/dev/null 2>&1 && exec mandoc -a"};

/* Returns the page as text, which the caller frees. Redirects `stdout`, which is a variable in
 * glibc. NULL: no memory. */
static char *page_text(const command_spec *command)
{
    char *text = NULL;
    size_t size = 0;
    FILE *terminal = stdout, *page = open_memstream(&text, &size);
    if (page == NULL)
        return NULL;
    stdout = page;
    print_page(command);
    stdout = terminal;
    if (fclose(page) == 0)
        return text;
    free(text);
    return NULL;
}

/* Ignores SIGPIPE: the reader may quit the pager before it has read the whole page. */
static bool render(const char *renderer, const char *page)
{
    void (*before)(int) = signal(SIGPIPE, SIG_IGN);
    FILE *to = popen(renderer, "w");
    if (to != NULL)
        fputs(page, to);
    bool shown = to != NULL && pclose(to) == 0;
    signal(SIGPIPE, before);
    return shown;
}

/* Prints troff, for programs. On a terminal shows the rendered page, or the help if no renderer is
 * installed. */
static int show_page(const command_spec *command)
{
    if (isatty(STDOUT_FILENO) != 1) {
        print_page(command);
        return EXIT_FITS;
    }
    char *page = page_text(command);
    if (page == NULL)
        return complain(EXIT_INTERNAL, "out of host memory");
    bool shown = false;
    for (size_t i = 0; !shown && i < sizeof renderers / sizeof *renderers; i++)
        shown = render(renderers[i], page);
    free(page);
    if (!shown)
        help_print(command);
    return EXIT_FITS;
}

int command_manual(int argc, char **argv)
{
    option_line line;
    if (!options_parse(&manual_spec, argc, argv, NULL, &line))
        return line.status;
    if (argc - line.first > 1)
        return options_refuse(&manual_spec, "manual: name one command");
    if (line.first == argc) {
        return show_page(&reveille_spec);
    }
    const subcommand *found = commands_find(argv[line.first]);
    if (found == NULL)
        return EXIT_BAD_INPUT;
    return show_page(found->spec);
}
