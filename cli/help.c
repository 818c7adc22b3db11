/* SPDX-License-Identifier: MIT */
/* `--help`, generated from a command's tables. */
#include <stdio.h>
#include <string.h>

#include "command.h"
#include "options.h"

#define WIDTH 80u
#define OPTION_COLUMN 23u /* where the texts of options start */

/* Prints text from column on, indents each further line, and ends the last one. */
static void print_wrapped(const char *text, unsigned column, unsigned indent)
{
    bool begins = true;
    for (const char *at = text; *at != '\0';) {
        unsigned length = (unsigned)strcspn(at, " ");
        if (!begins && column + 1 + length > WIDTH) {
            printf("\n%*s", (int)indent, "");
            column = indent;
            begins = true;
        }
        printf("%s%.*s", begins ? "" : " ", (int)length, at);
        column += length + !begins;
        begins = false;
        at += length;
        at += strspn(at, " ");
    }
    puts("");
}

static void print_paragraphs(const char *text)
{
    char paragraph[2048];
    while (*text != '\0') {
        const char *end = strstr(text, "\n\n");
        size_t length = end != NULL ? (size_t)(end - text) : strlen(text);
        snprintf(paragraph, sizeof paragraph, "%.*s", (int)length, text);
        print_wrapped(paragraph, 0, 0);
        puts("");
        text += length;
        text += strspn(text, "\n");
    }
}

static void print_usage(const command_spec *command)
{
    const char *lead = "usage: reveille";
    for (const char *at = command->usage; *at != '\0';) {
        size_t length = strcspn(at, "\n");
        printf("%s%s%s%s%.*s\n", lead, command->name != NULL ? " " : "",
               command->name != NULL ? command->name : "", length > 0 ? " " : "", (int)length, at);
        lead = "       reveille";
        at += length;
        at += *at == '\n';
    }
}

static void print_option(const option_spec *option)
{
    char left[160], text[1024];
    const char *value = option->value != NULL ? option->value : "";
    const char *between = option->value == NULL ? "" : (option->optional ? "[=" : " ");
    char letter[5] = {'-', option->letter, ',', ' ', '\0'};
    snprintf(left, sizeof left, "  %s--%s%s%s%s", option->letter != '\0' ? letter : "",
             option->name, between, value, option->value != NULL && option->optional ? "]" : "");
    snprintf(text, sizeof text, "%s%s%s%s%s", option->help,
             option->repeated ? "; may be repeated" : "",
             option->usual != NULL ? " (default: " : "", option->usual != NULL ? option->usual : "",
             option->usual != NULL ? ")" : "");
    printf("%s", left);
    if (strlen(left) + 2 > OPTION_COLUMN)
        puts("");
    printf("%*s",
           (int)(strlen(left) + 2 > OPTION_COLUMN ? OPTION_COLUMN : OPTION_COLUMN - strlen(left)),
           "");
    print_wrapped(text, OPTION_COLUMN, OPTION_COLUMN);
}

void help_print(const command_spec *command)
{
    const option_spec *option;
    print_usage(command);
    puts("");
    print_paragraphs(command->description);
    bool grouped = false;
    for (size_t i = 0; (option = options_at(command, i)) != NULL; i++) {
        if (option->kind == OPTION_GROUP)
            printf("%s:\n", option->help);
        else if (!grouped && i == 0)
            puts("Options:");
        grouped = true;
        if (option->kind != OPTION_GROUP)
            print_option(option);
    }
    puts("\nExit status:");
    for (const text_entry *entry = command->exits; entry->term != NULL; entry++) {
        unsigned column = 2 + (unsigned)strlen(entry->term) + 2;
        printf("  %s  ", entry->term);
        print_wrapped(entry->text, column, column);
    }
}
