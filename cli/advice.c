/* SPDX-License-Identifier: MIT */
/*
 * Takes the history file with the largest peak and replays it unchanged, then once for each setting
 * of the allocator, and once for each of the first CALLS_MOST lines that hold activations at that
 * peak through their calls.
 */
#include "advice.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "command.h"
#include "history.h"
#include "holders.h"
#include "reveille/snapshot.h"

#define VARIABLE "PYTORCH_CUDA_ALLOC_CONF=" /* ready to paste into a shell */
#define NO_STAGES "\n" /* no annotation starts with this, so the recording is one stage */
#define CALLS_MOST 32u /* lines to try */
#define SHOWN_MOST 5u  /* changes to print: their savings do not add up */

/* The settings to try, one at a time. docs/run.md gives the reasons for the choice. */
static const char *const settings[] = {"expandable_segments=True", "roundup_power2_divisions=8",
                                       "max_split_size_mb=128", "max_split_size_mb=512"};

/* ---- Replays ---- */

typedef struct attempt {
    const char *path;
    uint32_t device;
    uint64_t flags;
} attempt;

/* Replays once. false: the replay failed; *ok_out is then false if host memory ran out. */
static bool replay(const attempt *with, const char *setting, const char *recompute,
                   rvl_snapshot **snapshot_out, bool *ok_out)
{
    const rvl_snapshot_options options = {.struct_size = sizeof options,
                                          .flags = with->flags,
                                          .stage_prefix = NO_STAGES,
                                          .settings = &setting,
                                          .setting_count = setting != NULL ? 1 : 0,
                                          .device = with->device + 1,
                                          .recompute = recompute};
    rvl_status status = rvl_snapshot_run(with->path, &options, snapshot_out);
    *ok_out = *ok_out && status != RVL_ERR_HOST_OOM;
    return status == RVL_OK;
}

static uint64_t peak_of(const rvl_snapshot *snapshot, rvl_snapshot_facts *facts_out)
{
    rvl_snapshot_stage stage = {.struct_size = sizeof stage};
    (void)rvl_snapshot_get_facts(snapshot, facts_out);
    return rvl_snapshot_get_stage(snapshot, 0, &stage) == RVL_OK ? stage.peak_reserved_bytes : 0;
}

/* ---- Which file ---- */

typedef struct choice {
    char *path;
    char *process;
    uint32_t device;
    uint64_t reserved;
} choice;

static bool weigh(choice *best, const char *path, const char *process, bool *ok)
{
    bool any = false;
    for (uint32_t device = 0; *ok && device < RVL_MAX_DEVICES; device++) {
        rvl_snapshot *snapshot = NULL;
        rvl_snapshot_facts facts = {.struct_size = sizeof facts};
        if (!replay(&(attempt){path, device, 0}, NULL, NULL, &snapshot, ok))
            break;
        uint64_t reserved = peak_of(snapshot, &facts);
        rvl_snapshot_close(snapshot);
        if (facts.event_count == 0 || reserved <= best->reserved)
            continue;
        free(best->path);
        free(best->process);
        *best = (choice){strdup(path), strdup(process), device, reserved};
        *ok = best->path != NULL && best->process != NULL;
        any = true;
    }
    return any;
}

typedef struct choosing {
    choice *best;
    bool ok;
} choosing;

static bool weigh_file(void *user, const char *path, const char *process)
{
    choosing *in = user;
    (void)weigh(in->best, path, process, &in->ok);
    return in->ok;
}

/* ---- Changes ---- */

static bool keep(advice *to, char *text, uint64_t reserved, bool fits)
{
    bool saves = reserved < to->reserved_bytes;
    advice_change **list = saves ? &to->saving : &to->useless;
    size_t *count = saves ? &to->saving_count : &to->useless_count;
    advice_change *grown = text != NULL ? realloc(*list, (*count + 1) * sizeof *grown) : NULL;
    if (grown == NULL) {
        free(text);
        return false;
    }
    *list = grown;
    grown[(*count)++] = (advice_change){text, reserved, fits};
    return true;
}

