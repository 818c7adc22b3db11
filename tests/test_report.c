/* SPDX-License-Identifier: MIT */
/* What the files of a report are made of: names in JSON and XML, and the moments of a timeline. */
#include "support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "replay/timeline.h"
#include "tools/report/report.h"

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
        {"\xc3\xa9\xff", "%C3%A9%FF"},        /* one bad byte: none is trusted */
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
        {"a<b>&\"c\"", "a&lt;b&gt;&amp;&quot;c&quot;"},
        {"line\nbreak\x01", "line%0Abreak%01"},
        {"\xff<", "%FF&lt;"},
        {"caf\xc3\xa9", "caf\xc3\xa9"},
    };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char *text = written(write_xml_text, names[i][0]);
        assert_string_equal(text, names[i][1]);
        free(text);
    }
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
    assert_string_equal(stack_colour(timeline, 0, &stacked, 0).css, "#8a939c");
    assert_string_equal(stack_colour(timeline, 0, &stacked, 1).css, "#4269d0");
    free(label);
    free(stacked.order);
    assert_true(stack_make(timeline, 0, true, 12, &stacked));
    assert_int_equal(stacked.count, 1);
    assert_int_equal(stacked.order[0], 1);
    free(stacked.order);
    assert_false(stack_make(timeline, 1, true, 12, &stacked));
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
    assert_string_equal(stack_colour(timeline, 0, &stacked, 3).css, "#c9c2b0");
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_json_names),
        cmocka_unit_test(test_json_names_that_are_no_text),
        cmocka_unit_test(test_xml_names),
        cmocka_unit_test(test_moments_are_peaks_and_ends),
        cmocka_unit_test(test_order_of_stacking),
        cmocka_unit_test(test_small_layers_are_one),
        cmocka_unit_test(test_end_of_chart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
