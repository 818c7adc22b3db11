/* SPDX-License-Identifier: MIT */
/* Prints a comparison as text, as JSON (schema 1, docs/compare.md) and as Markdown. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "compare/compare.h"
#include "markdown.h"

#define HOLDERS_SHOWN 3u
#define LINES_SHOWN 5u

const char *compare_size(int64_t bytes, char text[COMPARE_SIZE_BYTES])
{
    text[0] = bytes < 0 ? '-' : '+';
    format_size(bytes < 0 ? (uint64_t)0 - (uint64_t)bytes : (uint64_t)bytes, text + 1);
    return bytes == 0 ? text + 1 : text;
}

static int64_t change_of(const compare_part *part)
{
    return part->bytes[COMPARE_B] - part->bytes[COMPARE_A];
}

/* Returns "A only" or "B only" for a stage of one run. NULL: both have it. */
static const char *only(const compare_row *row)
{
    if (row->has[COMPARE_A] && row->has[COMPARE_B])
        return NULL;
    return row->has[COMPARE_A] ? "A only" : "B only";
}

static const char *peak_text(const compare_row *row, int side, char text[SIZE_TEXT_BYTES])
{
    return row->has[side] ? format_size(row->peak_bytes[side], text) : "";
}

/* Formats "+1.5 GiB (+3.2 %)". */
static void change_text(const compare_row *row, char *text, size_t size)
{
    char bytes[COMPARE_SIZE_BYTES], percent[CHANGE_TEXT_BYTES];
    snprintf(text, size, "%s (%s)", compare_size(compare_change(row), bytes),
             format_change(compare_percent(row), percent));
}

/* ---- For people ---- */

/* Returns "engine/kv_cache -94.8 GiB, trainer/untagged +1.0 MiB". The caller frees it. NULL: no
 * memory. */
static char *holders_text(const compare_row *row)
{
    char *text = NULL, size[COMPARE_SIZE_BYTES];
    size_t length = 0;
    if (only(row) != NULL)
        return strdup(only(row));
    FILE *out = open_memstream(&text, &length);
    if (out == NULL)
        return NULL;
    for (size_t i = 0; i < row->holders.count && i < HOLDERS_SHOWN; i++) {
        const compare_part *part = &row->holders.list[i];
        if (change_of(part) != 0)
            fprintf(out, "%s%s %s", i > 0 ? ", " : "", part->name,
                    compare_size(change_of(part), size));
    }
    if (fclose(out) != 0) {
        free(text);
        return NULL;
    }
    return text;
}

static bool add_row(table *rows, const compare_row *row)
{
    char device[16], peaks[COMPARE_SIDES][SIZE_TEXT_BYTES], change[64] = "";
    char *holders = holders_text(row);
    snprintf(device, sizeof device, "%d", row->device);
    if (only(row) == NULL)
        change_text(row, change, sizeof change);
    if (holders != NULL)
        table_add(rows,
                  (const char *const[]){device, row->stage, peak_text(row, COMPARE_A, peaks[0]),
                                        peak_text(row, COMPARE_B, peaks[1]), change, holders});
    free(holders);
    return holders != NULL;
}

static bool print_rows(const comparison *made)
{
    static const char *const titles[] = {"device",    "stage",  "peak in A",
                                         "peak in B", "change", "what changed at the peak"};
    static const bool right[] = {true, false, true, true, true, false};
    table *rows = table_new(titles, right, 6);
    bool ok = rows != NULL;
    for (size_t i = 0; ok && i < made->count; i++)
        if (compare_has_changed(&made->rows[i]))
            ok = add_row(rows, &made->rows[i]);
    ok = ok && table_print(rows, "  ");
    table_free(rows);
    return ok;
}

static size_t count_changed(const comparison *made)
{
    size_t count = 0;
    for (size_t i = 0; i < made->count; i++)
        count += compare_has_changed(&made->rows[i]);
    return count;
}

