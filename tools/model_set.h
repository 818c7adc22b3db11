/* SPDX-License-Identifier: MIT */
/* Options of a step by their names on the command line. */
#ifndef RVL_TOOLS_MODEL_SET_H
#define RVL_TOOLS_MODEL_SET_H

#include "reveille/model.h"

#define MODEL_WHY_BYTES 256

/*
 * Sets the option of that name ("tp", "mem-fraction"; switches take yes or no). A device is not
 * copied. false: why has "--tp 0: expected ...".
 */
bool model_set(rvl_model_options *options, const char *name, const char *value,
               char why[MODEL_WHY_BYTES]);

/* Names of all of them; NULL behind the last. */
const char *model_setting_name(size_t index);

/* A term by its name, with its size. false as model_set(). */
bool model_set_given(const char *name, const char *size, rvl_model_given *given_out,
                     char why[MODEL_WHY_BYTES]);

/* A fraction in millionths, without a detour through a double. */
bool model_parse_fraction(const char *text, uint32_t *ppm_out);

/* Says why a config or a step was refused. Returns the exit status. */
int model_explain(rvl_status status, const char *config, const rvl_model_error *error);

/* The same as text, cut where the room ends. Returns the exit status. */
int model_describe(rvl_status status, const char *config, const rvl_model_error *error, char *text,
                   size_t size);

#endif
