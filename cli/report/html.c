/* SPDX-License-Identifier: MIT */
/*
 * Writes a report as one page that opens without a network: our page, the chart library, and the
 * data as JSON. The command contains the page and the library as bytes.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cli/report/report.h"

#ifndef RVL_HAVE_CHARTS

bool html_available(void)
{
    return false;
}

bool write_html(FILE *out, const report_run *runs, size_t run_count)
{
    (void)out;
    (void)runs;
    (void)run_count;
    return false;
}

#else

static const unsigned char page_html[] = {
#include "page.html.inc"
};
static const unsigned char page_css[] = {
#include "page.css.inc"
};
static const unsigned char page_js[] = {
#include "page.js.inc"
};
static const unsigned char charts_css[] = {
#include "charts.css.inc"
};
static const unsigned char charts_js[] = {
#include "charts.js.inc"
};
static const unsigned char charts_license[] = {
#include "charts.license.inc"
};

bool html_available(void)
{
    return true;
}

/* ---- Data ---- */

static bool write_key(FILE *out, const char *key, const char *text)
{
    fprintf(out, ",\"%s\":", key);
    if (text != NULL)
        return write_json_text(out, text);
    fputs("null", out);
    return true;
}

static bool write_series(FILE *out, const report_run *run, size_t device, uint32_t index)
{
    rvl_timeline_series series = {.struct_size = sizeof series};
    if (rvl_timeline_get_series(run->timeline, device, index, &series) != RVL_OK)
        return false;
    fprintf(out, "%s{\"external\":%s,\"paused\":%s,\"peak_bytes\":%" PRIu64 ",\"colour\":\"%s\"",
            index > 0 ? "," : "", series.external ? "true" : "false",
            series.paused ? "true" : "false", series.peak_bytes,
            palette_colour(run->palette, &series).css);
    bool ok = write_key(out, "process", series.process) && write_key(out, "tag", series.tag);
    putc('}', out);
    return ok;
}

/* Writes [series,bytes] for a point with a single change, else all values. */
static void write_value(FILE *out, const rvl_timeline_value *value, bool single)
{
    if (single)
        fprintf(out, "[%" PRIu32 ",%" PRIu64 "]", value->series, value->last_bytes);
    else
        fprintf(out, "[%" PRIu32 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 "]",
                value->series, value->before_bytes, value->min_bytes, value->max_bytes,
                value->last_bytes, value->at_peak_bytes);
}

static bool write_point(FILE *out, const rvl_timeline *timeline, size_t device, uint32_t index,
                        rvl_timeline_value *values, size_t capacity)
{
    rvl_timeline_point point;
    if (!read_point(timeline, device, index, &point, values, capacity))
        return false;
    fprintf(out,
            "%s[%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64
            ",[",
            index > 0 ? "," : "", point.begin_ns, point.end_ns, point.peak_ns, point.changes,
            point.min_bytes, point.max_bytes, point.last_bytes);
    for (uint32_t i = 0; i < point.value_count; i++) {
        if (i > 0)
            putc(',', out);
        write_value(out, &values[i], point.changes == 1);
    }
    fputs("]]", out);
    return true;
}

static bool write_points(FILE *out, const rvl_timeline *timeline, size_t index,
                         const rvl_timeline_device *device)
{
    rvl_timeline_value *values = calloc((size_t)device->series_count + 1, sizeof *values);
    bool ok = values != NULL;
    for (uint32_t i = 0; ok && i < device->point_count; i++)
        ok = write_point(out, timeline, index, i, values, device->series_count);
    free(values);
    return ok;
}

/* Writes the largest holders, and the number of the others. */
static bool write_holders(FILE *out, const rvl_replay *replay, size_t device, uint32_t stage)
{
    rvl_holder holders[RVL_REPLAY_LISTED_HOLDERS];
    size_t count = 0;
    bool ok = rvl_replay_get_holders(replay, device, stage, holders, sizeof *holders,
                                     RVL_REPLAY_LISTED_HOLDERS, &count) == RVL_OK;
    fputs(",\"at_peak\":[", out);
    for (size_t i = 0; ok && i < count && i < RVL_REPLAY_LISTED_HOLDERS; i++) {
        fprintf(out, "%s{\"bytes\":%" PRIu64, i > 0 ? "," : "", holders[i].bytes);
        ok = write_key(out, "process", holders[i].process) && write_key(out, "tag", holders[i].tag);
        putc('}', out);
    }
    putc(']', out);
    if (count > RVL_REPLAY_LISTED_HOLDERS)
        fprintf(out, ",\"others\":%zu", count - RVL_REPLAY_LISTED_HOLDERS);
    return ok;
}

