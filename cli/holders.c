/* SPDX-License-Identifier: MIT */
/*
 * Prints a peak: one line tells what the memory is for, and a table lists the program's lines that
 * hold the most. Activations are split by the class of the module that made them.
 */
#include "holders.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"

#define MODULES_MOST 4u /* module classes to print, the largest */
#define PARTS_MOST 16u

/* ---- Gathering ---- */

static bool same(const char *left, const char *right)
{
    return left == right || (left != NULL && right != NULL && strcmp(left, right) == 0);
}

bool holding_add_part(holding *to, const char *tag, const char *module, uint64_t bytes)
{
    for (size_t i = 0; i < to->part_count; i++) {
        if (same(to->parts[i].tag, tag) && same(to->parts[i].module, module)) {
            to->parts[i].bytes += bytes;
            return true;
        }
    }
    rvl_snapshot_part *parts = realloc(to->parts, (to->part_count + 1) * sizeof *parts);
    if (parts == NULL)
        return false;
    to->parts = parts;
    parts[to->part_count++] = (rvl_snapshot_part){
        .struct_size = sizeof *parts, .tag = tag, .module = module, .bytes = bytes};
    return true;
}

static bool add_line(holding *to, const rvl_snapshot_line *line)
{
    rvl_snapshot_line *lines = realloc(to->lines, (to->line_count + 1) * sizeof *lines);
    if (lines == NULL)
        return false;
    to->lines = lines;
    lines[to->line_count++] = *line;
    return true;
}

bool holding_add_stage(holding *to, const rvl_snapshot *snapshot, uint32_t stage)
{
    rvl_snapshot_part part = {.struct_size = sizeof part};
    rvl_snapshot_line line = {.struct_size = sizeof line};
    bool ok = true;
    for (uint32_t i = 0; ok && rvl_snapshot_get_part(snapshot, stage, i, &part) == RVL_OK; i++)
        ok = holding_add_part(to, part.tag, part.module, part.bytes);
    for (uint32_t i = 0; ok && rvl_snapshot_get_line(snapshot, stage, i, &line) == RVL_OK; i++)
        ok = add_line(to, &line);
    return ok;
}

static int parts_by_bytes(const void *a, const void *b)
{
    const rvl_snapshot_part *left = a, *right = b;
    if (left->bytes != right->bytes)
        return left->bytes > right->bytes ? -1 : 1;
    int order = strcmp(left->tag, right->tag);
    return order != 0 ? order
                      : strcmp(left->module != NULL ? left->module : "",
                               right->module != NULL ? right->module : "");
}

static int lines_by_bytes(const void *a, const void *b)
{
    const rvl_snapshot_line *left = a, *right = b;
    if (left->bytes != right->bytes)
        return left->bytes > right->bytes ? -1 : 1;
    return (left->line > right->line) - (left->line < right->line);
}

void holding_sort(holding *of)
{
    if (of->part_count > 0)
        qsort(of->parts, of->part_count, sizeof *of->parts, parts_by_bytes);
    if (of->line_count > 0)
        qsort(of->lines, of->line_count, sizeof *of->lines, lines_by_bytes);
}

void holding_clear(holding *of)
{
    free(of->parts);
    free(of->lines);
    *of = (holding){0};
}

/* ---- Parts ---- */

/* Prints " (LlamaMLP 6.1 GiB, LlamaAttention 3.2 GiB)" if the tag is split by module. */
static void print_modules(const holding *of, const char *tag)
{
    char size[SIZE_TEXT_BYTES];
    unsigned count = 0;
    for (size_t i = 0; i < of->part_count && count < MODULES_MOST; i++) {
        const rvl_snapshot_part *part = &of->parts[i];
        if (part->module == NULL || strcmp(part->tag, tag) != 0)
            continue;
        char *name = printable(part->module);
        printf("%s%s %s", count++ == 0 ? " (" : ", ", name != NULL ? name : "",
               format_size(part->bytes, size));
        free(name);
    }
    if (count > 0)
        printf(")");
}

/* Prints the sum of each tag over all modules, and then its modules. */
static bool print_parts(const holding *of)
{
    holding sums = {0};
    char size[SIZE_TEXT_BYTES];
    bool ok = true;
    for (size_t i = 0; ok && i < of->part_count; i++)
        ok = holding_add_part(&sums, of->parts[i].tag, NULL, of->parts[i].bytes);
    holding_sort(&sums);
    for (size_t i = 0; ok && i < sums.part_count && i < PARTS_MOST; i++) {
        char *name = printable(sums.parts[i].tag);
        printf("%s%s %s", i == 0 ? " " : ", ", name != NULL ? name : "",
               format_size(sums.parts[i].bytes, size));
        print_modules(of, sums.parts[i].tag);
        free(name);
    }
    printf("\n");
    holding_clear(&sums);
    return ok;
}

/* ---- Lines ---- */

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash != NULL && slash[1] != '\0' ? slash + 1 : path;
}

/* Returns "forward (gpt.py:23)". The caller frees it. NULL: no memory. */
static char *frame_text(const char *name, const char *file, uint32_t line)
{
    char *text = NULL;
    char number[16] = "";
    if (line > 0)
        snprintf(number, sizeof number, ":%" PRIu32, line);
    if (name == NULL)
        return strdup("no line of Python: PyTorch's own threads, as in backward");
    bool known = file != NULL && file[0] != '\0' && strcmp(file, "??") != 0;
    if (asprintf(&text, known ? "%s (%s%s)" : "%s", name[0] != '\0' ? name : "?",
                 known ? base_name(file) : "", number) < 0)
        return NULL;
    char *shown = printable(text);
    free(text);
    return shown;
}

char *holders_place(const rvl_snapshot_line *line)
{
    char *own = frame_text(line->name, line->file, line->line), *text = NULL;
    if (own == NULL || line->via_name == NULL)
        return own;
    char *via = frame_text(line->via_name, line->via_file, line->via_line);
    if (via != NULL && asprintf(&text, "%s, through %s", own, via) < 0)
        text = NULL;
    free(own);
    free(via);
    return text;
}

static bool put_line(table *rows, const rvl_snapshot_line *line)
{
    char size[SIZE_TEXT_BYTES], count[COUNT_TEXT_BYTES];
    char *place = holders_place(line), *tag = printable(line->tag);
    if (place != NULL && tag != NULL) {
        const char *cells[] = {format_size(line->bytes, size), tag,
                               format_count(line->count, "tensor", "tensors", count), place};
        table_add(rows, cells);
    }
    bool ok = place != NULL && tag != NULL;
    free(place);
    free(tag);
    return ok;
}

static bool print_lines(const holding *of)
{
    static const char *const titles[] = {"held", "for", "tensors", "asked for in"};
    static const bool right[] = {true, false, true, false};
    if (of->line_count == 0)
        return true;
    table *rows = table_new(titles, right, sizeof titles / sizeof *titles);
    bool ok = rows != NULL;
    for (size_t i = 0; ok && i < HOLDERS_LINES && i < of->line_count; i++)
        ok = put_line(rows, &of->lines[i]);
    ok = ok && table_print(rows, "    ");
    table_free(rows);
    return ok;
}

bool holders_print(const holding *of, const char *where)
{
    if (of->part_count == 0)
        return true;
    char *name = printable(where);
    printf("at the peak of %s:", name != NULL ? name : "");
    free(name);
    return print_parts(of) && print_lines(of);
}
