/* SPDX-License-Identifier: MIT */
/*
 * The names of a trace, each stored once, with a dense number.
 *
 * Look-up is by the text in the file, since each name can be written in only one way. The last name
 * found is kept for the parser to try first.
 */
#ifndef RVL_TRACE_NAMES_H
#define RVL_TRACE_NAMES_H

#include <stddef.h>
#include <stdint.h>

#include "base/hash.h"
#include "reveille/status.h"

/* The limit keeps a hostile file from using all memory. */
#define RVLI_NAMES_MAX 1000000u

typedef struct rvli_name {
    uint32_t index;
    uint32_t raw_length;
    char *text;        /* decoded */
    UT_hash_handle hh; /* by raw */
    char raw[];
} rvli_name;

typedef struct rvli_names {
    rvli_name *by_raw;
    rvli_name *last;
    uint32_t count;
} rvli_names;

/*
 * Finds the name written as raw, or adds it. RVL_ERR_HOST_OOM; RVL_ERR_CORRUPT_TRACE with the
 * reason in *why_out and the place of the fault, in bytes from raw, in *at_out.
 */
rvl_status rvli_names_get(rvli_names *names, const char *raw, size_t length, rvli_name **name_out,
                          const char **why_out, size_t *at_out);

/* Finds the name written as raw. Returns NULL if there is none. */
rvli_name *rvli_names_find(rvli_names *names, const char *raw, size_t length);

void rvli_names_destroy(rvli_names *names);

#endif
