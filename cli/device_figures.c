/* SPDX-License-Identifier: MIT */
/*
 * Shows the figures of a profile with their sources.
 *
 * The flags of a built-in profile tell whether its costs were measured on such a card. A
 * calibration file gives a source for each cost, and the spread of every measurement. The spread is
 * printed from the file, because the profile that is made from it keeps only the lines fitted
 * through the medians.
 */
#include "device_figures.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "command.h"

enum { FIGURE, VALUE, SOURCE, COLUMNS };

#define VALUE_BYTES 96

typedef struct figures {
    rvl_profile profile;
    json_t *file; /* the calibration file; NULL: a built-in profile, or a size */
} figures;

/* ---- Figures ---- */

static const char *cost_source(const figures *it, const char *group, const char *name)
{
    const json_t *cost = json_object_get(json_object_get(it->file, group), name);
    const char *from = json_string_value(json_object_get(cost, "from"));
    if (it->file != NULL)
        return from != NULL ? from : "not said";
    return it->profile.flags & RVL_PROFILE_MEASURED ? "measured" : "estimated from the H200";
}

/* Formats a cost as "10.0 us a call, 5.9 us a GiB": per GiB, so that both parts are in us. */
static void format_cost(rvl_cost cost, char text[VALUE_BYTES])
{
    double us_per_gib = (double)cost.fs_per_byte * (double)(1 << 30) / 1e9;
    snprintf(text, VALUE_BYTES, "%.1f us a call, %.1f us a GiB", cost.call_ns / 1e3, us_per_gib);
}

static void add(table *rows, const char *figure, const char *value, const char *source)
{
    table_add(rows, (const char *const[]){figure, value, source});
}

static void add_memory(table *rows, const figures *it)
{
    const rvl_profile *profile = &it->profile;
    char value[VALUE_BYTES], size[SIZE_TEXT_BYTES];
    snprintf(value, sizeof value, "%" PRIu64 " bytes", profile->capacity_bytes);
    add(rows, "capacity", value, profile->source);
    if (profile->capacity_doubt_bytes > 0)
        snprintf(value, sizeof value, "programs may get %s less",
                 format_size(profile->capacity_doubt_bytes, size));
    add(rows, "its doubt", profile->capacity_doubt_bytes > 0 ? value : "none",
        profile->capacity_doubt_bytes > 0 ? "an upper bound" : "what programs get");
    snprintf(value, sizeof value, "%" PRIu64 " bytes", profile->granularity_bytes);
    add(rows, "granularity", value, it->file != NULL ? "measured" : "the driver's");
}

