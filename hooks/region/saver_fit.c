/* SPDX-License-Identifier: MIT */
/*
 * Checks that a resume fits. Each context checks itself, but with several contexts the first might
 * be resumed before the next does not fit. So all are checked first.
 */
#include "hooks/region/saver_internal.h"

#include "base/error.h"
#include "base/text.h"
#include "hooks/record/recorder.h"

/* The memory that a resume needs on a device, over all contexts there. */
typedef struct demand {
    unsigned contexts;
    uint64_t needed_bytes, free_bytes;
} demand;

static rvl_status does_not_fit(const char *name, int device, const demand *all)
{
    char message[sizeof(((rvl_error *)NULL)->message)];
    rvli_text text = rvli_text_begin(message, sizeof message);
    rvli_text_add(&text, "resume");
    if (name != NULL) {
        rvli_text_add(&text, " of \"");
        rvli_text_add(&text, name);
        rvli_text_add(&text, "\"");
    }
    rvli_text_add(&text, " needs ");
    rvli_text_add_bytes(&text, all->needed_bytes);
    rvli_text_add(&text, ", ");
    rvli_text_add_bytes(&text, all->free_bytes);
    rvli_text_add(&text, " free on device ");
    rvli_text_add_u64(&text, (uint64_t)device);
    rvli_text_add(&text, ": free memory there, and try again");
    rvli_recorder_refuse(&(rvli_refused){.tag = name,
                                         .device = device,
                                         .requested_bytes = all->needed_bytes,
                                         .free_bytes = all->free_bytes});
    rvli_error(RVL_ERR_DEVICE_OOM, message);
    rvli_error_op("create");
    if (name != NULL)
        rvli_error_tag(name);
    rvli_error_bytes(device, all->needed_bytes, all->free_bytes);
    return RVL_ERR_DEVICE_OOM;
}

static unsigned count_contexts(const char *name)
{
    unsigned count = 0;
    const rvli_saved_tag *tag;
    for (rvli_saved_context *in = rvli_saver_newest_context(); in != NULL; in = in->next)
        count += rvli_saver_has_tag(in, name, &tag);
    return count;
}

rvl_status rvli_saver_check_fit(const char *name)
{
    demand devices[RVL_MAX_DEVICES] = {0};
    const rvli_saved_tag *tag;
    if (count_contexts(name) < 2)
        return RVL_OK;
    for (rvli_saved_context *in = rvli_saver_newest_context(); in != NULL; in = in->next) {
        rvl_forecast forecast = {.struct_size = sizeof forecast};
        if (!rvli_saver_has_tag(in, name, &tag) || in->device >= RVL_MAX_DEVICES)
            continue;
        rvl_status status = rvl_resume_forecast(in->context, tag != NULL ? &tag->number : NULL,
                                                tag != NULL, NULL, &forecast);
        if (status != RVL_OK)
            return status;
        demand *all = &devices[in->device];
        all->needed_bytes += forecast.needed_bytes;
        if (all->contexts++ == 0 || forecast.free_bytes < all->free_bytes)
            all->free_bytes = forecast.free_bytes;
    }
    for (int device = 0; device < RVL_MAX_DEVICES; device++)
        if (devices[device].needed_bytes > devices[device].free_bytes)
            return does_not_fit(name, device, &devices[device]);
    return RVL_OK;
}
