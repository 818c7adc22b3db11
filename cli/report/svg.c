/* SPDX-License-Identifier: MIT */
/*
 * Draws a device as a picture: the memory in use, stacked, with capacity and stages, and below it,
 * hatched, the paused memory. Layers are painted from the top down, each as a step curve that is
 * filled to the bottom.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cli/report/report.h"

#define WIDTH 1200.0
#define LEFT 84.0
#define RIGHT 20.0
#define TOP 59.0 /* top of the plot, without the lanes of names */
#define HELD_HEIGHT 360.0
#define PAUSED_HEIGHT 90.0
#define GAP 26.0
#define DIFFERENCE_HEIGHT 110.0
#define NOTE_HEIGHT 18.0
#define TITLE_HEIGHT 20.0
#define AXIS_HEIGHT 34.0
#define LEGEND_COLUMNS 3u
#define LEGEND_ROW 20.0
#define CHARACTER_WIDTH 7.2 /* average, in the font of stage names */
#define LANE_HEIGHT 15.0
#define LABEL_GAP 8.0
#define TICK_GAP 70.0
#define NS_PER_SECOND 1e9

typedef struct plot {
    FILE *out;
    const report_run *run;
    size_t device;
    double top_px; /* of the plot */
    double height_px;
    uint64_t top_bytes; /* value of the upper edge */
    axis along;
    const uint32_t *series; /* series that the curve sums */
    uint32_t series_count;
    bool whole;        /* the curve is a line of all memory in use */
    bool all;          /* the curve sums all series, so the sum is known */
    bool paused;       /* the series are the paused ones */
    double x_px, y_px; /* current end of the curve */
    double bottom_px;  /* of all plots */
    label_lanes lanes; /* for the names of stages */
} plot;

static double x_of(const plot *drawn, uint64_t ns)
{
    return LEFT + (WIDTH - LEFT - RIGHT) * axis_place(&drawn->along, ns);
}

static double y_of(const plot *drawn, uint64_t bytes)
{
    return drawn->top_px + drawn->height_px * (1 - (double)bytes / (double)drawn->top_bytes);
}

/* ---- Curves ---- */

static bool step_to(void *user, const instant *now)
{
    plot *drawn = user;
    bool known = drawn->whole || drawn->all;
    uint64_t bytes = !known ? 0 : drawn->paused ? now->paused_bytes : now->used_bytes;
    for (uint32_t i = 0; !known && i < drawn->series_count; i++)
        bytes += now->bytes[drawn->series[i]];
    double x = x_of(drawn, now->time_ns), y = y_of(drawn, bytes);
    if (y - drawn->y_px < 0.05 && drawn->y_px - y < 0.05)
        return true;
    if (x - drawn->x_px >= 0.05)
        fprintf(drawn->out, "H%.1f", x);
    fprintf(drawn->out, "V%.1f", y);
    drawn->x_px = x;
    drawn->y_px = y;
    return true;
}

static bool draw_curve(plot *drawn, const char *style)
{
    drawn->x_px = LEFT;
    drawn->y_px = drawn->top_px + drawn->height_px;
    fprintf(drawn->out, "<path d=\"M%.1f %.1f", LEFT, drawn->y_px);
    bool ok = walk_instants(drawn->run->timeline, drawn->device, step_to, drawn);
    fprintf(drawn->out, "H%.1f", x_of(drawn, chart_end_ns(drawn->run->timeline)));
    if (!drawn->whole)
        fprintf(drawn->out, "V%.1fZ", drawn->top_px + drawn->height_px);
    fprintf(drawn->out, "\" %s/>\n", style);
    return ok;
}

static bool draw_layers(plot *drawn, const stack *stacked)
{
    char style[64];
    bool ok = true;
    drawn->whole = false;
    drawn->series = stacked->order;
    for (uint32_t layer = stacked->layers; ok && layer-- > 0;) {
        const char *css = stack_colour(drawn->run, drawn->device, stacked, layer).css;
        drawn->series_count = stack_reach(stacked, layer);
        drawn->all = drawn->series_count == stacked->count;
        /* The outline keeps parts visible that are narrower than a pixel. */
        snprintf(style, sizeof style, "fill=\"%s\" stroke=\"%s\"", css, css);
        ok = draw_curve(drawn, style);
    }
    return ok;
}

