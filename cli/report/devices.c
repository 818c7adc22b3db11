/* SPDX-License-Identifier: MIT */
/* Texts of a report about a device: its name, and whether the run fits. */
#include <stdlib.h>
#include <string.h>

#include "cli/report/report.h"

/* A chart up to the capacity would show nothing if that is more than this many times the peak. */
#define LARGER_THAN_WORTH_SHOWING 20

bool report_device_get(const report_run *run, size_t index, report_device *device_out)
{
    rvl_replay_device replayed = {.struct_size = sizeof replayed};
    *device_out = (report_device){.of = {.struct_size = sizeof device_out->of}};
    if (rvl_timeline_get_device(run->timeline, index, &device_out->of) != RVL_OK ||
        rvl_replay_get_device(run->replay, index, &replayed) != RVL_OK)
        return false;
    device_out->named = !(replayed.flags & RVL_REPLAY_DEVICE_ASSUMED);
    device_out->fits = replayed.peak_bytes <= replayed.capacity_bytes;
    device_out->doubt_bytes = replayed.capacity_doubt_bytes;
    device_out->most_sampled_bytes = samples_most_bytes(&run->samples, device_out->of.device);
    if (!device_out->named) {
        device_out->of.capacity_bytes = 0;
        device_out->of.profile = NULL;
    }
    return true;
}

char *device_text(const report_device *device)
{
    char size[SIZE_TEXT_BYTES], *text = NULL;
    if (!device->named)
        return strdup("no device named");
    const char *profile = device->of.profile != NULL ? device->of.profile : "given by size";
    return asprintf(&text, "%s, %s", profile, format_size(device->of.capacity_bytes, size)) >= 0
               ? text
               : NULL;
}

char *room_text(const report_device *device)
{
    uint64_t peak_bytes = device->of.peak_bytes, capacity_bytes = device->of.capacity_bytes;
    char size[SIZE_TEXT_BYTES], *text = NULL;
    if (!device->named)
        return strdup("give --device to see whether it fits");
    int made;
    if (peak_bytes > capacity_bytes)
        made = asprintf(&text, "%s too much", format_size(peak_bytes - capacity_bytes, size));
    else
        made = asprintf(&text, "%s to spare%s", format_size(capacity_bytes - peak_bytes, size),
                        capacity_bytes - peak_bytes < device->doubt_bytes ? ", which is in doubt"
                                                                          : "");
    return made >= 0 ? text : NULL;
}

bool run_has_verdict(const report_run *run, rvl_verdict *verdict_out)
{
    report_device device;
    *verdict_out = (rvl_verdict){.struct_size = sizeof *verdict_out};
    return report_device_get(run, 0, &device) && device.named &&
           rvl_replay_get_verdict(run->replay, verdict_out) == RVL_OK;
}

uint64_t chart_top_bytes(const report_device *device)
{
    uint64_t top = device->of.peak_bytes > 0 ? device->of.peak_bytes : 1;
    top = device->most_sampled_bytes > top ? device->most_sampled_bytes : top;
    uint64_t capacity_bytes = device->of.capacity_bytes;
    return capacity_bytes > top && capacity_bytes / LARGER_THAN_WORTH_SHOWING <= top
               ? capacity_bytes
               : top;
}
