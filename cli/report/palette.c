/* SPDX-License-Identifier: MIT */
/*
 * Gives each holder a colour by its name. The colour is the same in the page, the picture and the
 * terminal, in both runs, and in later reports.
 *
 * The hash of a name selects its colour. If another name has that colour, the holder takes the next
 * one that is least used. Holders choose in the order of names, those that are drawn separately
 * first. People with any of the three kinds of colour blindness can tell any two colours apart, on
 * white and on black (tests/cli/report/palette.py measures it). External bytes are grey.
 */
#include <stdlib.h>
#include <string.h>

#include "cli/report/report.h"

#define COUNT_OF(list) (sizeof(list) / sizeof(list)[0])

static const colour colours[] = {
    {"#5882ff", 69}, {"#ecca39", 221}, {"#357552", 29},  {"#eb866a", 209}, {"#7d37ac", 91},
    {"#24e7aa", 49}, {"#934204", 130}, {"#d9b2ff", 183}, {"#9e7c00", 136}, {"#8871a3", 97},
};
static const colour greys[] = {{"#5a6067", 241}, {"#c3c8cd", 251}, {"#8b9299", 246}};
static const colour rest = {"#a49e92", 144};

typedef struct entry {
    rvl_timeline_series series;
    bool drawn; /* it has its own layer on some device */
    size_t slot;
} entry;

struct palette {
    entry *entries; /* sorted by name */
    size_t count;
};

static int compare_tags(const char *a, const char *b)
{
    if (a == NULL || b == NULL)
        return (a != NULL) - (b != NULL);
    return strcmp(a, b);
}

static int compare_names(const void *left, const void *right)
{
    const rvl_timeline_series *a = &((const entry *)left)->series;
    const rvl_timeline_series *b = &((const entry *)right)->series;
    if (a->external != b->external)
        return a->external ? -1 : 1;
    int by_process = strcmp(a->process, b->process);
    return by_process != 0 ? by_process : compare_tags(a->tag, b->tag);
}

static int compare_turns(const void *left, const void *right)
{
    const entry *a = left;
    const entry *b = right;
    if (a->drawn != b->drawn)
        return a->drawn ? -1 : 1;
    return compare_names(left, right);
}

/* ---- Names ---- */

/* FNV-1a hash of process and tag, with their terminators. */
static uint32_t hash_of(const rvl_timeline_series *series)
{
    const char *const parts[] = {series->process, series->tag != NULL ? series->tag : ""};
    uint32_t hash = 2166136261u;
    for (size_t i = 0; i < COUNT_OF(parts); i++) {
        const char *next = parts[i];
        do {
            hash = (hash ^ (unsigned char)*next) * 16777619u;
        } while (*next++ != '\0');
    }
    return hash;
}

static size_t count_series(const report_run *runs, size_t run_count)
{
    size_t count = 0;
    for (size_t i = 0; i < run_count; i++) {
        for (size_t d = 0; d < rvl_timeline_device_count(runs[i].timeline); d++) {
            rvl_timeline_device device = {.struct_size = sizeof device};
            if (rvl_timeline_get_device(runs[i].timeline, d, &device) == RVL_OK)
                count += device.series_count;
        }
    }
    return count;
}

/* Adds the series of a device that hold memory, or those that are paused. false: no memory. */
static bool add_series(palette *made, const rvl_timeline *timeline, size_t device, bool paused)
{
    stack stacked;
    if (!stack_make(timeline, device, paused, LAYERS_MAX, &stacked))
        return false;
    for (uint32_t i = 0; i < stacked.count; i++) {
        entry *added = &made->entries[made->count++];
        *added =
            (entry){.series = {.struct_size = sizeof added->series}, .drawn = i < stacked.alone};
        rvl_timeline_get_series(timeline, device, stacked.order[i], &added->series);
    }
    free(stacked.order);
    return true;
}

static bool add_runs(palette *made, const report_run *runs, size_t run_count)
{
    bool ok = true;
    for (size_t i = 0; i < run_count; i++) {
        for (size_t d = 0; ok && d < rvl_timeline_device_count(runs[i].timeline); d++)
            ok = add_series(made, runs[i].timeline, d, false) &&
                 add_series(made, runs[i].timeline, d, true);
    }
    return ok;
}

static void drop_doubles(palette *made)
{
    size_t kept = 0;
    qsort(made->entries, made->count, sizeof *made->entries, compare_names);
    for (size_t i = 0; i < made->count; i++) {
        if (kept > 0 && compare_names(&made->entries[kept - 1], &made->entries[i]) == 0)
            made->entries[kept - 1].drawn |= made->entries[i].drawn;
        else
            made->entries[kept++] = made->entries[i];
    }
    made->count = kept;
}

/* ---- Colours ---- */

/* Takes the least used slot; of several, the first from the slot of the hash on. */
static size_t take_slot(size_t *uses, size_t slots, uint32_t hash)
{
    size_t best = hash % slots;
    for (size_t i = 1; i < slots; i++) {
        size_t slot = (hash + i) % slots;
        if (uses[slot] < uses[best])
            best = slot;
    }
    uses[best]++;
    return best;
}

static void choose(palette *made)
{
    size_t uses[COUNT_OF(colours)] = {0}, grey_uses[COUNT_OF(greys)] = {0};
    qsort(made->entries, made->count, sizeof *made->entries, compare_turns);
    for (size_t i = 0; i < made->count; i++) {
        entry *each = &made->entries[i];
        uint32_t hash = hash_of(&each->series);
        each->slot = each->series.external ? take_slot(grey_uses, COUNT_OF(greys), hash)
                                           : take_slot(uses, COUNT_OF(colours), hash);
    }
    qsort(made->entries, made->count, sizeof *made->entries, compare_names);
}

palette *palette_make(const report_run *runs, size_t run_count)
{
    palette *made = calloc(1, sizeof *made);
    if (made == NULL)
        return NULL;
    made->entries = calloc(count_series(runs, run_count) + 1, sizeof *made->entries);
    if (made->entries == NULL || !add_runs(made, runs, run_count)) {
        palette_free(made);
        return NULL;
    }
    drop_doubles(made);
    choose(made);
    return made;
}

colour palette_colour(const palette *made, const rvl_timeline_series *series)
{
    const entry wanted = {.series = *series};
    const entry *found =
        bsearch(&wanted, made->entries, made->count, sizeof *made->entries, compare_names);
    if (found == NULL)
        return rest;
    return series->external ? greys[found->slot] : colours[found->slot];
}

colour palette_rest(void)
{
    return rest;
}

void palette_free(palette *made)
{
    if (made == NULL)
        return;
    free(made->entries);
    free(made);
}
