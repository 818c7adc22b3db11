/* SPDX-License-Identifier: MIT */
/* Every figure of one device: its value, where it comes from, and how sure it is. */
#ifndef RVL_CLI_DEVICE_FIGURES_H
#define RVL_CLI_DEVICE_FIGURES_H

#include "document.h"

/* device: what --device takes; it has been checked. Prints it, and returns the exit status. */
int device_figures_print(const char *device, const option_document *json);

#endif
