/* SPDX-License-Identifier: MIT */
/*
 * Draws a device in a terminal. A column of characters stands for a stretch of time, and shows its
 * instant with the most memory in use. A holder has a colour, or, without colours, a shade or a
 * letter. Without UTF-8, everything is ASCII.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cli/report/report.h"

#define ROWS 16u
#define AXIS_COLUMNS 12u
#define COLUMNS_MIN 20u
#define COLUMNS_MAX 1000u
#define LINE_BYTES (COLUMNS_MAX + 1)
#define NS_PER_SECOND 1e9
#define SAMPLE_MARK "o"
#define PLAIN "\x1b[0m"

typedef struct screen {
    FILE *out;
    const report_run *run;
    size_t device;
    bool colours;
    bool utf8;
    unsigned ansi;  /* the current colour */
    unsigned width; /* columns of the chart */
    uint64_t top_bytes;
    uint64_t capacity_bytes; /* 0: not known */
    axis along;
    stack stacked;
    uint64_t *used_bytes; /* by column */
    uint64_t *bytes;      /* by column, then by layer */
    bool *sampled;        /* by column, then by row */
} screen;

static unsigned column_of(const screen *shown, uint64_t ns)
{
    unsigned column = (unsigned)(axis_place(&shown->along, ns) * shown->width);
    return column < shown->width ? column : shown->width - 1;
}

/* Stores the bytes of each layer. The layer of all others gets the rest. */
static void note_layers(const screen *shown, uint64_t *bytes, const instant *now)
{
    const stack *stacked = &shown->stacked;
    uint64_t left_bytes = now->used_bytes;
    for (uint32_t layer = 0; layer < stacked->alone; layer++) {
        bytes[layer] = now->bytes[stacked->order[layer]];
        left_bytes -= bytes[layer];
    }
    if (stacked->layers > stacked->alone)
        bytes[stacked->alone] = left_bytes;
}

static bool note_instant(void *user, const instant *now)
{
    screen *shown = user;
    unsigned last = column_of(shown, now->until_ns);
    for (unsigned column = column_of(shown, now->time_ns); column <= last; column++) {
        if (now->used_bytes <= shown->used_bytes[column])
            continue;
        shown->used_bytes[column] = now->used_bytes;
        note_layers(shown, &shown->bytes[(size_t)column * shown->stacked.layers], now);
    }
    return true;
}

/* ---- Cells ---- */

static const char *glyph_of(const screen *shown, uint32_t layer)
{
    static const char *const shades[2][4] = {{"#", "%", "+", "."}, {"█", "▓", "▒", "░"}};
    static const char *const letters[] = {"a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k",
                                          "l", "m", "n", "o", "p", "q", "r", "s", "t", "u", "v"};
    if (shown->colours)
        return shades[shown->utf8][0];
    if (shown->stacked.layers <= sizeof shades[0] / sizeof shades[0][0])
        return shades[shown->utf8][layer];
    return letters[layer % (sizeof letters / sizeof letters[0])];
}

/* Sets the colour, if it changes. 0: no colour. */
static void set_colour(screen *shown, unsigned ansi)
{
    if (!shown->colours || shown->ansi == ansi)
        return;
    if (ansi == 0)
        fputs(PLAIN, shown->out);
    else
        fprintf(shown->out, "\x1b[38;5;%um", ansi);
    shown->ansi = ansi;
}

static void put_layer(screen *shown, uint32_t layer, const char *glyph)
{
    colour own = stack_colour(shown->run, shown->device, &shown->stacked, layer);
    set_colour(shown, own.ansi);
    fputs(glyph, shown->out);
}

static const char *capacity_mark(const screen *shown)
{
    return shown->utf8 ? "╌" : "-";
}

static void put_nothing(screen *shown, bool capacity_row)
{
    set_colour(shown, 0);
    fputs(capacity_row ? capacity_mark(shown) : " ", shown->out);
}

/* Returns the layer of a column at a height. */
static uint32_t layer_at(const screen *shown, unsigned column, double bytes)
{
    double sum = 0;
    uint32_t topmost = 0;
    for (uint32_t i = 0; i < shown->stacked.layers; i++) {
        uint64_t own = shown->bytes[(size_t)column * shown->stacked.layers + i];
        sum += (double)own;
        topmost = own > 0 ? i : topmost;
        if (bytes < sum)
            return i;
    }
    return topmost;
}

/* Whether a cell has a sample of true use. */
static bool is_sampled(const screen *shown, unsigned column, unsigned row)
{
    return shown->sampled[(size_t)column * ROWS + row];
}

static void note_samples(screen *shown, int device)
{
    const samples *seen = &shown->run->samples;
    double cell = (double)shown->top_bytes / ROWS;
    for (const sample *each = samples_next(seen, device, NULL); each != NULL;
         each = samples_next(seen, device, each)) {
        double row = (double)each->bytes / cell;
        size_t whole = row < ROWS ? (size_t)row : ROWS - 1;
        shown->sampled[(size_t)column_of(shown, each->time_ns) * ROWS + whole] = true;
    }
}