/* Returns the column of a stage. A listed stage without a width starts at the first column. */
static uint32_t column_of(const report_run *run, uint32_t stage)
{
    return run->stage_columns[stage] != NO_COLUMN ? run->stage_columns[stage] : 0;
}

static bool write_stage(FILE *out, const report_run *run, size_t device, const listed_stage *stage,
                        uint32_t column, bool first)
{
    const rvl_stage_stats *stats = &stage->stats;
    fprintf(out,
            "%s{\"begin_ns\":%" PRIu64 ",\"step\":%" PRIu32 ",\"peak_bytes\":%" PRIu64
            ",\"end_bytes\":%" PRIu64 ",\"free_at_peak_bytes\":%" PRIu64 ",\"host_bytes\":%" PRIu64
            ",\"transition_ns\":%" PRIu64 ",\"column\":%" PRIu32,
            first ? "" : ",", stage->begin_ns, stage->step, stats->peak_bytes, stats->end_bytes,
            stats->free_at_peak_bytes, stats->host_bytes, stats->transition_ns, column);
    if (stage->count > 1)
        fprintf(out, ",\"merged\":%" PRIu32, stage->count);
    bool ok = write_key(out, "name", stats->name) &&
              write_holders(out, run->replay, device, stage->peak_stage);
    putc('}', out);
    return ok;
}

static bool write_stages(FILE *out, const report_run *run, size_t device)
{
    bool ok = true, first = true;
    for (uint32_t i = 0; ok && i < rvl_timeline_stage_count(run->timeline); i++) {
        listed_stage stage;
        if (!stage_is_listed(run, device, i))
            continue;
        ok = stage_get(run, device, i, &stage) &&
             write_stage(out, run, device, &stage, column_of(run, i), first);
        first = false;
    }
    return ok;
}

/* Writes the capacity; null if no device was named. */
static void write_capacity(FILE *out, const report_device *device)
{
    if (device->named)
        fprintf(out, ",\"capacity_bytes\":%" PRIu64 ",\"fits\":%s", device->of.capacity_bytes,
                device->fits ? "true" : "false");
    else
        fputs(",\"capacity_bytes\":null,\"fits\":null", out);
}

static void write_samples(FILE *out, const report_run *run, int device)
{
    const sample *first = samples_next(&run->samples, device, NULL);
    fputs(",\n\"samples\":[", out);
    for (const sample *each = first; each != NULL; each = samples_next(&run->samples, device, each))
        fprintf(out, "%s[%" PRIu64 ",%" PRIu64 "]", each == first ? "" : ",", each->time_ns,
                each->bytes);
    putc(']', out);
}

static bool write_device(FILE *out, const report_run *run, size_t index)
{
    report_device found;
    if (!report_device_get(run, index, &found))
        return false;
    const rvl_timeline_device device = found.of;
    fprintf(out,
            "%s{\"device\":%d,\"peak_bytes\":%" PRIu64 ",\"peak_ns\":%" PRIu64
            ",\"changes\":%" PRIu64,
            index > 0 ? "," : "", device.device, device.peak_bytes, device.peak_ns, device.changes);
    write_capacity(out, &found);
    bool ok = write_key(out, "profile", device.profile);
    write_samples(out, run, device.device);
    fputs(",\"series\":[", out);
    for (uint32_t i = 0; ok && i < device.series_count; i++)
        ok = write_series(out, run, index, i);
    fputs("],\n\"points\":[", out);
    ok = ok && write_points(out, run->timeline, index, &device);
    fputs("],\n\"stages\":[", out);
    ok = ok && write_stages(out, run, index);
    fputs("]}", out);
    return ok;
}

