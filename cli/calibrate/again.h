/* SPDX-License-Identifier: MIT */
/* Fits a profile again from the measurements in its file. Needs no card. */
#ifndef RVL_CLI_CALIBRATE_AGAIN_H
#define RVL_CLI_CALIBRATE_AGAIN_H

#include <stdbool.h>

/*
 * Reads the profile, fits its costs with this version's fit, and writes the result to output (NULL:
 * to no file). Keeps the facts about the card. Removes the comparison with the card, because it
 * was made with the old costs. Prints the costs that change, or with json the profile. Returns the
 * exit status.
 */
int fit_again(const char *path, const char *output, bool json);

#endif
