/* SPDX-License-Identifier: MIT */
/*
 * Versioned structs: reads option structs of older and newer callers, and writes result structs.
 *
 * Every public struct begins with size_t struct_size and only grows. Fields that an older caller
 * lacks read as zero. Fields that only a newer caller knows must be zero, or the call is refused
 * rather than half understood. (The scheme of Linux's copy_struct_from_user.)
 */
#ifndef RVL_BASE_OPTIONS_H
#define RVL_BASE_OPTIONS_H

#include <stdbool.h>

#include "reveille/status.h"

/* Returns whether all bytes are 0, for fields that this version does not know. */
bool rvli_all_zero(const unsigned char *bytes, size_t count);

/*
 * Copies *user (may be NULL: all defaults) to *options of known_size bytes. RVL_ERR_INVALID if
 * struct_size is smaller than the size of the field itself, RVL_ERR_VERSION if unknown fields are
 * set.
 */
rvl_status rvli_options_read(void *options, size_t known_size, const void *user);

/*
 * Checks that all flags are known and the reserved field is 0. RVL_ERR_VERSION if not: they are
 * from a newer version, or the caller did not initialize them.
 */
rvl_status rvli_flags_check(uint64_t flags, uint64_t known, uint32_t reserved);

/*
 * Copies *result to *user_out, as far as the caller's struct_size has room, and preserves that
 * struct_size. RVL_ERR_INVALID if user_out is NULL or its struct_size is smaller than the size of
 * the field itself.
 */
rvl_status rvli_result_write(void *user_out, const void *result, size_t known_size);

#endif
