/* SPDX-License-Identifier: MIT */
/* Reads a file of checks (docs/check.md). Refuses unknown keys, which would check nothing. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "check/check.h"
#include "check/reading.h"
#include "check/toml.h"
#include "options.h"

#define TOLERANCE_DEFAULT_PERCENT 1.0

/* ---- Checks ---- */

static bool read_devices(const reading *r, const json_t *object, check_item *item)
{
    char why[DEVICE_WHY_BYTES];
    const json_t *value = json_object_get(object, "devices");
    if (value == NULL) {
        item->devices =
            calloc(1, sizeof *item->devices); /* one entry, NULL: the trace's own device */
        item->device_count = 1;
        if (item->devices != NULL && item->words != NULL)
            item->devices[0] = SIMULATE_DEVICE_USUAL;
        return item->devices != NULL || reading_no_memory(r);
    }
    if (!reading_list(r, value, "devices", &item->devices, &item->device_count))
        return false;
    for (size_t i = 0; i < item->device_count; i++) {
        if (!options_check_device(item->devices[i], why))
            return reading_refuse(r, "device %s: %s", item->devices[i], why);
    }
    return true;
}

static bool read_budgets(const reading *r, const json_t *object, check_item *item)
{
    const char *stage;
    json_t *value, *budgets = json_object_get(object, "budgets");
    if (budgets == NULL)
        return true;
    if (!json_is_object(budgets))
        return reading_refuse(r, "\"budgets\": expected an object of stages and sizes");
    item->budgets = calloc(json_object_size(budgets) + 1, sizeof *item->budgets);
    if (item->budgets == NULL)
        return reading_no_memory(r);
    json_object_foreach(budgets, stage, value)
    {
        rvl_budget *budget = &item->budgets[item->budget_count++];
        budget->stage = stage;
        budget->bytes = (uint64_t)json_integer_value(value);
        bool is_size = json_is_string(value) &&
                       rvl_size_parse(json_string_value(value), &budget->bytes) == RVL_OK;
        if (!is_size && (!json_is_integer(value) || json_integer_value(value) <= 0))
            return reading_refuse(r, "budget of %s: expected a size such as \"90GiB\", or bytes",
                                  stage);
    }
    return true;
}

/* Returns a setting's value as text for the command line. NULL: it has another type. */
static const char *setting_text(const json_t *value, char text[64])
{
    if (json_is_string(value))
        return json_string_value(value);
    if (json_is_boolean(value))
        return json_is_true(value) ? "yes" : "no";
    if (json_is_integer(value))
        snprintf(text, 64, "%lld", (long long)json_integer_value(value));
    else if (json_is_real(value))
        snprintf(text, 64, "%.6g", json_real_value(value));
    else
        return NULL;
    return text;
}

static bool read_given(const reading *r, const json_t *given, check_item *item)
{
    const char *term;
    char why[MODEL_WHY_BYTES], text[64];
    json_t *value;
    if (!json_is_object(given))
        return reading_refuse(r, "\"given\": expected an object of terms and sizes");
    item->given = calloc(json_object_size(given) + 1, sizeof *item->given);
    if (item->given == NULL)
        return reading_no_memory(r);
    json_object_foreach((json_t *)(uintptr_t)given, term, value)
    {
        const char *size = setting_text(value, text);
        if (size == NULL ||
            !model_set_given(term, size, &item->given[item->options.given_count], why))
            return reading_refuse(r, "%s", size != NULL ? why : "\"given\": expected sizes");
        item->options.given_count++;
    }
    item->options.given = item->given;
    item->options.given_size = sizeof *item->given;
    return true;
}

static bool check_settings_matter(const reading *r, json_t *settings, const check_item *item)
{
    const char *name;
    json_t *value;
    json_object_foreach(settings, name, value)
    {
        char why[MODEL_WHY_BYTES];
        if (model_setting_idle(&item->options, name, why))
            return reading_refuse(r, "setting %s %s", name, why);
    }
    return true;
}

