/* SPDX-License-Identifier: MIT */
/*
 * A table of text. Each column is as wide as its widest cell, with two spaces between columns.
 *
 * On a narrow terminal, the columns are folded into bands that are printed below one another. A row
 * then has a line for each band, and bands after the first are indented further. If a line is still
 * too long, the last column, which holds text, is wrapped between words. If the output is not a
 * terminal, a row is always one line, so that programs always read the same layout.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"

#define RED "\x1b[31m"
#define PLAIN "\x1b[0m"
#define BAND_INDENT 4
#define TEXT_MIN 30 /* least width for wrapped text; with less room it gets its own band */

typedef struct row {
    char **cells;
    bool marked;
} row;

struct table {
    row *rows; /* the first holds the titles */
    size_t count;
    size_t columns;
    const bool *right;
    bool failed;     /* there was no memory for a row */
    bool is_heard;   /* rows are not stored (table_widen()): the last column's width is unknown */
    size_t *bands;   /* the band of each column */
    size_t widths[]; /* of each column's widest cell so far; bands[] follows in this allocation */
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

/* Returns the columns that UTF-8 text takes on a screen, at one for each character. */
static size_t text_width(const char *text, size_t length)
{
    size_t width = 0;
    for (size_t i = 0; i < length; i++)
        width += ((unsigned char)text[i] & 0xc0) != 0x80;
    return width;
}

static void widen(table *rows, const char *const *cells)
{
    for (size_t i = 0; i < rows->columns; i++) {
        size_t width = text_width(cells[i], strlen(cells[i]));
        rows->widths[i] = width > rows->widths[i] ? width : rows->widths[i];
    }
}

void table_widen(table *rows, const char *const *cells)
{
    rows->is_heard = true;
    widen(rows, cells);
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
    widen(rows, (const char *const *)rows->rows[rows->count].cells);
    rows->count++;
}

void table_mark_last(table *rows)
{
    if (rows->count > 0 && !rows->failed)
        rows->rows[rows->count - 1].marked = true;
}

table *table_new(const char *const *titles, const bool *right, size_t columns)
{
    table *rows = calloc(1, sizeof *rows + 2 * columns * sizeof *rows->widths);
    if (rows == NULL)
        return NULL;
    rows->bands = rows->widths + columns;
    rows->columns = columns;
    rows->right = right;
    table_add(rows, titles);
    return rows;
}

/* ---- Bands ---- */

typedef struct layout {
    size_t limit; /* columns of the terminal; 0: no limit */
    const char *indent;
    bool colours;
} layout;

static size_t indent_of(const layout *as, size_t band)
{
    return strlen(as->indent) + (band > 0 ? BAND_INDENT : 0);
}

/* Whether the column fits on the line from `at` on. Text can be wrapped there, if TEXT_MIN columns
 * are left. */
static bool has_room(const table *rows, const layout *as, size_t column, size_t at)
{
    bool is_text = column + 1 == rows->columns && !rows->right[column];
    bool is_known = !is_text || !rows->is_heard;
    return (is_known && at + rows->widths[column] <= as->limit) ||
           (is_text && at + TEXT_MIN <= as->limit);
}

static void fold(table *rows, const layout *as)
{
    size_t band = 0, at = strlen(as->indent);
    for (size_t i = 0; i < rows->columns; i++) {
        bool begins = i == 0 || at == indent_of(as, band);
        if (as->limit > 0 && !begins && rows->widths[i] > 0 && !has_room(rows, as, i, at))
            at = indent_of(as, ++band);
        rows->bands[i] = band;
        at += rows->widths[i] > 0 ? rows->widths[i] + 2 : 0;
    }
}

/* ---- Rows ---- */

/* Returns the bytes of text to put on a line: all if they fit, else up to the last space after a
 * comma, or the last space, within room. */
static size_t fitting(const char *text, size_t room)
{
    size_t comma = 0, space = 0, at = 0, width = 0;
    for (; text[at] != '\0' && width <= room; at++) {
        if (text[at] == ' ' && at > 0)
            space = at;
        if (text[at] == ' ' && at > 0 && text[at - 1] == ',')
            comma = at;
        width += ((unsigned char)text[at] & 0xc0) != 0x80;
    }
    if (text[at] == '\0' && width <= room)
        return at;
    if (comma > 0 || space > 0)
        return comma > 0 ? comma : space;
    return strcspn(text, " "); /* never cuts a word */
}

static void begin_line(const row *line, const layout *as, size_t columns)
{
    printf("%s%*s", line->marked && as->colours ? RED : "", (int)columns, "");
}

static void end_line(const row *line, const layout *as)
{
    puts(line->marked && as->colours ? PLAIN : "");
}

/* Prints a cell from column `at` on, and wraps the rest below. */
static void print_cell(const row *line, const layout *as, const char *cell, size_t at)
{
    for (;;) {
        size_t length = as->limit > at ? fitting(cell, as->limit - at) : strlen(cell);
        printf("%.*s", (int)length, cell);
        cell += length;
        cell += strspn(cell, " ");
        if (*cell == '\0')
            return;
        end_line(line, as);
        begin_line(line, as, at);
    }
}

static bool is_empty(const table *rows, const row *line, size_t band)
{
    for (size_t i = 0; i < rows->columns; i++) {
        if (rows->bands[i] == band && line->cells[i][0] != '\0')
            return false;
    }
    return true;
}

/* Prints spaces only before a cell, so that no line ends in spaces. */
static void print_band(const table *rows, const row *line, const layout *as, size_t band)
{
    size_t at = indent_of(as, band), pending = 0;
    begin_line(line, as, at);
    for (size_t i = 0; i < rows->columns; i++) {
        if (rows->bands[i] != band)
            continue;
        const char *cell = line->cells[i];
        size_t length = text_width(cell, strlen(cell));
        size_t fill = rows->widths[i] > length ? rows->widths[i] - length : 0;
        if (length > 0) {
            size_t before = pending + (rows->right[i] ? fill : 0);
            printf("%*s", (int)before, "");
            print_cell(line, as, cell, at + before);
            at += before + length;
            pending = rows->right[i] ? 0 : fill;
        } else {
            pending += rows->widths[i];
        }
        pending += rows->widths[i] > 0 ? 2 : 0;
    }
    end_line(line, as);
}

static void print_row(const table *rows, const row *line, const layout *as)
{
    for (size_t band = 0; band <= rows->bands[rows->columns - 1]; band++) {
        if (band == 0 || !is_empty(rows, line, band))
            print_band(rows, line, as, band);
    }
}

static layout lay_out(table *rows, const char *indent)
{
    layout as = {.limit = table_columns(), .indent = indent, .colours = wants_colour()};
    fold(rows, &as);
    return as;
}

void table_put(table *rows, const char *const *cells, bool marked, const char *indent)
{
    const row line = {.cells = (char **)cells, .marked = marked};
    layout as = lay_out(rows, indent);
    print_row(rows, &line, &as);
}

bool table_print(table *rows, const char *indent)
{
    layout as = lay_out(rows, indent);
    for (size_t i = 0; i < rows->count && !rows->failed; i++)
        print_row(rows, &rows->rows[i], &as);
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
