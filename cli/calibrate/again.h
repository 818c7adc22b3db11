/* SPDX-License-Identifier: MIT */
/* A profile fitted again from the measurements that its file keeps: no card is needed. */
#ifndef RVL_CLI_CALIBRATE_AGAIN_H
#define RVL_CLI_CALIBRATE_AGAIN_H

#include <stdbool.h>

/*
 * Reads the profile, fits its costs by this version, and writes the new one to a file (output NULL:
 * to none). What it was measured on stays as it was; the comparison with the card goes, since it
 * was of the old costs. Prints the costs that change, or with json the profile. Returns the exit
 * status.
 */
int fit_again(const char *path, const char *output, bool json);

#endif