static bool draw_paused_layers(plot *drawn, const stack *paused)
{
    char style[96];
    bool ok = true;
    drawn->whole = false;
    drawn->series = paused->order;
    for (uint32_t layer = paused->layers; ok && layer-- > 0;) {
        const char *css = stack_colour(drawn->run, drawn->device, paused, layer).css;
        drawn->series_count = stack_reach(paused, layer);
        drawn->all = drawn->series_count == paused->count;
        snprintf(style, sizeof style, "fill=\"%s\" fill-opacity=\"0.45\" stroke=\"%s\"", css, css);
        ok = draw_curve(drawn, "class=\"under\"") && draw_curve(drawn, style);
    }
    drawn->series_count = paused->count;
    drawn->all = true;
    return ok && draw_curve(drawn, "fill=\"url(#hatch)\"");
}

/* ---- Axes, stages and legends ---- */

static bool draw_text(FILE *out, double x, double y, const char *attributes, const char *text)
{
    fprintf(out, "<text x=\"%.1f\" y=\"%.1f\" %s>", x, y, attributes);
    bool ok = write_xml_text(out, text);
    fputs("</text>\n", out);
    return ok;
}

/* Returns a name, cut to the width of the plot. The caller frees it. NULL: no memory. */
static char *stage_label(const char *name)
{
    size_t room = (size_t)((WIDTH - LEFT - RIGHT) / CHARACTER_WIDTH);
    char *text = printable(name);
    if (text != NULL && strlen(text) > room) {
        while (room > 0 && ((unsigned char)text[room] & 0xc0) == 0x80)
            room--; /* never cut a character */
        text[room] = '\0';
    }
    return text;
}

/* Receives a visible stage. false: stop. */
typedef bool (*stage_fn)(plot *drawn, uint32_t index, const rvl_timeline_stage *stage, double left,
                         double right);

static bool each_stage(plot *drawn, stage_fn callback)
{
    const rvl_timeline *timeline = drawn->run->timeline;
    bool ok = true;
    for (uint32_t i = 0; ok && i < rvl_timeline_stage_count(timeline); i++) {
        rvl_timeline_stage stage = {.struct_size = sizeof stage},
                           next = {.struct_size = sizeof next};
        rvl_timeline_get_stage(timeline, i, &stage);
        bool last = rvl_timeline_get_stage(timeline, i + 1, &next) != RVL_OK;
        double left = x_of(drawn, stage.begin_ns);
        double right = x_of(drawn, last ? chart_end_ns(timeline) : next.begin_ns);
        if (drawn->run->stage_columns[i] != NO_COLUMN)
            ok = callback(drawn, i, &stage, left, right);
    }
    return ok;
}

static bool draw_band(plot *drawn, uint32_t index, const rvl_timeline_stage *stage, double left,
                      double right)
{
    (void)stage;
    if (index % 2 == 1)
        fprintf(drawn->out,
                "<rect class=\"band\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\"/>\n",
                left, drawn->top_px, right - left, drawn->bottom_px - drawn->top_px);
    return true;
}

static double label_width(const char *text)
{
    size_t characters = 0;
    for (; *text != '\0'; text++)
        characters += ((unsigned char)*text & 0xc0) != 0x80;
    return (double)characters * CHARACTER_WIDTH;
}

static bool place_stage_name(plot *drawn, const rvl_timeline_stage *stage, double *left,
                             uint32_t *lane_out, char **text_out)
{
    *text_out = stage_label(stage->name);
    if (*text_out == NULL)
        return false;
    *left += 4 - LEFT;
    *lane_out = label_place(&drawn->lanes, left, label_width(*text_out));
    *left += LEFT;
    return true;
}

/* Callback of the first walk, which counts the lanes. The second walk draws. */
static bool count_lane(plot *drawn, uint32_t index, const rvl_timeline_stage *stage, double left,
                       double right)
{
    uint32_t lane;
    char *text;
    (void)index, (void)right;
    bool ok = place_stage_name(drawn, stage, &left, &lane, &text);
    free(text);
    return ok;
}

