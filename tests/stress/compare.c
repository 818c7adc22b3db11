/* SPDX-License-Identifier: MIT */
/* What must hold of a round when all its threads have ended. */
#include <stdio.h>
#include <string.h>

#include "reveille/replay.h"
#include "round.h"
#include "tests/support/support.h"

typedef struct totals {
    uint64_t count;
    uint64_t active_bytes[DEVICES_MAX];
} totals;

static totals walk(const stress_round *r, caller *by)
{
    totals sum = {0};
    rvl_allocation each = {.struct_size = sizeof each};
    rvl_addr from = 0;
    while (ANSWER(by, MAY_OK | MAY(RVL_ERR_NOT_FOUND), rvl_allocation_next, r->in.context, from,
                  &each) == RVL_OK) {
        from = each.addr + 1;
        sum.count++;
        if (each.state == RVL_STATE_ACTIVE)
            sum.active_bytes[each.device] += each.size_bytes;
    }
    return sum;
}

uint64_t round_count_owned(const stress_round *r)
{
    uint64_t count = r->in.threads > 1 ? SHARED_TAGS : 0;
    for (int i = 0; i < r->in.threads; i++) {
        const owner *o = &r->owners[i];
        for (int s = 0; s < OWNER_SLOTS; s++)
            count += o->slots[s].addr != 0;
        for (int s = 0; s < SHARED_SLOTS; s++)
            count += o->shared[s] != 0;
    }
    return count;
}

static bool any_shares(const stress_round *r)
{
    for (int i = 0; i < r->in.threads; i++)
        for (int tag = 0; tag < OWNER_TAGS; tag++)
            if (r->owners[i].tags[tag].shares)
                return true;
    return false;
}

static uint64_t external_bytes(const stress_round *r, int device)
{
    uint64_t bytes = 0;
    for (int i = 0; i < r->in.threads; i++)
        bytes += r->owners[i].external_bytes[device];
    return bytes;
}

/* Bytes of all devices' host backups, as the ledger has them. */
static uint64_t compare_device(const stress_round *r, caller *by, int device, const totals *sum)
{
    rvl_device_stats stats = {.struct_size = sizeof stats};
    ANSWER(by, MAY_OK, rvl_device_get_stats, r->in.context, device, &stats);
    uint64_t own = stats.used_bytes - stats.kept_bytes - stats.stranded_bytes;
    uint64_t external = external_bytes(r, device);
    EXPECT(by, stats.external_bytes, external);
    EXPECT_WITHIN(by, stats.kept_bytes, 0, r->in.keep_bytes);
    uint64_t most =
        any_shares(r) || r->in.faulty ? UINT64_MAX : sum->active_bytes[device] + external;
    EXPECT_WITHIN(by, own, sum->active_bytes[device] + external, most);
    uint64_t free_bytes = 0, total_bytes = 0;
    ANSWER(by, MAY_OK, rvl_device_get_memory, r->in.context, device, &free_bytes, &total_bytes);
    if (!r->in.overcommit)
        EXPECT(by, total_bytes - free_bytes, stats.used_bytes);
    return stats.host_backup_bytes;
}

static void compare_anchors(const stress_round *r, caller *by)
{
    if (r->in.threads == 1)
        return;
    uint32_t may = MAY_OK | (r->in.roomy || r->in.overcommit ? 0 : MAY(RVL_ERR_DEVICE_OOM));
    if (ANSWER(by, may, rvl_resume, r->in.context, r->shared_tags, SHARED_TAGS, NULL) != RVL_OK)
        return;
    for (int i = 0; i < SHARED_TAGS && !r->in.accounted && !r->in.faulty; i++)
        EXPECT(by, support_holds(r->anchors[i], SHARED_BYTES, (uint64_t)i + 1), true);
}

void round_compare(const stress_round *r, caller *by)
{
    compare_anchors(r, by);
    totals sum = walk(r, by);
    uint64_t count = 0, host_bytes = 0;
    EXPECT(by, sum.count, round_count_owned(r));
    for (int device = 0; device < r->in.devices; device++) {
        rvl_device_stats stats = {.struct_size = sizeof stats};
        ANSWER(by, MAY_OK, rvl_device_get_stats, r->in.context, device, &stats);
        count += stats.allocation_count;
        host_bytes += compare_device(r, by, device, &sum);
    }
    EXPECT(by, count, sum.count);
    rvl_host_memory memory = {.struct_size = sizeof memory};
    ANSWER(by, MAY_OK, rvl_host_get_memory, r->in.context, &memory);
    if (!r->in.faulty)
        EXPECT(by, memory.used_bytes, host_bytes);
}

