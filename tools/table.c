/* SPDX-License-Identifier: MIT */
/* A table of text: columns as wide as their widest cell, two spaces between them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"

typedef struct row {
    char **cells;
    bool marked;
} row;

struct table {
    row *rows; /* the first holds the titles */
    size_t count;
    size_t columns;
    const bool *right;
    bool failed;     /* no memory for a row */
    size_t widths[]; /* of the widest cell so far */
};

static void free_row(row *line, size_t columns)
{
    for (size_t i = 0; line->cells != NULL && i < columns; i++)
        free(line->cells[i]);
    free(line->cells);
}

static bool copy_row(row *line, const char *const *cells, size_t columns)
{
    line->marked = false;
    line->cells = calloc(columns, sizeof *line->cells);
    if (line->cells == NULL)
        return false;
    for (size_t i = 0; i < columns; i++) {
        line->cells[i] = cells[i] != NULL ? printable(cells[i]) : NULL;
        if (line->cells[i] == NULL) {
            free_row(line, columns);
            return false;
        }
    }
    return true;
}

void table_widen(table *rows, const char *const *cells)
{
    for (size_t i = 0; i < rows->columns; i++) {
        size_t length = strlen(cells[i]);
        if (length > rows->widths[i])
            rows->widths[i] = length;
    }
}

void table_add(table *rows, const char *const *cells)
{
    row *grown = realloc(rows->rows, (rows->count + 1) * sizeof *grown);
    if (grown != NULL)
        rows->rows = grown;
    if (grown == NULL || !copy_row(&grown[rows->count], cells, rows->columns)) {
        rows->failed = true;
        return;
    }
    table_widen(rows, cells);
    rows->count++;
}

void table_mark_last(table *rows)
{
    if (rows->count > 0 && !rows->failed)
        rows->rows[rows->count - 1].marked = true;
}

table *table_new(const char *const *titles, const bool *right, size_t columns)
{
    table *rows = calloc(1, sizeof *rows + columns * sizeof *rows->widths);
    if (rows == NULL)
        return NULL;
    rows->columns = columns;
    rows->right = right;
    table_add(rows, titles);
    return rows;
}

/* Spaces come with the cell after them, so that no line ends in any. */
static void print_cells(const table *rows, const char *const *cells)
{
    size_t pending = 0;
    for (size_t i = 0; i < rows->columns; i++) {
        const char *cell = cells[i];
        size_t length = strlen(cell), width = rows->widths[i];
        size_t fill = width > length ? width - length : 0;
        if (length > 0) {
            printf("%*s%s", (int)(pending + (rows->right[i] ? fill : 0)), "", cell);
            pending = rows->right[i] ? 0 : fill;
        } else {
            pending += width;
        }
        pending += width > 0 ? 2 : 0;
    }
}

void table_put(const table *rows, const char *const *cells, const char *indent, const char *style,
               const char *style_end)
{
    printf("%s%s", indent, style != NULL ? style : "");
    print_cells(rows, cells);
    printf("%s\n", style != NULL ? style_end : "");
}

bool table_print(const table *rows, const char *indent, const char *style, const char *style_end)
{
    for (size_t i = 0; i < rows->count && !rows->failed; i++)
        table_put(rows, (const char *const *)rows->rows[i].cells, indent,
                  rows->rows[i].marked ? style : NULL, style_end);
    return !rows->failed;
}

void table_free(table *rows)
{
    if (rows == NULL)
        return;
    for (size_t i = 0; i < rows->count; i++)
        free_row(&rows->rows[i], rows->columns);
    free(rows->rows);
    free(rows);
}
