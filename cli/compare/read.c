/* SPDX-License-Identifier: MIT */
/* Reads the runs to compare: JSON results, or traces and snapshots, which are replayed. */
#include <stdlib.h>
#include <string.h>

#include "compare/compare.h"
#include "options.h"
#include "progress.h"
#include "reveille/snapshot.h"

static bool is_json(const char *path)
{
    size_t length = strlen(path);
    return length > 5 && strcmp(path + length - 5, ".json") == 0;
}

/* Whether this is a result of run, replay or snapshot. Results of other commands have a schema,
 * too, but no stages. */
static bool is_result(const json_t *root)
{
    return (json_is_array(json_object_get(root, "stages")) &&
            json_object_get(root, "mode") != NULL) ||
           (json_is_array(json_object_get(root, "devices")) &&
            json_object_get(root, "events") != NULL);
}

static int read_json(const char *path, json_t **run_out)
{
    json_error_t error;
    json_t *root = json_load_file(path, JSON_REJECT_DUPLICATES, &error);
    if (root == NULL && error.line > 0)
        return complain(EXIT_BAD_INPUT, "%s:%d:%d: %s", path, error.line, error.column, error.text);
    if (root == NULL)
        return complain(EXIT_BAD_INPUT, "%s", error.text);
    if (!is_result(root)) {
        json_decref(root);
        return complain(EXIT_BAD_INPUT,
                        "%s: no result of a run: name what `reveille run --json=FILE`, `reveille "
                        "replay --json=FILE` or `reveille snapshot --json=FILE` has written, or a "
                        "trace or snapshot",
                        path);
    }
    *run_out = root;
    return 0;
}

static int no_memory(void)
{
    return complain(EXIT_INTERNAL, "out of host memory");
}

static bool append_text(void *user, const char *text, size_t size)
{
    return fwrite(text, 1, size, user) == size;
}

static json_t *json_of(const rvl_replay *replay)
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    if (out == NULL)
        return NULL;
    bool ok = rvl_replay_write_json(replay, append_text, out) == RVL_OK;
    ok = fclose(out) == 0 && ok;
    json_t *root = ok ? json_loadb(text, size, 0, NULL) : NULL;
    free(text);
    return root;
}

static void on_progress(void *unused, const rvl_trace_progress *progress)
{
    (void)unused;
    progress_report(progress->bytes_read, progress->bytes_total, progress->events);
}

static int read_trace(const char *path, const char *device, json_t **run_out)
{
    rvl_replay *replay = NULL;
    rvl_replay_options options = {
        .struct_size = sizeof options, .device = device, .progress = on_progress};
    progress_begin("compare", "events");
    rvl_status status = rvl_replay_run(&path, 1, &options, &replay);
    progress_end();
    if (status != RVL_OK) {
        int code = explain_replay(status);
        return code == EXIT_DOES_NOT_FIT ? EXIT_BAD_INPUT : code;
    }
    *run_out = json_of(replay);
    rvl_replay_close(replay);
    return *run_out != NULL ? 0 : no_memory();
}

static int read_snapshot(const char *path, json_t **run_out)
{
    rvl_snapshot *snapshot = NULL;
    char *text = NULL;
    rvl_snapshot_options options = {.struct_size = sizeof options, .flags = RVL_SNAPSHOT_HOLDERS};
    progress_begin("compare", NULL);
    rvl_status status = rvl_snapshot_run(path, &options, &snapshot);
    progress_end();
    if (status != RVL_OK) {
        int code = explain_replay(status);
        return code == EXIT_DOES_NOT_FIT ? EXIT_BAD_INPUT : code;
    }
    if (rvl_snapshot_to_json(snapshot, &text) == RVL_OK)
        *run_out = json_loads(text, 0, NULL);
    rvl_string_free(text);
    rvl_snapshot_close(snapshot);
    return *run_out != NULL ? 0 : no_memory();
}

int compare_read(const char *path, const char *device, json_t **run_out)
{
    *run_out = NULL;
    if (is_json(path))
        return read_json(path, run_out);
    if (options_is_snapshot(path))
        return read_snapshot(path, run_out);
    return read_trace(path, device, run_out);
}
