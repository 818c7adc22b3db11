/* SPDX-License-Identifier: MIT */
/* Printed after an error that ends the process: the holders of memory on each device. */
#include "hooks/region/saver_internal.h"

#include "base/error.h"
#include "base/text.h"
#include "hooks/process/driver.h"
#include "hooks/process/message.h"
#include "reveille/stats.h"

static void add_driver(rvli_text *text)
{
    const rvli_driver_calls *driver = rvli_driver();
    int version = 0;
    if (driver == NULL || driver->cuDriverGetVersion(&version) != CUDA_SUCCESS)
        return;
    rvli_text_add(text, "CUDA driver ");
    rvli_text_add_u64(text, (uint64_t)(version / 1000));
    rvli_text_add(text, ".");
    rvli_text_add_u64(text, (uint64_t)(version % 1000 / 10));
    rvli_text_add(text, ", ");
}

void rvli_saver_say_state(void)
{
    const rvl_error cause = *rvli_error_get();
    char line[RVL_SUMMARY_BYTES + 64], summary[RVL_SUMMARY_BYTES];
    for (rvli_saved_context *in = rvli_saver_newest_context(); in != NULL; in = in->next) {
        if (rvl_device_get_summary(in->context, 0, summary, sizeof summary) != RVL_OK)
            continue; /* the device is lost: the error has reported it */
        rvli_text text = rvli_text_begin(line, sizeof line);
        add_driver(&text);
        rvli_text_add(&text, summary);
        rvli_say(line);
    }
    rvli_error_set(&cause);
}
