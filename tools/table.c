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
    bool failed; /* no memory for a row */
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

void table_add(table *rows, const char *const *cells)
{
    row *grown = realloc(rows->rows, (rows->count + 1) * sizeof *grown);
    if (grown != NULL)
        rows->rows = grown;
    if (grown == NULL || !copy_row(&grown[rows->count], cells, rows->columns)) {
        rows->failed = true;
        return;
    }
    rows->count++;
}

void table_mark_last(table *rows)
{
    if (rows->count > 0 && !rows->failed)
        rows->rows[rows->count - 1].marked = true;
}

table *table_new(const char *const *titles, const bool *right, size_t columns)
{
    table *rows = calloc(1, sizeof *rows);
    if (rows == NULL)
        return NULL;
    rows->columns = columns;
    rows->right = right;
    table_add(rows, titles);
    return rows;
}

static size_t width_of(const table *rows, size_t column)
{
    size_t width = 0;
    for (size_t i = 0; i < rows->count; i++) {
        size_t length = strlen(rows->rows[i].cells[column]);
        width = length > width ? length : width;
    }
    return width;
}

/* Spaces come with the cell after them, so that no line ends in any. */
static void print_row(const table *rows, const row *line, const size_t *widths)
{
    size_t pending = 0;
    for (size_t i = 0; i < rows->columns; i++) {
        const char *cell = line->cells[i];
        size_t length = strlen(cell);
        size_t fill = widths[i] - length;
        if (length > 0) {
            printf("%*s%s", (int)(pending + (rows->right[i] ? fill : 0)), "", cell);
            pending = rows->right[i] ? 0 : fill;
        } else {
            pending += widths[i];
        }
        pending += widths[i] > 0 ? 2 : 0;
    }
}

bool table_print(const table *rows, const char *indent, const char *style, const char *style_end)
{
    size_t *widths = calloc(rows->columns, sizeof *widths);
    if (widths == NULL || rows->failed) {
        free(widths);
        return false;
    }
    for (size_t i = 0; i < rows->columns; i++)
        widths[i] = width_of(rows, i);
    for (size_t i = 0; i < rows->count; i++) {
        bool styled = rows->rows[i].marked && style != NULL;
        printf("%s%s", indent, styled ? style : "");
        print_row(rows, &rows->rows[i], widths);
        printf("%s\n", styled ? style_end : "");
    }
    free(widths);
    return true;
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