static bool draw_stage_name(plot *drawn, uint32_t index, const rvl_timeline_stage *stage,
                            double left, double right)
{
    uint32_t lane;
    char *text;
    double begin = left;
    (void)index, (void)right;
    if (!place_stage_name(drawn, stage, &left, &lane, &text))
        return false;
    bool ok = true;
    if (lane != LABEL_NO_LANE) {
        double y = drawn->top_px - 8 - LANE_HEIGHT * lane;
        fprintf(drawn->out, "<path class=\"begin\" d=\"M%.1f %.1fV%.1f\"/>", begin, y - 10,
                drawn->bottom_px);
        ok = draw_text(drawn->out, left, y, "class=\"stage\"", text);
    }
    free(text);
    return ok;
}

static bool draw_stages(plot *drawn)
{
    bool ok = each_stage(drawn, draw_band);
    drawn->lanes = label_lanes_of(drawn->run->timeline, WIDTH - RIGHT - LEFT, LABEL_GAP);
    return ok && each_stage(drawn, draw_stage_name);
}

/* Returns a step of 1, 2 or 5 times a power of ten, of which at most `ticks` make the whole. */
static double round_step(double whole, int ticks)
{
    double step = 1e-9;
    while (step * 10 * ticks < whole)
        step *= 10;
    if (step * 2 * ticks >= whole)
        return step * 2;
    return step * 5 * ticks >= whole ? step * 5 : step * 10;
}

static void draw_axis(const plot *drawn, int ticks)
{
    uint64_t unit = 1;
    while (unit < UINT64_C(1) << 30 && drawn->top_bytes / 1024 >= unit)
        unit *= 1024;
    double step = round_step((double)drawn->top_bytes / (double)unit, ticks);
    for (int i = 0; i <= ticks; i++) {
        char size[SIZE_TEXT_BYTES];
        uint64_t bytes = (uint64_t)(step * i * (double)unit);
        if (bytes > drawn->top_bytes)
            break;
        double y = y_of(drawn, bytes);
        fprintf(drawn->out,
                "<path class=\"grid\" d=\"M%.1f %.1fH%.1f\"/><text class=\"tick\" x=\"%.1f\" "
                "y=\"%.1f\" text-anchor=\"end\">%s</text>\n",
                LEFT, y, WIDTH - RIGHT, LEFT - 6, y + 4, format_size(bytes, size));
    }
}

static void draw_time(const plot *drawn, uint64_t ns, double bottom_px)
{
    double x = x_of(drawn, ns);
    fprintf(drawn->out,
            "<text class=\"tick\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">%.9g s</text>\n", x,
            bottom_px + 20, x - LEFT < 1 ? "start" : "middle", (double)ns / NS_PER_SECOND);
}

/* Writes the begin of stages, to the millisecond, for the axis by event. */
static void draw_begins(const plot *drawn, double bottom_px)
{
    const rvl_timeline *timeline = drawn->run->timeline;
    double free_px = LEFT;
    for (uint32_t i = 0; i < rvl_timeline_stage_count(timeline); i++) {
        rvl_timeline_stage stage = {.struct_size = sizeof stage};
        rvl_timeline_get_stage(timeline, i, &stage);
        double x = x_of(drawn, stage.begin_ns);
        if (drawn->run->stage_columns[i] == NO_COLUMN || x < free_px || x > WIDTH - RIGHT - 30)
            continue;
        fprintf(drawn->out,
                "<text class=\"tick\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">%.3f s</text>\n", x,
                bottom_px + 20, x - LEFT < 1 ? "start" : "middle",
                (double)stage.begin_ns / NS_PER_SECOND);
        free_px = x + TICK_GAP;
    }
}

static void draw_times(const plot *drawn, double bottom_px)
{
    if (drawn->run->axis == AXIS_EVENT) {
        draw_begins(drawn, bottom_px);
        return;
    }
    double end_s = (double)drawn->run->end_ns / NS_PER_SECOND;
    double step = round_step(end_s > 0 ? end_s : 1, 12);
    for (int i = 0; i <= 12 && step * i <= end_s; i++)
        draw_time(drawn, (uint64_t)(step * i * NS_PER_SECOND + 0.5), bottom_px);
}

