/* SPDX-License-Identifier: MIT */
#include "reveille/version.h"

const char *rvl_version(void)
{
    return RVL_VERSION_STRING;
}
