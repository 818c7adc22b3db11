/* SPDX-License-Identifier: MIT */
/*
 * Values of a file of checks by their keys, and what is said of those that cannot be. All that
 * return a bool return false once they have said what is wrong. A key that is missing leaves the
 * value as it is.
 */
#ifndef RVL_CLI_CHECK_READING_H
#define RVL_CLI_CHECK_READING_H

#include "check/check.h"

typedef struct reading {
    check_file *file;
    json_t *places;    /* of keys; NULL: the file is JSON */
    const char *check; /* name of the one that is read; NULL: none */
    double tolerance_percent;
    option_headroom headroom;
    bool no_refusals;
} reading;

/* "FILE: check NAME: what is wrong". Returns false. */
bool reading_refuse(const reading *r, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
bool reading_no_memory(const reading *r);

/* Of a key: "FILE:LINE:COLUMN: ", where that is known. Returns false. */
bool reading_refuse_at(const reading *r, const json_t *object, const char *key, const char *what);

/* Whether all keys of an object are among those that are known. */
bool reading_keys(const reading *r, const json_t *object, const char *what,
                  const char *const *known);

/* A path as the file means it: relative to where the file lies. NULL: no memory. */
char *reading_path(const reading *r, const char *path);

/* A string, or NULL where the key is missing. */
bool reading_string(const reading *r, const json_t *object, const char *key, const char **text_out);

/* A list of strings, or one string. *list_out has room for all, and one entry for none. */
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
