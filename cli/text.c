/* SPDX-License-Identifier: MIT */
/* Formats messages, sizes and names for people. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>

#include "command.h"
#include "reveille/version.h"

#define KIB (UINT64_C(1) << 10)
#define MIB (UINT64_C(1) << 20)
#define GIB (UINT64_C(1) << 30)

char *shown(rvli_shown_as as, const char *text)
{
    size_t size = rvli_shown(as, text, NULL, 0) + 1;
    char *made = malloc(size);
    if (made != NULL)
        rvli_shown(as, text, made, size);
    return made;
}

char *printable(const char *name)
{
    return shown(RVLI_SHOWN_PLAIN, name);
}

bool write_shown(FILE *out, rvli_shown_as as, const char *text)
{
    char *made = shown(as, text);
    if (made != NULL)
        fputs(made, out);
    free(made);
    return made != NULL;
}

bool say(const char *format, ...)
{
    size_t end = strlen(format);
    bool line = end > 0 && format[end - 1] == '\n';
    char *text = NULL;
    va_list arguments;
    va_start(arguments, format);
    int length = vasprintf(&text, format, arguments);
    va_end(arguments);
    if (length < 0)
        return false;
    if (line)
        text[length - 1] = '\0';
    bool said = write_shown(stdout, RVLI_SHOWN_PLAIN, text);
    if (line)
        putchar('\n');
    free(text);
    return said;
}

static struct {
    char *text; /* NULL: stderr */
    size_t size;
} complaints;

void complain_into(char *text, size_t size)
{
    complaints.text = text;
    complaints.size = size;
    if (text != NULL)
        text[0] = '\0';
}

/* Prints the version and the system, which a bug report needs beside the message. */
static void name_version(void)
{
    struct utsname system;
    if (uname(&system) == 0)
        fprintf(stderr, "reveille: version %s, %s %s %s\n", rvl_version(), system.sysname,
                system.release, system.machine);
}

static void put_complaint(bool names_version, const char *message)
{
    if (complaints.text == NULL) {
        fprintf(stderr, "reveille: %s\n", message);
        if (names_version)
            name_version();
        return;
    }
    size_t length = strlen(complaints.text);
    snprintf(complaints.text + length, complaints.size - length, "%s%s", length > 0 ? "; " : "",
             message);
}

static void complain_by(bool names_version, const char *format, va_list arguments)
{
    char *message = NULL;
    int length = vasprintf(&message, format, arguments);
    char *text = length >= 0 ? printable(message) : NULL;
    put_complaint(names_version, text != NULL ? text : "out of host memory");
    free(text);
    if (length >= 0)
        free(message);
}

int complain(int status, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    complain_by(status == EXIT_INTERNAL, format, arguments);
    va_end(arguments);
    return status;
}

int complain_of_file(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    complain_by(false, format, arguments);
    va_end(arguments);
    return EXIT_INTERNAL;
}

const char *format_change(double percent, char text[CHANGE_TEXT_BYTES])
{
    bool seen = percent <= -0.005 || percent >= 0.005;
    snprintf(text, CHANGE_TEXT_BYTES, seen ? "%+.2f %%" : "%.2f %%", seen ? percent : 0.0);
    return text;
}

const char *format_times(uint64_t count, char text[TIMES_TEXT_BYTES])
{
    if (count == 1)
        snprintf(text, TIMES_TEXT_BYTES, "once");
    else
        snprintf(text, TIMES_TEXT_BYTES, "%" PRIu64 " times", count);
    return text;
}

const char *format_count(uint64_t count, const char *one, const char *many,
                         char text[COUNT_TEXT_BYTES])
{
    snprintf(text, COUNT_TEXT_BYTES, "%" PRIu64 " %s", count, count == 1 ? one : many);
    return text;
}

const char *format_size(uint64_t bytes, char text[SIZE_TEXT_BYTES])
{
    if (bytes < KIB)
        snprintf(text, SIZE_TEXT_BYTES, "%" PRIu64 " B", bytes);
    else if (bytes < MIB)
        snprintf(text, SIZE_TEXT_BYTES, "%.1f KiB", (double)bytes / (double)KIB);
    else if (bytes < GIB)
        snprintf(text, SIZE_TEXT_BYTES, "%.1f MiB", (double)bytes / (double)MIB);
    else
        snprintf(text, SIZE_TEXT_BYTES, "%.1f GiB", (double)bytes / (double)GIB);
    return text;
}
