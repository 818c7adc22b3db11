/* SPDX-License-Identifier: MIT */
/*
 * What the files of a report are made of: names in JSON and XML, and the moments of a timeline; and
 * the files themselves of PyTorch snapshots; `reveille snapshot` must have their figures, too.
 */
#include "tests/support/support.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <jansson.h>

#include "predict/replay/timeline.h"
#include "tests/support/run_command.h"
#include "tests/support/skip.h"
#include "cli/report/report.h"

/* ---- Names ---- */

/* A text as a writer gives it; the caller frees it. */
static char *written(bool (*writer)(FILE *, const char *), const char *text)
{
    char *result = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&result, &size);
    assert_non_null(out);
    assert_true(writer(out, text));
    fclose(out);
    return result;
}

static void check_json(const char *text, const char *expected, const char *read_back)
{
    char *json = written(write_json_text, text);
    assert_string_equal(json, expected);
    json_t *value = json_loads(json, JSON_DECODE_ANY, NULL);
    assert_non_null(value);
    assert_string_equal(json_string_value(value), read_back);
    json_decref(value);
    free(json);
}

static void test_json_names(void **state)
{
    (void)state;
    check_json("plain", "\"plain\"", "plain");
    check_json("a \"b\" \\c", "\"a \\u0022b\\u0022 \\u005cc\"", "a \"b\" \\c");
    check_json("</script><!--", "\"\\u003c/script\\u003e\\u003c!--\"", "</script><!--");
    check_json("a&b\n\x7f", "\"a\\u0026b\\u000a\\u007f\"", "a&b\n\x7f");
    check_json("caf\xc3\xa9 \xf0\x9f\x98\x80", "\"caf\xc3\xa9 \xf0\x9f\x98\x80\"",
               "caf\xc3\xa9 \xf0\x9f\x98\x80");
    check_json("", "\"\"", "");
}

static void test_json_names_that_are_no_text(void **state)
{
    (void)state;
    static const char *const names[][2] = {
        {"\xff", "%FF"},
        {"ok\x80", "ok%80"},
        {"\xc0\xaf", "%C0%AF"},               /* overlong */
        {"\xe0\x9f\xbf", "%E0%9F%BF"},        /* overlong */
        {"\xed\xa0\x80", "%ED%A0%80"},        /* a surrogate */
        {"\xf4\x90\x80\x80", "%F4%90%80%80"}, /* beyond the last character */
        {"\xf0\x8f\xbf\xbf", "%F0%8F%BF%BF"}, /* overlong */
        {"\xe2\x82", "%E2%82"},               /* cut off */
        {"\xc3\xa9\xff", "\xc3\xa9%FF"},      /* one bad byte */
    };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char expected[64];
        snprintf(expected, sizeof expected, "\"%s\"", names[i][1]);
        check_json(names[i][0], expected, names[i][1]);
    }
}

static void test_xml_names(void **state)
{
    (void)state;
    static const char *const names[][2] = {
        {"a<b>&\"c\"", "a&#60;b&#62;&#38;&#34;c&#34;"},
        {"line\nbreak\x01", "line%0Abreak%01"},
        {"\xff<", "%FF&#60;"},
        {"caf\xc3\xa9", "caf\xc3\xa9"},
    };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char *text = written(write_xml_text, names[i][0]);
        assert_string_equal(text, names[i][1]);
        free(text);
    }
}

/* ---- Changes ---- */

static void test_changes_have_a_sign_only_where_it_shows(void **state)
{
    (void)state;
    char text[CHANGE_TEXT_BYTES];
    assert_string_equal(format_change(-0.0049, text), "0.00 %");
    assert_string_equal(format_change(0.0049, text), "0.00 %");
    assert_string_equal(format_change(-0.0, text), "0.00 %");
    assert_string_equal(format_change(-0.005, text), "-0.01 %");
    assert_string_equal(format_change(0.25, text), "+0.25 %");
    assert_string_equal(format_change(-12.345, text), "-12.35 %");
}

