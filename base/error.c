/* SPDX-License-Identifier: MIT */
/*
 * The error record of the calling thread.
 *
 * The record is static thread-local storage of the initial-exec model: the dynamic models of a
 * shared library allocate a thread's block at its first use, which would be on the out-of-memory
 * path. At some 400 bytes it fits the room the loader keeps for libraries opened at run time.
 */
#include "base/error.h"

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
