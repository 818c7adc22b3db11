/* SPDX-License-Identifier: MIT */
/*
 * What every backend must do, checked through the ops table alone: memory is looked at by copies,
 * never by dereferencing an address, so that the suite runs over a real driver as well.
 */
#ifndef RVL_TESTS_SUPPORT_CONTRACT_H
#define RVL_TESTS_SUPPORT_CONTRACT_H

#include "core/backend.h"

/* Runs the suite on an instance opened with options; a cmocka test of its own each. */
int contract_run(const char *name, const rvli_backend_ops *ops, const void *options);

#endif