/* ---- Moments ---- */

#define MOMENTS_MAX 16

typedef struct moments {
    size_t count;
    uint64_t time_ns[MOMENTS_MAX];
    uint64_t until_ns[MOMENTS_MAX];
    uint64_t used_bytes[MOMENTS_MAX];
    uint64_t paused_bytes[MOMENTS_MAX];
} moments;

static bool note(void *user, const instant *now)
{
    moments *seen = user;
    if (seen->count == MOMENTS_MAX)
        return false;
    seen->time_ns[seen->count] = now->time_ns;
    seen->until_ns[seen->count] = now->until_ns;
    seen->used_bytes[seen->count] = now->used_bytes;
    seen->paused_bytes[seen->count] = now->paused_bytes;
    seen->count++;
    return true;
}

/* Bytes of two holders, "a" that is external and "b", and of "b" paused. */
typedef struct step {
    uint64_t time_ns, a, b, paused;
} step;

static rvl_timeline *make_timeline(const step *steps, size_t count, uint64_t changes_max)
{
    rvl_timeline *timeline;
    uint32_t a, b, paused;
    assert_int_equal(rvl_timeline_open(NULL, &timeline), RVL_OK);
    assert_int_equal(rvli_timeline_begin(timeline, 1), RVL_OK);
    timeline->devices[0].changes_max = changes_max;
    assert_int_equal(rvli_timeline_series_of(timeline, 0, RVLI_TIMELINE_HELD, "p", "b", &b), 0);
    assert_int_equal(rvli_timeline_series_of(timeline, 0, RVLI_TIMELINE_PAUSED, "p", "b", &paused),
                     0);
    assert_int_equal(rvli_timeline_series_of(timeline, 0, RVLI_TIMELINE_EXTERNAL, "", "a", &a), 0);
    for (size_t i = 0; i < count; i++) {
        uint64_t at = steps[i].time_ns;
        assert_int_equal(rvli_timeline_set(timeline, at, 0, a, steps[i].a), RVL_OK);
        assert_int_equal(rvli_timeline_set(timeline, at, 0, b, steps[i].b), RVL_OK);
        assert_int_equal(rvli_timeline_set(timeline, at, 0, paused, steps[i].paused), RVL_OK);
        rvli_timeline_commit(timeline, at);
    }
    assert_int_equal(rvli_timeline_end(timeline), RVL_OK);
    return timeline;
}

static void test_moments_are_peaks_and_ends(void **state)
{
    (void)state;
    static const step steps[] = {
        {10, 1, 5, 0}, {20, 1, 9, 0}, {30, 1, 0, 9}, {40, 2, 0, 9}, {50, 2, 3, 6}, {60, 3, 3, 6},
    };
    moments seen = {0};
    rvl_timeline *timeline = make_timeline(steps, 6, 3); /* two points of three changes */
    assert_true(walk_instants(timeline, 0, note, &seen));
    assert_int_equal(seen.count, 3);
    assert_int_equal(seen.time_ns[0], 20); /* the first point's peak, then its end */
    assert_int_equal(seen.used_bytes[0], 10);
    assert_int_equal(seen.until_ns[0], 30);
    assert_int_equal(seen.time_ns[1], 30);
    assert_int_equal(seen.used_bytes[1], 1);
    assert_int_equal(seen.paused_bytes[1], 9);
    assert_int_equal(seen.until_ns[1], 60);
    assert_int_equal(seen.time_ns[2], 60); /* the second one's peak is its end */
    assert_int_equal(seen.used_bytes[2], 6);
    assert_int_equal(seen.paused_bytes[2], 6);
    uint64_t paused;
    assert_true(most_paused(timeline, 0, &paused));
    assert_int_equal(paused, 9);
    assert_false(walk_instants(timeline, 1, note, &seen));
    seen.count = MOMENTS_MAX;
    assert_false(walk_instants(timeline, 0, note, &seen)); /* the callback says so */
    rvl_timeline_close(timeline);
}

