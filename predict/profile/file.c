/* SPDX-License-Identifier: MIT */
/*
 * Reads profiles from files that `reveille calibrate` wrote (docs/calibrate.md).
 *
 * A file begins with its format and version. Every key is checked. An unknown key is a mistake and
 * not an extension, since a new version would have another version number. Keys that only people
 * and later fits read ("measured", "agreement") are ignored.
 *
 * The strings of a profile outlive the call and have no owner, like those of built-in profiles.
 * Each text is kept once, until the process ends.
 */
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/error.h"
#include "base/options.h"
#include "reveille/replay.h"

#define FORMAT "reveille device profile"
#define VERSION 2
#define FILE_BYTES_MAX ((size_t)4 << 20)
#define KEY_BYTES 96
#define NAME_BYTES_MAX 63
#define TEXT_BYTES_MAX 1000
#define CAPACITY_MIN (INT64_C(1) << 20)
#define GRANULARITY_MIN 4096

/* ---- Strings without an owner ---- */

typedef struct kept {
    struct kept *next;
    char text[];
} kept;

static const char *keep(const char *text)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static kept *all;
    pthread_mutex_lock(&lock);
    kept *found = all;
    while (found != NULL && strcmp(found->text, text) != 0)
        found = found->next;
    if (found == NULL && (found = malloc(sizeof *found + strlen(text) + 1)) != NULL) {
        memcpy(found->text, text, strlen(text) + 1);
        found->next = all;
        all = found;
    }
    pthread_mutex_unlock(&lock);
    return found != NULL ? found->text : NULL;
}

/* ---- Values ---- */

/* The first failure stays. Values that are read after it are invalid. */
typedef struct reader {
    const char *path;
    rvl_status status;
} reader;

static void refuse(reader *r, rvl_status status, const char *key, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

static void refuse(reader *r, rvl_status status, const char *key, const char *format, ...)
{
    char message[sizeof rvli_error_get()->message];
    size_t length = 0;
    va_list arguments;
    if (r->status != RVL_OK)
        return;
    if (key != NULL)
        length = (size_t)snprintf(message, sizeof message, "%.90s: ", key);
    va_start(arguments, format);
    vsnprintf(message + length, sizeof message - length, format, arguments);
    va_end(arguments);
    r->status = rvli_error(status, message);
    if (key != NULL)
        rvli_error_key(key);
    rvli_error_place(r->path, 0, 0);
}

/* Makes "costs.create" from "costs" and "create". */
static void join(char name[KEY_BYTES], const char *parent, const char *key)
{
    snprintf(name, KEY_BYTES, "%.40s%s%.40s", parent, parent[0] != '\0' ? "." : "", key);
}

/* Refuses keys that are not in the list, which ends with NULL. */
static void check_keys(reader *r, const json_t *object, const char *parent,
                       const char *const *known)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)object, key, value)
    {
        char name[KEY_BYTES];
        size_t i = 0;
        while (known[i] != NULL && strcmp(known[i], key) != 0)
            i++;
        join(name, parent, key);
        if (known[i] == NULL)
            refuse(r, RVL_ERR_INVALID, name,
                   "not a key of a device profile: correct its spelling, or remove it");
    }
}

static uint64_t number(reader *r, const json_t *object, const char *parent, const char *key,
                       json_int_t least, json_int_t most)
{
    char name[KEY_BYTES];
    const json_t *value = json_object_get(object, key);
    join(name, parent, key);
    if (value == NULL)
        refuse(r, RVL_ERR_INVALID, name, "is missing: calibrate the card again");
    else if (!json_is_integer(value))
        refuse(r, RVL_ERR_INVALID, name, "must be a whole number");
    else if (json_integer_value(value) < least || json_integer_value(value) > most)
        refuse(r, RVL_ERR_INVALID, name,
               "must be from %" JSON_INTEGER_FORMAT " to %" JSON_INTEGER_FORMAT, least, most);
    else
        return (uint64_t)json_integer_value(value);
    return 0;
}

static const char *text(reader *r, const json_t *object, const char *key, size_t most)
{
    const json_t *value = json_object_get(object, key);
    if (value == NULL)
        refuse(r, RVL_ERR_INVALID, key, "is missing: calibrate the card again");
    else if (!json_is_string(value) || json_string_length(value) == 0)
        refuse(r, RVL_ERR_INVALID, key, "must be a text");
    else if (json_string_length(value) > most ||
             strlen(json_string_value(value)) != json_string_length(value))
        refuse(r, RVL_ERR_INVALID, key, "must have at most %zu bytes, none of them 0", most);
    else {
        const char *stays = keep(json_string_value(value));
        if (stays == NULL)
            refuse(r, RVL_ERR_HOST_OOM, NULL, "no host memory for a device profile");
        return stays;
    }
    return NULL;
}

