/* SPDX-License-Identifier: MIT */
/* Statistics over all parts, and going back to the beginning. */
#include "internal.h"

static void collect(fake_stats *stats)
{
    fake_copies_stats(stats);
    fake_streams_stats(stats);
    fake_host_stats(stats);
    fake_share_stats(&stats->live);
    fake_blocks_stats(&stats->live);
    fake_mappings_stats(&stats->live);
    fake_events_stats(&stats->live);
    fake_modules_stats(&stats->live);
    fake_context_stats(&stats->live);
    for (int device = 0; device < FAKE_MAX_DEVICES; device++)
        stats->used_bytes[device] = fake_used_bytes(device);
    stats->rdma_bytes = fake_rdma_bytes();
}

fake_stats fake_stats_get(void)
{
    FAKE_LOCKED;
    fake_stats stats = {0};
    collect(&stats);
    return stats;
}

/* What refers to something goes before it. */
fake_live fake_reset(void)
{
    FAKE_LOCKED;
    fake_stats stats = {0};
    collect(&stats);
    fake_process_reset();
    fake_streams_reset();
    fake_events_reset();
    fake_modules_reset();
    fake_host_reset();
    fake_mappings_reset();
    fake_share_reset();
    fake_blocks_reset();
    fake_context_reset();
    fake_copies_reset();
    fake_device_reset();
    fake_entry_reset();
    fake_config_reset();
    return stats.live;
}