static void draw_capacity(const plot *drawn, uint64_t capacity_bytes)
{
    char size[SIZE_TEXT_BYTES];
    if (capacity_bytes == 0 || capacity_bytes > drawn->top_bytes)
        return;
    double y = y_of(drawn, capacity_bytes);
    fprintf(drawn->out,
            "<path class=\"capacity\" d=\"M%.1f %.1fH%.1f\"/><text class=\"capacity-text\" "
            "x=\"%.1f\" y=\"%.1f\">capacity %s</text>\n",
            LEFT, y, WIDTH - RIGHT, LEFT + 6, y - 5, format_size(capacity_bytes, size));
}

static void draw_peak(const plot *drawn, const rvl_timeline_device *device)
{
    char size[SIZE_TEXT_BYTES];
    double x = x_of(drawn, device->peak_ns), y = y_of(drawn, device->peak_bytes);
    bool right = x > WIDTH - 160;
    fprintf(drawn->out,
            "<circle class=\"peak\" cx=\"%.1f\" cy=\"%.1f\" r=\"4\"/><text class=\"peak-text\" "
            "x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">peak %s</text>\n",
            x, y, x + (right ? -8 : 8), y - 7, right ? "end" : "start",
            format_size(device->peak_bytes, size));
}

/* Draws the samples of true use over the prediction. */
static void draw_samples(const plot *drawn, int device)
{
    const samples *seen = &drawn->run->samples;
    for (const sample *each = samples_next(seen, device, NULL); each != NULL;
         each = samples_next(seen, device, each))
        fprintf(drawn->out, "<circle class=\"sample\" cx=\"%.1f\" cy=\"%.1f\" r=\"3.5\"/>\n",
                x_of(drawn, each->time_ns), y_of(drawn, each->bytes));
}

static bool draw_legend(const plot *drawn, const stack *stacked, double top_px)
{
    bool ok = true;
    for (uint32_t i = 0; ok && i < stacked->layers; i++) {
        uint32_t row = i / LEGEND_COLUMNS, column = i % LEGEND_COLUMNS;
        double x = LEFT + (WIDTH - LEFT - RIGHT) / LEGEND_COLUMNS * column;
        double y = top_px + LEGEND_ROW * row;
        char *text = stack_label(drawn->run->timeline, drawn->device, stacked, i);
        fprintf(drawn->out, "<rect x=\"%.1f\" y=\"%.1f\" width=\"11\" height=\"11\" fill=\"%s\"/>",
                x, y - 10, stack_colour(drawn->run, drawn->device, stacked, i).css);
        ok = text != NULL && draw_text(drawn->out, x + 17, y, "class=\"legend\"", text);
        free(text);
    }
    return ok;
}

static bool draw_samples_legend(FILE *out, double y)
{
    double x = WIDTH - RIGHT - 300;
    fprintf(out, "<circle class=\"sample\" cx=\"%.1f\" cy=\"%.1f\" r=\"3.5\"/>", x, y - 4);
    return draw_text(out, x + 10, y, "class=\"legend\"", SAMPLES_LABEL);
}

static bool draw_against_legend(const plot *drawn, const report_run *against, double y)
{
    char *text = NULL;
    if (asprintf(&text, "all of %s", against->label) < 0)
        return false;
    fprintf(drawn->out, "<path class=\"against\" d=\"M%.1f %.1fh24\"/>", LEFT, y - 4);
    bool ok = draw_text(drawn->out, LEFT + 30, y, "class=\"legend\"", text);
    free(text);
    return ok;
}

