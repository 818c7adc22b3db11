/* SPDX-License-Identifier: MIT */
/*
 * Fits a profile again from what a file of `reveille calibrate` says was measured, and prints it:
 * so recordings of a card are held against today's fit, and not against that of their day.
 *
 * usage: refit CARD.json
 */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

#include "calibrate/document.h"
#include "calibrate/fit.h"
#include "reveille/replay.h"
#include "reveille/sim.h"

static const char *text_of(const json_t *object, const char *key)
{
    return json_string_value(json_object_get(object, key));
}

/* The median stands for all values: the file has no others but the least and the most. */
static void add_medians(const json_t *measured, samples *all)
{
    for (size_t i = 0; i < json_array_size(measured); i++) {
        const json_t *one = json_array_get(measured, i);
        samples_add(
            all, text_of(one, "act"), (uint64_t)json_integer_value(json_object_get(one, "bytes")),
            text_of(one, "unit"), (uint64_t)json_integer_value(json_object_get(one, "median")));
    }
}

/* What is not measured is the H200's, as in `reveille calibrate`. */
static bool begin_profile(const char *path, rvl_profile *profile)
{
    rvl_profile usual = {.struct_size = sizeof usual};
    *profile = (rvl_profile){.struct_size = sizeof *profile};
    if (rvl_profile_load(path, profile) != RVL_OK || rvl_profile_find("h200", &usual) != RVL_OK)
        return false;
    profile->cost = usual.cost;
    profile->waits = usual.waits;
    profile->driver = (rvl_driver_use){0};
    return true;
}

int main(int argc, char **argv)
{
    samples all = {0};
    rvl_profile profile;
    json_t *root = argc == 2 ? json_load_file(argv[1], 0, NULL) : NULL;
    if (root == NULL || !begin_profile(argv[1], &profile)) {
        fprintf(stderr, "refit: name a file that reveille calibrate has written\n");
        return 2;
    }
    add_medians(json_object_get(root, "measured"), &all);
    const document made = {.profile = &profile,
                           .measured_costs = fit_profile(&all, &profile),
                           .measured = &all,
                           .date = text_of(json_object_get(root, "machine"), "date")};
    char *text = all.failed ? NULL : document_text(&made);
    bool written = text != NULL && fputs(text, stdout) >= 0 && fflush(stdout) == 0;
    free(text);
    samples_free(&all);
    json_decref(root);
    return written ? 0 : 1;
}
