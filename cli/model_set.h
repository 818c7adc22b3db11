/* SPDX-License-Identifier: MIT */
/* Settings of a step by their names on the command line. */
#ifndef RVL_CLI_MODEL_SET_H
#define RVL_CLI_MODEL_SET_H

#include "options.h"
#include "reveille/model.h"

#define MODEL_WHY_BYTES 512

/*
 * Sets the setting of that name, such as "tp" or "mem-fraction". Switches take yes or no. The name
 * of a device is not copied. false: stores a reason in why, such as "--tp 0: expected ...".
 */
bool model_set(rvl_model_options *options, const char *name, const char *value,
               char why[MODEL_WHY_BYTES]);

/* Whether a setting has no effect, given the others. Stores the reason and the remedy in why. */
bool model_setting_idle(const rvl_model_options *options, const char *name,
                        char why[MODEL_WHY_BYTES]);

/* Whether the tag is an engine's KV cache, which the memory fraction sizes. */
bool model_is_cache(const char *tag);

/* Parses a term's name and size. false: stores a reason in why. */
bool model_set_given(const char *name, const char *size, rvl_model_given *given_out,
                     char why[MODEL_WHY_BYTES]);

/* Copies a key and a message of the library to text. Writes settings as command-line options. */
void model_as_options(const char *key, const char *message, char *text, size_t size);

/* Prints why a config or a step was refused. Returns the exit status. */
int model_explain(rvl_status status, const char *config);

/* Stores that as text, cut at size. Returns the exit status. */
int model_describe(rvl_status status, const char *config, char *text, size_t size);

/* ---- model_options.c ---- */

/*
 * Returns the i-th option that a table's OPTION_SETTINGS stands for. These are all settings of a
 * step except for the device, under titles. NULL: no more.
 */
const option_spec *model_option_at(const option_spec *place, size_t i);

#endif
