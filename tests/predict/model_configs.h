/* SPDX-License-Identifier: MIT */
/* Models of the tests' configs, and what configs are refused for. */
#ifndef RVL_TESTS_PREDICT_MODEL_CONFIGS_H
#define RVL_TESTS_PREDICT_MODEL_CONFIGS_H

#include "reveille/model.h"

/* The model of a config that must be good: of tests/data/configs by its name, or of a text. */
rvl_model *open_model(const char *name);
rvl_model *parse_model(const char *text);

/* The config is refused for this key, and the message has this part. */
void assert_refused(const char *text, const char *key, const char *part);

#endif