static bool try_change(advice *to, const attempt *with, const char *setting, const char *recompute,
                       char *text)
{
    rvl_snapshot *snapshot = NULL;
    rvl_snapshot_facts facts = {.struct_size = sizeof facts};
    bool ok = text != NULL;
    if (!ok || !replay(with, setting, recompute, &snapshot, &ok)) {
        free(text);
        return ok;
    }
    uint64_t reserved = peak_of(snapshot, &facts);
    rvl_snapshot_close(snapshot);
    if (setting != NULL || reserved < to->reserved_bytes)
        return keep(to, text, reserved, facts.oom_count == 0);
    free(text); /* most lines save nothing */
    return true;
}

static bool try_settings(advice *to, const attempt *with)
{
    bool ok = true;
    for (size_t i = 0; ok && i < sizeof settings / sizeof *settings; i++) {
        char *text = NULL;
        if (asprintf(&text, VARIABLE "%s", settings[i]) < 0)
            return false;
        *strrchr(text, '=') = ':';
        ok = try_change(to, with, settings[i], NULL, text);
    }
    return ok;
}

static bool try_calls(advice *to, const attempt *with, const rvl_snapshot *as_it_was)
{
    rvl_snapshot_line call = {.struct_size = sizeof call};
    bool ok = true;
    for (uint32_t i = 0;
         ok && i < CALLS_MOST && rvl_snapshot_get_call(as_it_was, 0, i, &call) == RVL_OK; i++) {
        char *place = holders_place(&call), *line = NULL, *text = NULL;
        ok = place != NULL && asprintf(&line, "%s:%" PRIu32, call.file, call.line) >= 0 &&
             asprintf(&text, "gradient checkpointing of %s", place) >= 0;
        if (ok)
            ok = try_change(to, with, NULL, line, text);
        free(place);
        free(line);
    }
    return ok;
}

static int by_saving(const void *a, const void *b)
{
    const advice_change *left = a, *right = b;
    if (left->reserved_bytes != right->reserved_bytes)
        return left->reserved_bytes < right->reserved_bytes ? -1 : 1;
    return strcmp(left->text, right->text);
}

/* ---- Search ---- */

static bool find_changes(advice *to, const choice *best, bool refused)
{
    attempt with = {best->path, best->device,
                    RVL_SNAPSHOT_HOLDERS | (refused ? RVL_SNAPSHOT_MEET_REFUSED : 0u)};
    rvl_snapshot *as_it_was = NULL;
    rvl_snapshot_facts facts = {.struct_size = sizeof facts};
    bool ok = true;
    if (!replay(&with, NULL, NULL, &as_it_was, &ok))
        return ok;
    to->reserved_bytes = peak_of(as_it_was, &facts);
    to->room_bytes = refused ? facts.capacity_bytes : 0;
    to->ends_early = refused;
    with.flags &= ~(uint64_t)RVL_SNAPSHOT_HOLDERS;
    ok = try_settings(to, &with) && try_calls(to, &with, as_it_was);
    rvl_snapshot_close(as_it_was);
    if (to->saving_count > 0)
        qsort(to->saving, to->saving_count, sizeof *to->saving, by_saving);
    return ok;
}

bool advice_find(const char *folder, bool refused, advice *advice_out)
{
    choice best = {0};
    choosing in = {&best, true};
    *advice_out = (advice){0};
    bool ok = history_each_file(folder, weigh_file, &in) && in.ok;
    if (ok && best.path != NULL) {
        advice_out->process = best.process;
        advice_out->device = best.device;
        best.process = NULL;
        ok = find_changes(advice_out, &best, refused);
    }
    free(best.path);
    free(best.process);
    if (!ok)
        advice_clear(advice_out);
    return ok;
}

static void clear_changes(advice_change *list, size_t count)
{
    for (size_t i = 0; i < count; i++)
        free(list[i].text);
    free(list);
}