static bool read_settings(const reading *r, const json_t *object, check_item *item)
{
    const char *name;
    char why[MODEL_WHY_BYTES], text[64];
    json_t *value, *settings = json_object_get(object, "settings");
    item->options.struct_size = sizeof item->options;
    item->options.wake = item->wake;
    if (settings == NULL)
        return true;
    if (item->model == NULL)
        return reading_refuse(r, "\"settings\" are of a model's step: this check has %s",
                              item->words != NULL ? "a command" : "traces");
    if (!json_is_object(settings))
        return reading_refuse(r, "\"settings\": expected an object");
    json_object_foreach(settings, name, value)
    {
        if (strcmp(name, "given") == 0) {
            if (!read_given(r, value, item))
                return false;
            continue;
        }
        const char *word = setting_text(value, text);
        if (strcmp(name, "device") == 0 || strcmp(name, "wake") == 0)
            return reading_refuse(
                r, "\"%s\" is not a setting here: it is a key of the check itself", name);
        if (word == NULL || !model_set(&item->options, name, word, why)) {
            char said[CHECK_TEXT_BYTES];
            snprintf(said, sizeof said, "setting %.64s: %.400s", name,
                     word != NULL ? why : "expected a string, a number, true or false");
            return reading_refuse_at(r, settings, name, said);
        }
    }
    return check_settings_matter(r, settings, item);
}

/* ---- Commands ---- */

static bool read_stages(const reading *r, const json_t *object, const char **prefix_out)
{
    static const char *const names[] = {"stages", "stages_nvtx"};
    const char *key = names[json_object_get(object, names[1]) != NULL];
    if (json_object_get(object, names[0]) != NULL && key == names[1])
        return reading_refuse(r, "\"%s\" is the older name of \"%s\": leave it out", names[1],
                              names[0]);
    return reading_string(r, object, key, prefix_out);
}

static bool read_timeout(const reading *r, const json_t *object, double *timeout_s)
{
    const json_t *value = json_object_get(object, "timeout");
    if (value == NULL)
        return true;
    *timeout_s = json_number_value(value);
    return (json_is_number(value) && *timeout_s > 0) ||
           reading_refuse(r, "\"timeout\": expected seconds, more than 0");
}

static bool read_ranks(const reading *r, const json_t *object, simulation *what)
{
    if (!reading_number(r, object, "world", 1, SIMULATE_RANKS_MAX, &what->world) ||
        !reading_number(r, object, "rank", 0, SIMULATE_RANKS_MAX - 1, &what->rank))
        return false;
    if (json_object_get(object, "rank") != NULL && what->world == 0)
        return reading_refuse(r, "\"rank\": of how many? Add \"world\"");
    return what->world == 0 || what->rank < what->world ||
           reading_refuse(
               r, "\"rank\" %" PRIu32 ": a \"world\" of %" PRIu32 " has ranks from 0 to %" PRIu32,
               what->rank, what->world, what->world - 1);
}

/* Reads the command. A shell runs a string. A program with a '/' is relative to the file's folder,
 * in which the command runs. */
static bool read_words(const reading *r, const json_t *command, check_item *item)
{
    size_t count;
    if (json_is_string(command) && *json_string_value(command) != '\0') {
        item->words = calloc(4, sizeof *item->words);
        if (item->words == NULL)
            return reading_no_memory(r);
        item->words[0] = "/bin/sh";
        item->words[1] = "-c";
        item->words[2] = json_string_value(command);
    } else if (!reading_list(r, command, "command", &item->words, &count)) {
        return false;
    }
    const char *first = item->words[0];
    item->program = strchr(first, '/') != NULL ? reading_path(r, first) : strdup(first);
    return item->program != NULL || reading_no_memory(r);
}

/* Makes the command run in the file's folder. NULL: the current folder. */
static bool find_folder(const reading *r, simulation *what)
{
    const char *slash = strrchr(r->file->path, '/');
    what->command.folder =
        slash != NULL ? strndup(r->file->path, (size_t)(slash - r->file->path) + 1) : NULL;
    return slash == NULL || what->command.folder != NULL || reading_no_memory(r);
}

/* Reads the lengths of responses. Resolves a file of lengths from the folder of the file of checks.
 */
static bool read_responses(const reading *r, const json_t *object, check_item *item)
{
    lengths_rule *rule = &item->responses;
    const char *named;
    char why[LENGTHS_WHY_BYTES];
    if (!reading_string(r, object, "response_lengths", &named) ||
        !reading_number(r, object, "response_seed", 0, UINT32_MAX, &item->simulated.response_seed))
        return false;
    if (named == NULL || strcmp(named, "max") == 0)
        return json_object_get(object, "response_seed") == NULL ||
               reading_refuse(r, "\"response_seed\": of which lengths? Add \"response_lengths\"");
    char *path = lengths_are_of_file(named) ? reading_path(r, named) : strdup(named);
    if (path == NULL)
        return reading_no_memory(r);
    rule->named = path;
    bool read = lengths_read(rule, why);
    rule->named = named;
    free(path);
    item->simulated.responses = rule->text;
    return read || reading_refuse(r, "\"response_lengths\": %s", why);
}

