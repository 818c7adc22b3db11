/* SPDX-License-Identifier: MIT */
#include "calibrate/again.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "calibrate/fit.h"
#include "command.h"
#include "output.h"

#define VALUES_MAX 1000 /* of an act and size; more say nothing new */

/* ---- Reading ---- */

/* So many values that their spread is the one that the file has. The strings stay the file's. */
static bool add_series(samples *all, const json_t *one)
{
    const char *act = json_string_value(json_object_get(one, "act"));
    const char *unit = json_string_value(json_object_get(one, "unit"));
    json_int_t bytes = json_integer_value(json_object_get(one, "bytes"));
    json_int_t count = json_integer_value(json_object_get(one, "count"));
    static const char *const keys[] = {"least", "median", "most"};
    json_int_t values[3];
    if (act == NULL || unit == NULL || bytes < 0 || count < 1)
        return false;
    for (size_t i = 0; i < 3; i++) {
        values[i] = json_integer_value(json_object_get(one, keys[i]));
        if (values[i] < 0 || (i > 0 && values[i] < values[i - 1]))
            return false;
    }
    for (json_int_t i = 0; i < count && i < VALUES_MAX; i++) {
        size_t which = count == 1 ? 1 : i == 0 ? 0 : i == count - 1 ? 2 : 1;
        samples_add(all, act, (uint64_t)bytes, unit, (uint64_t)values[which]);
    }
    return true;
}

static int read_measured(const char *path, const json_t *root, samples *all)
{
    const json_t *list = json_object_get(root, "measured");
    for (size_t i = 0; i < json_array_size(list); i++) {
        if (!add_series(all, json_array_get(list, i)))
            return complain(
                EXIT_BAD_INPUT,
                "calibrate: %s: measured[%zu] is no measurement: calibrate the card again", path,
                i);
    }
    if (all->failed)
        return complain(EXIT_INTERNAL, "out of host memory");
    if (all->count == 0)
        return complain(EXIT_BAD_INPUT,
                        "calibrate: %s has no measurements: name a file that `reveille calibrate` "
                        "has written, or calibrate the card",
                        path);
    return EXIT_FITS;
}

/* ---- Writing ---- */

/* A cost and where it is from. What was not measured keeps what the file says. */
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

static bool set_costs(json_t *root, const rvl_profile *profile, uint32_t known, bool told)
{
    json_t *costs = json_object_get(root, "costs"), *waits = json_object_get(root, "waits");
    uint32_t bit = 1;
    bool ok = true;
#define SET_COST(field)                                                                            \
    ok = set_cost(costs, #field, profile->cost.field, (known & bit) != 0, told) && ok;             \
    bit <<= 1;
    RVL_COST_MAP(SET_COST)
#undef SET_COST
#define SET_WAIT(field)                                                                            \
    ok = set_cost(waits, #field, profile->waits.field, (known & bit) != 0, told) && ok;            \
    bit <<= 1;
    RVL_COST_WAITS_MAP(SET_WAIT)
#undef SET_WAIT
    json_object_del(root, "agreement");
    return ok;
}

/* ---- The call ---- */

static int fit_root(const char *path, json_t *root, rvl_profile *profile, bool told)
{
    samples all = {0};
    int exit = read_measured(path, root, &all);
    if (exit == EXIT_FITS) {
        uint32_t known = fit_profile(&all, profile);
        if (!set_costs(root, profile, known, told))
            exit = complain(EXIT_INTERNAL, "out of host memory");
    }
    samples_free(&all);
    return exit;
}

static int write_root(const json_t *root, output_file output)
{
    char *text = json_dumps(root, JSON_INDENT(1));
    bool made = text != NULL; /* the stream says whether it could be written */
    if (made)
        fprintf(output.stream, "%s\n", text);
    free(text);
    return output_finish(&output, made);
}

int fit_again(const char *path, const char *output, bool json)
{
    rvl_profile profile = {.struct_size = sizeof profile};
    rvl_status status = rvl_profile_load(path, &profile); /* says what is wrong with the file */
    if (status != RVL_OK && status != RVL_ERR_NOT_FOUND)
        return explain_replay(status);
    json_t *root = status == RVL_OK ? json_load_file(path, 0, NULL) : NULL;
    if (root == NULL)
        return complain(EXIT_BAD_INPUT,
                        "calibrate: %s is no file of a profile: name one that `reveille calibrate` "
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
