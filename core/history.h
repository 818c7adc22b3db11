/* SPDX-License-Identifier: MIT */
/*
 * The finished stages of a device: their peaks, and the holders at each peak.
 *
 * From one peak to the next, most holders keep their share. So a stage only records the holders
 * with a different share than at the previous peak. A stage in which nothing happened records
 * nothing: time and memory grow with the changes, not with stages times holders.
 *
 * A view turns changes back into shares. It has the shares of one peak in a tree ordered by size,
 * and moves along the changes, forwards or backwards, to the requested peak. Going through the
 * stages in order costs only the changes between them. The tree is a treap threaded through the
 * holders, so neither moving nor reading it needs memory.
 *
 * All functions require the context's lock.
 */
#ifndef RVL_CORE_HISTORY_H
#define RVL_CORE_HISTORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/element.h"
#include "reveille/stats.h"

typedef struct rvli_holder rvli_holder;

/* A holder's part of a history. All zeroes: it never held anything. */
typedef struct rvli_past {
    uint32_t number;           /* holders are numbered from 1, in order of their first bytes */
    bool touched;              /* its share of the next peak may differ from recorded_bytes */
    rvli_holder *next;         /* in the list of touched holders */
    uint64_t recorded_bytes;   /* its share of the last finished peak */
    uint64_t viewed_bytes;     /* its share of the peak in view */
    rvli_holder *left, *right; /* in the view: larger and smaller shares */
} rvli_past;

/* A share that differs from the one at the previous peak. */
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

/* A stage in which something happened. */
typedef struct rvli_stage_record {
    rvli_stage_device what;
    uint32_t stage;
    size_t change_count; /* changes up to and including this stage's peak */
} rvli_stage_record;

/* A zeroed struct is an empty history. */
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
    size_t view_at;    /* number of changes applied */
    size_t view_count; /* holders with a share */
} rvli_history;

/* Call this at a holder's first change since it was settled. */
void rvli_history_touch(rvli_history *history, rvli_holder *holder);

/* Makes room for the end of a stage. RVL_ERR_HOST_OOM. */
rvl_status rvli_history_reserve(rvli_history *history);

/*
 * Ends a stage, with the room reserved. First call rvli_history_settle() with the share of every
 * touched holder at the peak, then rvli_history_end_stage() with the stage's totals.
 * rvli_history_settle() returns whether the holder stays touched: its bytes already differ from
 * that share, so its share of the next peak may.
 */
bool rvli_history_settle(rvli_history *history, rvli_holder *holder, uint64_t share_bytes);
void rvli_history_end_stage(rvli_history *history, uint32_t stage, const rvli_stage_device *what);

/* Returns a finished stage. */
rvli_stage_device rvli_history_stage(const rvli_history *history, uint32_t stage);

/*
 * Moves the view to the peak of a finished stage, or to the last peak if the stage is not finished.
 */
void rvli_history_look_at(rvli_history *history, uint32_t stage);

/* Sets another share for a holder in the view, until the view is moved. */
void rvli_history_show(rvli_history *history, rvli_holder *holder, uint64_t share_bytes);

/* Copies the largest shares in view. Returns the number of all shares. */
size_t rvli_history_copy_view(const rvli_history *history, const rvli_elements_out *holders_out);

void rvli_history_destroy(rvli_history *history);

#endif
