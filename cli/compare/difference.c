/* SPDX-License-Identifier: MIT */
/* Compares two results: matches stages by device and name, and finds the holders and lines that
 * changed. */
#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "compare/compare.h"

#define KEY_BYTES 1024

/* ---- Names ---- */

static const char *text_at(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text != NULL ? text : "";
}

static int64_t bytes_at(const json_t *object, const char *key)
{
    return (int64_t)json_integer_value(json_object_get(object, key));
}

/* Stores the name that a stage was marked with: "train" for "train#2". */
static void name_of_stage(const json_t *stage, char name[KEY_BYTES])
{
    const char *mark = text_at(stage, "mark");
    snprintf(name, KEY_BYTES, "%s", mark[0] != '\0' ? mark : text_at(stage, "name"));
    char *hash = strrchr(name, '#');
    if (mark[0] == '\0' && hash != NULL && hash != name && hash[1] != '\0' &&
        hash[1 + strspn(hash + 1, "0123456789")] == '\0')
        *hash = '\0';
}

/* Stores a holder's name: "python/cudaMalloc" for process python[4711], or "activations of
 * LlamaMLP" in a snapshot. */
static void name_of_holder(const json_t *holder, char name[KEY_BYTES])
{
    const char *process = text_at(holder, "process"), *tag = text_at(holder, "tag");
    const char *module = text_at(holder, "module");
    const char *bracket = strrchr(process, '[');
    int length = (int)strlen(process);
    if (bracket != NULL && bracket != process && isdigit((unsigned char)bracket[1]) &&
        strcmp(bracket + 1 + strspn(bracket + 1, "0123456789"), "]") == 0)
        length = (int)(bracket - process);
    if (json_object_get(holder, "process") != NULL)
        snprintf(name, KEY_BYTES, "%.*s/%s", length, process, tag[0] != '\0' ? tag : "untagged");
    else
        snprintf(name, KEY_BYTES, "%s%s%s", tag, module[0] != '\0' ? " of " : "", module);
}

/* Stores a line's name, as "forward (gpt.py:23)". */
static void name_of_line(const json_t *line, char name[KEY_BYTES])
{
    const char *function = text_at(line, "name"), *file = text_at(line, "file");
    const char *slash = strrchr(file, '/');
    if (file[0] == '\0')
        snprintf(name, KEY_BYTES, "%s", function);
    else
        snprintf(name, KEY_BYTES, "%s (%s:%" JSON_INTEGER_FORMAT ")", function,
                 slash != NULL ? slash + 1 : file,
                 json_integer_value(json_object_get(line, "line")));
}

/* ---- Rows ---- */

typedef struct maker {
    comparison *made;
    json_t *places; /* maps "device stage" to the index of its row */
} maker;

static compare_row *find_row(maker *m, int device, const char *stage)
{
    char key[KEY_BYTES + 16];
    snprintf(key, sizeof key, "%d %s", device, stage);
    const json_t *place = json_object_get(m->places, key);
    if (place != NULL)
        return &m->made->rows[json_integer_value(place)];
    comparison *made = m->made;
    compare_row *grown = realloc(made->rows, (made->count + 1) * sizeof *grown);
    if (grown == NULL)
        return NULL;
    made->rows = grown;
    grown[made->count] = (compare_row){.device = device, .stage = strdup(stage)};
    if (grown[made->count].stage == NULL ||
        json_object_set_new(m->places, key, json_integer((json_int_t)made->count)) != 0) {
        free(grown[made->count].stage);
        return NULL;
    }
    return &grown[made->count++];
}

static bool add_stage(maker *m, int side, int device, json_t *stage)
{
    char name[KEY_BYTES];
    name_of_stage(stage, name);
    compare_row *row = find_row(m, device, name);
    if (row == NULL)
        return false;
    bool reserved = json_object_get(stage, "peak_reserved_bytes") != NULL;
    uint64_t peak_bytes =
        (uint64_t)bytes_at(stage, reserved ? "peak_reserved_bytes" : "peak_bytes");
    const json_t *merged = json_object_get(stage, "merged");
    if (!row->has[side] || peak_bytes > row->peak_bytes[side]) {
        row->peak_bytes[side] = peak_bytes;
        row->stages[side] = stage;
    }
    row->has[side] = true;
    row->count[side] += merged != NULL ? (uint64_t)json_integer_value(merged) : 1;
    return true;
}