static void put_cell(screen *shown, unsigned column, unsigned row, bool capacity_row)
{
    if (is_sampled(shown, column, row)) {
        set_colour(shown, 0);
        fputs(SAMPLE_MARK, shown->out);
        return;
    }
    static const char *const eighths[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
    double cell = (double)shown->top_bytes / ROWS;
    double low = cell * row, used = (double)shown->used_bytes[column];
    int filled = (int)((used - low) / cell * 8 + 0.5);
    filled = filled < 0 ? 0 : filled > 8 ? 8 : filled;
    if (filled == 0 && (row > 0 || used <= 0)) {
        put_nothing(shown, capacity_row);
        return;
    }
    double height = used - low < cell ? (used + low) / 2 : low + cell / 2;
    uint32_t layer = layer_at(shown, column, height);
    bool eighth = shown->colours && shown->utf8, whole = filled == 8 || !eighth;
    if (!eighth && filled < 4 && row > 0)
        put_nothing(shown, capacity_row);
    else
        put_layer(shown, layer,
                  whole ? glyph_of(shown, layer) : eighths[filled > 0 ? filled - 1 : 0]);
}

static void print_rows(screen *shown)
{
    double cell = (double)shown->top_bytes / ROWS;
    unsigned capacity_row = ROWS;
    if (shown->capacity_bytes > 0 && shown->capacity_bytes <= shown->top_bytes)
        capacity_row = (unsigned)((double)shown->capacity_bytes / cell - 0.001);
    for (unsigned row = ROWS; row-- > 0;) {
        char size[SIZE_TEXT_BYTES] = "";
        if (row == capacity_row)
            format_size(shown->capacity_bytes, size);
        else if (row % 4 == 3)
            format_size((uint64_t)(cell * (row + 1)), size);
        fprintf(shown->out, "%*s %s", (int)AXIS_COLUMNS - 2, size,
                row == capacity_row ? capacity_mark(shown)
                : shown->utf8       ? "│"
                                    : "|");
        for (unsigned column = 0; column < shown->width; column++)
            put_cell(shown, column, row, row == capacity_row);
        set_colour(shown, 0);
        putc('\n', shown->out);
    }
}

/* ---- Below the chart ---- */

/* The first column of a stage. */
static unsigned stage_column(const screen *shown, uint32_t index)
{
    rvl_timeline_stage stage = {.struct_size = sizeof stage};
    rvl_timeline_get_stage(shown->run->timeline, index, &stage);
    return column_of(shown, stage.begin_ns);
}

/* Returns how many bytes of a name fit into `most` without cutting a character. */
static size_t whole_bytes(const char *name, size_t most)
{
    size_t bytes = strlen(name) < most ? strlen(name) : most;
    while (name[bytes] != '\0' && bytes > 0 && ((unsigned char)name[bytes] & 0xc0) == 0x80)
        bytes--;
    return bytes;
}

/* Places "|name", or "name|" near the right edge. The bar marks the begin of the stage. */
static void put_stage(char (*lines)[LINE_BYTES], label_lanes *lanes, unsigned column,
                      const char *name)
{
    unsigned width = (unsigned)lanes->width;
    bool before = column + 1 + strlen(name) > width && column > width / 2;
    size_t bytes = whole_bytes(name, before ? column : width - column - 1);
    double left = before ? (double)(column - bytes) : column;
    uint32_t lane = label_place(lanes, &left, (double)bytes + 1);
    if (lane == LABEL_NO_LANE)
        return;
    lines[lane][column] = '|';
    memcpy(lines[lane] + (before ? column - bytes : column + 1), name, bytes);
}

static bool put_stages(const screen *shown, char (*lines)[LINE_BYTES], label_lanes *lanes)
{
    const rvl_timeline *timeline = shown->run->timeline;
    for (uint32_t i = 0; i < rvl_timeline_stage_count(timeline); i++) {
        rvl_timeline_stage stage = {.struct_size = sizeof stage};
        rvl_timeline_get_stage(timeline, i, &stage);
        unsigned column = stage_column(shown, i);
        if (shown->run->stage_columns[i] == NO_COLUMN)
            continue;
        char *name = printable(stage.name);
        if (name == NULL)
            return false;
        put_stage(lines, lanes, column, name);
        free(name);
    }
    return true;
}

static bool print_stages(const screen *shown)
{
    char lines[LABEL_LANES_MAX][LINE_BYTES];
    label_lanes lanes = label_lanes_of(shown->run->timeline, shown->width, 1);
    for (uint32_t lane = 0; lane < LABEL_LANES_MAX; lane++) {
        memset(lines[lane], ' ', shown->width);
        lines[lane][shown->width] = '\0';
    }
    bool ok = put_stages(shown, lines, &lanes);
    for (uint32_t lane = 0; ok && lane < lanes.count; lane++)
        fprintf(shown->out, "%*s%s\n", (int)AXIS_COLUMNS, "", lines[lane]);
    return ok;
}

static void print_times(const screen *shown)
{
    char end[32];
    const axis *along = &shown->along;
    char begin[32];
    int length = snprintf(begin, sizeof begin, along->knots[0].time_ns > 0 ? "%.3f s" : "%.0f s",
                          (double)along->knots[0].time_ns / NS_PER_SECOND);
    length += snprintf(end, sizeof end, "%.3f s",
                       (double)along->knots[along->count - 1].time_ns / NS_PER_SECOND);
    fprintf(shown->out, "%*s%s%*s%s%s\n", (int)AXIS_COLUMNS, "", begin,
            (int)shown->width - length > 1 ? (int)shown->width - length : 1, "", end,
            shown->run->axis == AXIS_EVENT ? " (by event)" : "");
}

static bool print_legend(screen *shown)
{
    bool ok = true;
    for (uint32_t i = shown->stacked.layers; ok && i-- > 0;) {
        char *label = stack_label(shown->run->timeline, shown->device, &shown->stacked, i);
        char *text = label != NULL ? printable(label) : NULL;
        ok = text != NULL;
        fprintf(shown->out, "%*s", (int)AXIS_COLUMNS, "");
        put_layer(shown, i, glyph_of(shown, i));
        set_colour(shown, 0);
        fprintf(shown->out, " %s\n", ok ? text : "");
        free(label);
        free(text);
    }
    return ok;
}

static bool print_heading(const screen *shown, const report_device *device)
{
    char peak[SIZE_TEXT_BYTES], paused[SIZE_TEXT_BYTES];
    uint64_t paused_bytes;
    char *text = device_text(device), *name = text != NULL ? printable(text) : NULL;
    char *room = room_text(device);
    bool ok = name != NULL && room != NULL &&
              most_paused(shown->run->timeline, shown->device, &paused_bytes);
    if (ok)
        fprintf(shown->out, "device %d: %s; peak %s at %.3f s%s%s; %s\n", device->of.device, name,
                format_size(device->of.peak_bytes, peak),
                (double)device->of.peak_ns / NS_PER_SECOND,
                paused_bytes > 0 ? "; paused at most " : "",
                paused_bytes > 0 ? format_size(paused_bytes, paused) : "", room);
    free(text);
    free(name);
    free(room);
    return ok;
}

static bool print_chart(screen *shown, const report_device *device)
{
    size_t cells = (size_t)shown->width * (shown->stacked.layers > 0 ? shown->stacked.layers : 1);
    shown->used_bytes = calloc(shown->width, sizeof *shown->used_bytes);
    shown->bytes = calloc(cells, sizeof *shown->bytes);
    shown->sampled = calloc((size_t)shown->width * ROWS, sizeof *shown->sampled);
    bool ok = shown->used_bytes != NULL && shown->bytes != NULL && shown->sampled != NULL &&
              walk_instants(shown->run->timeline, shown->device, note_instant, shown) &&
              print_heading(shown, device);
    if (ok && shown->run->remedy != NULL && !device->fits) {
        char *remedy = printable(shown->run->remedy);
        ok = remedy != NULL;
        fprintf(shown->out, "%s\n", ok ? remedy : "");
        free(remedy);
    }
    if (ok) {
        note_samples(shown, device->of.device);
        print_rows(shown);
        ok = print_stages(shown);
        print_times(shown);
        if (device->most_sampled_bytes > 0)
            fprintf(shown->out, "%*s%s %s\n", (int)AXIS_COLUMNS, "", SAMPLE_MARK, SAMPLES_LABEL);
        ok = ok && print_legend(shown);
    }
    free(shown->sampled);
    free(shown->used_bytes);
    free(shown->bytes);
    return ok;
}

bool write_terminal(FILE *out, const report_run *run, size_t index, unsigned columns, bool colours,
                    bool utf8)
{
    report_device device;
    if (!report_device_get(run, index, &device))
        return false;
    unsigned width = columns > AXIS_COLUMNS + COLUMNS_MIN ? columns - AXIS_COLUMNS : COLUMNS_MIN;
    width = width < COLUMNS_MAX ? width : COLUMNS_MAX;
    screen shown = {
        .out = out,
        .run = run,
        .device = index,
        .colours = colours,
        .utf8 = utf8,
        .width = width,
        .top_bytes = chart_top_bytes(&device),
        .capacity_bytes = device.of.capacity_bytes,
    };
    if (!stack_make(run->timeline, index, false, LAYERS_MAX, &shown.stacked))
        return false;
    bool ok = axis_make(run, index, &shown.along) && print_chart(&shown, &device);
    free(shown.along.knots);
    free(shown.stacked.order);
    return ok;
}
