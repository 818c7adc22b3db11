/* SPDX-License-Identifier: MIT */
#include "tests/predict/model_configs.h"

#include <stdio.h>
#include <string.h>

#include "tests/support/support.h"

#define CONFIGS RVL_SOURCE_DIR "/tests/data/configs/"
#define PATH_BYTES 256

static rvl_model *good(const char *of, rvl_status status, rvl_model *model)
{
    rvl_error error = {.struct_size = sizeof error};
    rvl_last_error(&error);
    if (status != RVL_OK)
        print_error("%s: %s: %s\n", of, error.key, error.message);
    assert_int_equal(status, RVL_OK);
    return model;
}

rvl_model *open_model(const char *name)
{
    char path[PATH_BYTES];
    rvl_model *model = NULL;
    snprintf(path, sizeof path, CONFIGS "%s.json", name);
    rvl_status status = rvl_model_open(path, &model);
    return good(name, status, model);
}

rvl_model *parse_model(const char *text)
{
    rvl_model *model = NULL;
    rvl_status status = rvl_model_parse(text, strlen(text), &model);
    return good("the text", status, model);
}

void assert_refused(const char *text, const char *key, const char *part)
{
    rvl_error error = {.struct_size = sizeof error};
    rvl_model *model = NULL;
    assert_int_equal(rvl_model_parse(text, strlen(text), &model), RVL_ERR_INVALID);
    rvl_last_error(&error);
    assert_null(model);
    assert_string_equal(error.key, key);
    if (strstr(error.message, part) == NULL)
        print_error("\"%s\" is not in \"%s\"\n", part, error.message);
    assert_non_null(strstr(error.message, part));
}