#define EXIT_STATUS 7u

/* A request that is refused, a range and the end of a command, as programs tell of them. */
static void tell_end(const stress_round *r, caller *by)
{
    rvl_context *context = r->in.context;
    rvl_process process = r->owners[0].process;
    rvl_refusal refusal = {.struct_size = sizeof refusal, .process = process};
    rvl_mark mark = {.struct_size = sizeof mark,
                     .kind = RVL_EVENT_ALLOC,
                     .process = process,
                     .id = 1,
                     .name = "closing"};
    ANSWER(by, MAY(RVL_ERR_INVALID), rvl_record_refuse, context, &refusal);
    refusal.requested_bytes = GRANULE_BYTES;
    ANSWER(by, MAY_OK, rvl_record_refuse, context, &refusal);
    ANSWER(by, MAY(RVL_ERR_INVALID), rvl_record_mark, context, &mark);
    mark.kind = RVL_EVENT_ENTER;
    ANSWER(by, MAY_OK, rvl_record_mark, context, &mark);
    ANSWER(by, MAY(RVL_ERR_INVALID), rvl_record_end, context, 256, 0, 0, NULL);
    ANSWER(by, MAY_OK, rvl_record_end, context, EXIT_STATUS, 0, 0, "rank 0 waits for rank 1");
}

static void compare_verdict(const rvl_replay *replay, caller *by)
{
    rvl_verdict verdict = {.struct_size = sizeof verdict};
    ANSWER(by, MAY_OK, rvl_replay_get_verdict, replay, &verdict);
    EXPECT(by, verdict.ended, true);
    EXPECT(by, verdict.exit_status, EXIT_STATUS);
    EXPECT_WITHIN(by, verdict.refused_count, 1, UINT64_MAX);
    const char *keyword = CALL(by, rvl_verdict_keyword, verdict.kind);
    EXPECT(by, strcmp(keyword, "failed") == 0 || strcmp(keyword, "out of memory") == 0, true);
}

/* What was recorded, replayed, ends with what is in use. A fault may leave what no trace can say.
 */
void round_compare_recording(const stress_round *r, caller *by)
{
    rvl_replay *replay = NULL;
    totals sum = walk(r, by);
    const char *path = r->trace;
    if (path[0] == '\0')
        return;
    tell_end(r, by);
    ANSWER(by, MAY_OK, rvl_record_stop, r->in.context);
    rvl_status status =
        ANSWER(by, MAY_OK | MAY(RVL_ERR_CORRUPT_TRACE), rvl_replay_run, &path, 1, NULL, &replay);
    if (status != RVL_OK)
        fprintf(stderr, "stress: %s cannot be replayed\n", path);
    EXPECT(by, status, RVL_OK);
    compare_verdict(replay, by);
    for (int device = 0; device < r->in.devices && !r->in.faulty; device++) {
        rvl_replay_device found = {.struct_size = sizeof found};
        rvl_stage_stats stage = {.struct_size = sizeof stage};
        uint64_t expected = sum.active_bytes[device] + external_bytes(r, device);
        if (device >= (int)CALL(by, rvl_replay_device_count, replay))
            continue;
        ANSWER(by, MAY_OK, rvl_replay_get_device, replay, (size_t)device, &found);
        if (found.stage_count == 0)
            continue;
        ANSWER(by, MAY_OK, rvl_replay_get_stage, replay, (size_t)device, found.stage_count - 1,
               &stage, NULL);
        /* The first sample is what the device says: blocks that are kept or shared are more. */
        uint64_t more =
            r->in.keep_bytes + (any_shares(r) ? OWNER_SLOTS * CARRIER_GRANULES * GRANULE_BYTES *
                                                    (uint64_t)r->in.threads
                                              : 0);
        EXPECT_WITHIN(by, stage.end_bytes, expected, expected + more);
    }
    CALL(by, rvl_replay_close, replay);
}
