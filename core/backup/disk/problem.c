/* SPDX-License-Identifier: MIT */
#include "core/backup/disk/problem.h"

#include <errno.h>
#include <string.h>

#include "base/error.h"
#include "base/text.h"

rvl_status rvli_disk_status(int number)
{
    return number == ENOSPC || number == EDQUOT || number == EFBIG ? RVL_ERR_DISK_FULL : RVL_ERR_IO;
}

rvl_status rvli_disk_error(rvl_status status, const char *op, int number, const char *message)
{
    rvli_error(status, message);
    rvli_error_op(op);
    if (number != 0)
        rvli_error_errno(number);
    return status;
}

rvl_status rvli_disk_error_at(rvl_status status, const char *op, int number, const char *what,
                              const char *path, const char *why)
{
    char message[sizeof(((rvl_error *)NULL)->message)];
    rvli_text text = rvli_text_begin(message, sizeof message);
    rvli_text_add(&text, what);
    rvli_text_add(&text, " ");
    rvli_text_add(&text, path);
    rvli_text_add(&text, " ");
    rvli_text_add(&text, why);
    return rvli_disk_error(status, op, number, message);
}
