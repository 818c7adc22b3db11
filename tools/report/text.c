/* SPDX-License-Identifier: MIT */
/* Names of a trace, which may hold any bytes, in formats that may not. */
#include <stdlib.h>
#include <string.h>

#include "tools/report/report.h"

/* Length of the UTF-8 sequence that begins here; 0: it is none. */
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

static bool is_utf8(const char *text)
{
    const unsigned char *byte = (const unsigned char *)text;
    while (*byte != '\0') {
        size_t length = sequence_length(byte);
        if (length == 0)
            return false;
        byte += length;
    }
    return true;
}

char *utf8_text(const char *name)
{
    if (is_utf8(name))
        return strdup(name);
    char *text = malloc(strlen(name) * 3 + 1);
    if (text == NULL)
        return NULL;
    char *end = text;
    for (const char *byte = name; *byte != '\0'; byte++) {
        unsigned value = (unsigned char)*byte;
        if (value < 0x80)
            *end++ = *byte;
        else
            end += sprintf(end, "%%%02X", value);
    }
    *end = '\0';
    return text;
}

bool write_json_text(FILE *out, const char *text)
{
    char *clean = utf8_text(text);
    if (clean == NULL)
        return false;
    putc('"', out);
    for (const char *byte = clean; *byte != '\0'; byte++) {
        unsigned value = (unsigned char)*byte;
        if (value < 0x20 || value == 0x7f || strchr("<>&\"\\", *byte) != NULL)
            fprintf(out, "\\u%04x", value);
        else
            putc(*byte, out);
    }
    putc('"', out);
    free(clean);
    return true;
}

static const char *entity_of(char byte)
{
    switch (byte) {
    case '<':
        return "&lt;";
    case '>':
        return "&gt;";
    case '&':
        return "&amp;";
    case '"':
        return "&quot;";
    default:
        return NULL;
    }
}

char *clean_text(const char *name)
{
    char *harmless = printable(name);
    char *clean = harmless != NULL ? utf8_text(harmless) : NULL;
    free(harmless);
    return clean;
}

bool write_xml_text(FILE *out, const char *text)
{
    char *clean = clean_text(text);
    if (clean == NULL)
        return false;
    for (const char *byte = clean; *byte != '\0'; byte++) {
        const char *entity = entity_of(*byte);
        if (entity != NULL)
            fputs(entity, out);
        else
            putc(*byte, out);
    }
    free(clean);
    return true;
}
