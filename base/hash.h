/* SPDX-License-Identifier: MIT */
/*
 * uthash, told not to end the process when there is no memory: an element that could not be added
 * is left with hh.tbl NULL.
 */
#ifndef RVL_BASE_HASH_H
#define RVL_BASE_HASH_H

#define HASH_NONFATAL_OOM 1
#include <uthash.h>

#endif
