/* SPDX-License-Identifier: MIT */
/* Checks written in TOML, as jansson would have them from the same file in JSON. */
#ifndef RVL_CLI_CHECK_TOML_H
#define RVL_CLI_CHECK_TOML_H

#include <stdbool.h>

#include <jansson.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * As json_load_file(): NULL with *error_out filled, line 0 where no place in the file is to blame.
 * The caller releases what is returned by json_decref(), and so *places_out: where each key stands,
 * for check_toml_place().
 */
json_t *check_toml_load(const char *path, json_error_t *error_out, json_t **places_out);

/* Where a key of an object of that file stands. false: not known. */
bool check_toml_place(const json_t *places, const json_t *object, const char *key, int *line_out,
                      int *column_out);

#ifdef __cplusplus
}
#endif

#endif
