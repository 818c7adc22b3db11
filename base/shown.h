/* SPDX-License-Identifier: MIT */
/*
 * Makes text from outside safe to print.
 *
 * Names of stages, tags, processes and files may hold any bytes. Some of them do harm where they
 * are printed: a line break forges a line, an escape character steers a terminal, a mark-up
 * character ends a string. Everything that is printed passes through here on output. Until then,
 * names keep their original bytes.
 *
 * Harmful are bytes that are not UTF-8, controls, line and paragraph separators, characters that
 * change the direction of writing, and noncharacters (U+FFFE, U+FFFF). They are printed as %XX,
 * byte by byte, as traces write them. Text that was already escaped stays unchanged.
 */
#ifndef RVL_BASE_SHOWN_H
#define RVL_BASE_SHOWN_H

#include <stddef.h>

typedef enum rvli_shown_as {
    RVLI_SHOWN_PLAIN, /* a line of text: terminals, tables, messages, cells of CSV */
    RVLI_SHOWN_XML,   /* text or an attribute of XML: also mark-up, as numbers */
    /* A JSON string, also within a <script>: harmful characters, '<', '>' and '&' as \uXXXX. */
    RVLI_SHOWN_JSON,
    RVLI_SHOWN_GITHUB,         /* the message of a workflow command: also %, CR and LF, as GitHub
                                  escapes them */
    RVLI_SHOWN_GITHUB_PROPERTY /* a property of a workflow command: also : and , */
} rvli_shown_as;

/*
 * Writes text to `out` as far as it fits into size bytes, including the final NUL. A cut never
 * splits a character. With size 0, out may be NULL. Returns the full length.
 */
size_t rvli_shown(rvli_shown_as as, const char *text, char *out, size_t size);

#endif
