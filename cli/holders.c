/* SPDX-License-Identifier: MIT */
/*
 * A peak for people: one line says what memory is for, and a table the lines that hold most.
 *
 * Activations are told of by the class of modules that made them: the largest four.
 */
#include "holders.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"

#define MODULES_MOST 4u
#define PARTS_MOST 16u

/* ---- What it is for ---- */

/* Bytes of a tag over all modules, where part is the first of that tag; 0: it is a later one. */
static uint64_t bytes_of_tag(const rvl_snapshot *snapshot, uint32_t stage, uint32_t part)
{
    rvl_snapshot_part first = {.struct_size = sizeof first}, other = first;
    uint64_t bytes = 0;
    if (rvl_snapshot_get_part(snapshot, stage, part, &first) != RVL_OK)
        return 0;
    for (uint32_t i = 0; rvl_snapshot_get_part(snapshot, stage, i, &other) == RVL_OK; i++) {
        if (strcmp(other.tag, first.tag) != 0)
            continue;
        if (i < part)
            return 0;
        bytes += other.bytes;
    }
    return bytes;
}

/* " (LlamaMLP 6.1 GiB, LlamaAttention 3.2 GiB)" of a tag that modules tell apart. */
static void print_modules(const rvl_snapshot *snapshot, uint32_t stage, const char *tag)
{
    rvl_snapshot_part part = {.struct_size = sizeof part};
    char size[SIZE_TEXT_BYTES];
    unsigned count = 0;
    for (uint32_t i = 0; rvl_snapshot_get_part(snapshot, stage, i, &part) == RVL_OK; i++) {
        if (part.module == NULL || strcmp(part.tag, tag) != 0 || count == MODULES_MOST)
            continue;
        char *name = printable(part.module);
        printf("%s%s %s", count++ == 0 ? " (" : ", ", name != NULL ? name : "",
               format_size(part.bytes, size));
        free(name);
    }
    if (count > 0)
        printf(")");
}

typedef struct tag_sum {
    const char *tag;
    uint64_t bytes;
} tag_sum;

static int by_bytes(const void *a, const void *b)
{
    const tag_sum *left = a, *right = b;
    if (left->bytes != right->bytes)
        return left->bytes > right->bytes ? -1 : 1;
    return strcmp(left->tag, right->tag);
}

static bool print_parts(const rvl_snapshot *snapshot, uint32_t stage)
{
    rvl_snapshot_part part = {.struct_size = sizeof part};
    char size[SIZE_TEXT_BYTES];
    uint32_t count = 0, sums = 0;
    while (rvl_snapshot_get_part(snapshot, stage, count, &part) == RVL_OK)
        count++;
    tag_sum *list = calloc(count + (size_t)1, sizeof *list);
    if (list == NULL)
        return false;
    for (uint32_t i = 0; i < count; i++) {
        uint64_t bytes = bytes_of_tag(snapshot, stage, i);
        if (bytes > 0 && rvl_snapshot_get_part(snapshot, stage, i, &part) == RVL_OK)
            list[sums++] = (tag_sum){part.tag, bytes};
    }
    qsort(list, sums, sizeof *list, by_bytes);
    for (uint32_t i = 0; i < sums && i < PARTS_MOST; i++) {
        char *name = printable(list[i].tag);
        printf("%s%s %s", i == 0 ? " " : ", ", name != NULL ? name : "",
               format_size(list[i].bytes, size));
        free(name);
        print_modules(snapshot, stage, list[i].tag);
    }
    printf("\n");
    free(list);
    return true;
}

/* ---- Lines ---- */

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash != NULL && slash[1] != '\0' ? slash + 1 : path;
}

/* "forward (gpt.py:23)"; the caller frees it. NULL: no memory. */
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

/* "forward (gpt.py:23), through forward (modeling_llama.py:239)" */
static char *place_text(const rvl_snapshot_line *line)
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

static bool add_line(table *rows, const rvl_snapshot_line *line)
{
    char size[SIZE_TEXT_BYTES], count[COUNT_TEXT_BYTES];
    char *place = place_text(line), *tag = printable(line->tag);
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

static bool print_lines(const rvl_snapshot *snapshot, uint32_t stage)
{
    static const char *const titles[] = {"held", "for", "tensors", "asked for in"};
    static const bool right[] = {true, false, true, false};
    rvl_snapshot_line line = {.struct_size = sizeof line};
    table *rows = table_new(titles, right, sizeof titles / sizeof *titles);
    bool ok = rows != NULL;
    uint32_t i = 0;
    for (; ok && i < HOLDERS_LINES && rvl_snapshot_get_line(snapshot, stage, i, &line) == RVL_OK;
         i++)
        ok = add_line(rows, &line);
    ok = ok && (i == 0 || table_print(rows, "    "));
    table_free(rows);
    return ok;
}

bool holders_print(const rvl_snapshot *snapshot, uint32_t stage, const char *where)
{
    rvl_snapshot_part part = {.struct_size = sizeof part};
    if (rvl_snapshot_get_part(snapshot, stage, 0, &part) != RVL_OK)
        return true;
    char *name = printable(where);
    printf("at the peak of %s:", name != NULL ? name : "");
    free(name);
    return print_parts(snapshot, stage) && print_lines(snapshot, stage);
}