static void test_order_of_stacking(void **state)
{
    (void)state;
    static const step steps[] = {{10, 1, 5, 2}};
    rvl_timeline *timeline = make_timeline(steps, 1, 1);
    stack stacked;
    assert_true(stack_make(timeline, 0, false, 12, &stacked));
    assert_int_equal(stacked.count, 2);
    assert_int_equal(stacked.layers, 2);
    assert_int_equal(stacked.order[0], 2); /* external bytes are at the bottom */
    assert_int_equal(stacked.order[1], 0);
    assert_int_equal(stack_reach(&stacked, 0), 1);
    char *label = stack_label(timeline, 0, &stacked, 1);
    assert_string_equal(label, "p/b, at most 5 B");
    report_run run = {.timeline = timeline};
    palette *colours = palette_make(&run, 1);
    assert_non_null(colours);
    run.palette = colours;
    assert_string_equal(stack_colour(&run, 0, &stacked, 0).css, "#8b9299"); /* a grey */
    colour held = stack_colour(&run, 0, &stacked, 1);
    assert_string_equal(held.css, "#8871a3");
    assert_int_equal(held.ansi, 97);
    free(label);
    free(stacked.order);
    assert_true(stack_make(timeline, 0, true, 12, &stacked));
    assert_int_equal(stacked.count, 1);
    assert_int_equal(stacked.order[0], 1);
    assert_string_equal(stack_colour(&run, 0, &stacked, 0).css, held.css); /* by the name */
    palette_free(colours);
    free(stacked.order);
    assert_false(stack_make(timeline, 1, true, 12, &stacked));
    rvl_timeline_close(timeline);
}

/* What is held beyond tensors lies above them, however much it is. */
static void test_tensors_are_the_base(void **state)
{
    (void)state;
    static const char *const tags[] = {"cached", "tensors", "split"};
    static const uint64_t bytes[] = {9, 5, 7};
    rvl_timeline *timeline;
    stack stacked;
    assert_int_equal(rvl_timeline_open(NULL, &timeline), RVL_OK);
    assert_int_equal(rvli_timeline_begin(timeline, 1), RVL_OK);
    for (uint32_t i = 0; i < 3; i++) {
        uint32_t series;
        assert_int_equal(
            rvli_timeline_series_of(timeline, 0, RVLI_TIMELINE_HELD, "trainer", tags[i], &series),
            RVL_OK);
        assert_int_equal(rvli_timeline_set(timeline, 1, 0, series, bytes[i]), RVL_OK);
    }
    rvli_timeline_commit(timeline, 1);
    assert_int_equal(rvli_timeline_end(timeline), RVL_OK);
    assert_true(stack_make(timeline, 0, false, 12, &stacked));
    assert_int_equal(stacked.order[0], 1);
    assert_int_equal(stacked.order[1], 0);
    assert_int_equal(stacked.order[2], 2);
    free(stacked.order);
    rvl_timeline_close(timeline);
}

static void test_small_layers_are_one(void **state)
{
    (void)state;
    rvl_timeline *timeline;
    assert_int_equal(rvl_timeline_open(NULL, &timeline), RVL_OK);
    assert_int_equal(rvli_timeline_begin(timeline, 1), RVL_OK);
    for (uint32_t i = 0; i < 10; i++) {
        char tag[8];
        uint32_t series;
        snprintf(tag, sizeof tag, "t%u", i);
        assert_int_equal(
            rvli_timeline_series_of(timeline, 0, RVLI_TIMELINE_HELD, "p", tag, &series), RVL_OK);
        assert_int_equal(rvli_timeline_set(timeline, 1, 0, series, 100 + i), RVL_OK);
    }
    stack stacked;
    assert_true(stack_make(timeline, 0, false, 4, &stacked));
    assert_int_equal(stacked.layers, 4);
    assert_int_equal(stacked.order[0], 9); /* the three largest, and the rest on top of them */
    assert_int_equal(stacked.order[2], 7);
    assert_int_equal(stack_reach(&stacked, 2), 3);
    assert_int_equal(stack_reach(&stacked, 3), 10);
    char *label = stack_label(timeline, 0, &stacked, 3);
    assert_string_equal(label, "7 others");
    report_run run = {.timeline = timeline};
    palette *colours = palette_make(&run, 1);
    assert_non_null(colours);
    run.palette = colours;
    assert_string_equal(stack_colour(&run, 0, &stacked, 3).css, palette_rest().css);
    palette_free(colours);
    free(label);
    free(stacked.order);
    rvl_timeline_close(timeline);
}

