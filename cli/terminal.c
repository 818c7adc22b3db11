/* SPDX-License-Identifier: MIT */
/* Properties of the terminal: colours, characters and width. */
#include <langinfo.h>
#include <locale.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "command.h"
#include "options.h"

#define COLUMNS_DEFAULT 80u
#define COLUMNS_MAX 1000u

static option_when colour;

int terminal_set_colour(const command_spec *command, const option_spec *option, char *value,
                        void *arguments)
{
    (void)arguments;
    return options_set_when(command, option, value, &colour);
}

bool wants_colour(void)
{
    const char *no_color = getenv("NO_COLOR"), *kind = getenv("TERM");
    if (colour != WHEN_AUTO)
        return colour == WHEN_ALWAYS;
    return isatty(STDOUT_FILENO) == 1 && (no_color == NULL || no_color[0] == '\0') &&
           (kind == NULL || strcmp(kind, "dumb") != 0);
}

/* Returns the locale's name from the first variable that is set, in POSIX's order. */
static const char *locale_name(void)
{
    static const char *const variables[] = {"LC_ALL", "LC_CTYPE", "LANG"};
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++) {
        const char *name = getenv(variables[i]);
        if (name != NULL && name[0] != '\0')
            return name;
    }
    return "C";
}

/* The terminal can use a locale that is not installed here. Then only its name tells. */
bool knows_utf8(void)
{
    locale_t locale = newlocale(LC_CTYPE_MASK, "", (locale_t)0);
    if (locale == (locale_t)0)
        return strcasestr(locale_name(), "utf-8") != NULL ||
               strcasestr(locale_name(), "utf8") != NULL;
    bool utf8 = strcmp(nl_langinfo_l(CODESET, locale), "UTF-8") == 0;
    freelocale(locale);
    return utf8;
}

/* Returns the width from COLUMNS or the terminal. 0: unknown. */
static unsigned known_columns(void)
{
    struct winsize size;
    const char *named = getenv("COLUMNS");
    char *end;
    unsigned long columns = named != NULL && named[0] != '-' ? strtoul(named, &end, 10) : 0;
    if (columns > 0 && *end == '\0')
        return columns < COLUMNS_MAX ? (unsigned)columns : COLUMNS_MAX;
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0)
        return size.ws_col < COLUMNS_MAX ? size.ws_col : COLUMNS_MAX;
    return 0;
}

unsigned terminal_columns(void)
{
    unsigned columns = known_columns();
    return columns > 0 ? columns : COLUMNS_DEFAULT;
}

/* A terminal without a width counts as a pipe: some launchers have such terminals. */
unsigned table_columns(void)
{
    return isatty(STDOUT_FILENO) == 1 ? known_columns() : 0;
}