static bool read_kv_tokens(const reading *r, const json_t *object, uint64_t *tokens)
{
    const json_t *value = json_object_get(object, "kv_tokens");
    if (value == NULL)
        return true;
    *tokens = (uint64_t)json_integer_value(value);
    return (json_is_integer(value) && json_integer_value(value) > 0) ||
           reading_refuse(r, "\"kv_tokens\": expected a number of tokens, more than 0");
}

static bool read_command(const reading *r, const json_t *object, check_item *item)
{
    simulation *what = &item->simulated;
    what->gpus = 1;
    what->keep_bytes = RVLI_WIRE_KEEP_USUAL;
    return read_words(r, json_object_get(object, "command"), item) && find_folder(r, what) &&
           reading_number(r, object, "gpus", 1, RVL_MAX_DEVICES, &what->gpus) &&
           read_ranks(r, object, what) &&
           reading_size(r, object, "host_memory", 1, &what->host_bytes) &&
           reading_size(r, object, "keep_contents", 0, &what->keep_bytes) &&
           read_stages(r, object, &what->nvtx) && read_timeout(r, object, &item->timeout_s) &&
           read_responses(r, object, item) && read_kv_tokens(r, object, &item->kv_tokens);
}

/* ---- Subjects ---- */

/* Refuses keys that have no effect on this kind of check. */
static bool check_idle(const reading *r, const json_t *object, bool has_command)
{
    static const char *const of_commands[] = {"gpus",          "rank",          "world",
                                              "host_memory",   "keep_contents", "stages",
                                              "stages_nvtx",   "timeout",       "response_lengths",
                                              "response_seed", "kv_tokens",     NULL};
    static const char *const of_others[] = {"wake", "conductor", NULL};
    for (const char *const *key = has_command ? of_others : of_commands; *key != NULL; key++) {
        if (json_object_get(object, *key) != NULL)
            return reading_refuse(r, "\"%s\" is for %s: leave it out", *key,
                                  has_command ? "traces and models, and this check has a command"
                                              : "commands, and this check has none");
    }
    return true;
}

static bool read_subject(const reading *r, const json_t *object, check_item *item)
{
    const char *model, **paths = NULL;
    const json_t *trace = json_object_get(object, "trace");
    bool has_command = json_object_get(object, "command") != NULL;
    if (!reading_string(r, object, "model", &model))
        return false;
    if ((trace != NULL) + (model != NULL) + has_command != 1)
        return reading_refuse(r, "expected \"trace\", \"model\" or \"command\", and one of them");
    if (!check_idle(r, object, has_command))
        return false;
    if (has_command)
        return read_command(r, object, item);
    if (model != NULL) {
        item->model = reading_path(r, model);
        return item->model != NULL || reading_no_memory(r);
    }
    bool read = reading_list(r, trace, "trace", &paths, &item->trace_count);
    size_t count = item->trace_count;
    item->trace_count = 0;
    item->traces = read ? calloc(count, sizeof *item->traces) : NULL;
    for (size_t i = 0; item->traces != NULL && i < count; i++) {
        item->traces[i] = reading_path(r, paths[i]);
        if (item->traces[i] == NULL)
            break;
        item->trace_count++;
    }
    free(paths);
    return read && (item->trace_count == count || reading_no_memory(r));
}

static bool read_wake(const reading *r, const json_t *object, check_item *item)
{
    const char *wake;
    if (!reading_string(r, object, "wake", &wake))
        return false;
    item->wake = RVL_WAKE_STAGED;
    return wake == NULL || options_wake(wake, &item->wake) ||
           reading_refuse(r, "\"wake\": expected \"staged\" or \"together\"");
}

static bool read_item(reading *r, const json_t *object, check_item *item)
{
    static const char *const keys[] = {"name",
                                       "trace",
                                       "model",
                                       "settings",
                                       "devices",
                                       "wake",
                                       "budgets",
                                       "tolerance_percent",
                                       "conductor",
                                       "command",
                                       "gpus",
                                       "rank",
                                       "world",
                                       "host_memory",
                                       "keep_contents",
                                       "stages",
                                       "stages_nvtx",
                                       "timeout",
                                       "headroom",
                                       "no_refusals",
                                       "response_lengths",
                                       "response_seed",
                                       "kv_tokens",
                                       NULL};
    r->check = NULL;
    if (!json_is_object(object))
        return reading_refuse(r, "\"checks\": expected a list of objects");
    r->check = json_string_value(json_object_get(object, "name"));
    bool known = reading_keys(r, object, "a check", keys);
    r->check = NULL;
    if (!known || !reading_string(r, object, "name", &item->name) ||
        (item->name == NULL && !reading_refuse(r, "a check without a \"name\"")))
        return false;
    for (const check_item *other = r->file->items; other < item; other++) {
        if (strcmp(other->name, item->name) == 0)
            return reading_refuse(r, "two checks of the name %s: a baseline tells them by it",
                                  item->name);
    }
    r->check = item->name;
    item->tolerance_percent = r->tolerance_percent;
    item->headroom = r->headroom;
    item->no_refusals = r->no_refusals;
    return read_subject(r, object, item) && read_wake(r, object, item) &&
           read_settings(r, object, item) && read_devices(r, object, item) &&
           read_budgets(r, object, item) &&
           reading_string(r, object, "conductor", &item->conductor) &&
           reading_tolerance(r, object, &item->tolerance_percent) &&
           reading_headroom(r, object, &item->headroom) &&
           reading_flag(r, object, "no_refusals", &item->no_refusals);
}

