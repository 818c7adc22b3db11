/* SPDX-License-Identifier: MIT */
/* Prints each character as it is, or escapes it. */
#include "base/shown.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define PIECE_BYTES 40 /* enough for four bytes of a character, each as %25XX */

/* ---- Characters ---- */

/* Returns the length of the UTF-8 sequence that begins here, or 0 if it is invalid. */
static size_t sequence_length(const unsigned char *text)
{
    static const struct {
        unsigned char low, high, second_low, second_high;
        size_t length;
    } forms[] = {
        {0x01, 0x7f, 0, 0, 1},       {0xc2, 0xdf, 0x80, 0xbf, 2}, {0xe0, 0xe0, 0xa0, 0xbf, 3},
        {0xe1, 0xec, 0x80, 0xbf, 3}, {0xed, 0xed, 0x80, 0x9f, 3}, {0xee, 0xef, 0x80, 0xbf, 3},
        {0xf0, 0xf0, 0x90, 0xbf, 4}, {0xf1, 0xf3, 0x80, 0xbf, 4}, {0xf4, 0xf4, 0x80, 0x8f, 4},
    };
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
        if (text[0] < forms[i].low || text[0] > forms[i].high)
            continue;
        if (forms[i].length > 1 &&
            (text[1] < forms[i].second_low || text[1] > forms[i].second_high))
            return 0;
        for (size_t next = 2; next < forms[i].length; next++) {
            if ((text[next] & 0xc0) != 0x80)
                return 0;
        }
        return forms[i].length;
    }
    return 0;
}

static uint32_t code_point(const unsigned char *text, size_t length)
{
    static const unsigned char first_bits[] = {0, 0x7f, 0x1f, 0x0f, 0x07};
    uint32_t code = text[0] & (uint32_t)first_bits[length];
    for (size_t i = 1; i < length; i++)
        code = code << 6 | (text[i] & 0x3fu);
    return code;
}

static bool is_harmful(uint32_t code)
{
    return code < 0x20 || (code >= 0x7f && code < 0xa0) || /* controls */
           (code >= 0x2028 && code <= 0x202e) ||           /* separators, directions */
           (code >= 0x2066 && code <= 0x2069) ||           /* directions */
           (code & 0xfffe) == 0xfffe;                      /* noncharacters */
}

/* ---- Escapes ---- */

/* Returns whether a byte is mark-up that could end the surrounding text. */
static bool is_markup(rvli_shown_as as, char byte)
{
    static const char *const marks[] = {
        [RVLI_SHOWN_PLAIN] = "",
        [RVLI_SHOWN_XML] = "<>&\"'",
        [RVLI_SHOWN_JSON] = "<>&\"\\",
        [RVLI_SHOWN_GITHUB] = "%",
        [RVLI_SHOWN_GITHUB_PROPERTY] = "%:,",
    };
    return strchr(marks[as], byte) != NULL;
}

static bool is_github(rvli_shown_as as)
{
    return as == RVLI_SHOWN_GITHUB || as == RVLI_SHOWN_GITHUB_PROPERTY;
}

/* Escapes a well-formed character. Returns false if it has to be escaped byte by byte. */
static bool write_character(rvli_shown_as as, uint32_t code, char piece[PIECE_BYTES])
{
    if (as == RVLI_SHOWN_JSON && code <= 0xffff)
        snprintf(piece, PIECE_BYTES, "\\u%04x", (unsigned)code);
    else if (as == RVLI_SHOWN_XML && !is_harmful(code))
        snprintf(piece, PIECE_BYTES, "&#%u;", (unsigned)code);
    else if (is_github(as) && (!is_harmful(code) || code == '\n' || code == '\r'))
        snprintf(piece, PIECE_BYTES, "%%%02X", (unsigned)code);
    else
        return false;
    return true;
}

static void write_bytes(rvli_shown_as as, const unsigned char *text, size_t length,
                        char piece[PIECE_BYTES])
{
    const char *percent = is_github(as) ? "%25" : "%";
    size_t used = 0;
    for (size_t i = 0; i < length; i++)
        used += (size_t)snprintf(piece + used, PIECE_BYTES - used, "%s%02X", percent, text[i]);
}

/* Writes the next character as it is to be printed. Returns how many bytes of the text it takes. */
static size_t write_piece(rvli_shown_as as, const unsigned char *text, char piece[PIECE_BYTES])
{
    size_t length = sequence_length(text);
    if (length == 0) {
        write_bytes(as, text, 1, piece);
        return 1;
    }
    uint32_t code = code_point(text, length);
    if (!is_harmful(code) && !(length == 1 && is_markup(as, (char)text[0]))) {
        memcpy(piece, text, length);
        piece[length] = '\0';
    } else if (!write_character(as, code, piece)) {
        write_bytes(as, text, length, piece);
    }
    return length;
}

size_t rvli_shown(rvli_shown_as as, const char *text, char *out, size_t size)
{
    const unsigned char *at = (const unsigned char *)text;
    size_t length = 0;
    bool fits = size > 0;
    if (fits)
        out[0] = '\0';
    while (*at != '\0') {
        char piece[PIECE_BYTES];
        at += write_piece(as, at, piece);
        size_t bytes = strlen(piece);
        fits = fits && length + bytes < size;
        if (fits)
            memcpy(out + length, piece, bytes + 1);
        length += bytes;
    }
    return length;
}
