/* SPDX-License-Identifier: MIT */
/* Prints the result of a calibration as tables. */
#include "calibrate/print.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "command.h"

static void format_value(const char *unit, uint64_t value, char text[SIZE_TEXT_BYTES])
{
    if (strcmp(unit, "bytes") == 0)
        format_size(value, text);
    else if (value < 10000)
        snprintf(text, SIZE_TEXT_BYTES, "%" PRIu64 " ns", value);
    else if (value < 10000000)
        snprintf(text, SIZE_TEXT_BYTES, "%.1f us", (double)value / 1e3);
    else
        snprintf(text, SIZE_TEXT_BYTES, "%.1f ms", (double)value / 1e6);
}

bool calibrate_print_measured(const samples *all)
{
    static const char *const titles[] = {"measured", "of", "least", "median", "most", "count"};
    static const bool right[] = {false, true, true, true, true, true};
    table *rows = table_new(titles, right, 6);
    if (rows == NULL)
        return false;
    for (size_t i = 0; i < all->count; i++) {
        char of[SIZE_TEXT_BYTES] = "", least[SIZE_TEXT_BYTES], median[SIZE_TEXT_BYTES],
             most[SIZE_TEXT_BYTES], count[SIZE_TEXT_BYTES];
        const rvl_measurement found = samples_spread(&all->list[i]);
        if (found.bytes > 0)
            format_size(found.bytes, of);
        format_value(found.unit, found.least_value, least);
        format_value(found.unit, found.median_value, median);
        format_value(found.unit, found.most_value, most);
        snprintf(count, sizeof count, "%" PRIu64, found.count);
        table_add(rows, (const char *const[]){found.act, of, least, median, most, count});
    }
    bool ok = table_print(rows, "");
    table_free(rows);
    return ok;
}

bool calibrate_print_agreed(const agreement *agreed)
{
    static const char *const titles[] = {"stage", "peak on the profile", "on the card",
                                         "",      "time on the profile", "on the card",
                                         ""};
    static const bool right[] = {false, true, true, true, true, true, true};
    table *rows = table_new(titles, right, 7);
    if (rows == NULL)
        return false;
    for (size_t i = 0; i < agreed->count; i++) {
        const agree_stage *one = &agreed->stages[i];
        char ours[SIZE_TEXT_BYTES], real[SIZE_TEXT_BYTES], peak[CHANGE_TEXT_BYTES];
        char our_time[SIZE_TEXT_BYTES], real_time[SIZE_TEXT_BYTES], times[CHANGE_TEXT_BYTES];
        format_size(one->predicted_peak_bytes, ours);
        format_size(one->measured_peak_bytes, real);
        format_change(100 * agree_share(one->predicted_peak_bytes, one->measured_peak_bytes), peak);
        format_value("ns", one->predicted_ns, our_time);
        format_value("ns", one->measured_ns, real_time);
        format_change(100 * agree_share(one->predicted_ns, one->measured_ns), times);
        table_add(rows,
                  (const char *const[]){one->name, ours, real, peak, our_time, real_time, times});
    }
    bool ok = table_print(rows, "");
    table_free(rows);
    return ok;
}
