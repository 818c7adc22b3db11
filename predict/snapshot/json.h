/* SPDX-License-Identifier: MIT */
/* A part and a line of a snapshot as JSON. The results of a snapshot and of a run both use them. */
#ifndef RVL_PREDICT_SNAPSHOT_JSON_H
#define RVL_PREDICT_SNAPSHOT_JSON_H

#include "base/json.h"
#include "reveille/snapshot.h"

static inline json_t *rvli_snapshot_part_json(const rvl_snapshot_part *part, bool *ok)
{
    json_t *object = json_object();
    rvli_json_set(object, "tag", rvli_json_text(part->tag), ok);
    rvli_json_set(object, "module", rvli_json_text(part->module), ok);
    rvli_json_set(object, "bytes", rvli_json_bytes(part->bytes), ok);
    return object;
}

static inline json_t *rvli_snapshot_line_json(const rvl_snapshot_line *line, bool *ok)
{
    json_t *object = json_object();
    rvli_json_set(object, "tag", rvli_json_text(line->tag), ok);
    rvli_json_set(object, "file", rvli_json_text(line->file), ok);
    rvli_json_set(object, "line", json_integer(line->line), ok);
    rvli_json_set(object, "name", rvli_json_text(line->name), ok);
    rvli_json_set(object, "via_file", rvli_json_text(line->via_file), ok);
    rvli_json_set(object, "via_line", json_integer(line->via_line), ok);
    rvli_json_set(object, "via_name", rvli_json_text(line->via_name), ok);
    rvli_json_set(object, "module", rvli_json_text(line->module), ok);
    rvli_json_set(object, "tensors", rvli_json_bytes(line->count), ok);
    rvli_json_set(object, "bytes", rvli_json_bytes(line->bytes), ok);
    return object;
}

#endif