static bool flag(reader *r, const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    if (value == NULL)
        refuse(r, RVL_ERR_INVALID, key, "is missing: calibrate the card again");
    else if (!json_is_boolean(value))
        refuse(r, RVL_ERR_INVALID, key, "must be true or false");
    return json_is_true(value);
}

static const json_t *object(reader *r, const json_t *root, const char *key)
{
    const json_t *value = json_object_get(root, key);
    if (value == NULL)
        refuse(r, RVL_ERR_INVALID, key, "is missing: calibrate the card again");
    else if (!json_is_object(value))
        refuse(r, RVL_ERR_INVALID, key, "must be an object");
    return value;
}

/* ---- Parts ---- */

static rvl_cost read_cost(reader *r, const json_t *costs, const char *group, const char *name)
{
    static const char *const keys[] = {"call_ns", "fs_per_byte", "from", NULL};
    char parent[KEY_BYTES];
    const json_t *cost = json_object_get(costs, name);
    join(parent, group, name);
    if (!json_is_object(cost)) {
        refuse(r, RVL_ERR_INVALID, parent,
               cost == NULL ? "is missing: calibrate the card again" : "must be an object");
        return (rvl_cost){0};
    }
    check_keys(r, cost, parent, keys);
    return (rvl_cost){.call_ns = (uint32_t)number(r, cost, parent, "call_ns", 0, UINT32_MAX),
                      .fs_per_byte =
                          (uint32_t)number(r, cost, parent, "fs_per_byte", 0, UINT32_MAX)};
}

static rvl_cost_model read_costs(reader *r, const json_t *root)
{
#define COST_KEY(field) #field,
    static const char *const keys[] = {RVL_COST_MAP(COST_KEY) NULL};
#undef COST_KEY
    rvl_cost_model model = {0};
    const json_t *costs = object(r, root, "costs");
    if (r->status != RVL_OK)
        return model;
    check_keys(r, costs, "costs", keys);
#define COST_READ(field) model.field = read_cost(r, costs, "costs", #field);
    RVL_COST_MAP(COST_READ)
#undef COST_READ
    return model;
}

static rvl_cost_waits read_waits(reader *r, const json_t *root)
{
#define WAIT_KEY(field) #field,
    static const char *const keys[] = {RVL_COST_WAITS_MAP(WAIT_KEY) NULL};
#undef WAIT_KEY
    rvl_cost_waits found = {0};
    const json_t *waits = object(r, root, "waits");
    if (r->status != RVL_OK)
        return found;
    check_keys(r, waits, "waits", keys);
#define WAIT_READ(field) found.field = read_cost(r, waits, "waits", #field);
    RVL_COST_WAITS_MAP(WAIT_READ)
#undef WAIT_READ
    return found;
}

static rvl_driver_use read_driver(reader *r, const json_t *root)
{
#define USE_KEY(field) #field "_bytes",
    static const char *const keys[] = {RVL_DRIVER_USE_MAP(USE_KEY) NULL};
#undef USE_KEY
    rvl_driver_use use = {0};
    const json_t *driver = object(r, root, "driver");
    if (r->status != RVL_OK)
        return use;
    check_keys(r, driver, "driver", keys);
#define USE_READ(field)                                                                            \
    use.field##_bytes = number(r, driver, "driver", #field "_bytes", 0, INT64_C(1) << 40);
    RVL_DRIVER_USE_MAP(USE_READ)
#undef USE_READ
    return use;
}

/* Checks the format and the version, before anything else is used. */
static void check_format(reader *r, const json_t *root)
{
    const json_t *format = json_object_get(root, "format");
    const json_t *version = json_object_get(root, "version");
    if (!json_is_object(root) || !json_is_string(format) ||
        strcmp(json_string_value(format), FORMAT) != 0)
        refuse(r, RVL_ERR_INVALID, "format",
               "must be \"" FORMAT "\": name a file that `reveille calibrate` has written");
    else if (!json_is_integer(version))
        refuse(r, RVL_ERR_INVALID, "version", "must be a whole number");
    else if (json_integer_value(version) != VERSION)
        refuse(r, RVL_ERR_VERSION, "version",
               "is %" JSON_INTEGER_FORMAT ", and this version reads %d: %s",
               json_integer_value(version), VERSION,
               json_integer_value(version) < VERSION
                   ? "calibrate the card again"
                   : "use the version of reveille that wrote it, or a newer one");
}