static bool write_run(FILE *out, const report_run *run)
{
    fprintf(out, "{\"end_ns\":%" PRIu64 ",\"events\":%" PRIu64, chart_end_ns(run->timeline),
            rvl_replay_event_count(run->replay, NULL));
    if (run->samples.simulated)
        fputs(",\"simulated\":true", out);
    rvl_verdict verdict;
    bool known = run_has_verdict(run, &verdict);
    bool ok = write_key(out, "label", run->label) && write_key(out, "remedy", run->remedy) &&
              write_key(out, "verdict", known ? verdict.text : NULL) &&
              write_key(out, "verdict_kind", known ? rvl_verdict_keyword(verdict.kind) : NULL);
    fputs(",\"devices\":[", out);
    for (size_t i = 0; ok && i < rvl_timeline_device_count(run->timeline); i++)
        ok = write_device(out, run, i);
    fputs("]}", out);
    return ok;
}

/* Writes the tensors of all snapshots. */
static bool write_tensors(FILE *out, const report_run *runs, size_t run_count)
{
    const char *before = "";
    bool ok = true;
    fputs(",\n\"tensors\":[", out);
    for (size_t i = 0; i < run_count; i++) {
        const report_tensors *tensors = &runs[i].tensors;
        for (size_t k = 0; ok && k < tensors->count; k++) {
            char process[TENSORS_PROCESS_BYTES];
            const char *slash = strrchr(tensors->paths[k], '/');
            tensors_process(runs[i].snapshot_process, k, process);
            fprintf(out, "%s{\"run\":%zu", before, i);
            ok = write_key(out, "process", process) &&
                 write_key(out, "file", slash != NULL ? slash + 1 : tensors->paths[k]);
            fprintf(out, ",\"of\":%s}", tensors->list[k] != NULL ? tensors->list[k] : "null");
            before = ",";
        }
    }
    putc(']', out);
    return ok;
}

static bool write_data(FILE *out, const report_run *runs, size_t run_count)
{
    bool ok = true;
    fprintf(
        out,
        "{\"schema\":1,\"layers\":%u,\"rest_colour\":\"%s\",\"axis\":\"%s\",\"columns\":%" PRIu32
        ",\"runs\":[",
        LAYERS_MAX, palette_rest().css, runs[0].axis == AXIS_EVENT ? "event" : "time",
        runs[0].column_count);
    for (size_t i = 0; ok && i < run_count; i++) {
        if (i > 0)
            putc(',', out);
        ok = write_run(out, &runs[i]);
    }
    putc(']', out);
    ok = ok && write_tensors(out, runs, run_count);
    putc('}', out);
    return ok;
}

/* ---- Page ---- */

typedef struct part {
    const char *place;
    const unsigned char *bytes; /* NULL: the data */
    size_t size;
} part;

static const part parts[] = {
    {"{{CHARTS_LICENSE}}", charts_license, sizeof charts_license},
    {"{{CHARTS_CSS}}", charts_css, sizeof charts_css},
    {"{{PAGE_CSS}}", page_css, sizeof page_css},
    {"{{DATA}}", NULL, 0},
    {"{{CHARTS_JS}}", charts_js, sizeof charts_js},
    {"{{PAGE_JS}}", page_js, sizeof page_js},
};

bool write_html(FILE *out, const report_run *runs, size_t run_count)
{
    const unsigned char *rest = page_html, *end = page_html + sizeof page_html;
    bool ok = true;
    for (size_t i = 0; ok && i < sizeof parts / sizeof parts[0]; i++) {
        size_t length = strlen(parts[i].place);
        const unsigned char *place = memmem(rest, (size_t)(end - rest), parts[i].place, length);
        if (place == NULL)
            return false;
        fwrite(rest, 1, (size_t)(place - rest), out);
        if (parts[i].bytes != NULL)
            fwrite(parts[i].bytes, 1, parts[i].size, out);
        else
            ok = write_data(out, runs, run_count);
        rest = place + length;
    }
    fwrite(rest, 1, (size_t)(end - rest), out);
    return ok;
}

#endif