/* Prints the lines that changed. row: the stage that changed most; NULL: prints nothing. */
static bool print_lines(const compare_row *row)
{
    static const char *const titles[] = {"change", "held in A", "held in B", "asked for in"};
    static const bool right[] = {true, true, true, false};
    if (row == NULL || row->lines.count == 0 || change_of(&row->lines.list[0]) == 0)
        return true;
    table *rows = table_new(titles, right, 4);
    for (size_t i = 0; rows != NULL && i < row->lines.count && i < LINES_SHOWN; i++) {
        const compare_part *line = &row->lines.list[i];
        char change[COMPARE_SIZE_BYTES], held[COMPARE_SIDES][SIZE_TEXT_BYTES];
        if (change_of(line) == 0)
            break;
        table_add(rows, (const char *const[]){compare_size(change_of(line), change),
                                              format_size((uint64_t)line->bytes[0], held[0]),
                                              format_size((uint64_t)line->bytes[1], held[1]),
                                              line->name});
    }
    say("lines at the peak of %s on device %d\n", row->stage, row->device);
    bool ok = rows != NULL && table_print(rows, "  ");
    table_free(rows);
    return ok;
}

/* Returns "train on device 0 grew most: by 1.5 GiB (+3.2 %), to 49.5 GiB". The caller frees it.
 * NULL: no memory. */
static char *summary(const comparison *made)
{
    const compare_row *most = compare_most(made);
    char *text = NULL, change[SIZE_TEXT_BYTES], peak[SIZE_TEXT_BYTES], percent[CHANGE_TEXT_BYTES];
    size_t changed = count_changed(made);
    if (most == NULL) {
        const char *said =
            changed == 0 ? "no peak has changed" : "no stage that both have has changed its peak";
        return strdup(said);
    }
    int64_t bytes = compare_change(most);
    if (asprintf(&text, "%s on device %d %s most: by %s (%s), to %s", most->stage, most->device,
                 bytes > 0 ? "grew" : "shrank",
                 format_size(bytes < 0 ? (uint64_t)0 - (uint64_t)bytes : (uint64_t)bytes, change),
                 format_change(compare_percent(most), percent),
                 format_size(most->peak_bytes[COMPARE_B], peak)) < 0)
        return NULL;
    return text;
}

static void print_unchanged(const comparison *made)
{
    char text[COUNT_TEXT_BYTES];
    size_t same = made->count - count_changed(made);
    if (same > 0)
        printf("  %s\n", format_count(same, "stage is unchanged", "stages are unchanged", text));
}

bool compare_print(const comparison *made)
{
    for (int side = 0; side < COMPARE_SIDES; side++)
        say("%c: %s%s%s\n", 'A' + side, made->names[side], made->verdicts[side] != NULL ? ": " : "",
            made->verdicts[side] != NULL ? made->verdicts[side] : "");
    if (count_changed(made) > 0 && !print_rows(made))
        return false;
    print_unchanged(made);
    char *said = summary(made);
    bool ok = said != NULL && print_lines(compare_most(made));
    if (ok)
        say("%s\n", said);
    free(said);
    return ok;
}

/* ---- For programs ---- */

static json_t *parts_json(const compare_parts *parts)
{
    json_t *list = json_array();
    for (size_t i = 0; i < parts->count; i++) {
        const compare_part *part = &parts->list[i];
        if (change_of(part) != 0)
            json_array_append_new(list, json_pack("{s:s,s:I,s:I,s:I}", "name", part->name,
                                                  "a_bytes", (json_int_t)part->bytes[COMPARE_A],
                                                  "b_bytes", (json_int_t)part->bytes[COMPARE_B],
                                                  "change_bytes", (json_int_t)change_of(part)));
    }
    return list;
}

static json_t *peak_json(const compare_row *row, int side)
{
    return row->has[side] ? json_integer((json_int_t)row->peak_bytes[side]) : json_null();
}

static json_t *row_json(const compare_row *row)
{
    bool both = only(row) == NULL;
    return json_pack("{s:i,s:s,s:o,s:o,s:I,s:I,s:o,s:o,s:o,s:o}", "device", row->device, "stage",
                     row->stage, "a_peak_bytes", peak_json(row, COMPARE_A), "b_peak_bytes",
                     peak_json(row, COMPARE_B), "a_count", (json_int_t)row->count[COMPARE_A],
                     "b_count", (json_int_t)row->count[COMPARE_B], "change_bytes",
                     both ? json_integer((json_int_t)compare_change(row)) : json_null(),
                     "change_percent", both ? json_real(compare_percent(row)) : json_null(),
                     "holders", parts_json(&row->holders), "lines", parts_json(&row->lines));
}

