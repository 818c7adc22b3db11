/* SPDX-License-Identifier: MIT */
/*
 * The error record of the calling thread, and the names of the statuses.
 *
 * The record is static thread-local storage of the initial-exec model: the dynamic models of a
 * shared library allocate a thread's block at its first use, which would be on the out-of-memory
 * path. At some 400 bytes it fits the room the loader keeps for libraries opened at run time.
 */
#include "base/error.h"

#include "base/options.h"
#include "base/text.h"

static _Thread_local rvl_error record __attribute__((tls_model("initial-exec"))) = {
    .struct_size = sizeof(rvl_error),
    .device = RVL_NO_DEVICE,
};

rvl_status rvli_error(rvl_status status, const char *message)
{
    record = (rvl_error){
        .struct_size = sizeof(rvl_error),
        .status = status,
        .device = RVL_NO_DEVICE,
    };
    rvli_text_copy(record.message, sizeof(record.message), message);
    return status;
}

void rvli_error_native(int code, const char *name)
{
    record.native_code = code;
    rvli_text_copy(record.native_name, sizeof(record.native_name), name);
}

void rvli_error_op(const char *op)
{
    rvli_text_copy(record.op, sizeof(record.op), op);
}

void rvli_error_bytes(int device, uint64_t requested_bytes, uint64_t free_bytes)
{
    record.device = device;
    record.requested_bytes = requested_bytes;
    record.free_bytes = free_bytes;
}

void rvli_error_tag(const char *tag)
{
    rvli_text_copy(record.tag, sizeof(record.tag), tag);
}

void rvli_error_message(const char *message)
{
    rvli_text_copy(record.message, sizeof(record.message), message);
}

const rvl_error *rvli_error_get(void)
{
    return &record;
}

void rvli_error_set(const rvl_error *saved)
{
    record = *saved;
}

rvl_status rvl_last_error(rvl_error *error_out)
{
    /* Checked here: a misuse of this call must not replace the record it was meant to read. */
    if (!error_out ||
        error_out->struct_size < offsetof(rvl_error, status) + sizeof(error_out->status))
        return RVL_ERR_INVALID;
    return rvli_result_write(error_out, &record, sizeof(record));
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