static const char style_text[] =
    "<style>svg{background:#fff;font:12px system-ui,sans-serif}text{fill:#1c2024}"
    ".title{font-size:14px;font-weight:600}.band{fill:#f3f5f7}.under{fill:#fff}.grid{stroke:#"
    "d9dee3;fill:none}"
    ".tick{fill:#5f6871;font-size:11px}"
    ".stage{font-size:12px;paint-order:stroke;stroke:#fff;stroke-width:3px}"
    ".begin{stroke:#5f6871;stroke-dasharray:2 3;fill:none}"
    ".capacity{stroke:#c4262e;stroke-width:1.5;stroke-dasharray:8 5;fill:none}"
    ".capacity-text{fill:#c4262e;font-weight:600}"
    ".peak{fill:#1c2024;stroke:#fff;stroke-width:2}"
    ".peak-text,.note{font-weight:600;paint-order:stroke;stroke:#fff;stroke-width:4px}"
    ".sample{fill:#fff;stroke:#1c2024;stroke-width:1.5}"
    ".against{fill:none;stroke:#1c2024;stroke-width:2;stroke-dasharray:6 4}"
    "@media (prefers-color-scheme:dark){svg{background:#14171a}text{fill:#e6e9ec}"
    ".band{fill:#1d2226}.under{fill:#14171a}.grid{stroke:#343b42}.tick{fill:#9aa4ae}.capacity{"
    "stroke:#ff6b6b}"
    ".capacity-text{fill:#ff6b6b}.peak{fill:#e6e9ec;stroke:#14171a}"
    ".begin{stroke:#9aa4ae}.peak-text,.note,.stage{stroke:#14171a}.against{stroke:#e6e9ec}.sample{"
    "fill:#14171a;stroke:#e6e9ec}}</"
    "style>\n"
    "<defs><pattern id=\"hatch\" width=\"7\" height=\"7\" patternUnits=\"userSpaceOnUse\" "
    "patternTransform=\"rotate(45)\"><path d=\"M0 0V7\" stroke=\"#9aa3ab\" stroke-width=\"2.4\"/>"
    "</pattern></defs>\n";

/* Returns "step.rvt: device 0, h200, 139.8 GiB; peak 132.3 GiB, 7.5 GiB to spare". The caller frees
 * it. NULL: no memory. */
static char *title_of(const report_run *run, const report_device *device)
{
    char peak[SIZE_TEXT_BYTES], *title = NULL;
    char *name = device_text(device), *room = room_text(device);
    if (name != NULL && room != NULL &&
        asprintf(&title, "%s: device %d, %s; peak %s, %s", run->label, device->of.device, name,
                 format_size(device->of.peak_bytes, peak), room) < 0)
        title = NULL;
    free(name);
    free(room);
    return title;
}

static bool has_remedy(const report_run *run, size_t index)
{
    report_device device;
    return run != NULL && run->remedy != NULL && report_device_get(run, index, &device) &&
           !device.fits;
}

static bool has_verdict(const report_run *run)
{
    rvl_verdict verdict;
    return run != NULL && run_has_verdict(run, &verdict);
}

/* Draws a line below a title, and moves *y to the next line. false: no memory. */
static bool draw_subtitle(FILE *out, double *y, const char *text)
{
    bool ok = draw_text(out, LEFT, *y, "class=\"legend\"", text);
    *y += TITLE_HEIGHT;
    return ok;
}

/* Draws for each run that has the device a title, its verdict, and how it could fit. */
static bool draw_titles(FILE *out, const report_run *run, const report_run *against, size_t index)
{
    const report_run *const runs[] = {run, against};
    double y = 28;
    bool ok = true;
    for (int i = 0; ok && i < 2; i++) {
        report_device device;
        if (runs[i] == NULL || !report_device_get(runs[i], index, &device))
            continue;
        char *title = title_of(runs[i], &device);
        ok = title != NULL && draw_text(out, LEFT, y, "class=\"title\"", title);
        free(title);
        y += TITLE_HEIGHT;
        rvl_verdict verdict;
        if (ok && run_has_verdict(runs[i], &verdict))
            ok = draw_subtitle(out, &y, verdict.text);
        if (ok && has_remedy(runs[i], index))
            ok = draw_subtitle(out, &y, runs[i]->remedy);
    }
    return ok;
}

static bool begin(FILE *out, const report_run *run, const report_run *against, size_t index,
                  double height)
{
    report_device device;
    char *title = report_device_get(run, index, &device) ? title_of(run, &device) : NULL;
    if (title == NULL)
        return false;
    fprintf(out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %.0f %.0f\" width=\"%.0f\" "
            "height=\"%.0f\" role=\"img\">\n<title>",
            WIDTH, height, WIDTH, height);
    bool ok = write_xml_text(out, title);
    fprintf(out, "</title>\n%s", style_text);
    free(title);
    return ok && draw_titles(out, run, against, index);
}

/* ---- Picture ---- */