static void test_end_of_chart(void **state)
{
    (void)state;
    static const step steps[] = {{16000, 1, 0, 0}};
    rvl_timeline *timeline = make_timeline(steps, 1, 1);
    assert_int_equal(chart_end_ns(timeline), 16000);
    assert_int_equal(rvli_timeline_stage(timeline, "early", 0, 10000), RVL_OK);
    assert_int_equal(chart_end_ns(timeline), 16000);
    assert_int_equal(rvli_timeline_stage(timeline, "last", 0, 15900), RVL_OK);
    assert_int_equal(chart_end_ns(timeline), 15900 + 1000); /* a sixteenth of the time */
    rvl_timeline_close(timeline);
}

static void test_labels_have_lanes(void **state)
{
    (void)state;
    rvl_timeline *timeline = make_timeline(NULL, 0, 1);
    label_lanes lanes = label_lanes_of(timeline, 100, 5);
    double left = 10;
    assert_int_equal(label_place(&lanes, &left, 40), 0); /* to 55, with the gap */
    left = 55;
    assert_int_equal(label_place(&lanes, &left, 20), 0);
    left = 60;
    assert_int_equal(label_place(&lanes, &left, 20), 1);
    assert_true(left == 60);
    left = 70;
    assert_int_equal(label_place(&lanes, &left, 50), 2);
    assert_true(left == 50); /* moved, to end at the edge */
    left = 90;
    assert_int_equal(label_place(&lanes, &left, 120), 3); /* longer than all that is there */
    assert_true(left == 0);
    assert_int_equal(lanes.count, 4);
    for (uint32_t i = 4; i <= LABEL_LANES_MAX; i++) {
        left = 1;
        assert_int_equal(label_place(&lanes, &left, 99), i < LABEL_LANES_MAX ? i : LABEL_NO_LANE);
    }
    rvl_timeline_close(timeline);
}

/* ---- Axes ---- */

typedef struct mark {
    const char *name;
    uint64_t time_ns;
} mark;

/* A run of these stages, with a change 10 ns after each begins and two in the second. */
static report_run run_of(const mark *marks, size_t count)
{
    rvl_timeline *timeline;
    uint32_t series;
    assert_int_equal(rvl_timeline_open(NULL, &timeline), RVL_OK);
    assert_int_equal(rvli_timeline_begin(timeline, 1), RVL_OK);
    assert_int_equal(rvli_timeline_series_of(timeline, 0, RVLI_TIMELINE_HELD, "p", "a", &series),
                     0);
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(rvli_timeline_stage(timeline, marks[i].name, 0, marks[i].time_ns), RVL_OK);
        for (uint64_t k = 0; k < (i == 1 ? 2 : 1); k++) {
            uint64_t at = marks[i].time_ns + 10 + 5 * k;
            assert_int_equal(rvli_timeline_set(timeline, at, 0, series, i + k + 1), RVL_OK);
            rvli_timeline_commit(timeline, at);
        }
    }
    assert_int_equal(rvli_timeline_end(timeline), RVL_OK);
    return (report_run){.timeline = timeline, .axis = AXIS_EVENT, .end_ns = 1000};
}

static void check_place(const axis *along, uint64_t time_ns, double expected)
{
    double place = axis_place(along, time_ns);
    assert_true(place > expected - 1e-9 && place < expected + 1e-9);
}

