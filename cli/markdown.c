/* SPDX-License-Identifier: MIT */
#include "markdown.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"
#include "peaks.h"
#include "reveille/verdict.h"

#define HOLDERS_MOST 4u /* holders that a row names */

/* ---- Text ---- */

/* Puts a comment after `@` and `#`, so that GitHub makes no mention or link of them. */
bool markdown_text(FILE *out, const char *text)
{
    char *shown = printable(text);
    for (const char *at = shown; at != NULL && *at != '\0'; at++) {
        if (strchr("\\`*_[]<>|~&", *at) != NULL)
            putc('\\', out);
        putc(*at, out);
        if (*at == '@' || *at == '#')
            fputs("<!-- -->", out);
    }
    free(shown);
    return shown != NULL;
}

static size_t longest_ticks(const char *text)
{
    size_t most = 0;
    for (const char *at = text; *at != '\0';) {
        size_t length = strspn(at, "`");
        most = length > most ? length : most;
        at += length > 0 ? length : 1;
    }
    return most;
}

bool markdown_name(FILE *out, const char *name)
{
    char *shown = printable(name);
    if (shown == NULL)
        return false;
    size_t ticks = longest_ticks(shown) + 1, length = strlen(shown);
    bool padded = length == 0 || shown[0] == '`' || shown[length - 1] == '`';
    for (size_t i = 0; i < ticks; i++)
        putc('`', out);
    fputs(padded ? " " : "", out);
    for (const char *at = shown; *at != '\0'; at++)
        fprintf(out, "%s%c", *at == '|' ? "\\" : "", *at);
    fputs(padded ? " " : "", out);
    for (size_t i = 0; i < ticks; i++)
        putc('`', out);
    free(shown);
    return true;
}

/* ---- A replay ---- */

static bool write_holders(FILE *out, const rvl_replay *replay, const peak *row)
{
    rvl_holder holders[HOLDERS_MOST];
    char size[SIZE_TEXT_BYTES], others[COUNT_TEXT_BYTES];
    size_t count = 0;
    uint64_t rest_bytes = row->stats.peak_bytes;
    if (rvl_replay_get_holders(replay, row->device, row->stage, holders, sizeof *holders,
                               HOLDERS_MOST, &count) != RVL_OK)
        return false;
    for (size_t i = 0; i < count && i < HOLDERS_MOST; i++) {
        char *name = NULL;
        if (asprintf(&name, "%s/%s", holders[i].process,
                     holders[i].tag != NULL ? holders[i].tag : "untagged") < 0)
            return false;
        fputs(i > 0 ? ", " : "", out);
        bool written = markdown_name(out, name);
        free(name);
        if (!written)
            return false;
        fprintf(out, " %s", format_size(holders[i].bytes, size));
        rest_bytes -= holders[i].bytes;
    }
    if (count > HOLDERS_MOST)
        fprintf(out, ", %s %s", format_count(count - HOLDERS_MOST, "other", "others", others),
                format_size(rest_bytes, size));
    return true;
}

static bool write_row(FILE *out, const rvl_replay *replay, const peak *row,
                      const rvl_replay_device *device)
{
    char size[SIZE_TEXT_BYTES], left[SIZE_TEXT_BYTES];
    bool fits = row->stats.peak_bytes <= device->capacity_bytes;
    fprintf(out, "| %d | ", device->device);
    if (!markdown_name(out, row->stats.mark))
        return false;
    if (row->count > 1)
        fprintf(out, ", %" PRIu32 " times", row->count);
    if (row->count > 1 && peak_largest(row)[0] != '#') {
        fputs(", most in ", out);
        if (!markdown_name(out, peak_largest(row)))
            return false;
    }
    fprintf(out, " | %s%s | %s | ", format_size(row->stats.peak_bytes, size),
            fits ? (row->over_budget ? " **over budget**" : "") : " **OOM**",
            fits ? format_size(row->stats.free_at_peak_bytes, left) : "none");
    bool written = write_holders(out, replay, row);
    fputs(" |\n", out);
    return written;
}

static bool write_rows(FILE *out, const rvl_replay *replay, const peak *rows, size_t count)
{
    fputs("\n| device | stage | peak | free at peak | who holds the peak |\n"
          "| ---: | :--- | ---: | ---: | :--- |\n",
          out);
    ranked_peak *ranked = calloc(count + 1, sizeof *ranked);
    bool ok = ranked != NULL;
    for (size_t i = 0; ok && i < count; i++)
        ranked[i] = (ranked_peak){&rows[i], i};
    if (ok)
        peaks_rank(ranked, count, MARKDOWN_ROWS_MAX);
    for (size_t i = 0; ok && i < count && i < MARKDOWN_ROWS_MAX; i++) {
        rvl_replay_device device = {.struct_size = sizeof device};
        ok = rvl_replay_get_device(replay, ranked[i].row->device, &device) == RVL_OK &&
             write_row(out, replay, ranked[i].row, &device);
    }
    if (count > MARKDOWN_ROWS_MAX)
        fprintf(out, "\n%zu more rows are left out, the smallest.\n", count - MARKDOWN_ROWS_MAX);
    free(ranked);
    return ok;
}

static bool write_devices(FILE *out, const rvl_replay *replay)
{
    bool ok = true;
    for (size_t i = 0; ok && i < rvl_replay_device_count(replay); i++) {
        rvl_replay_device device = {.struct_size = sizeof device};
        char most[SIZE_TEXT_BYTES], capacity[SIZE_TEXT_BYTES];
        if (rvl_replay_get_device(replay, i, &device) != RVL_OK)
            return false;
        fprintf(out, "- device %d: ", device.device);
        ok = markdown_text(out, device.profile != NULL ? device.profile : "given by size");
        fprintf(out, ", peak %s of %s\n", format_size(device.peak_bytes, most),
                format_size(device.capacity_bytes, capacity));
    }
    return ok;
}

bool markdown_replay(FILE *out, const rvl_replay *replay, const replay_more *more)
{
    rvl_verdict verdict = {.struct_size = sizeof verdict};
    peak *rows = NULL;
    size_t count = 0;
    if (rvl_replay_get_verdict(replay, &verdict) != RVL_OK ||
        !peaks_of(replay, PEAKS_OF_ALL, &rows, &count))
        return false;
    fputs("### GPU memory: ", out);
    bool ok = markdown_text(out, verdict.text);
    fputs("\n\n", out);
    ok = ok && write_devices(out, replay);
    if (ok && more != NULL)
        more->write_markdown(out, more->user);
    ok = ok && (count == 0 || write_rows(out, replay, rows, count));
    free(rows);
    return ok;
}
