/* SPDX-License-Identifier: MIT */
/* The public functions for statuses and the error record. */
#include "reveille/status.h"

#include <stdlib.h>

#include "base/error.h"
#include "base/options.h"

rvl_status rvl_last_error(rvl_error *error_out)
{
    /* Checked here, because a misuse of this call must not replace the record that it should read.
     */
    if (!error_out ||
        error_out->struct_size < offsetof(rvl_error, status) + sizeof(error_out->status))
        return RVL_ERR_INVALID;
    return rvli_result_write(error_out, rvli_error_get(), sizeof(rvl_error));
}

const char *rvl_status_name(rvl_status status)
{
    switch (status) {
#define STATUS_NAME(name, value, text)                                                             \
    case RVL_##name:                                                                               \
        return "RVL_" #name;
        RVL_STATUS_MAP(STATUS_NAME)
#undef STATUS_NAME
    }
    return "RVL_ERR_?";
}

const char *rvl_status_text(rvl_status status)
{
    switch (status) {
#define STATUS_TEXT(name, value, text)                                                             \
    case RVL_##name:                                                                               \
        return text;
        RVL_STATUS_MAP(STATUS_TEXT)
#undef STATUS_TEXT
    }
    return "unknown status";
}

void rvl_string_free(char *string)
{
    free(string);
}