static void test_stages_of_both_runs_have_one_column(void **state)
{
    (void)state;
    static const mark first[] = {{"a", 100}, {"b", 200}, {"d", 300}};
    static const mark second[] = {{"b", 400}, {"c", 500}, {"d", 600}};
    report_run runs[] = {run_of(first, 3), run_of(second, 3)};
    axis along;
    assert_true(columns_make(runs, 2));
    static const uint32_t expected[2][4] = {{NO_COLUMN, 0, 1, 3}, {NO_COLUMN, 1, 2, 3}};
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(runs[i].column_count, 4);
        assert_memory_equal(runs[i].stage_columns, expected[i], sizeof expected[i]);
    }
    assert_true(axis_make(&runs[0], 0, &along));
    check_place(&along, 0, 0);
    check_place(&along, 100, 0);
    check_place(&along, 105, 0.0625); /* half the way to the one change of its stage */
    check_place(&along, 110, 0.125);
    check_place(&along, 200, 0.25);
    check_place(&along, 210, 0.25 + 0.25 / 3);
    check_place(&along, 215, 0.25 + 0.5 / 3);
    check_place(&along, 299, 0.25 + 0.5 / 3 + 0.25 / 3 * 84 / 85);
    check_place(&along, 300, 0.75); /* the column between is the other run's alone */
    check_place(&along, UINT64_MAX, 1);
    free(along.knots);
    assert_true(axis_make(&runs[1], 0, &along));
    check_place(&along, 300, 0.25);
    check_place(&along, 600, 0.75);
    free(along.knots);
    runs[1].axis = AXIS_TIME;
    assert_true(axis_make(&runs[1], 0, &along));
    check_place(&along, 250, 0.25);
    check_place(&along, 2000, 1);
    free(along.knots);
    for (size_t i = 0; i < 2; i++) {
        free(runs[i].stage_columns);
        rvl_timeline_close(runs[i].timeline);
    }
}

/* ---- Samples ---- */

static void note_sample(samples *seen, uint64_t time_ns, uint32_t device)
{
    bool keep = true;
    rvl_trace_event event = {
        .kind = RVL_EVENT_SAMPLE, .time_ns = time_ns, .bytes = 2 * time_ns, .device = device};
    assert_int_equal(samples_note(seen, &event, &keep), RVL_OK);
    assert_true(keep);
}

static void test_samples_are_kept_in_bounds(void **state)
{
    (void)state;
    samples seen = {.most = 4};
    rvl_trace_event other = {.kind = RVL_EVENT_FREE};
    bool keep = true;
    assert_int_equal(samples_note(&seen, NULL, NULL), RVL_OK);
    assert_int_equal(samples_note(&seen, &other, &keep), RVL_OK);
    assert_int_equal(seen.count, 0);
    assert_int_equal(samples_most_bytes(&seen, 0), 0);
    for (uint64_t i = 0; i < 11; i++)
        note_sample(&seen, i, i == 8 ? 1 : 0);
    static const uint64_t expected[] = {0, 4, 8}; /* thinned twice */
    assert_int_equal(seen.count, 3);
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(seen.list[i].time_ns, expected[i]);
    assert_int_equal(samples_most_bytes(&seen, 0), 8);
    assert_int_equal(samples_next(&seen, 1, NULL)->time_ns, 8);
    assert_null(samples_next(&seen, 1, samples_next(&seen, 1, NULL)));
    assert_int_equal(samples_note(&seen, NULL, NULL), RVL_OK); /* the events begin once more */
    note_sample(&seen, 7, 0);
    assert_int_equal(seen.count, 1);
    free(seen.list);
}

/* ---- Snapshots ---- */

#define SNAPSHOTS RVL_SOURCE_DIR "/traces/snapshots/"

static const char *const snapshots[] = {SNAPSHOTS "dev-default.pickle.gz",
                                        SNAPSHOTS "dev-expandable.pickle.gz",
                                        SNAPSHOTS "dev-maxsplit.pickle.gz"};

