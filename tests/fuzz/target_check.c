/* SPDX-License-Identifier: MIT */
/*
 * The reader of checks: TOML, or JSON where the input begins with a brace. A file that it accepts
 * lists checks that are whole; one that it refuses is refused with one line, which names the file.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "check/check.h"
#include "fuzz.h"

#define TOML_PATH "folder/fuzz.toml" /* what it names lies in the folder */
#define JSON_PATH "fuzz.json"
#define WRAP __attribute__((visibility("default")))

/* ---- The file and the complaint, without a disk and a terminal ---- */

static struct {
    const uint8_t *data;
    size_t size;
    unsigned complaints;
} now;

FILE *__real_fopen(const char *path, const char *mode);
WRAP FILE *__wrap_fopen(const char *path, const char *mode);
WRAP json_t *__wrap_json_load_file(const char *path, size_t flags, json_error_t *error);
WRAP int __wrap_complain(int status, const char *format, ...);

FILE *__wrap_fopen(const char *path, const char *mode)
{
    static uint8_t nothing[1];
    if (strcmp(path, TOML_PATH) != 0)
        return __real_fopen(path, mode);
    void *bytes = now.size > 0 ? (void *)(uintptr_t)now.data : nothing;
    return fmemopen(bytes, now.size, "rb");
}

json_t *__wrap_json_load_file(const char *path, size_t flags, json_error_t *error)
{
    require(strcmp(path, JSON_PATH) == 0);
    return json_loadb((const char *)now.data, now.size, flags, error);
}

int __wrap_complain(int status, const char *format, ...)
{
    char text[1024] = "";
    va_list arguments;
    va_start(arguments, format);
    require(vsnprintf(text, sizeof text, format, arguments) > 0);
    va_end(arguments);
    require(status == EXIT_BAD_INPUT);
    require(strncmp(text, TOML_PATH ":", sizeof TOML_PATH) == 0 ||
            strncmp(text, JSON_PATH ":", sizeof JSON_PATH) == 0);
    now.complaints++;
    return status;
}

/* ---- What is read ---- */

/* What the run of a command relies on. */
static void check_command_is_whole(const check_item *item)
{
    const simulation *what = &item->simulated;
    require(item->words[0] != NULL && *item->words[0] != '\0');
    require(item->program != NULL && *item->program != '\0');
    require(what->gpus >= 1 && what->gpus <= RVL_MAX_DEVICES);
    require(what->world <= SIMULATE_RANKS_MAX);
    require(what->world > 0 ? what->rank < what->world : what->rank == 0);
    require(what->host_bytes <= INT64_MAX && what->keep_bytes <= INT64_MAX);
    require(what->nvtx == NULL || *what->nvtx != '\0');
    require(item->timeout_s >= 0);
    require(item->conductor == NULL && item->options.given_count == 0);
}

static void check_item_is_whole(const check_file *file, const check_item *item)
{
    require(item->name != NULL && *item->name != '\0');
    require((item->model != NULL) + (item->trace_count > 0) + (item->words != NULL) == 1);
    require(item->device_count > 0);
    for (size_t i = 0; i < item->device_count; i++)
        require(item->devices[i] != NULL || item->words == NULL);
    if (item->words != NULL)
        check_command_is_whole(item);
    require(item->tolerance_percent >= 0 && item->tolerance_percent <= 100);
    for (size_t i = 0; i < item->budget_count; i++)
        require(item->budgets[i].bytes > 0 && item->budgets[i].bytes <= INT64_MAX);
    for (size_t i = 0; i < item->options.given_count; i++)
        require((unsigned)item->given[i].term < RVL_MODEL_TERM_COUNT);
    for (const check_item *other = file->items; other < item; other++)
        require(strcmp(other->name, item->name) != 0);
}

bool fuzz_run(const uint8_t *data, size_t size)
{
    check_file file = {0};
    now.data = data;
    now.size = size;
    now.complaints = 0;
    const char *path = size > 0 && data[0] == '{' ? JSON_PATH : TOML_PATH;
    int status = check_read(path, &file);
    require(status == 0 || status == EXIT_BAD_INPUT);
    require(now.complaints == (status == 0 ? 0 : 1));
    if (status != 0)
        return false;
    require(file.item_count > 0);
    for (size_t i = 0; i < file.item_count; i++)
        check_item_is_whole(&file, &file.items[i]);
    check_file_free(&file);
    return true;
}
