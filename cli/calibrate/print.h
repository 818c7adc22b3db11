/* SPDX-License-Identifier: MIT */
/* Prints the result of a calibration as tables. */
#ifndef RVL_CLI_CALIBRATE_PRINT_H
#define RVL_CLI_CALIBRATE_PRINT_H

#include "calibrate/agree.h"
#include "calibrate/samples.h"

/* Print the measurements, and how a step on the profile agrees with the card. false: no memory. */
bool calibrate_print_measured(const samples *all);
bool calibrate_print_agreed(const agreement *agreed);

#endif
