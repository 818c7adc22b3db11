/* SPDX-License-Identifier: MIT */
/*
 * Bounded text. Every function ends in one copy that knows the room left, so nothing can overrun. A
 * cut never leaves half a UTF-8 character, because messages and tags go into JSON unchanged.
 */
#include "base/text.h"

#include <string.h>

#define UNIT_SHIFT 10u     /* each unit is 1024 of the one before */
#define PLAIN_LIMIT 10240u /* below this, bytes are exact */

/* Returns how much of string fits into room bytes and ends with a whole character. */
static size_t fitting_length(const char *string, size_t length, size_t room)
{
    if (length <= room)
        return length;
    size_t fits = room;
    while (fits > 0 && ((unsigned char)string[fits] & 0xC0u) == 0x80u)
        fits--;
    return fits;
}

rvli_text rvli_text_begin(char *buffer, size_t size)
{
    if (size > 0)
        buffer[0] = '\0';
    return (rvli_text){.data = buffer, .size = size, .length = 0};
}

void rvli_text_add(rvli_text *text, const char *string)
{
    if (text->size == 0)
        return;
    size_t length = fitting_length(string, strlen(string), text->size - 1 - text->length);
    memcpy(text->data + text->length, string, length);
    text->length += length;
    text->data[text->length] = '\0';
}

void rvli_text_add_u64(rvli_text *text, uint64_t value)
{
    char digits[21];
    char *first = digits + sizeof(digits) - 1;
    *first = '\0';
    do {
        *--first = (char)('0' + value % 10);
        value /= 10;
    } while (value > 0);
    rvli_text_add(text, first);
}

void rvli_text_add_bytes(rvli_text *text, uint64_t bytes)
{
    static const char *const units[] = {" B", " KiB", " MiB", " GiB", " TiB", " PiB", " EiB"};
    if (bytes < PLAIN_LIMIT) {
        rvli_text_add_u64(text, bytes);
        rvli_text_add(text, units[0]);
        return;
    }
    unsigned unit = 1;
    while (unit < 6 && bytes >> (UNIT_SHIFT * (unit + 1)) > 0)
        unit++;
    unsigned shift = UNIT_SHIFT * unit;
    uint64_t whole = bytes >> shift;
    uint64_t rest = bytes & (((uint64_t)1 << shift) - 1);
    uint64_t tenths = (rest * 10 + ((uint64_t)1 << (shift - 1))) >> shift;
    if (tenths == 10) {
        whole++;
        tenths = 0;
    }
    if (whole == 1024 && unit < 6) { /* rounded up into the next unit */
        whole = 1;
        unit++;
    }
    rvli_text_add_u64(text, whole);
    rvli_text_add(text, ".");
    rvli_text_add_u64(text, tenths);
    rvli_text_add(text, units[unit]);
}

void rvli_text_copy(char *buffer, size_t size, const char *string)
{
    rvli_text text = rvli_text_begin(buffer, size);
    rvli_text_add(&text, string);
}