/* What a command prints, errors too; the caller frees it. */
static char *printed(int expected_status, const char *words, const char *path, const char *more)
{
    char line[1024], *text = NULL, part[4096];
    size_t size = 0, count;
    snprintf(line, sizeof line, "{ COLUMNS=100 " COMMAND_WORD " %s '%s' %s; } 2>&1", words, path,
             more);
    FILE *out = open_memstream(&text, &size), *pipe = popen(line, "r");
    assert_non_null(out);
    assert_non_null(pipe);
    while ((count = fread(part, 1, sizeof part, pipe)) > 0)
        assert_int_equal(fwrite(part, 1, count, out), count);
    fclose(out);
    int status = pclose(pipe);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != expected_status)
        print_error("%s:\n%s\n", line, text);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), expected_status);
    return text;
}

static bool has_page(void)
{
    char *text = printed(0, "report", snapshots[0], "-o - || true");
    bool has = strstr(text, "built without the page") == NULL;
    free(text);
    return has;
}

static void check_says(const char *text, const char *part)
{
    if (strstr(text, part) == NULL)
        print_error("expected \"%s\" in:\n%.4000s\n", part, text);
    assert_non_null(strstr(text, part));
}

static uint64_t number(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    assert_true(json_is_integer(value));
    return (uint64_t)json_integer_value(value);
}

/* The stage that reserves most, as `reveille snapshot` has it. */
static json_t *highest_stage(const char *path)
{
    char *text = printed(0, "snapshot --json", path, "");
    json_t *root = json_loads(text, 0, NULL), *stage, *highest = NULL;
    size_t i;
    assert_non_null(root);
    json_array_foreach(json_object_get(root, "stages"), i, stage)
    {
        if (highest == NULL ||
            number(stage, "peak_reserved_bytes") > number(highest, "peak_reserved_bytes"))
            highest = stage;
    }
    assert_non_null(highest);
    json_incref(highest);
    json_decref(root);
    free(text);
    return highest;
}

static uint64_t gap_of(const json_t *stage)
{
    static const char *const keys[] = {"rounding_bytes", "split_bytes", "cached_bytes",
                                       "pending_bytes"};
    uint64_t gap = 0;
    for (size_t i = 0; i < 4; i++)
        gap += number(json_object_get(stage, "gap"), keys[i]);
    return gap;
}

/* Chrome's counters: at the first peak of what is in use, the parts come to it. */
static void check_chrome(const char *path, const json_t *stage)
{
    char *text = printed(0, "report", path, "--chrome - --points 1000000");
    json_t *root = json_loads(text, 0, NULL), *event;
    uint64_t in_use = 0, peak = 0, tensors = 0, at_peak = 0, stages = 0;
    size_t i;
    assert_non_null(root);
    json_array_foreach(json_object_get(root, "traceEvents"), i, event)
    {
        const char *name = json_string_value(json_object_get(event, "name"));
        const char *kind = json_string_value(json_object_get(event, "ph"));
        stages += strcmp(kind, "X") == 0 &&
                  strcmp(name, json_string_value(json_object_get(stage, "name"))) == 0;
        if (strcmp(kind, "C") != 0)
            continue;
        uint64_t bytes = number(json_object_get(event, "args"), "bytes");
        if (strcmp(name, "trainer/tensors") == 0)
            tensors = bytes;
        in_use = strcmp(name, "in use") == 0 ? bytes : in_use;
        if (in_use > peak) {
            peak = in_use;
            at_peak = tensors;
        }
    }
    uint64_t reserved = number(stage, "peak_reserved_bytes"), gap = gap_of(stage);
    assert_int_equal(peak, reserved);
    assert_int_equal(stages, 1);
    assert_in_range(at_peak, reserved - gap - MIB, reserved - gap + MIB);
    json_decref(root);
    free(text);
}

