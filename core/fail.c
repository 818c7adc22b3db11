/* SPDX-License-Identifier: MIT */
#include "core/fail.h"

#include <string.h>

#include "base/error.h"
#include "base/text.h"
#include "core/listener.h"

static uint64_t free_on(rvl_context *context, int device)
{
    rvl_error cause = *rvli_error_get();
    uint64_t free_bytes = 0, total_bytes = 0;
    if (context->ops.memory_info(context->self, device, &free_bytes, &total_bytes) != RVL_OK)
        free_bytes = 0;
    rvli_error_set(&cause);
    return free_bytes;
}

/* Tells the context's own recording and the listener of the process. */
static void tell_refusal(rvl_context *context, const rvli_tag *tag, int device,
                         uint64_t requested_bytes, uint64_t free_bytes)
{
    rvli_lock(context);
    if (rvli_recording(&context->recorder))
        rvli_record_refusal(context, tag, device, requested_bytes, free_bytes);
    rvli_unlock(context);
    rvli_listener_tell_refusal(context, tag, device, requested_bytes, free_bytes);
}

void rvli_fail(rvl_context *context, const char *what, const rvli_tag *tag, int device,
               uint64_t requested_bytes)
{
    rvl_error cause = *rvli_error_get();
    bool out_of_memory = cause.status == RVL_ERR_DEVICE_OOM || cause.status == RVL_ERR_TIMEOUT;
    uint64_t free_bytes = out_of_memory ? free_on(context, device) : 0;
    int ordinal = context->devices[device].facts.ordinal;
    const char *name = tag != NULL ? tag->key->name : "";

    char message[sizeof cause.message];
    rvli_text text = rvli_text_begin(message, sizeof message);
    rvli_text_add(&text, what);
    if (name[0] != '\0') {
        rvli_text_add(&text, " of \"");
        rvli_text_add(&text, name);
        rvli_text_add(&text, "\"");
    }
    rvli_text_add(&text, out_of_memory ? " needs " : ", ");
    rvli_text_add_bytes(&text, requested_bytes);
    if (out_of_memory) {
        rvli_text_add(&text, ", ");
        rvli_text_add_bytes(&text, free_bytes);
        rvli_text_add(&text, " free");
    }
    rvli_text_add(&text, " on device ");
    rvli_text_add_u64(&text, (uint64_t)ordinal);
    rvli_text_add(&text, ": ");
    rvli_text_add(&text, cause.message);

    if (out_of_memory && tag != NULL) {
        tell_refusal(context, tag, device, requested_bytes, free_bytes);
        rvli_error_set(&cause);
    }
    rvli_error_message(message);
    rvli_error_tag(name);
    rvli_error_bytes(ordinal, requested_bytes, free_bytes);
}
