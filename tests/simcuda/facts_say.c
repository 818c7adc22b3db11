/* SPDX-License-Identifier: MIT */
#include <stdarg.h>
#include <stdio.h>

#include "facts_need.h"

void say(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vprintf(format, arguments);
    va_end(arguments);
    putchar('\n');
    fflush(stdout);
}
