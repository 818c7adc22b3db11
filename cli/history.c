/* SPDX-License-Identifier: MIT */
/*
 * Finds what the memory at the peaks of a simulated run was used for.
 *
 * The replay knows how much memory each process held on a device at the peak of a stage, and the
 * time of the stage by the machine's clock. The history files of the process
 * (simcuda/python/_reveille_history.py) tell what PyTorch held during that time. We take the
 * instant at which PyTorch had reserved as many bytes as the process held, or the next lower
 * amount. The rest of the process's memory belongs to libraries, or to holders that the machine
 * knows by name. For a process that was killed, the time after its last file is unknown, and so is
 * the memory of libraries.
 */
#include "history.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "command.h"
#include "holders.h"
#include "predict/snapshot/json.h"

#define STAGES_MOST 64u  /* names of stages to search on a device */
#define PRINTED_MOST 12u /* names of stages to print */
#define LINES_JSON 20u

/* ---- Shares ---- */

/* One process at the peak of one stage on one device. */
typedef struct share {
    size_t device;
    uint32_t stage;
    const char *process; /* as the replay names it */
    uint64_t bytes;      /* segments that PyTorch may have reserved */
    rvl_snapshot_window window;
    const rvl_snapshot *best; /* NULL: no file covers the window */
    uint32_t best_stage;
    uint64_t best_reserved, best_allocated;
    bool whole; /* its files reach the end of the process */
} share;

typedef struct search {
    const rvl_replay *replay;
    share *shares;
    size_t share_count;
    rvl_snapshot **opened;
    size_t opened_count;
    const rvli_times *times;
} search;

/* Whether the holder's tag is a source of segments for PyTorch's allocator. */
static bool is_of_allocator(const rvl_holder *holder)
{
    return holder->process != NULL && holder->tag != NULL &&
           (strcmp(holder->tag, "cudaMalloc") == 0 || strcmp(holder->tag, "cuMemCreate") == 0);
}

static bool add_share(search *in, share what)
{
    for (size_t i = 0; i < in->share_count; i++) {
        share *known = &in->shares[i];
        if (known->device == what.device && known->stage == what.stage &&
            strcmp(known->process, what.process) == 0) {
            known->bytes += what.bytes;
            known->window.reserved_bytes = known->bytes;
            known->window.mapped_bytes += what.window.mapped_bytes;
            return true;
        }
    }
    share *shares = realloc(in->shares, (in->share_count + 1) * sizeof *shares);
    if (shares == NULL)
        return false;
    in->shares = shares;
    what.window.reserved_bytes = what.bytes;
    shares[in->share_count++] = what;
    return true;
}

static bool add_shares(search *in, size_t device, uint32_t stage)
{
    rvl_holder holders[RVL_REPLAY_LISTED_HOLDERS];
    rvl_replay_mark mark = {.struct_size = sizeof mark};
    rvl_stage_stats stats = {.struct_size = sizeof stats};
    size_t count = 0;
    bool ok = true;
    if (rvl_replay_get_mark(in->replay, device, stage, &mark) != RVL_OK ||
        rvl_replay_get_stage(in->replay, device, stage, &stats, NULL) != RVL_OK ||
        rvl_replay_get_holders(in->replay, device, stage, holders, sizeof *holders,
                               RVL_REPLAY_LISTED_HOLDERS, &count) != RVL_OK)
        return true;
    for (size_t i = 0; ok && i < count && i < RVL_REPLAY_LISTED_HOLDERS; i++) {
        if (is_of_allocator(&holders[i])) {
            bool mapped = strcmp(holders[i].tag, "cuMemCreate") == 0;
            ok = add_share(
                in, (share){.device = device,
                            .stage = stage,
                            .process = holders[i].process,
                            .bytes = holders[i].bytes,
                            .window = {.name = stats.mark,
                                       .begin_us = rvli_times_first(in->times, mark.begin_ns),
                                       .end_us = rvli_times_last(in->times, mark.end_ns),
                                       .mapped_bytes = mapped ? holders[i].bytes : 0}});
        }
    }
    return ok;
}

