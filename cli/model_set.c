/* SPDX-License-Identifier: MIT */
/*
 * Settings of a step on the command line. The library has their table. A setting that its messages
 * call 'train' is the option --train here.
 */
#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "command.h"
#include "model_set.h"

/* ---- Messages ---- */

/* Returns the length of a quoted name at this place, such as 'train'. 0: there is none. */
static size_t quoted_name(const char *at)
{
    size_t length = *at == '\'' ? 1 : 0;
    while (length > 0 && (islower((unsigned char)at[length]) ||
                          isdigit((unsigned char)at[length]) || at[length] == '-'))
        length++;
    return length > 1 && at[length] == '\'' ? length - 1 : 0;
}

static bool is_setting(const char *name)
{
    rvl_model_setting setting = {.struct_size = sizeof setting};
    for (size_t i = 0; rvl_model_setting_get(i, &setting) == RVL_OK; i++) {
        if (strcmp(setting.name, name) == 0)
            return true;
    }
    return strcmp(name, "given") == 0;
}

void model_as_options(const char *key, const char *message, char *text, size_t size)
{
    size_t length = 0;
    if (key[0] != '\0')
        length = (size_t)snprintf(text, size, "%s%s: ", is_setting(key) ? "--" : "", key);
    while (*message != '\0' && length + 1 < size) {
        size_t name = quoted_name(message);
        if (name == 0) {
            text[length++] = *message++;
            continue;
        }
        length += (size_t)snprintf(text + length, size - length, "--%.*s", (int)name, message + 1);
        message += name + 2;
    }
    text[length < size ? length : size - 1] = '\0';
}

/* ---- Settings by name ---- */

bool model_set(rvl_model_options *options, const char *name, const char *value,
               char why[MODEL_WHY_BYTES])
{
    rvl_status status = rvl_model_options_set(options, name, value);
    if (status == RVL_ERR_NOT_FOUND)
        snprintf(why, MODEL_WHY_BYTES, "no such setting of a step: %.80s", name);
    else if (status != RVL_OK)
        snprintf(why, MODEL_WHY_BYTES, "--%s %.80s: %s", name, value, rvli_error_get()->message);
    return status == RVL_OK;
}

bool model_setting_idle(const rvl_model_options *options, const char *name,
                        char why[MODEL_WHY_BYTES])
{
    bool idle = rvl_model_options_check(options, name) == RVL_ERR_INVALID;
    if (idle)
        model_as_options("", rvli_error_get()->message, why, MODEL_WHY_BYTES);
    return idle;
}

bool model_is_cache(const char *tag)
{
    return tag != NULL && (strcmp(tag, "kv_cache") == 0 || strcmp(tag, "engine/kv_cache") == 0);
}

/* ---- Terms of known size ---- */

bool model_set_given(const char *name, const char *size, rvl_model_given *given_out,
                     char why[MODEL_WHY_BYTES])
{
    rvl_model_given given = {0};
    if (strcmp(size, "0") != 0 && rvl_size_parse(size, &given.bytes) != RVL_OK) {
        snprintf(why, MODEL_WHY_BYTES,
                 "--given %.40s=%.40s: expected a size such as 2.5GiB, or 0, after the =", name,
                 size);
        return false;
    }
#define FIND(name_, tag, meaning)                                                                  \
    if (strcmp(name, tag) == 0) {                                                                  \
        given.term = RVL_MODEL_##name_;                                                            \
        *given_out = given;                                                                        \
        return true;                                                                               \
    }
    RVL_MODEL_TERM_MAP(FIND)
#undef FIND
    snprintf(why, MODEL_WHY_BYTES,
             "--given %.80s: no such term; a step's terms are what `reveille model` prints", name);
    return false;
}

int model_describe(rvl_status status, const char *config, char *text, size_t size)
{
    const rvl_error *error = rvli_error_get();
    char why[MODEL_WHY_BYTES];
    model_as_options(error->line > 0 ? "" : error->key, error->message, why, sizeof why);
    if (error->line > 0)
        snprintf(text, size, "%s:%" PRIu32 ": %s", config, error->line, why);
    else
        snprintf(text, size, "%s: %s", config, why);
    return status == RVL_ERR_HOST_OOM ? EXIT_INTERNAL : EXIT_BAD_INPUT;
}

int model_explain(rvl_status status, const char *config)
{
    char text[EXPLANATION_BYTES];
    int code = model_describe(status, config, text, sizeof text);
    return complain(code, "%s", text);
}