static void add_costs(table *rows, const figures *it)
{
    char value[VALUE_BYTES];
#define COST_ADD(field)                                                                            \
    format_cost(it->profile.cost.field, value);                                                    \
    add(rows, #field, value, cost_source(it, "costs", #field));
    RVL_COST_MAP(COST_ADD)
#undef COST_ADD
#define WAIT_ADD(field)                                                                            \
    format_cost(it->profile.waits.field, value);                                                   \
    add(rows, "wait: " #field, value, cost_source(it, "waits", #field));
    RVL_COST_WAITS_MAP(WAIT_ADD)
#undef WAIT_ADD
}

static void add_driver(table *rows, const figures *it)
{
    char size[SIZE_TEXT_BYTES];
#define USE_ADD(field)                                                                             \
    add(rows, "driver: " #field,                                                                   \
        it->profile.driver.field##_bytes > 0 || it->file != NULL                                   \
            ? format_size(it->profile.driver.field##_bytes, size)                                  \
            : "not known",                                                                         \
        it->profile.flags & RVL_PROFILE_MEASURED ? "measured" : "none");
    RVL_DRIVER_USE_MAP(USE_ADD)
#undef USE_ADD
}

static bool print_figures(const figures *it)
{
    static const char *const titles[COLUMNS] = {"figure", "value", "source"};
    static const bool right[COLUMNS] = {false, false, false};
    table *rows = table_new(titles, right, COLUMNS);
    if (rows == NULL)
        return false;
    add_memory(rows, it);
    add_costs(rows, it);
    add_driver(rows, it);
    bool ok = table_print(rows, "");
    table_free(rows);
    return ok;
}

/* ---- Measurements ---- */

static void number_text(const json_t *object, const char *key, char text[SIZE_TEXT_BYTES])
{
    const json_t *value = json_object_get(object, key);
    snprintf(text, SIZE_TEXT_BYTES, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
}

static void add_spread(table *rows, const json_t *one)
{
    char bytes[SIZE_TEXT_BYTES], least[SIZE_TEXT_BYTES], median[SIZE_TEXT_BYTES],
        most[SIZE_TEXT_BYTES], count[SIZE_TEXT_BYTES];
    const char *act = json_string_value(json_object_get(one, "act"));
    const char *unit = json_string_value(json_object_get(one, "unit"));
    number_text(one, "bytes", bytes);
    number_text(one, "least", least);
    number_text(one, "median", median);
    number_text(one, "most", most);
    number_text(one, "count", count);
    table_add(rows, (const char *const[]){act != NULL ? act : "?", bytes, unit != NULL ? unit : "?",
                                          least, median, most, count});
}

static bool print_spreads(const json_t *measured)
{
    static const char *const titles[] = {"measured", "of bytes", "in",   "least",
                                         "median",   "most",     "count"};
    static const bool right[] = {false, true, false, true, true, true, true};
    size_t index;
    const json_t *one;
    table *rows = table_new(titles, right, sizeof titles / sizeof *titles);
    if (rows == NULL)
        return false;
    json_array_foreach((json_t *)(uintptr_t)measured, index, one) add_spread(rows, one);
    putchar('\n');
    bool ok = table_print(rows, "");
    table_free(rows);
    return ok;
}

/* ---- As JSON ---- */

static json_t *cost_json(rvl_cost cost, const char *source)
{
    return json_pack("{s:I, s:I, s:s}", "call_ns", (json_int_t)cost.call_ns, "fs_per_byte",
                     (json_int_t)cost.fs_per_byte, "from", source);
}

static json_t *as_json(const figures *it)
{
    const rvl_profile *profile = &it->profile;
    json_t *costs = json_object(), *waits = json_object(), *driver = json_object();
    if (it->file != NULL)
        return json_incref(it->file);
#define COST_PACK(field)                                                                           \
    json_object_set_new(costs, #field,                                                             \
                        cost_json(profile->cost.field, cost_source(it, "costs", #field)));
    RVL_COST_MAP(COST_PACK)
#undef COST_PACK
#define WAIT_PACK(field)                                                                           \
    json_object_set_new(waits, #field,                                                             \
                        cost_json(profile->waits.field, cost_source(it, "waits", #field)));
    RVL_COST_WAITS_MAP(WAIT_PACK)
#undef WAIT_PACK
#define USE_PACK(field)                                                                            \
    json_object_set_new(driver, #field "_bytes",                                                   \
                        json_integer((json_int_t)profile->driver.field##_bytes));
    RVL_DRIVER_USE_MAP(USE_PACK)
#undef USE_PACK
    return json_pack("{s:s, s:i, s:s?, s:s, s:s, s:I, s:I, s:I, s:b, s:o, s:o, s:o}", "format",
                     "reveille device profile", "version", 2, "name", profile->name, "description",
                     profile->description, "source", profile->source, "capacity_bytes",
                     (json_int_t)profile->capacity_bytes, "capacity_doubt_bytes",
                     (json_int_t)profile->capacity_doubt_bytes, "granularity_bytes",
                     (json_int_t)profile->granularity_bytes, "rdma",
                     (profile->flags & RVL_PROFILE_NO_RDMA) == 0, "costs", costs, "waits", waits,
                     "driver", driver);
}

static int write_json(const figures *it, const option_document *asked)
{
    json_t *root = as_json(it);
    char *text = root != NULL ? json_dumps(root, JSON_COMPACT) : NULL;
    json_decref(root);
    int status = document_write_text(asked, text);
    free(text);
    return status;
}

int device_figures_print(const char *device, const option_document *json)
{
    figures it = {.profile = {.struct_size = sizeof it.profile}};
    if (rvl_profile_load(device, &it.profile) != RVL_OK)
        return complain(EXIT_BAD_INPUT, "--device %s: %s", device, rvli_error_get()->message);
    it.file = json_load_file(device, 0, NULL); /* NULL for the name of a profile, or a size */
    bool printed = document_is_printed(json) || print_figures(&it);
    if (printed && !document_is_printed(json) && it.file != NULL)
        printed = print_spreads(json_object_get(it.file, "measured"));
    int status = printed ? 0 : complain(EXIT_INTERNAL, "out of host memory");
    if (status == 0 && json->wanted)
        status = write_json(&it, json);
    json_decref(it.file);
    return status;
}
