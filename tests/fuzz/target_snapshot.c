/* SPDX-License-Identifier: MIT */
/*
 * The reader of snapshots, and the allocator model behind it: as recorded, verified, or with other
 * settings on a small device, as the input's bytes decide. Whatever is read, the bytes of every
 * stage add up, and its tensors can be listed.
 */
#include <string.h>

#include "fuzz.h"
#include "reveille/replay.h"
#include "reveille/snapshot.h"

static void check_stage(const rvl_snapshot *snapshot, uint32_t index)
{
    rvl_snapshot_stage stage = {.struct_size = sizeof stage};
    require(rvl_snapshot_get_stage(snapshot, index, &stage) == RVL_OK);
    uint64_t gap =
        stage.rounding_bytes + stage.split_bytes + stage.cached_bytes + stage.pending_bytes;
    require(stage.name != NULL && gap <= stage.peak_reserved_bytes);
    require(stage.rounding_bytes <= gap && stage.split_bytes <= gap && stage.cached_bytes <= gap &&
            stage.pending_bytes <= gap);
    require(stage.pinned_bytes <= 2 * stage.split_bytes);
}

static bool check(const char *path, const rvl_snapshot_options *options)
{
    rvl_error error = {.struct_size = sizeof error};
    rvl_snapshot_facts facts = {.struct_size = sizeof facts};
    rvl_snapshot *snapshot = NULL;
    char *json = NULL;
    rvl_status status = rvl_snapshot_run(path, options, &snapshot);
    rvl_last_error(&error);
    require((status == RVL_OK) == (snapshot != NULL));
    require(status == RVL_OK || error.message[0] != '\0');
    if (status != RVL_OK)
        return false;
    require(rvl_snapshot_get_facts(snapshot, &facts) == RVL_OK && facts.stage_count > 0);
    for (uint32_t i = 0; i < facts.stage_count; i++)
        check_stage(snapshot, i);
    require(rvl_snapshot_to_json(snapshot, &json) == RVL_OK);
    rvl_string_free(json);
    rvl_snapshot_close(snapshot);
    json = NULL;
    require(rvl_snapshot_get_tensors(path, options, &json) == RVL_OK);
    require(strchr(json, '<') == NULL && json[strlen(json) - 1] == '}');
    rvl_string_free(json);
    return true;
}

/* The reader's short way for entries is taken where so much follows: large files are read by it. */
#define TAIL_BYTES 1024u
#define SIZE_BYTES_MAX 65536u

static const char *file_of(const uint8_t *data, size_t size, bool tail)
{
    static uint8_t padded[SIZE_BYTES_MAX + TAIL_BYTES];
    if (!tail || size > SIZE_BYTES_MAX)
        return fuzz_file(data, size);
    memcpy(padded, data, size);
    memset(padded + size, 0, TAIL_BYTES);
    return fuzz_file(padded, size + TAIL_BYTES);
}

bool fuzz_run(const uint8_t *data, size_t size)
{
    const uint32_t choice = fuzz_hash(data, size);
    static const char *const settings[] = {"expandable_segments=true", "roundup_power2_divisions=4",
                                           "garbage_collection_threshold=0.5"};
    rvl_snapshot_options options = {.struct_size = sizeof options};
    switch (choice % 3) {
    case 0:
        break;
    case 1:
        options.flags = RVL_SNAPSHOT_VERIFY;
        break;
    default:
        options.settings = settings;
        options.setting_count = sizeof settings / sizeof settings[0];
        options.capacity_bytes = UINT64_C(100) << 20;
        options.flags = RVL_SNAPSHOT_EMPTY_CACHE;
    }
    if (choice / 12 % 4 > 0)
        options.flags |= RVL_SNAPSHOT_HOLDERS;
    if (choice / 48 % 6 == 0) /* as --advise does it */
        options.recompute = "x.py:1";
    return check(file_of(data, size, choice / 3 % 4 > 0), &options);
}
