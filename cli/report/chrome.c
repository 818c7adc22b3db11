/* SPDX-License-Identifier: MIT */
/*
 * Writes a report in Chrome's trace format, which Perfetto also reads. A device becomes a process,
 * a holder a counter of the process, and a stage a slice. Times are in microseconds.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cli/report/report.h"

#define STAGE_THREAD 1

typedef struct chrome {
    FILE *out;
    uint64_t pid;
    char **labels; /* by series */
    uint64_t *last_bytes;
    uint32_t series_count;
    uint64_t last_used_bytes;
    bool begun;
} chrome;

static void write_time(FILE *out, const char *key, uint64_t ns)
{
    fprintf(out, "\"%s\":%" PRIu64 ".%03" PRIu64, key, ns / 1000, ns % 1000);
}

static bool write_counter(const chrome *made, const char *name, uint64_t time_ns, uint64_t bytes)
{
    fprintf(made->out, ",\n{\"ph\":\"C\",\"pid\":%" PRIu64 ",", made->pid);
    write_time(made->out, "ts", time_ns);
    fputs(",\"name\":", made->out);
    bool ok = write_json_text(made->out, name);
    fprintf(made->out, ",\"args\":{\"bytes\":%" PRIu64 "}}", bytes);
    return ok;
}

/* Writes only the counters that have changed. */
static bool write_instant(void *user, const instant *now)
{
    chrome *made = user;
    bool ok = true;
    for (uint32_t i = 0; ok && i < now->value_count; i++) {
        uint32_t series = now->values[i].series;
        if (made->last_bytes[series] == now->bytes[series])
            continue;
        ok = write_counter(made, made->labels[series], now->time_ns, now->bytes[series]);
        made->last_bytes[series] = now->bytes[series];
    }
    if (ok && (!made->begun || made->last_used_bytes != now->used_bytes))
        ok = write_counter(made, "in use", now->time_ns, now->used_bytes);
    made->begun = true;
    made->last_used_bytes = now->used_bytes;
    return ok;
}

static bool write_stage(const chrome *made, const rvl_timeline *timeline, uint32_t index)
{
    rvl_timeline_stage stage = {.struct_size = sizeof stage}, next = {.struct_size = sizeof next};
    if (rvl_timeline_get_stage(timeline, index, &stage) != RVL_OK)
        return false;
    uint64_t end_ns = rvl_timeline_end_ns(timeline);
    if (rvl_timeline_get_stage(timeline, index + 1, &next) == RVL_OK)
        end_ns = next.begin_ns;
    uint64_t length_ns = end_ns > stage.begin_ns ? end_ns - stage.begin_ns : 0;
    if (index == 0 && length_ns == 0)
        return true;
    fprintf(made->out, ",\n{\"ph\":\"X\",\"pid\":%" PRIu64 ",\"tid\":%d,", made->pid, STAGE_THREAD);
    write_time(made->out, "ts", stage.begin_ns);
    putc(',', made->out);
    write_time(made->out, "dur", length_ns);
    fputs(",\"name\":", made->out);
    bool ok = write_json_text(made->out, stage.name);
    fprintf(made->out, ",\"args\":{\"step\":%" PRIu32, stage.step);
    if (stage.count > 1)
        fprintf(made->out, ",\"stages\":%" PRIu32, stage.count);
    fputs("}}", made->out);
    return ok;
}

static bool write_name(const chrome *made, const report_run *run, const report_device *device,
                       bool first)
{
    char *name = NULL;
    const char *profile = device->of.profile != NULL ? device->of.profile : "given by size";
    if (asprintf(&name, "%s: device %d (%s)", run->label, device->of.device,
                 device->named ? profile : "not named") < 0)
        return false;
    fprintf(made->out,
            "%s{\"ph\":\"M\",\"pid\":%" PRIu64 ",\"name\":\"process_name\",\"args\":"
            "{\"name\":",
            first ? "" : ",\n", made->pid);
    bool ok = write_json_text(made->out, name);
    fprintf(made->out,
            "}},\n{\"ph\":\"M\",\"pid\":%" PRIu64 ",\"tid\":%d,\"name\":\"thread_name\",\"args\":"
            "{\"name\":\"stages\"}}",
            made->pid, STAGE_THREAD);
    free(name);
    return ok;
}

static bool make_labels(chrome *made, const rvl_timeline *timeline, size_t device)
{
    for (uint32_t i = 0; i < made->series_count; i++) {
        rvl_timeline_series series = {.struct_size = sizeof series};
        if (rvl_timeline_get_series(timeline, device, i, &series) != RVL_OK)
            return false;
        const char *tag = series.tag != NULL ? series.tag : "untagged";
        if (asprintf(&made->labels[i], "%s/%s%s", series.process, tag,
                     series.paused ? " (paused)" : "") < 0) {
            made->labels[i] = NULL;
            return false;
        }
    }
    return true;
}

static bool write_device(FILE *out, const report_run *run, size_t index, uint64_t pid)
{
    report_device device;
    if (!report_device_get(run, index, &device))
        return false;
    uint32_t count = device.of.series_count;
    chrome made = {.out = out, .pid = pid, .series_count = count};
    made.labels = calloc((size_t)count + 1, sizeof *made.labels);
    made.last_bytes = calloc((size_t)count + 1, sizeof *made.last_bytes);
    bool ok = made.labels != NULL && made.last_bytes != NULL &&
              make_labels(&made, run->timeline, index) && write_name(&made, run, &device, pid == 1);
    if (device.named)
        ok = ok && write_counter(&made, "capacity", 0, device.of.capacity_bytes);
    for (uint32_t i = 0; ok && i < rvl_timeline_stage_count(run->timeline); i++)
        ok = write_stage(&made, run->timeline, i);
    ok = ok && walk_instants(run->timeline, index, write_instant, &made);
    for (uint32_t i = 0; made.labels != NULL && i < count; i++)
        free(made.labels[i]);
    free(made.labels);
    free(made.last_bytes);
    return ok;
}

bool write_chrome(FILE *out, const report_run *runs, size_t run_count)
{
    uint64_t pid = 1;
    bool ok = true;
    fputs("{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n", out);
    for (size_t i = 0; i < run_count; i++) {
        for (size_t d = 0; ok && d < rvl_timeline_device_count(runs[i].timeline); d++)
            ok = write_device(out, &runs[i], d, pid++);
    }
    fputs("\n]}\n", out);
    return ok;
}