static bool add_stages(maker *m, int side, int device, const json_t *stages)
{
    for (size_t i = 0; i < json_array_size(stages); i++)
        if (!add_stage(m, side, device, json_array_get(stages, i)))
            return false;
    return true;
}

/* Adds the stages of a run. A snapshot has one device, and its stages are directly below the root.
 */
static bool add_run(maker *m, int side)
{
    const json_t *root = m->made->runs[side], *devices = json_object_get(root, "devices");
    bool ok = add_stages(m, side, 0, json_object_get(root, "stages"));
    for (size_t i = 0; ok && i < json_array_size(devices); i++) {
        const json_t *device = json_array_get(devices, i);
        ok = add_stages(m, side, (int)json_integer_value(json_object_get(device, "device")),
                        json_object_get(device, "stages"));
    }
    return ok;
}

/* ---- Parts ---- */

typedef void (*name_fn)(const json_t *part, char name[KEY_BYTES]);

static bool add_part(compare_parts *parts, int side, const char *name, int64_t bytes)
{
    size_t i = 0;
    while (i < parts->count && strcmp(parts->list[i].name, name) != 0)
        i++;
    if (i == parts->count) {
        compare_part *grown = realloc(parts->list, (i + 1) * sizeof *grown);
        char *copy = strdup(name);
        if (grown != NULL)
            parts->list = grown;
        if (grown == NULL || copy == NULL) {
            free(copy);
            return false;
        }
        grown[parts->count++] = (compare_part){.name = copy};
    }
    parts->list[i].bytes[side] += bytes;
    return true;
}

static bool add_parts(compare_parts *parts, int side, const json_t *list, name_fn name_of)
{
    char name[KEY_BYTES];
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *part = json_array_get(list, i);
        name_of(part, name);
        if (name[0] != '\0' && !add_part(parts, side, name, bytes_at(part, "bytes")))
            return false;
    }
    return true;
}

static uint64_t size_of(int64_t bytes)
{
    return bytes < 0 ? (uint64_t)0 - (uint64_t)bytes : (uint64_t)bytes;
}

static int64_t change_of(const compare_part *part)
{
    return part->bytes[COMPARE_B] - part->bytes[COMPARE_A];
}

static int by_change(const void *left, const void *right)
{
    uint64_t a = size_of(change_of(left)), b = size_of(change_of(right));
    if (a != b)
        return a > b ? -1 : 1;
    return strcmp(((const compare_part *)left)->name, ((const compare_part *)right)->name);
}

/* Returns the length of "forward (gpt.py" in "forward (gpt.py:23)"; 0: it has no line number. */
static size_t function_length(const char *name)
{
    const char *colon = strrchr(name, ':');
    return colon != NULL ? (size_t)(colon - name) : 0;
}

/* Whether a line that only A has may be one that only B has: both are in the same function. */
static bool has_moved(const compare_part *before, const compare_part *after)
{
    size_t length = function_length(before->name);
    return before->bytes[COMPARE_B] == 0 && after->bytes[COMPARE_A] == 0 && length > 0 &&
           length == function_length(after->name) &&
           strncmp(before->name, after->name, length) == 0;
}

/* Joins lines that have another number only because lines above them were added or removed. */
static void join_moved(compare_parts *lines)
{
    for (size_t i = 0; i < lines->count; i++) {
        for (size_t k = 0; k < lines->count; k++) {
            compare_part *before = &lines->list[i], *after = &lines->list[k];
            if (i == k || !has_moved(before, after))
                continue;
            after->bytes[COMPARE_A] = before->bytes[COMPARE_A];
            before->bytes[COMPARE_A] = 0;
            break;
        }
    }
}

/* Returns the entry of "holders" for a stage, which tells what memory was for. NULL: none. */
static const json_t *told_of(const json_t *root, int device, const json_t *stage)
{
    const json_t *list = json_object_get(root, "holders");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *each = json_array_get(list, i);
        if (json_integer_value(json_object_get(each, "device")) == device &&
            strcmp(text_at(each, "stage"), text_at(stage, "name")) == 0)
            return each;
    }
    return NULL;
}