static void check_texts(const char *path, const json_t *stage)
{
    char size[SIZE_TEXT_BYTES], peak[64];
    snprintf(peak, sizeof peak, "peak %s", format_size(number(stage, "peak_reserved_bytes"), size));
    char *svg = printed(0, "report", path, "--svg -"), *chart = printed(0, "report", path, "");
    check_says(svg, peak);
    check_says(svg, ">rollout0<");
    check_says(svg, "trainer/tensors, at most ");
    check_says(svg, "trainer/split, at most ");
    check_says(svg, "trainer/cached, at most ");
    check_says(chart, peak);
    check_says(chart, "trainer/tensors, at most ");
    free(svg);
    free(chart);
}

/* The data in the page. */
static void check_page(const char *path, const json_t *stage)
{
    char *text = printed(0, "report", path, "-o -");
    char *data = strstr(text, "id=\"data\">");
    assert_non_null(data);
    data += strlen("id=\"data\">");
    json_t *root = json_loads(data, JSON_DISABLE_EOF_CHECK, NULL), *held, *found = NULL;
    assert_non_null(root);
    json_t *run = json_array_get(json_object_get(root, "runs"), 0);
    json_t *device = json_array_get(json_object_get(run, "devices"), 0);
    uint64_t sum = 0;
    size_t i;
    assert_int_equal(number(device, "peak_bytes"), number(stage, "peak_reserved_bytes"));
    json_array_foreach(json_object_get(device, "stages"), i, held)
    {
        if (json_equal(json_object_get(held, "name"), json_object_get(stage, "name")))
            found = held;
    }
    assert_non_null(found);
    assert_int_equal(number(found, "end_bytes"), number(stage, "end_reserved_bytes"));
    json_array_foreach(json_object_get(found, "at_peak"), i, held) sum += number(held, "bytes");
    assert_int_equal(sum, number(stage, "peak_reserved_bytes"));
    json_decref(root);
    free(text);
}

static void test_snapshots_are_shown_by_part(void **state)
{
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        json_t *stage = highest_stage(snapshots[i]);
        check_chrome(snapshots[i], stage);
        check_texts(snapshots[i], stage);
        json_decref(stage);
    }
}

static void test_snapshots_have_pages(void **state)
{
    (void)state;
    if (!has_page())
        SKIP_TEST("built without the page");
    for (size_t i = 0; i < 3; i++) {
        json_t *stage = highest_stage(snapshots[i]);
        check_page(snapshots[i], stage);
        json_decref(stage);
    }
}

static void test_snapshots_over_another_run(void **state)
{
    (void)state;
    char size[SIZE_TEXT_BYTES], part[256], words[512];
    json_t *first = highest_stage(snapshots[0]), *second = highest_stage(snapshots[1]);
    snprintf(words, sizeof words, "--against '%s'", snapshots[1]);
    char *text = printed(0, "report", snapshots[0], words);
    snprintf(part, sizeof part, "dev-default.pickle.gz\ndevice 0: no device named; peak %s",
             format_size(number(first, "peak_reserved_bytes"), size));
    check_says(text, part);
    snprintf(part, sizeof part, "dev-expandable.pickle.gz\ndevice 0: no device named; peak %s",
             format_size(number(second, "peak_reserved_bytes"), size));
    check_says(text, part);
    free(text);
    text = printed(0, "report --svg -", RVL_SOURCE_DIR "/traces/qwen2.5-32b-tp2-h200.rvt", words);
    check_says(text, "all of dev-expandable.pickle.gz");
    check_says(text, "engine/kv_cache, at most 94.8 GiB");
    free(text);
    text = printed(0, "report --device 80GiB --snapshot-process learner --snapshot-device 3",
                   snapshots[0], "");
    check_says(text, "device 3: given by size, 80.0 GiB; peak ");
    check_says(text, "learner/tensors, at most ");
    check_says(text, " to spare\n");
    free(text);
    json_decref(first);
    json_decref(second);
}