/* Finds for each stage name the instance with the largest peak. Returns the number of names. */
static uint32_t largest_stages(const rvl_replay *replay, size_t device, uint32_t found[STAGES_MOST])
{
    rvl_stage_stats stage = {.struct_size = sizeof stage}, other = stage;
    uint32_t count = 0;
    for (uint32_t i = 0; rvl_replay_get_stage(replay, device, i, &stage, NULL) == RVL_OK; i++) {
        uint32_t at = 0;
        for (; at < count; at++) {
            if (rvl_replay_get_stage(replay, device, found[at], &other, NULL) == RVL_OK &&
                strcmp(other.mark, stage.mark) == 0)
                break;
        }
        if (at == count && count < STAGES_MOST)
            found[count++] = i;
        else if (at < count && stage.peak_bytes > other.peak_bytes)
            found[at] = i;
    }
    return count;
}

/* ---- Files ---- */

/* Keeps this file's stages where their peak is larger than the best one so far. */
static void compare(search *in, const rvl_snapshot *snapshot, const size_t *asked, size_t count,
                    bool *used)
{
    for (size_t i = 0; i < count; i++) {
        rvl_snapshot_stage stage = {.struct_size = sizeof stage};
        rvl_snapshot_part part = {.struct_size = sizeof part};
        share *want = &in->shares[asked[i]];
        if (rvl_snapshot_get_part(snapshot, (uint32_t)i, 0, &part) != RVL_OK ||
            rvl_snapshot_get_stage(snapshot, (uint32_t)i, &stage) != RVL_OK)
            continue;
        if (want->best != NULL && (stage.peak_reserved_bytes < want->best_reserved ||
                                   (stage.peak_reserved_bytes == want->best_reserved &&
                                    stage.peak_allocated_bytes <= want->best_allocated)))
            continue;
        want->best = snapshot;
        want->best_stage = (uint32_t)i;
        want->best_reserved = stage.peak_reserved_bytes;
        want->best_allocated = stage.peak_allocated_bytes;
        *used = true;
    }
}

static bool keep_open(search *in, rvl_snapshot *snapshot)
{
    rvl_snapshot **opened = realloc(in->opened, (in->opened_count + 1) * sizeof(rvl_snapshot *));
    if (opened == NULL)
        return false;
    in->opened = opened;
    opened[in->opened_count++] = snapshot;
    return true;
}

/* Looks for the process's shares in one device of a history file. */
static bool ask_device(search *in, const char *path, uint32_t index, const size_t *asked,
                       const rvl_snapshot_window *windows, size_t count, bool *is_there)
{
    const uint64_t more = history_goes_on(path) ? RVL_SNAPSHOT_GOES_ON : 0;
    const rvl_snapshot_options options = {.struct_size = sizeof options,
                                          .flags = RVL_SNAPSHOT_HOLDERS | more,
                                          .device = index + 1,
                                          .windows = windows,
                                          .window_count = count,
                                          .window_size = sizeof *windows};
    rvl_snapshot *snapshot = NULL;
    rvl_status status = rvl_snapshot_run(path, &options, &snapshot);
    bool used = false;
    *is_there = status == RVL_OK || status == RVL_ERR_NOT_FOUND;
    if (status != RVL_OK)
        return status != RVL_ERR_HOST_OOM;
    compare(in, snapshot, asked, count, &used);
    if (used && keep_open(in, snapshot))
        return true;
    rvl_snapshot_close(snapshot);
    return !used;
}

static bool ask_file(void *user, const char *path, const char *process)
{
    search *in = user;
    size_t *asked = calloc(in->share_count + 1, sizeof *asked), count = 0;
    rvl_snapshot_window *windows = calloc(in->share_count + 1, sizeof *windows);
    bool ok = asked != NULL && windows != NULL, is_there = true, whole = history_is_whole(path);
    for (size_t i = 0; ok && i < in->share_count; i++) {
        if (strcmp(in->shares[i].process, process) != 0)
            continue;
        in->shares[i].whole = whole;
        windows[count] = in->shares[i].window;
        asked[count++] = i;
    }
    size_t devices = rvl_replay_device_count(in->replay);
    for (uint32_t i = 0; ok && is_there && count > 0 && i < devices; i++)
        ok = ask_device(in, path, i, asked, windows, count, &is_there);
    free(asked);
    free(windows);
    return ok;
}

