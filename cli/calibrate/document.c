/* SPDX-License-Identifier: MIT */
#include "calibrate/document.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* jansson takes ownership of every value. A NULL value, which means no memory, makes it fail. */
typedef struct maker {
    bool ok;
} maker;

static void set(maker *m, json_t *object, const char *key, json_t *value)
{
    m->ok = json_object_set_new(object, key, value) == 0 && m->ok;
}

static void append(maker *m, json_t *array, json_t *value)
{
    m->ok = json_array_append_new(array, value) == 0 && m->ok;
}

static json_t *number(uint64_t value)
{
    return json_integer((json_int_t)value);
}

static json_t *cost(maker *m, rvl_cost it, uint64_t measured)
{
    json_t *object = json_object();
    set(m, object, "call_ns", number(it.call_ns));
    set(m, object, "fs_per_byte", number(it.fs_per_byte));
    set(m, object, "from", json_string(measured ? "measured" : "assumed"));
    return object;
}

static json_t *costs(maker *m, const document *it)
{
    json_t *object = json_object();
#define COST_WRITE(field)                                                                          \
    set(m, object, #field,                                                                         \
        cost(m, it->profile->cost.field, it->measured_costs >> RVL_COST_INDEX_##field & 1));
    RVL_COST_MAP(COST_WRITE)
#undef COST_WRITE
    return object;
}

static json_t *waits(maker *m, const document *it)
{
    json_t *object = json_object();
#define WAIT_WRITE(field)                                                                          \
    set(m, object, #field,                                                                         \
        cost(m, it->profile->waits.field, it->measured_costs >> RVL_COST_INDEX_##field & 1));
    RVL_COST_WAITS_MAP(WAIT_WRITE)
#undef WAIT_WRITE
    return object;
}

static json_t *driver(maker *m, const rvl_driver_use *use)
{
    json_t *object = json_object();
#define USE_WRITE(field) set(m, object, #field "_bytes", number(use->field##_bytes));
    RVL_DRIVER_USE_MAP(USE_WRITE)
#undef USE_WRITE
    return object;
}

static json_t *measured(maker *m, const samples *all)
{
    json_t *array = json_array();
    for (size_t i = 0; i < all->count; i++) {
        const rvl_measurement found = samples_spread(&all->list[i]);
        json_t *object = json_object();
        set(m, object, "act", json_string(found.act));
        set(m, object, "bytes", number(found.bytes));
        set(m, object, "unit", json_string(found.unit));
        set(m, object, "least", number(found.least_value));
        set(m, object, "median", number(found.median_value));
        set(m, object, "most", number(found.most_value));
        set(m, object, "count", number(found.count));
        append(m, array, object);
    }
    return array;
}

static json_t *agreed(maker *m, const agreement *it)
{
    json_t *array = json_array();
    for (size_t i = 0; i < it->count; i++) {
        const agree_stage *one = &it->stages[i];
        json_t *object = json_object();
        set(m, object, "stage", json_string(one->name));
        set(m, object, "predicted_peak_bytes", number(one->predicted_peak_bytes));
        set(m, object, "measured_peak_bytes", number(one->measured_peak_bytes));
        set(m, object, "predicted_ns", number(one->predicted_ns));
        set(m, object, "measured_ns", number(one->measured_ns));
        append(m, array, object);
    }
    return array;
}

/* Reads the first processor's "model name" from /proc/cpuinfo. */
static void read_processor(char *name, size_t size)
{
    char line[256];
    FILE *file = fopen("/proc/cpuinfo", "re");
    snprintf(name, size, "unknown");
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        char *value = strncmp(line, "model name", 10) == 0 ? strchr(line, ':') : NULL;
        if (value == NULL)
            continue;
        value[strcspn(value, "\n")] = '\0';
        snprintf(name, size, "%s", value + 1 + strspn(value + 1, " "));
        break;
    }
    if (file != NULL)
        fclose(file);
}

static json_t *machine(maker *m, const document *it)
{
    char processor[128];
    json_t *object = json_object();
    read_processor(processor, sizeof processor);
    set(m, object, "processor", json_string(processor));
    set(m, object, "cores", number((uint64_t)sysconf(_SC_NPROCESSORS_ONLN)));
    set(m, object, "memory_bytes",
        number((uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE)));
    set(m, object, "cuda_driver_version", json_integer(it->driver_version));
    set(m, object, "date", json_string(it->date));
    return object;
}

char *document_text(const document *it)
{
    const rvl_profile *profile = it->profile;
    maker m = {.ok = true};
    json_t *root = json_object();
    set(&m, root, "format", json_string("reveille device profile"));
    set(&m, root, "version", json_integer(2));
    set(&m, root, "name", json_string(profile->name));
    set(&m, root, "description", json_string(profile->description));
    set(&m, root, "source", json_string(profile->source));
    set(&m, root, "machine", machine(&m, it));
    set(&m, root, "capacity_bytes", number(profile->capacity_bytes));
    set(&m, root, "granularity_bytes", number(profile->granularity_bytes));
    set(&m, root, "rdma", json_boolean((profile->flags & RVL_PROFILE_NO_RDMA) == 0));
    set(&m, root, "costs", costs(&m, it));
    set(&m, root, "waits", waits(&m, it));
    set(&m, root, "driver", driver(&m, &profile->driver));
    set(&m, root, "measured", measured(&m, it->measured));
    if (it->agreed != NULL)
        set(&m, root, "agreement", agreed(&m, it->agreed));
    char *text = m.ok ? json_dumps(root, JSON_INDENT(1)) : NULL;
    json_decref(root);
    if (text == NULL)
        return NULL;
    size_t length = strlen(text);
    char *line = realloc(text, length + 2);
    if (line == NULL) {
        free(text);
        return NULL;
    }
    memcpy(line + length, "\n", 2);
    return line;
}