static bool draw_against(plot *held, const report_run *against, size_t device)
{
    rvl_timeline_device there = {.struct_size = sizeof there};
    const report_run *own = held->run;
    if (against == NULL || rvl_timeline_get_device(against->timeline, device, &there) != RVL_OK)
        return true;
    axis own_axis = held->along;
    if (!axis_make(against, device, &held->along)) {
        held->along = own_axis;
        return false;
    }
    held->run = against;
    held->whole = true;
    bool ok = draw_curve(held, "class=\"against\"");
    free(held->along.knots);
    held->along = own_axis;
    held->run = own;
    return ok;
}

/* Draws the outline of the sum of the layers 0 to upto. sign: 1 for positive differences, -1 for
 * negative ones. */
static void draw_difference_layer(const plot *drawn, const difference_curves *found, uint32_t upto,
                                  double sign, double zero_px, double byte_px, const char *css)
{
    double width = WIDTH - LEFT - RIGHT, last_px = zero_px;
    fprintf(drawn->out, "<path class=\"difference\" d=\"M%.1f %.1f", LEFT, zero_px);
    for (size_t place = 0; place < DIFFERENCE_PLACES; place++) {
        double sum = 0;
        for (uint32_t layer = 0; layer <= upto; layer++) {
            double bytes = found->bytes[layer * DIFFERENCE_PLACES + place] * sign;
            sum += bytes > 0 ? bytes : 0;
        }
        double y = zero_px - sign * sum * byte_px;
        if (y - last_px > 0.05 || last_px - y > 0.05)
            fprintf(drawn->out, "H%.1fV%.1f", LEFT + width * (double)place / DIFFERENCE_PLACES, y);
        last_px = y - last_px > 0.05 || last_px - y > 0.05 ? y : last_px;
    }
    fprintf(drawn->out, "H%.1fV%.1fZ\" fill=\"%s\"/>\n", LEFT + width, zero_px, css);
}

static const char *difference_colour(const plot *drawn, const difference_curves *found,
                                     uint32_t layer)
{
    return layer + 1 < found->layers ? palette_colour(drawn->run->palette, &found->keys[layer]).css
                                     : palette_rest().css;
}

/* Draws the difference: above the zero line where this run has more, below where it has less. */
static bool draw_difference(const plot *held, const report_run *against, double top_px)
{
    difference_curves found;
    char *note = NULL, size[SIZE_TEXT_BYTES], less[SIZE_TEXT_BYTES];
    if (!difference_make(held->run, against, held->device, &found))
        return false;
    double whole = found.most - found.least > 0 ? found.most - found.least : 1;
    double byte_px = (DIFFERENCE_HEIGHT - NOTE_HEIGHT) / whole;
    double zero_px = top_px + NOTE_HEIGHT + found.most * byte_px;
    for (uint32_t layer = found.layers; layer-- > 0;) {
        const char *css = difference_colour(held, &found, layer);
        draw_difference_layer(held, &found, layer, 1, zero_px, byte_px, css);
        draw_difference_layer(held, &found, layer, -1, zero_px, byte_px, css);
    }
    fprintf(
        held->out,
        "<path class=\"begin\" d=\"M%.1f %.1fH%.1f\"/><text class=\"tick\" x=\"%.1f\" y=\"%.1f\" "
        "text-anchor=\"end\">0 B</text>\n",
        LEFT, zero_px, WIDTH - RIGHT, LEFT - 6, zero_px + 4);
    bool ok = asprintf(&note, "difference to %s: at most %s more, %s less", against->label,
                       format_size((uint64_t)found.most, size),
                       format_size((uint64_t)-found.least, less)) >= 0;
    ok = ok && draw_text(held->out, LEFT + 6, top_px + 11, "class=\"note\"", note);
    if (ok)
        free(note);
    free(found.bytes);
    return ok;
}

static uint64_t upper_edge(const report_device *device, const report_run *against, size_t index)
{
    report_device there;
    uint64_t top = chart_top_bytes(device);
    if (against != NULL && report_device_get(against, index, &there) && there.of.peak_bytes > top)
        top = there.of.peak_bytes;
    return top + top / 16;
}