/* ---- File ---- */

static bool read_root(reading *r)
{
    static const char *const keys[] = {
        "schema", "baseline", "tolerance_percent", "checks", "headroom", "no_refusals", NULL};
    check_file *file = r->file;
    const char *baseline;
    const json_t *checks = json_object_get(file->root, "checks");
    if (!json_is_object(file->root))
        return reading_refuse(r, "expected an object");
    if (!reading_keys(r, file->root, "the file", keys))
        return false;
    if (json_integer_value(json_object_get(file->root, "schema")) != 1)
        return reading_refuse(r, "\"schema\": expected 1");
    if (!reading_tolerance(r, file->root, &r->tolerance_percent) ||
        !reading_headroom(r, file->root, &r->headroom) ||
        !reading_flag(r, file->root, "no_refusals", &r->no_refusals) ||
        !reading_string(r, file->root, "baseline", &baseline))
        return false;
    file->baseline = baseline != NULL ? reading_path(r, baseline) : NULL;
    if (baseline != NULL && file->baseline == NULL)
        return reading_no_memory(r);
    if (!json_is_array(checks) || json_array_size(checks) == 0)
        return reading_refuse(r, "\"checks\": expected a list of at least one");
    file->items = calloc(json_array_size(checks), sizeof *file->items);
    if (file->items == NULL)
        return reading_no_memory(r);
    for (size_t i = 0; i < json_array_size(checks); i++) {
        file->item_count++;
        if (!read_item(r, json_array_get(checks, i), &file->items[i]))
            return false;
    }
    return true;
}

static bool ends_with(const char *path, const char *end)
{
    size_t length = strlen(path), tail = strlen(end);
    return length >= tail && strcmp(path + length - tail, end) == 0;
}

static json_t *load(const char *path, json_error_t *error, json_t **places_out)
{
    struct stat found;
    if (stat(path, &found) == 0 && S_ISDIR(found.st_mode)) { /* jansson would report bad JSON */
        *error = (json_error_t){.text = "this is a folder: name the file of checks in it"};
        return NULL;
    }
    if (!ends_with(path, ".toml"))
        return json_load_file(path, JSON_REJECT_DUPLICATES, error);
#ifdef RVL_HAVE_TOML
    return check_toml_load(path, error, places_out);
#else
    (void)places_out;
    *error = (json_error_t){.text = "this build reads no TOML: write JSON, or build reveille with "
                                    "a C++ compiler and toml++ (Debian: libtomlplusplus-dev)"};
    return NULL;
#endif
}

int check_read(const char *path, check_file *file_out)
{
    check_file file = {.path = path};
    json_error_t error;
    reading r = {.file = &file, .tolerance_percent = TOLERANCE_DEFAULT_PERCENT};
    file.root = load(path, &error, &r.places);
    if (file.root == NULL && error.line > 0)
        return complain(EXIT_BAD_INPUT, "%s:%d:%d: %s", path, error.line, error.column, error.text);
    if (file.root == NULL)
        return complain(EXIT_BAD_INPUT, "%s: %s", path, error.text);
    bool read = read_root(&r);
    json_decref(r.places);
    if (!read) {
        check_file_free(&file);
        return EXIT_BAD_INPUT;
    }
    *file_out = file;
    return 0;
}

static void free_item(check_item *item)
{
    for (size_t i = 0; i < item->trace_count; i++)
        free(item->traces[i]);
    free(item->traces);
    free(item->model);
    free(item->words);
    free(item->program);
    free((char *)(uintptr_t)item->simulated.command.folder);
    free(item->given);
    free(item->devices);
    free(item->budgets);
}

void check_file_free(check_file *file)
{
    for (size_t i = 0; i < file->item_count; i++)
        free_item(&file->items[i]);
    free(file->items);
    free(file->baseline);
    json_decref(file->root);
    *file = (check_file){0};
}