static void end_search(search *in)
{
    for (size_t i = 0; i < in->opened_count; i++)
        rvl_snapshot_close(in->opened[i]);
    free(in->opened);
    free(in->shares);
    *in = (search){0};
}

static bool look(const history *of, const rvl_replay *replay, search *in)
{
    bool ok = true;
    *in = (search){.replay = replay, .times = &of->times};
    if (of->folder[0] == '\0' || of->times.count == 0)
        return true;
    for (size_t device = 0; device < rvl_replay_device_count(replay); device++) {
        uint32_t stages[STAGES_MOST];
        uint32_t count = largest_stages(replay, device, stages);
        for (uint32_t i = 0; ok && i < count; i++)
            ok = add_shares(in, device, stages[i]);
    }
    return ok && history_each_file(of->folder, ask_file, in);
}

/* ---- A peak as a whole ---- */

static share *share_of(const search *in, size_t device, uint32_t stage, const char *process)
{
    for (size_t i = 0; i < in->share_count; i++) {
        share *each = &in->shares[i];
        if (each->device == device && each->stage == stage && strcmp(each->process, process) == 0)
            return each;
    }
    return NULL;
}

/* Returns a plain name, such as "CUDA context" for "CUDA context of python[12]". A tag that is not
 * one of the machine's is the program's own, and is returned unchanged. */
static const char *plain_name(const rvl_holder *holder)
{
    static const struct {
        const char *begins, *plain;
    } names[] = {{"CUDA context of", "CUDA context"},
                 {"nccl", "communicators"},
                 {"NCCL", "communicators"},
                 {"cudaMalloc", "libraries"},
                 {"cuMemCreate", "libraries"}};
    for (size_t i = 0; holder->tag != NULL && i < sizeof names / sizeof *names; i++) {
        if (strncmp(holder->tag, names[i].begins, strlen(names[i].begins)) == 0)
            return names[i].plain;
    }
    return holder->tag != NULL ? holder->tag : "untagged";
}

/*
 * Gathers all holders of a stage's peak, which add up to the peak. Splits the segments that PyTorch
 * reserved into parts. known_out: whether a file had the parts of at least one process.
 */
static bool gather(const search *in, size_t device, uint32_t stage, holding *to, bool *known_out)
{
    rvl_holder holders[RVL_REPLAY_LISTED_HOLDERS];
    rvl_stage_stats stats = {.struct_size = sizeof stats};
    size_t count = 0;
    bool ok = true;
    *known_out = false;
    if (rvl_replay_get_stage(in->replay, device, stage, &stats, NULL) != RVL_OK ||
        rvl_replay_get_holders(in->replay, device, stage, holders, sizeof *holders,
                               RVL_REPLAY_LISTED_HOLDERS, &count) != RVL_OK)
        return true;
    uint64_t left = stats.peak_bytes;
    for (size_t i = 0; ok && i < count && i < RVL_REPLAY_LISTED_HOLDERS; i++) {
        bool segments = is_of_allocator(&holders[i]);
        share *known = segments ? share_of(in, device, stage, holders[i].process) : NULL;
        left -= holders[i].bytes;
        if (known == NULL || known->best == NULL) {
            const char *name = segments ? holders[i].tag : plain_name(&holders[i]);
            ok = holding_add_part(to, name, NULL, holders[i].bytes);
        } else if (known->bytes > 0) { /* once for all segments of the process */
            *known_out = true;
            ok = holding_add_stage(to, known->best, known->best_stage) &&
                 (known->bytes == known->best_reserved ||
                  holding_add_part(to, known->whole ? "libraries" : "not followed", NULL,
                                   known->bytes - known->best_reserved));
            known->bytes = 0;
        }
    }
    if (ok && left > 0)
        ok = holding_add_part(to, "others", NULL, left);
    holding_sort(to);
    return ok;
}

/* ---- For people ---- */

