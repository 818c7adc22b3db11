/* SPDX-License-Identifier: MIT */
/* Messages, sizes and names as people read them. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"

#define KIB (UINT64_C(1) << 10)
#define MIB (UINT64_C(1) << 20)
#define GIB (UINT64_C(1) << 30)

static bool is_control(unsigned char byte)
{
    return byte < 0x20 || byte == 0x7f;
}

char *printable(const char *name)
{
    char *text = malloc(strlen(name) * 3 + 1);
    if (text == NULL)
        return NULL;
    char *end = text;
    for (; *name != '\0'; name++) {
        if (is_control((unsigned char)*name))
            end += sprintf(end, "%%%02X", (unsigned)(unsigned char)*name);
        else
            *end++ = *name;
    }
    *end = '\0';
    return text;
}

int complain(int status, const char *format, ...)
{
    char *message = NULL;
    va_list arguments;
    va_start(arguments, format);
    int length = vasprintf(&message, format, arguments);
    va_end(arguments);
    char *text = length >= 0 ? printable(message) : NULL;
    fprintf(stderr, "reveille: %s\n", text != NULL ? text : "out of host memory");
    free(text);
    if (length >= 0)
        free(message);
    return status;
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
