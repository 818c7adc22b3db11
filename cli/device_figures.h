/* SPDX-License-Identifier: MIT */
/* Prints every figure of one device, with its source and its uncertainty. */
#ifndef RVL_CLI_DEVICE_FIGURES_H
#define RVL_CLI_DEVICE_FIGURES_H

#include "document.h"

/* device: a value of --device that has been checked. Returns the exit status. */
int device_figures_print(const char *device, const option_document *json);

#endif
