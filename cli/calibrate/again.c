/* SPDX-License-Identifier: MIT */
#include "calibrate/again.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "command.h"
#include "output.h"
#include "reveille/calibrate.h"

/* ---- Reading ---- */

/* Reads a measurement. Its strings belong to the JSON. false: not a measurement. */
static bool read_one(const json_t *one, rvl_measurement *found)
{
    json_int_t bytes = json_integer_value(json_object_get(one, "bytes"));
    json_int_t count = json_integer_value(json_object_get(one, "count"));
    static const char *const keys[] = {"least", "median", "most"};
    uint64_t *const values[] = {&found->least_value, &found->median_value, &found->most_value};
    json_int_t before = 0;
    found->act = json_string_value(json_object_get(one, "act"));
    found->unit = json_string_value(json_object_get(one, "unit"));
    if (found->act == NULL || found->unit == NULL || bytes < 0 || count < 1)
        return false;
    for (size_t i = 0; i < 3; i++) {
        json_int_t value = json_integer_value(json_object_get(one, keys[i]));
        if (value < before)
            return false;
        before = value;
        *values[i] = (uint64_t)value;
    }
    found->bytes = (uint64_t)bytes;
    found->count = (uint64_t)count;
    return true;
}

/* list must have room for all measurements. Returns the exit status. */
static int read_measured(const char *path, const json_t *measured, rvl_measurement *list)
{
    size_t count = json_array_size(measured);
    for (size_t i = 0; i < count; i++) {
        if (!read_one(json_array_get(measured, i), &list[i]))
            return complain(
                EXIT_BAD_INPUT,
                "calibrate: %s: measured[%zu] is not a measurement: calibrate the card again", path,
                i);
    }
    if (count == 0)
        return complain(EXIT_BAD_INPUT,
                        "calibrate: %s has no measurements: name a file that `reveille calibrate` "
                        "has written, or calibrate the card",
                        path);
    return EXIT_FITS;
}

/* ---- Writing ---- */

/* Sets a cost and its source. A cost that was not measured keeps the file's values. told: print a
 * change. */
static bool set_cost(json_t *group, const char *name, rvl_cost now, bool measured, bool told)
{
    json_t *cost = json_object_get(group, name);
    json_int_t call = json_integer_value(json_object_get(cost, "call_ns"));
    json_int_t per_byte = json_integer_value(json_object_get(cost, "fs_per_byte"));
    if (!measured)
        return true;
    if (told && (call != now.call_ns || per_byte != now.fs_per_byte))
        say("%-16s %8" JSON_INTEGER_FORMAT " ns, %6" JSON_INTEGER_FORMAT " fs a byte -> %8" PRIu32
            " ns, %6" PRIu32 " fs a byte\n",
            name, call, per_byte, now.call_ns, now.fs_per_byte);
    return json_object_set_new(cost, "call_ns", json_integer(now.call_ns)) == 0 &&
           json_object_set_new(cost, "fs_per_byte", json_integer(now.fs_per_byte)) == 0 &&
           json_object_set_new(cost, "from", json_string("measured")) == 0;
}

static bool set_costs(json_t *root, const rvl_profile *profile, uint64_t known, bool told)
{
    json_t *costs = json_object_get(root, "costs"), *waits = json_object_get(root, "waits");
    bool ok = true;
#define SET_COST(field)                                                                            \
    ok =                                                                                           \
        set_cost(costs, #field, profile->cost.field, known >> RVL_COST_INDEX_##field & 1, told) && \
        ok;
    RVL_COST_MAP(SET_COST)
#undef SET_COST
#define SET_WAIT(field)                                                                            \
    ok = set_cost(waits, #field, profile->waits.field, known >> RVL_COST_INDEX_##field & 1,        \
                  told) &&                                                                         \
         ok;
    RVL_COST_WAITS_MAP(SET_WAIT)
#undef SET_WAIT
    json_object_del(root, "agreement");
    return ok;
}

/* ---- Command ---- */

static int fit_root(const char *path, json_t *root, rvl_profile *profile, bool told)
{
    const json_t *measured = json_object_get(root, "measured");
    uint64_t known = 0;
    rvl_measurement *list = calloc(json_array_size(measured) + 1, sizeof *list);
    int exit = list != NULL ? read_measured(path, measured, list)
                            : complain(EXIT_INTERNAL, "out of host memory");
    if (exit == EXIT_FITS && (rvl_profile_fit(profile, list, sizeof *list,
                                              json_array_size(measured), &known) != RVL_OK ||
                              !set_costs(root, profile, known, told)))
        exit = complain(EXIT_INTERNAL, "out of host memory");
    free(list);
    return exit;
}

static int write_root(const json_t *root, output_file output)
{
    char *text = json_dumps(root, JSON_INDENT(1));
    bool made = text != NULL; /* output_finish() checks the stream for write errors */
    if (made)
        fprintf(output.stream, "%s\n", text);
    free(text);
    return output_finish(&output, made);
}

int fit_again(const char *path, const char *output, bool json)
{
    rvl_profile profile = {.struct_size = sizeof profile};
    rvl_status status = rvl_profile_load(path, &profile); /* explains what is wrong with the file */
    if (status != RVL_OK && status != RVL_ERR_NOT_FOUND)
        return explain_replay(status);
    json_t *root = status == RVL_OK ? json_load_file(path, 0, NULL) : NULL;
    if (root == NULL)
        return complain(
            EXIT_BAD_INPUT,
            "calibrate: %s is not the file of a profile: name one that `reveille calibrate` "
            "has written, such as card.json",
            path);
    output_file file;
    int exit = fit_root(path, root, &profile, !json);
    if (exit == EXIT_FITS && output != NULL)
        exit = output_open(output, &file);
    if (exit == EXIT_FITS && output != NULL)
        exit = write_root(root, file);
    if (exit == EXIT_FITS && json)
        exit = write_root(root, output_to_stdout());
    json_decref(root);
    return exit;
}
