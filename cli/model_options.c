/* SPDX-License-Identifier: MIT */
/*
 * The options of a command that are settings of a step. They are made at the first request from the
 * library's table. Its texts are adapted to the command line.
 */
#include <stdio.h>
#include <string.h>

#include "model_set.h"
#include "options.h"

/* An option that is made from a setting, and its adapted texts. */
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
        if (strcmp(setting.name, "device") == 0) /* every command that simulates defines its own */
            continue;
        if (strcmp(setting.group, group) != 0)
            add_title(made, setting.group, place->optional);
        group = setting.group;
        add_option(made, &setting, place);
    }
}

const option_spec *model_option_at(const option_spec *place, size_t i)
{
    static made_options made[2]; /* [0]: single values; [1]: lists */
    made_options *of_place = &made[place->optional];
    if (of_place->count == 0)
        make_options(place, of_place);
    return i < of_place->count ? &of_place->list[i].spec : NULL;
}