bool compare_write_json(FILE *out, const void *user)
{
    const comparison *made = user;
    json_t *stages = json_array();
    for (size_t i = 0; i < made->count; i++)
        json_array_append_new(stages, row_json(&made->rows[i]));
    json_t *root =
        json_pack("{s:i,s:{s:s,s:s?},s:{s:s,s:s?},s:o}", "schema", 1, "a", "name",
                  made->names[COMPARE_A], "verdict", made->verdicts[COMPARE_A], "b", "name",
                  made->names[COMPARE_B], "verdict", made->verdicts[COMPARE_B], "stages", stages);
    char *text = root != NULL ? json_dumps(root, JSON_COMPACT | JSON_REAL_PRECISION(6)) : NULL;
    if (text != NULL)
        fprintf(out, "%s\n", text);
    free(text);
    json_decref(root);
    return text != NULL;
}

/* ---- For a comment on a pull request ---- */

static bool write_parts(FILE *out, const compare_parts *parts, size_t most)
{
    char size[COMPARE_SIZE_BYTES];
    for (size_t i = 0; i < parts->count && i < most; i++) {
        const compare_part *part = &parts->list[i];
        if (change_of(part) == 0)
            break;
        fputs(i > 0 ? ", " : "", out);
        if (!markdown_name(out, part->name))
            return false;
        fprintf(out, " %s", compare_size(change_of(part), size));
    }
    return true;
}

static bool write_row(FILE *out, const compare_row *row)
{
    char peaks[COMPARE_SIDES][SIZE_TEXT_BYTES], change[64] = "";
    if (only(row) == NULL)
        change_text(row, change, sizeof change);
    fprintf(out, "| %d | ", row->device);
    bool ok = markdown_name(out, row->stage);
    fprintf(out, " | %s | %s | %s | %s", peak_text(row, COMPARE_A, peaks[0]),
            peak_text(row, COMPARE_B, peaks[1]), change, only(row) != NULL ? only(row) : "");
    ok = ok && write_parts(out, &row->holders, HOLDERS_SHOWN);
    fputs(" |\n", out);
    return ok;
}

static bool write_rows(FILE *out, const comparison *made)
{
    size_t written = 0;
    bool ok = true;
    fputs("\n| device | stage | peak in A | peak in B | change | what changed at the peak |\n"
          "| ---: | :--- | ---: | ---: | ---: | :--- |\n",
          out);
    for (size_t i = 0; ok && i < made->count; i++)
        if (compare_has_changed(&made->rows[i]) && written++ < MARKDOWN_ROWS_MAX)
            ok = write_row(out, &made->rows[i]);
    if (written > MARKDOWN_ROWS_MAX)
        fprintf(out, "\n%zu more rows are left out.\n", written - MARKDOWN_ROWS_MAX);
    return ok;
}

bool compare_write_markdown(FILE *out, const void *user)
{
    const comparison *made = user;
    const compare_row *most = compare_most(made);
    char *said = summary(made);
    bool ok = said != NULL;
    fputs("### GPU memory: ", out);
    ok = ok && markdown_text(out, said);
    free(said);
    fputs("\n\n", out);
    for (int side = 0; ok && side < COMPARE_SIDES; side++) {
        fprintf(out, "- %c, ", 'A' + side);
        ok = markdown_name(out, made->names[side]);
        if (made->verdicts[side] != NULL) {
            fputs(": ", out);
            ok = ok && markdown_text(out, made->verdicts[side]);
        }
        fputs("\n", out);
    }
    ok = ok && (count_changed(made) == 0 || write_rows(out, made));
    if (ok && most != NULL && most->lines.count > 0 && change_of(&most->lines.list[0]) != 0) {
        fputs("\nLines at the peak of ", out);
        ok = markdown_name(out, most->stage);
        fputs(": ", out);
        ok = ok && write_parts(out, &most->lines, LINES_SHOWN);
        fputs("\n", out);
    }
    return ok;
}