static bool fill_row(const comparison *made, compare_row *row)
{
    const json_t *told[COMPARE_SIDES];
    bool ok = true;
    for (int side = 0; side < COMPARE_SIDES; side++)
        told[side] = told_of(made->runs[side], row->device, row->stages[side]);
    bool both = told[COMPARE_A] != NULL && told[COMPARE_B] != NULL;
    for (int side = 0; ok && side < COMPARE_SIDES; side++) {
        const json_t *stage = row->stages[side];
        const json_t *holders = both ? told[side] : stage;
        const json_t *lines = told[side] != NULL ? told[side] : stage;
        ok = add_parts(&row->holders, side, json_object_get(holders, "at_peak"), name_of_holder) &&
             add_parts(&row->lines, side, json_object_get(lines, "lines"), name_of_line);
    }
    join_moved(&row->lines);
    if (row->holders.count > 0)
        qsort(row->holders.list, row->holders.count, sizeof *row->holders.list, by_change);
    if (row->lines.count > 0)
        qsort(row->lines.list, row->lines.count, sizeof *row->lines.list, by_change);
    return ok;
}

/* ---- Comparison ---- */

int compare_make(const char *const names[COMPARE_SIDES], json_t *const runs[COMPARE_SIDES],
                 comparison *made_out)
{
    maker m = {.made = made_out, .places = json_object()};
    bool ok = m.places != NULL;
    *made_out = (comparison){0};
    for (int side = 0; side < COMPARE_SIDES; side++) {
        const char *verdict = text_at(json_object_get(runs[side], "verdict"), "text");
        made_out->names[side] = names[side];
        made_out->runs[side] = runs[side];
        made_out->verdicts[side] = verdict[0] != '\0' ? strdup(verdict) : NULL;
    }
    for (int side = 0; ok && side < COMPARE_SIDES; side++)
        ok = add_run(&m, side);
    for (size_t i = 0; ok && i < made_out->count; i++) {
        compare_row *row = &made_out->rows[i];
        if (row->has[COMPARE_A] && row->has[COMPARE_B])
            ok = fill_row(made_out, row);
    }
    json_decref(m.places);
    return ok ? 0 : complain(EXIT_INTERNAL, "out of host memory");
}

static void free_parts(compare_parts *parts)
{
    for (size_t i = 0; i < parts->count; i++)
        free(parts->list[i].name);
    free(parts->list);
}

void compare_free(comparison *made)
{
    for (size_t i = 0; i < made->count; i++) {
        free(made->rows[i].stage);
        free_parts(&made->rows[i].holders);
        free_parts(&made->rows[i].lines);
    }
    free(made->rows);
    for (int side = 0; side < COMPARE_SIDES; side++) {
        json_decref(made->runs[side]);
        free(made->verdicts[side]);
    }
    *made = (comparison){0};
}

int64_t compare_change(const compare_row *row)
{
    return (int64_t)(row->peak_bytes[COMPARE_B] - row->peak_bytes[COMPARE_A]);
}

double compare_percent(const compare_row *row)
{
    bool both = row->has[COMPARE_A] && row->has[COMPARE_B] && row->peak_bytes[COMPARE_A] > 0;
    return both ? (double)compare_change(row) / (double)row->peak_bytes[COMPARE_A] * 100 : 0;
}

bool compare_has_changed(const compare_row *row)
{
    return row->has[COMPARE_A] != row->has[COMPARE_B] || compare_change(row) != 0;
}

const compare_row *compare_most(const comparison *made)
{
    const compare_row *grown = NULL, *shrunk = NULL;
    for (size_t i = 0; i < made->count; i++) {
        const compare_row *row = &made->rows[i];
        int64_t change = compare_change(row);
        if (!row->has[COMPARE_A] || !row->has[COMPARE_B])
            continue;
        if (change > 0 && (grown == NULL || change > compare_change(grown)))
            grown = row;
        if (change < 0 && (shrunk == NULL || change < compare_change(shrunk)))
            shrunk = row;
    }
    return grown != NULL ? grown : shrunk;
}
