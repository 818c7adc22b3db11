/* SPDX-License-Identifier: MIT */
/* Options of a step by their names on the command line. */
#ifndef RVL_CLI_MODEL_SET_H
#define RVL_CLI_MODEL_SET_H

#include "options.h"
#include "reveille/model.h"

#define MODEL_WHY_BYTES 512

/*
 * Sets the option of that name ("tp", "mem-fraction"; switches take yes or no). A device is not
 * copied. false: why has "--tp 0: expected ...".
 */
bool model_set(rvl_model_options *options, const char *name, const char *value,
               char why[MODEL_WHY_BYTES]);

/* Whether a setting changes nothing beside the others. why has the reason and the remedy. */
bool model_setting_idle(const rvl_model_options *options, const char *name,
                        char why[MODEL_WHY_BYTES]);

/* Whether the KV cache of an engine is meant: the memory fraction sets its size. */
bool model_is_cache(const char *tag);

/* A term by its name, with its size. false as model_set(). */
bool model_set_given(const char *name, const char *size, rvl_model_given *given_out,
                     char why[MODEL_WHY_BYTES]);

/* A key or a message of the library, in which settings are those of a command line. */
void model_as_options(const char *key, const char *message, char *text, size_t size);

/* Says why a config or a step was refused. Returns the exit status. */
int model_explain(rvl_status status, const char *config);

/* The same as text, cut where the room ends. Returns the exit status. */
int model_describe(rvl_status status, const char *config, char *text, size_t size);

/* ---- model_options.c ---- */

/*
 * The i-th option that a table's OPTION_SETTINGS stands for: all settings of a step but the device,
 * under titles; NULL: no more.
 */
const option_spec *model_option_at(const option_spec *place, size_t i);

#endif
