/* SPDX-License-Identifier: MIT */
#include "alike.h"

#include <string.h>

bool alike_read(const rvl_replay *replay, const peak *rows, size_t row_count, device_rows *all,
                size_t count)
{
    size_t at = 0;
    for (size_t i = 0; i < count; i++) {
        all[i] = (device_rows){
            .index = i, .facts = {.struct_size = sizeof all[i].facts}, .rows = rows + at};
        if (rvl_replay_get_device(replay, i, &all[i].facts) != RVL_OK)
            return false;
        while (at < row_count && rows[at].device == i) {
            at++;
            all[i].row_count++;
        }
    }
    return true;
}

static size_t length_of_number(const char *text)
{
    if (text[0] == '[')
        return strcspn(text, "]");
    return text[0] == '#' ? 1 + strspn(text + 1, "0123456789") : 0;
}

/*
 * Compares two names, of processes or tags, and ignores bracketed text and numbers behind '#':
 * "python3[rank 0]#2" equals "python3[rank 1]#4".
 */
static bool have_same_role(const char *a, const char *b)
{
    if (a == NULL || b == NULL)
        return a == b;
    for (;; a++, b++) {
        a += length_of_number(a);
        b += length_of_number(b);
        if (*a != *b || *a == '\0')
            return *a == *b;
    }
}

/*
 * Whether one row can stand for both: they have the same mark, the smaller peak is at least three
 * quarters of the larger, and their largest holders have the same role.
 */
static bool are_rows_alike(const rvl_replay *replay, const peak *a, const peak *b)
{
    uint64_t most = a->stats.peak_bytes, least = b->stats.peak_bytes;
    rvl_holder left = {0}, other = {0};
    size_t left_count = 0, other_count = 0;
    if (most < least) {
        most = b->stats.peak_bytes;
        least = a->stats.peak_bytes;
    }
    return strcmp(a->stats.mark, b->stats.mark) == 0 && most - least <= most / 4 &&
           rvl_replay_get_holders(replay, a->device, a->stage, &left, sizeof left, 1,
                                  &left_count) == RVL_OK &&
           rvl_replay_get_holders(replay, b->device, b->stage, &other, sizeof other, 1,
                                  &other_count) == RVL_OK &&
           have_same_role(left.process, other.process) && have_same_role(left.tag, other.tag);
}

static bool are_alike(const rvl_replay *replay, const device_rows *a, const device_rows *b)
{
    if (!have_same_role(a->facts.profile, b->facts.profile) ||
        a->facts.capacity_bytes != b->facts.capacity_bytes || a->row_count != b->row_count)
        return false;
    for (size_t i = 0; i < a->row_count; i++)
        if (!are_rows_alike(replay, &a->rows[i], &b->rows[i]))
            return false;
    return true;
}

void alike_gather(device_rows *all, size_t count, size_t first, bool alone, alike_group *found)
{
    found->count = 0;
    for (size_t i = first; i < count && found->count < RVL_MAX_DEVICES; i++) {
        if (i > first &&
            (alone || all[i].is_shown || !are_alike(found->replay, &all[first], &all[i])))
            continue;
        all[i].is_shown = true;
        found->members[found->count++] = &all[i];
    }
}

const peak *alike_largest(const alike_group *of, size_t row)
{
    const peak *largest = &of->members[0]->rows[row];
    for (size_t i = 1; i < of->count; i++)
        if (of->members[i]->rows[row].stats.peak_bytes > largest->stats.peak_bytes)
            largest = &of->members[i]->rows[row];
    return largest;
}

const device_rows *alike_fullest(const alike_group *of)
{
    const device_rows *fullest = of->members[0];
    for (size_t i = 1; i < of->count; i++)
        if (of->members[i]->facts.peak_bytes > fullest->facts.peak_bytes)
            fullest = of->members[i];
    return fullest;
}