/* Whether the stages of this name have their largest peak on this device. */
static bool is_largest(const rvl_replay *replay, size_t device, const rvl_stage_stats *stage)
{
    for (size_t i = 0; i < rvl_replay_device_count(replay); i++) {
        uint32_t stages[STAGES_MOST];
        uint32_t count = i != device ? largest_stages(replay, i, stages) : 0;
        rvl_stage_stats other = {.struct_size = sizeof other};
        for (uint32_t at = 0; at < count; at++) {
            if (rvl_replay_get_stage(replay, i, stages[at], &other, NULL) == RVL_OK &&
                strcmp(other.mark, stage->mark) == 0 &&
                (other.peak_bytes > stage->peak_bytes ||
                 (other.peak_bytes == stage->peak_bytes && i < device)))
                return false;
        }
    }
    return true;
}

static bool print_peak(const search *in, size_t device, uint32_t stage, unsigned *printed)
{
    rvl_stage_stats stats = {.struct_size = sizeof stats};
    rvl_replay_device facts = {.struct_size = sizeof facts};
    holding held = {0};
    bool known = false, ok = true;
    char *where = NULL;
    if (rvl_replay_get_stage(in->replay, device, stage, &stats, NULL) != RVL_OK ||
        rvl_replay_get_device(in->replay, device, &facts) != RVL_OK ||
        !is_largest(in->replay, device, &stats) || *printed == PRINTED_MOST)
        return true;
    ok = gather(in, device, stage, &held, &known);
    if (ok && known) {
        ++*printed;
        bool many = rvl_replay_device_count(in->replay) > 1;
        ok = (many ? asprintf(&where, "%s, device %d", stats.name, facts.device)
                   : asprintf(&where, "%s", stats.name)) >= 0 &&
             holders_print(&held, where);
        free(where);
    }
    holding_clear(&held);
    return ok;
}

bool history_print(const void *user, const rvl_replay *replay)
{
    const history *of = user;
    search in;
    unsigned printed = 0;
    bool ok = look(of, replay, &in);
    for (size_t device = 0; ok && in.share_count > 0 && device < rvl_replay_device_count(replay);
         device++) {
        uint32_t stages[STAGES_MOST];
        uint32_t count = largest_stages(replay, device, stages);
        for (uint32_t i = 0; ok && i < count; i++)
            ok = print_peak(&in, device, stages[i], &printed);
    }
    end_search(&in);
    return ok;
}

/* ---- For programs ---- */

static json_t *holding_to_json(const holding *of, int device, const char *stage, bool *ok)
{
    json_t *object = json_object(), *parts = json_array(), *lines = json_array();
    for (size_t i = 0; i < of->part_count; i++)
        rvli_json_append(parts, rvli_snapshot_part_json(&of->parts[i], ok), ok);
    for (size_t i = 0; i < of->line_count && i < LINES_JSON; i++)
        rvli_json_append(lines, rvli_snapshot_line_json(&of->lines[i], ok), ok);
    rvli_json_set(object, "device", json_integer(device), ok);
    rvli_json_set(object, "stage", rvli_json_text(stage), ok);
    rvli_json_set(object, "at_peak", parts, ok);
    rvli_json_set(object, "lines", lines, ok);
    return object;
}

bool history_write_json(FILE *out, const void *user, const rvl_replay *replay)
{
    const history *of = user;
    search in;
    bool ok = look(of, replay, &in);
    json_t *all = json_array();
    for (size_t device = 0; ok && in.share_count > 0 && device < rvl_replay_device_count(replay);
         device++) {
        uint32_t stages[STAGES_MOST];
        uint32_t count = largest_stages(replay, device, stages);
        rvl_replay_device facts = {.struct_size = sizeof facts};
        ok = rvl_replay_get_device(replay, device, &facts) == RVL_OK;
        for (uint32_t i = 0; ok && i < count; i++) {
            rvl_stage_stats stats = {.struct_size = sizeof stats};
            holding held = {0};
            bool known = false;
            ok = rvl_replay_get_stage(replay, device, stages[i], &stats, NULL) == RVL_OK &&
                 gather(&in, device, stages[i], &held, &known);
            if (ok && known)
                rvli_json_append(all, holding_to_json(&held, facts.device, stats.name, &ok), &ok);
            holding_clear(&held);
        }
    }
    char *text = ok ? json_dumps(all, JSON_COMPACT) : NULL;
    if (text != NULL && json_array_size(all) > 0)
        fprintf(out, ",\"holders\":%s", text);
    free(text);
    json_decref(all);
    end_search(&in);
    return ok && text != NULL;
}