static bool draw_paused(const plot *held, uint64_t paused_bytes, double top_px)
{
    char text[SIZE_TEXT_BYTES + 64], size[SIZE_TEXT_BYTES];
    stack stacked;
    plot paused = *held;
    paused.paused = true;
    paused.top_px = top_px;
    paused.height_px = PAUSED_HEIGHT;
    paused.top_bytes = paused_bytes + paused_bytes / 16 + 1;
    if (!stack_make(held->run->timeline, held->device, true, LAYERS_MAX, &stacked))
        return false;
    draw_axis(&paused, 2);
    bool ok = draw_paused_layers(&paused, &stacked);
    snprintf(text, sizeof text, "paused (uses no GPU memory), at most %s",
             format_size(paused_bytes, size));
    ok = ok && draw_text(held->out, LEFT + 6, top_px + 15, "class=\"note\"", text);
    free(stacked.order);
    return ok;
}

static bool draw_held(plot *held, const report_run *against, const stack *stacked,
                      const rvl_timeline_device *device)
{
    draw_axis(held, 5);
    bool ok = draw_layers(held, stacked) && draw_against(held, against, held->device);
    draw_capacity(held, device->capacity_bytes);
    draw_samples(held, device->device);
    draw_peak(held, device);
    return ok;
}

/* Draws times and legends below the plots, and ends the picture. */
static bool draw_below(const plot *held, const report_run *against, const stack *stacked,
                       double bottom_px, uint32_t rows, bool sampled)
{
    double legend_px = bottom_px + AXIS_HEIGHT + LEGEND_ROW;
    draw_times(held, bottom_px);
    bool ok = draw_legend(held, stacked, legend_px);
    double last_px = legend_px + LEGEND_ROW * rows;
    if (ok && against != NULL)
        ok = draw_against_legend(held, against, last_px);
    if (ok && sampled)
        ok = draw_samples_legend(held->out, last_px);
    fputs("</svg>\n", held->out);
    return ok;
}

static bool has_device(const report_run *run, size_t index)
{
    return index < rvl_timeline_device_count(run->timeline);
}

/* Returns the number of title lines after the first. */
static int title_lines(const report_run *run, const report_run *against, size_t index)
{
    bool both = against != NULL && has_device(against, index);
    return both + has_verdict(run) + (both && has_verdict(against)) + has_remedy(run, index) +
           has_remedy(against, index);
}

bool write_svg(FILE *out, const report_run *run, const report_run *against, size_t index)
{
    report_device device;
    uint64_t paused_bytes = 0;
    stack stacked;
    if (!report_device_get(run, index, &device) ||
        !most_paused(run->timeline, index, &paused_bytes) ||
        !stack_make(run->timeline, index, false, LAYERS_MAX, &stacked))
        return false;
    plot held = {.out = out,
                 .run = run,
                 .device = index,
                 .height_px = HELD_HEIGHT,
                 .top_bytes = upper_edge(&device, against, index)};
    if (!axis_make(run, index, &held.along)) {
        free(stacked.order);
        return false;
    }
    held.lanes = label_lanes_of(run->timeline, WIDTH - RIGHT - LEFT, LABEL_GAP);
    bool ok = each_stage(&held, count_lane);
    held.top_px = TOP + TITLE_HEIGHT * title_lines(run, against, index) +
                  LANE_HEIGHT * (held.lanes.count > 0 ? held.lanes.count : 1);
    double held_bottom_px = held.top_px + HELD_HEIGHT;
    double paused_bottom_px = held_bottom_px + (paused_bytes > 0 ? GAP + PAUSED_HEIGHT : 0);
    bool compared = against != NULL && has_device(against, index);
    double bottom_px = paused_bottom_px + (compared ? GAP + DIFFERENCE_HEIGHT : 0);
    held.bottom_px = bottom_px;
    uint32_t rows = (stacked.layers + LEGEND_COLUMNS - 1) / LEGEND_COLUMNS;
    double height_px = bottom_px + AXIS_HEIGHT + LEGEND_ROW * (rows + 2.0);
    ok = ok && begin(out, run, against, index, height_px) && draw_stages(&held) &&
         draw_held(&held, against, &stacked, &device.of);
    if (ok && paused_bytes > 0)
        ok = draw_paused(&held, paused_bytes, held_bottom_px + GAP);
    if (ok && compared)
        ok = draw_difference(&held, against, paused_bottom_px + GAP);
    ok = ok && draw_below(&held, against, &stacked, bottom_px, rows, device.most_sampled_bytes > 0);
    free(held.along.knots);
    free(stacked.order);
    return ok;
}