/* A snapshot does not say what it ran on: no output may claim that it fits on an H200. */
static void test_a_device_is_claimed_only_where_it_was_named(void **state)
{
    (void)state;
    static const char *const outputs[] = {"", "--svg -", "--chrome -"};
    for (size_t i = 0; i < 3; i++) {
        char words[64];
        char *text = printed(0, "report", snapshots[0], outputs[i]);
        assert_null(strstr(text, "h200"));
        assert_null(strstr(text, ">capacity "));
        assert_null(strstr(text, "\"capacity\""));
        assert_null(strstr(text, "to spare"));
        check_says(text, i < 2 ? "give --device to see whether it fits" : "device 0 (not named)");
        free(text);
        snprintf(words, sizeof words, "%s --device 20GiB", outputs[i]);
        text = printed(0, "report", snapshots[0], words);
        check_says(text, i < 2 ? "given by size, 20.0 GiB" : "\"capacity\"");
        free(text);
    }
    char *text = printed(0, "replay", snapshots[0], "");
    check_says(text, "device 0: h200 (assumed: --device names yours), 139.8 GiB; peak ");
    free(text);
    text = printed(0, "replay --json", snapshots[0], "");
    check_says(text, "],\"assumed\":true}],\"events\":");
    free(text);
    text = printed(0, "replay --json", snapshots[0], "--device h200");
    assert_null(strstr(text, "assumed"));
    free(text);
    char quoted[PATH_MAX + 3]; /* the folder may have spaces */
    snprintf(quoted, sizeof quoted, "'%s'", snapshots[0]);
    text = printed(0, "replay --json", RVL_SOURCE_DIR "/traces/qwen2.5-32b-tp2-h200.rvt", quoted);
    assert_null(strstr(text, "assumed")); /* the trace beside it declares one */
    free(text);
}

static void test_broken_snapshots_are_refused(void **state)
{
    (void)state;
    char path[] = "/tmp/reveille-report-XXXXXX.pickle", words[64], message[128];
    int file = mkstemps(path, 7);
    assert_true(file >= 0);
    assert_int_equal(write(file, "\x80\x04]", 3), 3);
    close(file);
    snprintf(message, sizeof message, "reveille: %s: byte 3: ", path);
    char *text = printed(2, "report", path, "--svg -");
    check_says(text, message);
    assert_null(strstr(text, "<svg"));
    free(text);
    snprintf(words, sizeof words, "--against %s --chrome -", path);
    text = printed(2, "report", snapshots[0], words);
    check_says(text, message);
    assert_null(strstr(text, "traceEvents"));
    free(text);
    unlink(path);
    text = printed(2, "report", path, "");
    check_says(text, path);
    free(text);
    text = printed(2, "report --snapshot-device 64", snapshots[0], "");
    check_says(text, "--snapshot-device 64: expected a whole number from 0 to 63");
    check_says(text, "Try `reveille report --help`.");
    free(text);
    text = printed(2, "report --snapshot-process ''", snapshots[0], "");
    check_says(text, "no name");
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_json_names),
        cmocka_unit_test(test_json_names_that_are_no_text),
        cmocka_unit_test(test_xml_names),
        cmocka_unit_test(test_changes_have_a_sign_only_where_it_shows),
        cmocka_unit_test(test_moments_are_peaks_and_ends),
        cmocka_unit_test(test_order_of_stacking),
        cmocka_unit_test(test_tensors_are_the_base),
        cmocka_unit_test(test_small_layers_are_one),
        cmocka_unit_test(test_end_of_chart),
        cmocka_unit_test(test_labels_have_lanes),
        cmocka_unit_test(test_stages_of_both_runs_have_one_column),
        cmocka_unit_test(test_samples_are_kept_in_bounds),
        cmocka_unit_test(test_snapshots_are_shown_by_part),
        cmocka_unit_test(test_snapshots_have_pages),
        cmocka_unit_test(test_snapshots_over_another_run),
        cmocka_unit_test(test_a_device_is_claimed_only_where_it_was_named),
        cmocka_unit_test(test_broken_snapshots_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
