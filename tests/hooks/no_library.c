/* SPDX-License-Identifier: MIT */
/* The files of a hook library in a program that has libreveille's as well: there is no other. */
#include "hooks/shim/library.h"

bool rvli_library_contains(const void *address)
{
    (void)address;
    return false;
}
