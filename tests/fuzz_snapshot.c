/* SPDX-License-Identifier: MIT */
/*
 * Fuzzes the reader of snapshots, and the allocator model behind it, in both modes, with other
 * settings, on a small device. Whatever is read, the bytes of every stage add up. Inputs are
 * changed as pickles (fuzz_pickle.h), and now and then as bytes. Seeds: tests/corpus/snapshot/.
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "reveille/replay.h"
#include "reveille/snapshot.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define PATH_BYTES 64

static void require(bool holds)
{
    if (!holds)
        abort();
}

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

static void check(const char *path, const rvl_snapshot_options *options)
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
        return;
    require(rvl_snapshot_get_facts(snapshot, &facts) == RVL_OK && facts.stage_count > 0);
    for (uint32_t i = 0; i < facts.stage_count; i++)
        check_stage(snapshot, i);
    require(rvl_snapshot_to_json(snapshot, &json) == RVL_OK);
    rvl_string_free(json);
    rvl_snapshot_close(snapshot);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const settings[] = {"expandable_segments=true", "roundup_power2_divisions=4",
                                           "garbage_collection_threshold=0.5"};
    rvl_snapshot_options options = {.struct_size = sizeof options};
    char path[PATH_BYTES];
    int file = memfd_create("snapshot", MFD_CLOEXEC);
    require(file >= 0 && write(file, data, size) == (ssize_t)size);
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    check(path, &options);
    options.flags |= RVL_SNAPSHOT_VERIFY;
    check(path, &options);
    options.flags &= ~(uint64_t)RVL_SNAPSHOT_VERIFY;
    options.settings = settings;
    options.setting_count = sizeof settings / sizeof settings[0];
    options.capacity_bytes = UINT64_C(100) << 20;
    options.flags |= RVL_SNAPSHOT_EMPTY_CACHE;
    check(path, &options);
    close(file);
    return 0;
}
