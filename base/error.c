/* SPDX-License-Identifier: MIT */
/* Filling the error record of the calling thread. */
#include "base/error.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"

/*
 * Built for a C library that may lack this function. The weak symbol resolves if a newer one runs.
 */
#if defined(__GLIBC__) && !__GLIBC_PREREQ(2, 32)
extern const char *strerrorname_np(int) __attribute__((weak));
#define NAMES_ERRNO (strerrorname_np != NULL)
#else
#define NAMES_ERRNO true
#endif

rvl_status rvli_error(rvl_status status, const char *message)
{
    *rvl_private_error_record(true) = (rvl_error){
        .struct_size = sizeof(rvl_error),
        .status = status,
        .device = RVL_NO_DEVICE,
    };
    rvli_error_message(message);
    return status;
}

void rvli_error_native(int code, const char *name)
{
    rvl_error *to = rvl_private_error_record(true);
    to->native_code = code;
    rvli_text_copy(to->native_name, sizeof to->native_name, name);
}

void rvli_error_errno(int number)
{
    char plain[24];
    const char *name = NAMES_ERRNO ? strerrorname_np(number) : NULL;
    if (name == NULL) {
        rvli_text text = rvli_text_begin(plain, sizeof plain);
        rvli_text_add(&text, "errno ");
        rvli_text_add_u64(&text, (uint64_t)number);
        name = plain;
    }
    rvli_error_native(number, name);
}

void rvli_error_op(const char *op)
{
    rvl_error *to = rvl_private_error_record(true);
    rvli_text_copy(to->op, sizeof to->op, op);
}

void rvli_error_bytes(int device, uint64_t requested_bytes, uint64_t free_bytes)
{
    rvl_error *to = rvl_private_error_record(true);
    to->device = device;
    to->requested_bytes = requested_bytes;
    to->free_bytes = free_bytes;
}

void rvli_error_tag(const char *tag)
{
    rvl_error *to = rvl_private_error_record(true);
    rvli_text_copy(to->tag, sizeof to->tag, tag);
}

void rvli_error_message(const char *message)
{
    rvl_error *to = rvl_private_error_record(true);
    rvli_text_copy(to->message, sizeof to->message, message);
}

void rvli_error_place(const char *file, uint32_t line, uint32_t column)
{
    static const char cut[] = "...";
    rvl_error *to = rvl_private_error_record(true);
    size_t length = strlen(file);
    size_t room = sizeof to->file - 1;
    if (length > room) /* keep the end of a path, which is more specific */
        file += length - (room - (sizeof cut - 1));
    rvli_text text = rvli_text_begin(to->file, sizeof to->file);
    rvli_text_add(&text, length > room ? cut : "");
    rvli_text_add(&text, file);
    to->line = line;
    to->column = column;
}

void rvli_error_key(const char *key)
{
    rvl_error *to = rvl_private_error_record(true);
    rvli_text_copy(to->key, sizeof to->key, key);
}

const rvl_error *rvli_error_get(void)
{
    return rvl_private_error_record(false);
}

void rvli_error_set(const rvl_error *saved)
{
    *rvl_private_error_record(true) = *saved;
}

void rvli_error_keep(rvli_error_before *before_out)
{
    const rvl_error *record = rvli_error_get();
    before_out->any = record->status != RVL_OK;
    if (before_out->any)
        before_out->record = *record;
}

void rvli_error_put_back(const rvli_error_before *before)
{
    if (before->any)
        rvli_error_set(&before->record);
    else if (rvli_error_get()->status != RVL_OK)
        *rvl_private_error_record(true) =
            (rvl_error){.struct_size = sizeof(rvl_error), .device = RVL_NO_DEVICE};
}