void advice_clear(advice *of)
{
    clear_changes(of->saving, of->saving_count);
    clear_changes(of->useless, of->useless_count);
    free(of->process);
    *of = (advice){0};
}

/* ---- For people ---- */

static bool print_saving(const advice *of)
{
    static const char *const titles[] = {"saves", "reserved then", "the request", "by"};
    static const bool right[] = {true, true, false, false};
    char saved[SIZE_TEXT_BYTES], then[SIZE_TEXT_BYTES];
    table *rows = table_new(titles, right, sizeof titles / sizeof *titles);
    for (size_t i = 0; rows != NULL && i < of->saving_count && i < SHOWN_MOST; i++) {
        const advice_change *change = &of->saving[i];
        const char *cells[] = {format_size(of->reserved_bytes - change->reserved_bytes, saved),
                               format_size(change->reserved_bytes, then),
                               of->room_bytes == 0 ? ""
                               : change->fits      ? "has room"
                                                   : "no room",
                               change->text};
        table_add(rows, cells);
    }
    bool ok = rows != NULL && table_print(rows, "    ");
    table_free(rows);
    return ok;
}

/* Prints settings only: useless lines are not kept. */
static void print_useless(const advice *of)
{
    unsigned shown = 0;
    for (size_t i = 0; i < of->useless_count && shown < SHOWN_MOST; i++)
        say("%s%s", shown++ == 0 ? "    saves nothing: " VARIABLE : ", ",
            of->useless[i].text + strlen(VARIABLE));
    if (shown > 0)
        printf("\n");
}

bool advice_print(const advice *of)
{
    char peak[SIZE_TEXT_BYTES], room[SIZE_TEXT_BYTES];
    if (of->process == NULL)
        return true;
    (void)say("what would change, from PyTorch's history of %s on device %" PRIu32
              ", each replayed alone:\n",
              of->process, of->device);
    printf("    as it is: %s reserved", format_size(of->reserved_bytes, peak));
    if (of->room_bytes > 0)
        printf(" with the request that was refused, where the device had %s for it; what follows "
               "is not known",
               format_size(of->room_bytes, room));
    printf("\n");
    if (of->saving_count > 0 && !print_saving(of))
        return false;
    print_useless(of);
    return true;
}

/* ---- For programs ---- */

static json_t *changes_to_json(const advice *of, const advice_change *list, size_t count)
{
    json_t *array = json_array();
    for (size_t i = 0; array != NULL && i < count; i++) {
        uint64_t reserved = list[i].reserved_bytes;
        char *text = shown(RVLI_SHOWN_PLAIN, list[i].text);
        json_t *change = text != NULL
                             ? json_pack("{s:s, s:I, s:I}", "change", text, "reserved_bytes",
                                         (json_int_t)reserved, "saved_bytes",
                                         (json_int_t)of->reserved_bytes - (json_int_t)reserved)
                             : NULL;
        free(text);
        if (change != NULL && of->room_bytes > 0 &&
            json_object_set_new(change, "has_room", json_boolean(list[i].fits)) != 0) {
            json_decref(change);
            change = NULL;
        }
        if (json_array_append_new(array, change) != 0) {
            json_decref(array);
            return NULL;
        }
    }
    return array;
}

bool advice_write_json(FILE *out, const advice *of)
{
    if (of->process == NULL)
        return true;
    char *process = shown(RVLI_SHOWN_PLAIN, of->process);
    json_t *all = process != NULL
                      ? json_pack("{s:s, s:i, s:I, s:o?, s:o?}", "process", process, "device",
                                  (int)of->device, "reserved_bytes", (json_int_t)of->reserved_bytes,
                                  "saving", changes_to_json(of, of->saving, of->saving_count),
                                  "useless", changes_to_json(of, of->useless, of->useless_count))
                      : NULL;
    free(process);
    char *text = all != NULL ? json_dumps(all, JSON_COMPACT) : NULL;
    if (text != NULL)
        fprintf(out, ",\"advice\":%s", text);
    free(text);
    json_decref(all);
    return text != NULL;
}