static void read_profile(reader *r, const json_t *root, rvl_profile *profile)
{
    static const char *const keys[] = {"format",
                                       "version",
                                       "name",
                                       "description",
                                       "source",
                                       "rdma",
                                       "costs",
                                       "waits",
                                       "driver",
                                       "capacity_bytes",
                                       "granularity_bytes",
                                       "machine",
                                       "measured",
                                       "agreement",
                                       "capacity_doubt_bytes",
                                       NULL};
    check_format(r, root);
    if (r->status != RVL_OK)
        return;
    check_keys(r, root, "", keys);
    *profile = (rvl_profile){
        .struct_size = sizeof *profile,
        .name = text(r, root, "name", NAME_BYTES_MAX),
        .description = text(r, root, "description", TEXT_BYTES_MAX),
        .source = text(r, root, "source", TEXT_BYTES_MAX),
        .capacity_bytes = number(r, root, "", "capacity_bytes", CAPACITY_MIN, INT64_MAX),
        .granularity_bytes =
            number(r, root, "", "granularity_bytes", GRANULARITY_MIN, INT64_C(1) << 40),
        .flags = RVL_PROFILE_MEASURED | (flag(r, root, "rdma") ? 0 : RVL_PROFILE_NO_RDMA),
        .cost = read_costs(r, root),
        .driver = read_driver(r, root),
        .waits = read_waits(r, root),
    };
    if (r->status == RVL_OK && (profile->granularity_bytes & (profile->granularity_bytes - 1)) != 0)
        refuse(r, RVL_ERR_INVALID, "granularity_bytes", "must be a power of two");
    if (r->status == RVL_OK && json_object_get(root, "capacity_doubt_bytes") != NULL)
        profile->capacity_doubt_bytes =
            number(r, root, "", "capacity_doubt_bytes", 0, (json_int_t)profile->capacity_bytes);
}

/* ---- Files ---- */

/* Reads a file, up to the largest size of a profile. NULL: refused. The caller frees the bytes. */
static char *read_bytes(reader *r, size_t *size_out)
{
    FILE *file = fopen(r->path, "re");
    char *bytes = malloc(FILE_BYTES_MAX + 1);
    size_t size = file != NULL && bytes != NULL ? fread(bytes, 1, FILE_BYTES_MAX + 1, file) : 0;
    if (file == NULL || (bytes != NULL && ferror(file)))
        refuse(r, RVL_ERR_IO, NULL,
               "the device profile cannot be read: %s: name a file that `reveille calibrate` has "
               "written",
               strerror(errno));
    else if (bytes == NULL)
        refuse(r, RVL_ERR_HOST_OOM, NULL, "no host memory for a device profile");
    else if (size > FILE_BYTES_MAX)
        refuse(r, RVL_ERR_INVALID, NULL, "more than 4 MiB, which no device profile has");
    if (file != NULL)
        fclose(file);
    *size_out = size;
    if (r->status == RVL_OK)
        return bytes;
    free(bytes);
    return NULL;
}

static json_t *read_json(reader *r)
{
    json_error_t error;
    size_t size;
    char *bytes = read_bytes(r, &size);
    if (bytes == NULL)
        return NULL;
    json_t *root = json_loadb(bytes, size, JSON_REJECT_DUPLICATES, &error);
    free(bytes);
    if (root != NULL)
        return root;
    /* jansson leaves the text empty when it has no memory. */
    if (error.text[0] == '\0' || json_error_code(&error) == json_error_out_of_memory) {
        refuse(r, RVL_ERR_HOST_OOM, NULL, "no host memory for a device profile");
    } else {
        refuse(r, RVL_ERR_INVALID, NULL, "the device profile is not JSON: %.100s", error.text);
        rvli_error_place(r->path, (uint32_t)(error.line > 0 ? error.line : 0),
                         (uint32_t)(error.column > 0 ? error.column : 0));
    }
    return NULL;
}

static bool names_file(const char *text)
{
    static const char ending[] = ".json";
    size_t length = strlen(text), ends = sizeof ending - 1;
    return strchr(text, '/') != NULL ||
           (length > ends && strcasecmp(text + length - ends, ending) == 0);
}

rvl_status rvl_profile_load(const char *text, rvl_profile *profile_out)
{
    rvl_profile profile;
    if (text == NULL || !names_file(text))
        return rvl_profile_find(text, profile_out);
    reader r = {.path = text, .status = RVL_OK};
    json_t *root = read_json(&r);
    if (root != NULL)
        read_profile(&r, root, &profile);
    json_decref(root);
    return r.status == RVL_OK ? rvli_result_write(profile_out, &profile, sizeof profile) : r.status;
}
