/* SPDX-License-Identifier: MIT */
/* Reads values of a file of checks by their keys, and complains of bad ones. */
#include "check/reading.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check/toml.h"
#include "options.h"

bool reading_refuse(const reading *r, const char *format, ...)
{
    char what[CHECK_TEXT_BYTES];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(what, sizeof what, format, arguments);
    va_end(arguments);
    if (r->check != NULL)
        complain(EXIT_BAD_INPUT, "%s: check %s: %s", r->file->path, r->check, what);
    else
        complain(EXIT_BAD_INPUT, "%s: %s", r->file->path, what);
    return false;
}

bool reading_no_memory(const reading *r)
{
    return reading_refuse(r, "out of host memory");
}

bool reading_refuse_at(const reading *r, const json_t *object, const char *key, const char *what)
{
    int line = 0, column = 0;
    bool known = false;
#ifdef RVL_HAVE_TOML
    known = r->places != NULL && check_toml_place(r->places, object, key, &line, &column);
#else
    (void)object, (void)key;
#endif
    if (!known)
        return reading_refuse(r, "%s", what);
    complain(EXIT_BAD_INPUT, "%s:%d:%d: %s%s%s%s", r->file->path, line, column,
             r->check != NULL ? "check " : "", r->check != NULL ? r->check : "",
             r->check != NULL ? ": " : "", what);
    return false;
}

static bool refuse_key(const reading *r, const json_t *object, const char *key, const char *what,
                       const char *const *known)
{
    char text[CHECK_TEXT_BYTES];
    const char *meant = NULL;
    for (size_t i = 0; known[i] != NULL && meant == NULL; i++)
        meant = suggest_matches(key, known[i]) ? known[i] : NULL;
    if (meant != NULL)
        snprintf(text, sizeof text,
                 "unknown key \"%.128s\" in %s: is it \"%s\"? docs/check.md lists them", key, what,
                 meant);
    else
        snprintf(text, sizeof text, "unknown key \"%.128s\" in %s: docs/check.md lists them", key,
                 what);
    return reading_refuse_at(r, object, key, text);
}

bool reading_keys(const reading *r, const json_t *object, const char *what,
                  const char *const *known)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)object, key, value)
    {
        size_t i = 0;
        while (known[i] != NULL && strcmp(known[i], key) != 0)
            i++;
        if (known[i] == NULL)
            return refuse_key(r, object, key, what, known);
    }
    return true;
}

char *reading_path(const reading *r, const char *path)
{
    const char *slash = strrchr(r->file->path, '/');
    char *whole;
    if (path[0] == '/' || slash == NULL)
        return strdup(path);
    int folder = (int)(slash - r->file->path) + 1;
    return asprintf(&whole, "%.*s%s", folder, r->file->path, path) >= 0 ? whole : NULL;
}

bool reading_string(const reading *r, const json_t *object, const char *key, const char **text_out)
{
    const json_t *value = json_object_get(object, key);
    *text_out = json_string_value(value);
    if (value != NULL && (*text_out == NULL || **text_out == '\0'))
        return reading_refuse(r, "\"%s\": expected a string that is not empty", key);
    return true;
}

bool reading_tolerance(const reading *r, const json_t *object, double *percent)
{
    const json_t *value = json_object_get(object, "tolerance_percent");
    if (value == NULL)
        return true;
    if (!json_is_number(value) || !(json_number_value(value) >= 0) ||
        json_number_value(value) > 100)
        return reading_refuse(r, "\"tolerance_percent\": expected a number from 0 to 100");
    *percent = json_number_value(value);
    return true;
}

bool reading_headroom(const reading *r, const json_t *object, option_headroom *headroom)
{
    const json_t *value = json_object_get(object, "headroom");
    if (value == NULL)
        return true;
    if (json_is_string(value) && verdict_read_headroom(json_string_value(value), headroom))
        return true;
    if (!json_is_integer(value) || json_integer_value(value) < 0)
        return reading_refuse(r, "\"headroom\": expected a part such as \"3%%\", a size such as "
                                 "\"2GiB\", or bytes");
    *headroom = (option_headroom){.flag = RVL_REPLAY_HEADROOM_BYTES,
                                  .bytes = (uint64_t)json_integer_value(value)};
    return true;
}

bool reading_flag(const reading *r, const json_t *object, const char *key, bool *flag)
{
    const json_t *value = json_object_get(object, key);
    if (value == NULL)
        return true;
    *flag = json_is_true(value);
    return json_is_boolean(value) || reading_refuse(r, "\"%s\": expected true or false", key);
}

bool reading_list(const reading *r, const json_t *value, const char *key, const char ***list_out,
                  size_t *count_out)
{
    size_t count = json_is_array(value) ? json_array_size(value) : 1;
    *list_out = calloc(count + 1, sizeof **list_out);
    *count_out = 0;
    if (*list_out == NULL)
        return reading_no_memory(r);
    for (size_t i = 0; i < count; i++) {
        const json_t *item = json_is_array(value) ? json_array_get(value, i) : value;
        (*list_out)[i] = json_string_value(item);
        if ((*list_out)[i] == NULL || *(*list_out)[i] == '\0')
            return reading_refuse(r, "\"%s\": expected a string, or a list of them", key);
        ++*count_out;
    }
    return count > 0 || reading_refuse(r, "\"%s\": an empty list", key);
}

bool reading_number(const reading *r, const json_t *object, const char *key, uint32_t least,
                    uint32_t most, uint32_t *number)
{
    const json_t *value = json_object_get(object, key);
    if (value == NULL)
        return true;
    if (!json_is_integer(value) || json_integer_value(value) < (json_int_t)least ||
        json_integer_value(value) > (json_int_t)most)
        return reading_refuse(r, "\"%s\": expected a number from %" PRIu32 " to %" PRIu32, key,
                              least, most);
    *number = (uint32_t)json_integer_value(value);
    return true;
}

bool reading_size(const reading *r, const json_t *object, const char *key, json_int_t least,
                  uint64_t *bytes)
{
    const json_t *value = json_object_get(object, key);
    if (value == NULL ||
        (json_is_string(value) && rvl_size_parse(json_string_value(value), bytes) == RVL_OK))
        return true;
    if (!json_is_integer(value) || json_integer_value(value) < least)
        return reading_refuse(r, "\"%s\": expected a size such as \"90GiB\", or bytes", key);
    *bytes = (uint64_t)json_integer_value(value);
    return true;
}
