/* SPDX-License-Identifier: MIT */
/*
 * Text from outside, as it may be shown.
 *
 * Names of stages, tags, processes and files may hold any bytes. Some of them do harm where they
 * are shown: a line break forges a line, an escape character steers a terminal, a mark-up character
 * ends a string. Everything that is printed passes through here, on its way out: names are kept as
 * they are until then.
 *
 * Harmful are bytes that are no UTF-8, controls, line and paragraph separators, characters that
 * turn the direction of writing, and those that are none (U+FFFE, U+FFFF). They are shown as %XX,
 * byte by byte, as traces write them. What has been made harmless stays as it is.
 */
#ifndef RVL_BASE_SHOWN_H
#define RVL_BASE_SHOWN_H

#include <stddef.h>

typedef enum rvli_shown_as {
    RVLI_SHOWN_PLAIN, /* a line of text: terminals, tables, messages, cells of CSV */
    RVLI_SHOWN_XML,   /* text or an attribute of XML: mark-up as numbers, too */
    /* In a JSON string, also within a <script>: harmful characters as \uXXXX, '<', '>', '&' too. */
    RVLI_SHOWN_JSON,
    RVLI_SHOWN_GITHUB,         /* the message of a workflow command: %, CR and LF as it escapes */
    RVLI_SHOWN_GITHUB_PROPERTY /* and a property of one: : and , too */
} rvli_shown_as;

/*
 * Writes text to `out` as far as it fits into size bytes, the final NUL included; what is cut ends
 * with a whole character. size 0: out may be NULL. Returns the length of all of it.
 */
size_t rvli_shown(rvli_shown_as as, const char *text, char *out, size_t size);

#endif
