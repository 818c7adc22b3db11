/* SPDX-License-Identifier: MIT */
/*
 * uthash, configured not to end the process when memory runs out: an element that could not be
 * added has hh.tbl NULL.
 */
#ifndef RVL_BASE_HASH_H
#define RVL_BASE_HASH_H

#define HASH_NONFATAL_OOM 1
#include <uthash.h>

#endif
