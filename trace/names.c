/* SPDX-License-Identifier: MIT */
#include "trace/names.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "trace/format.h"

static int hex_value(char digit)
{
    if (digit >= '0' && digit <= '9')
        return digit - '0';
    if (digit >= 'A' && digit <= 'F')
        return digit - 'A' + 10;
    return -1;
}

/* Whether a byte was escaped without need: each name can be written in only one way. */
static bool needless(unsigned char byte, size_t raw_length)
{
    bool whole_dash = byte == '-' && raw_length == 3;
    return byte == 0 || (!rvli_trace_must_escape(byte) && !whole_dash);
}

/* Decodes into text. On failure, returns the reason, with its place in *at_out. */
static const char *decode(const char *raw, size_t length, char *text, size_t *at_out)
{
    size_t used = 0;
    *at_out = 0;
    if (length == 1 && raw[0] == '-')
        return "a name must stand here, not -";
    for (size_t i = 0; i < length; i++) {
        unsigned char byte = (unsigned char)raw[i];
        *at_out = i;
        if (byte == '%') {
            int high = i + 2 < length ? hex_value(raw[i + 1]) : -1;
            int low = i + 2 < length ? hex_value(raw[i + 2]) : -1;
            if (high < 0 || low < 0)
                return "% must be followed by two upper-case hexadecimal digits";
            byte = (unsigned char)(high * 16 + low);
            if (needless(byte, length))
                return "this byte must not be written as %XX";
            i += 2;
        } else if (rvli_trace_must_escape(byte)) {
            return "control bytes in a name are written as %XX";
        }
        if (used == RVLI_TRACE_NAME_BYTES_MAX)
            return "a name may have at most 255 bytes";
        text[used++] = (char)byte;
    }
    *at_out = 0;
    text[used] = '\0';
    return used == 0 ? "a name must have at least 1 byte" : NULL;
}

static rvl_status add(rvli_names *names, const char *raw, size_t length, const char *text,
                      rvli_name **name_out)
{
    rvli_name *name = calloc(1, sizeof *name + length + 1);
    if (name != NULL)
        name->text = strdup(text);
    if (name == NULL || name->text == NULL) {
        free(name);
        return rvli_error(RVL_ERR_HOST_OOM, "no host memory for a name");
    }
    memcpy(name->raw, raw, length);
    name->raw_length = (uint32_t)length;
    name->index = names->count;
    HASH_ADD_KEYPTR(hh, names->by_raw, name->raw, length, name);
    if (name->hh.tbl == NULL) {
        free(name->text);
        free(name);
        return rvli_error(RVL_ERR_HOST_OOM, "no host memory for a name");
    }
    names->count++;
    names->last = name;
    *name_out = name;
    return RVL_OK;
}

rvli_name *rvli_names_find(rvli_names *names, const char *raw, size_t length)
{
    rvli_name *name = NULL;
    HASH_FIND(hh, names->by_raw, raw, length, name);
    if (name != NULL)
        names->last = name;
    return name;
}

rvl_status rvli_names_get(rvli_names *names, const char *raw, size_t length, rvli_name **name_out,
                          const char **why_out, size_t *at_out)
{
    char text[RVLI_TRACE_NAME_BYTES_MAX + 1];
    *name_out = rvli_names_find(names, raw, length);
    if (*name_out != NULL)
        return RVL_OK;
    *why_out = decode(raw, length, text, at_out);
    if (*why_out == NULL && names->count >= RVLI_NAMES_MAX)
        *why_out = "more than 1000000 different names";
    if (*why_out != NULL)
        return RVL_ERR_CORRUPT_TRACE;
    return add(names, raw, length, text, name_out);
}

void rvli_names_destroy(rvli_names *names)
{
    rvli_name *name, *next;
    HASH_ITER (hh, names->by_raw, name, next) {
        HASH_DEL(names->by_raw, name);
        free(name->text);
        free(name);
    }
    *names = (rvli_names){0};
}
