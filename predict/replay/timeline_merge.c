/* SPDX-License-Identifier: MIT */
/*
 * Merges two points into one. Every peak, minimum, maximum and last value is taken from one of
 * them.
 */
#include <stdlib.h>
#include <string.h>

#include "predict/replay/timeline.h"

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint64_t most(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/*
 * A series that only changed in the earlier point kept the bytes that it had at the end of that
 * point.
 */
static rvl_timeline_value from_earlier(const rvl_timeline_value *value, bool peak_is_later)
{
    rvl_timeline_value merged = *value;
    if (peak_is_later)
        merged.at_peak_bytes = value->last_bytes;
    return merged;
}

/* A series that only changed in the later point had the same bytes as before until then. */
static rvl_timeline_value from_later(const rvl_timeline_value *value, bool peak_is_later)
{
    rvl_timeline_value merged = *value;
    merged.min_bytes = least(value->min_bytes, value->before_bytes);
    merged.max_bytes = most(value->max_bytes, value->before_bytes);
    if (!peak_is_later)
        merged.at_peak_bytes = value->before_bytes;
    return merged;
}

static rvl_timeline_value from_both(const rvl_timeline_value *a, const rvl_timeline_value *b,
                                    bool peak_is_later)
{
    return (rvl_timeline_value){
        .series = a->series,
        .before_bytes = a->before_bytes,
        .min_bytes = least(a->min_bytes, b->min_bytes),
        .max_bytes = most(a->max_bytes, b->max_bytes),
        .last_bytes = b->last_bytes,
        .at_peak_bytes = peak_is_later ? b->at_peak_bytes : a->at_peak_bytes,
    };
}

/* Merges two lists that are sorted by series. Returns the number of values. */
static uint32_t merge_values(const rvli_timeline_bucket *a, const rvli_timeline_bucket *b,
                             bool peak_is_later, rvl_timeline_value *values)
{
    uint32_t i = 0, j = 0, count = 0;
    while (i < a->value_count || j < b->value_count) {
        const rvl_timeline_value *left = i < a->value_count ? &a->values[i] : NULL;
        const rvl_timeline_value *right = j < b->value_count ? &b->values[j] : NULL;
        if (right == NULL || (left != NULL && left->series < right->series)) {
            values[count++] = from_earlier(left, peak_is_later);
            i++;
        } else if (left == NULL || right->series < left->series) {
            values[count++] = from_later(right, peak_is_later);
            j++;
        } else {
            values[count++] = from_both(left, right, peak_is_later);
            i++;
            j++;
        }
    }
    return count;
}

/* Merges b into a. false: no memory, and nothing has changed. */
static bool absorb(rvli_timeline_bucket *a, rvli_timeline_bucket *b)
{
    bool peak_is_later = b->max_bytes > a->max_bytes ||
                         (b->max_bytes == a->max_bytes && b->peak_part_bytes > a->peak_part_bytes);
    size_t room = (size_t)a->value_count + b->value_count;
    rvl_timeline_value *values = malloc((room > 0 ? room : 1) * sizeof *values);
    if (values == NULL)
        return false;
    uint32_t count = merge_values(a, b, peak_is_later, values);
    rvl_timeline_value *fitted = realloc(values, (count > 0 ? count : 1) * sizeof *values);
    free(a->values);
    free(b->values);
    b->values = NULL;
    a->values = fitted != NULL ? fitted : values;
    a->value_count = count;
    a->end_ns = b->end_ns;
    a->changes += b->changes;
    a->min_bytes = least(a->min_bytes, b->min_bytes);
    a->last_bytes = b->last_bytes;
    if (peak_is_later) {
        a->max_bytes = b->max_bytes;
        a->peak_part_bytes = b->peak_part_bytes;
        a->peak_ns = b->peak_ns;
    }
    return true;
}

rvl_status rvli_timeline_merge(rvli_timeline_bucket *buckets, uint32_t *count, uint64_t changes_max,
                               uint64_t span_max_ns, bool keep_stages)
{
    rvl_status status = RVL_OK;
    uint32_t kept = 0;
    for (uint32_t i = 1; i < *count; i++) {
        rvli_timeline_bucket *last = &buckets[kept];
        rvli_timeline_bucket *next = &buckets[i];
        bool fits = last->changes + next->changes <= changes_max &&
                    next->end_ns - last->begin_ns <= span_max_ns &&
                    !(keep_stages && next->begins_stage);
        if (fits && status == RVL_OK && !absorb(last, next))
            status = RVL_ERR_HOST_OOM;
        else if (fits && status == RVL_OK)
            continue;
        if (++kept != i)
            buckets[kept] = *next;
    }
    if (*count > 0)
        *count = kept + 1;
    return status;
}

/* ---- Stages ---- */

/*
 * Merges neighbours as long as the result stands for few enough stages and little enough time. A
 * pair that stays apart exceeds one of these limits together. For each limit, such pairs are at
 * most an eighth of all stages, so at most about half of the stages are left.
 */
void rvli_timeline_merge_stages(rvli_timeline_mark *stages, uint32_t *count, uint64_t end_ns)
{
    uint32_t before = *count, kept = 0;
    if (before < 8)
        return;
    const rvli_timeline_mark *last = &stages[before - 1];
    uint64_t stages_max = ((uint64_t)last->first + last->count) / (before / 8) + 1;
    uint64_t span_max_ns = (end_ns - stages[0].begin_ns) / (before / 8) + 1;
    for (uint32_t i = 1; i < before; i++) {
        uint64_t next_ns = i + 1 < before ? stages[i + 1].begin_ns : end_ns;
        bool fits = stages[kept].count + stages[i].count <= stages_max &&
                    next_ns - stages[kept].begin_ns <= span_max_ns;
        if (fits) {
            stages[kept].count += stages[i].count;
            free(stages[i].name);
        } else if (++kept != i) {
            stages[kept] = stages[i];
        }
    }
    *count = kept + 1;
}
