/* SPDX-License-Identifier: MIT */
/* Reads checks in TOML into the tree that jansson makes from equivalent JSON. */
#ifndef RVL_CLI_CHECK_TOML_H
#define RVL_CLI_CHECK_TOML_H

#include <stdbool.h>

#include <jansson.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Loads a file like json_load_file(). NULL: failed, and *error_out has the reason; its line is 0 if
 * the error has no place in the file. *places_out receives the places of keys, for
 * check_toml_place(). The caller releases it and the result with json_decref().
 */
json_t *check_toml_load(const char *path, json_error_t *error_out, json_t **places_out);

/* Finds the line and column of a key in an object of that file. false: not known. */
bool check_toml_place(const json_t *places, const json_t *object, const char *key, int *line_out,
                      int *column_out);

#ifdef __cplusplus
}
#endif

#endif
