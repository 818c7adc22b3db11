/* SPDX-License-Identifier: MIT */
/*
 * Reads values of a file of checks by their keys, and complains of bad ones. Functions that return
 * a bool return false after a complaint. A missing key leaves the value unchanged.
 */
#ifndef RVL_CLI_CHECK_READING_H
#define RVL_CLI_CHECK_READING_H

#include "check/check.h"

typedef struct reading {
    check_file *file;
    json_t *places;    /* lines and columns of keys; NULL: the file is JSON */
    const char *check; /* name of the check that is being read; NULL: none */
    double tolerance_percent;
    option_headroom headroom;
    bool no_refusals;
} reading;

/* Complains "FILE: check NAME: what is wrong". Returns false. */
bool reading_refuse(const reading *r, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
bool reading_no_memory(const reading *r);

/* Complains about a key, with "FILE:LINE:COLUMN: " if its place is known. Returns false. */
bool reading_refuse_at(const reading *r, const json_t *object, const char *key, const char *what);

/* Whether all keys of an object are in the list of known keys. */
bool reading_keys(const reading *r, const json_t *object, const char *what,
                  const char *const *known);

/* Resolves a path from the file's folder. The caller frees the result. NULL: no memory. */
char *reading_path(const reading *r, const char *path);

/* Reads a string. Sets *text_out to NULL if the key is missing. */
bool reading_string(const reading *r, const json_t *object, const char *key, const char **text_out);

/* Reads a list of strings, or one string. *list_out ends with NULL. The caller frees it, even after
 * false. */
bool reading_list(const reading *r, const json_t *value, const char *key, const char ***list_out,
                  size_t *count_out);

bool reading_flag(const reading *r, const json_t *object, const char *key, bool *flag);
bool reading_number(const reading *r, const json_t *object, const char *key, uint32_t least,
                    uint32_t most, uint32_t *number);
bool reading_size(const reading *r, const json_t *object, const char *key, json_int_t least,
                  uint64_t *bytes);
bool reading_tolerance(const reading *r, const json_t *object, double *percent);
bool reading_headroom(const reading *r, const json_t *object, option_headroom *headroom);

#endif
