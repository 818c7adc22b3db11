/* SPDX-License-Identifier: MIT */
/* Checks written in TOML, as jansson would have them from the same file in JSON. */
#ifndef RVL_CLI_CHECK_TOML_H
#define RVL_CLI_CHECK_TOML_H

#include <jansson.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * As json_load_file(): NULL with *error_out filled, line 0 where no place in the file is to blame.
 * The caller releases what is returned by json_decref().
 */
json_t *check_toml_load(const char *path, json_error_t *error_out);

#ifdef __cplusplus
}
#endif

#endif
