/* SPDX-License-Identifier: MIT */
/*
 * Builds the JSON of results with jansson. jansson takes ownership of every value that is set.
 * Making a value without memory returns NULL, and setting NULL fails, so one flag carries every
 * failure to the end. The functions are in this header because base/ does not link jansson.
 */
#ifndef RVL_BASE_JSON_H
#define RVL_BASE_JSON_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

#include "base/shown.h"

static inline void rvli_json_set(json_t *object, const char *key, json_t *value, bool *ok)
{
    if (json_object_set_new(object, key, value) != 0)
        *ok = false;
}

static inline void rvli_json_append(json_t *array, json_t *value, bool *ok)
{
    if (json_array_append_new(array, value) != 0)
        *ok = false;
}

static inline json_t *rvli_json_bytes(uint64_t bytes)
{
    return json_integer(bytes > (uint64_t)INT64_MAX ? INT64_MAX : (json_int_t)bytes);
}

/*
 * Names may hold any bytes. Bytes that are not UTF-8 become %XX, as traces write them. A NULL text
 * becomes null.
 */
static inline json_t *rvli_json_text(const char *text)
{
    json_t *json = text != NULL ? json_string(text) : json_null();
    if (json != NULL)
        return json;
    size_t size = rvli_shown(RVLI_SHOWN_PLAIN, text, NULL, 0) + 1;
    char *shown = malloc(size);
    if (shown == NULL)
        return NULL;
    rvli_shown(RVLI_SHOWN_PLAIN, text, shown, size);
    json = json_string(shown);
    free(shown);
    return json;
}

#endif
