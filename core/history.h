/* SPDX-License-Identifier: MIT */
/*
 * The stages of a device that are over: their peaks, and who held what at each.
 *
 * From one peak to the next most holders keep what they have. So a stage writes down the holders
 * that have another share than at the peak before. A stage in which nothing happened writes down
 * nothing: time and memory grow with what changes, not with stages times holders.
 *
 * A view turns changes back into shares. It has the shares of one peak in a tree ordered by size,
 * and is moved along the changes, forwards or back, to the peak that is asked for. Asking for the
 * stages in order costs what changed between them. The tree is a treap threaded through the
 * holders: neither moving nor reading it needs memory.
 *
 * All functions want the context's lock.
 */
#ifndef RVL_CORE_HISTORY_H
#define RVL_CORE_HISTORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/element.h"
#include "reveille/stats.h"

typedef struct rvli_holder rvli_holder;

/* What a history knows of one holder. All zeroes: it never held anything. */
typedef struct rvli_past {
    uint32_t number;           /* in order of their first bytes, from 1 */
    bool touched;              /* its share of the next peak may differ from recorded_bytes */
    rvli_holder *next;         /* of those that were touched */
    uint64_t recorded_bytes;   /* its share of the last peak that is over */
    uint64_t viewed_bytes;     /* its share of the peak that is in view */
    rvli_holder *left, *right; /* in the view: larger and smaller shares */
} rvli_past;

/* A share that is another than at the peak before. */
typedef struct rvli_change {
    rvli_holder *holder;
    uint64_t before_bytes;
    uint64_t after_bytes;
} rvli_change;

/* A stage on one device. */
typedef struct rvli_stage_device {
    uint64_t peak_bytes;
    uint64_t end_bytes;
    uint64_t host_bytes; /* highest within the stage */
    uint64_t host_end_bytes;
    uint64_t transition_ns;
} rvli_stage_device;

/* One that something happened in. */
typedef struct rvli_stage_record {
    rvli_stage_device what;
    uint32_t stage;
    size_t change_count; /* changes up to and with this stage's peak */
} rvli_stage_record;

/* All zeroes is an empty history. */
typedef struct rvli_history {
    rvli_stage_record *records; /* by stage */
    size_t record_count;
    size_t record_capacity;
    rvli_change *changes; /* in order of time */
    size_t change_count;
    size_t change_capacity;
    rvli_holder *touched;
    size_t touched_count;
    uint32_t holder_count;

    rvli_holder *view; /* the root */
    size_t view_at;    /* changes that are applied */
    size_t view_count; /* holders that have a share */
} rvli_history;

/* A holder changes for the first time since it was settled. */
void rvli_history_touch(rvli_history *history, rvli_holder *holder);

/* Makes room for the end of a stage. RVL_ERR_HOST_OOM. */
rvl_status rvli_history_reserve(rvli_history *history);

/*
 * The end of a stage, with the room reserved: first the share that every touched holder had at its
 * peak, then what the stage came to. rvli_history_settle() answers whether the holder stays
 * touched: it has something else by now, and so at the next peak.
 */
bool rvli_history_settle(rvli_history *history, rvli_holder *holder, uint64_t share_bytes);
void rvli_history_end_stage(rvli_history *history, uint32_t stage, const rvli_stage_device *what);

/* A stage that is over. */
rvli_stage_device rvli_history_stage(const rvli_history *history, uint32_t stage);

/* Moves the view to the peak of a stage that is over; of one that is not: to the last peak. */
void rvli_history_look_at(rvli_history *history, uint32_t stage);

/* Gives a holder another share in the view, for as long as the view is not moved. */
void rvli_history_show(rvli_history *history, rvli_holder *holder, uint64_t share_bytes);

/* Copies the largest shares in view out. Returns how many there are in all. */
size_t rvli_history_copy_view(const rvli_history *history, const rvli_elements_out *holders_out);

void rvli_history_destroy(rvli_history *history);

#endif
