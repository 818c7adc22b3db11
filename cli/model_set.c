/* SPDX-License-Identifier: MIT */
/*
 * Settings of a step on the command line. The library has their table: what it calls 'train' in its
 * messages is the option --train here.
 */
#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "command.h"
#include "model_set.h"
#include "options.h"

/* ---- Messages ---- */

/* The length of a name in quotes, such as 'train'. 0: there is none here. */
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

/* ---- Options ---- */

/* An option that is made of a setting, with its texts as a command has them. */
typedef struct made_option {
    option_spec spec;
    char value[64];
    char usual[96];
    char help[320];
} made_option;

typedef struct made_options {
    made_option list[OPTIONS_MAX];
    size_t count;
} made_options;

static void add_title(made_options *made, const char *title, bool lists)
{
    made_option *option = &made->list[made->count++];
    snprintf(option->help, sizeof option->help, "%s%s", title,
             lists ? " (lists of settings of a step)" : "");
    option->spec = (option_spec){.kind = OPTION_GROUP, .help = option->help};
}

static void add_option(made_options *made, const rvl_model_setting *setting,
                       const option_spec *place)
{
    made_option *option = &made->list[made->count++];
    const bool lists = place->optional, is_switch = setting->values == NULL;
    snprintf(option->value, sizeof option->value, "%s%s", is_switch ? "yes|no" : setting->values,
             lists ? ",..." : "");
    model_as_options("", setting->usual, option->usual, sizeof option->usual);
    model_as_options("", setting->help, option->help, sizeof option->help);
    if (lists && is_switch)
        strncat(option->help, "; without a value: yes",
                sizeof option->help - strlen(option->help) - 1);
    option->spec = (option_spec){.kind = OPTION_CALL,
                                 .name = setting->name,
                                 .value = is_switch && !lists ? NULL : option->value,
                                 .optional = is_switch && lists,
                                 .help = option->help,
                                 .usual = option->usual,
                                 .expected = is_switch ? NULL : setting->expected,
                                 .set = place->set};
}

static void make_options(const option_spec *place, made_options *made)
{
    rvl_model_setting setting = {.struct_size = sizeof setting};
    const char *group = "";
    for (size_t i = 0; rvl_model_setting_get(i, &setting) == RVL_OK; i++) {
        if (strcmp(setting.name, "device") == 0) /* every command that simulates has one */
            continue;
        if (strcmp(setting.group, group) != 0)
            add_title(made, setting.group, place->optional);
        group = setting.group;
        add_option(made, &setting, place);
    }
}

const option_spec *model_option_at(const option_spec *place, size_t i)
{
    static made_options made[2]; /* of single values, and of lists */
    made_options *of_place = &made[place->optional];
    if (of_place->count == 0)
        make_options(place, of_place);
    return i < of_place->count ? &of_place->list[i].spec : NULL;
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
