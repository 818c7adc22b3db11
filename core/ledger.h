/* SPDX-License-Identifier: MIT */
/*
 * The ledger: physical bytes in use by device, process and tag, now and at every peak.
 *
 * Who held what at a peak is known without copying the table at every new peak. Each new peak
 * starts an epoch. A holder that changes for the first time in an epoch notes what it had before:
 * that is what it had at the peak. One that has not changed since still has it. So a change costs
 * O(1), and the end of a stage walks only the holders that have changed since the one before it
 * (core/history.h).
 *
 * All functions want the context's lock.
 */
#ifndef RVL_CORE_LEDGER_H
#define RVL_CORE_LEDGER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/hash.h"

#include "core/history.h"
#include "reveille/stats.h"

/* Bytes of one tag, or one cause of external bytes, on one device. */
struct rvli_holder {
    const char *process; /* NULL: external. Names live as long as the context */
    const char *tag;     /* NULL: untagged; for external bytes their cause */
    uint64_t bytes;
    uint64_t bytes_at_peak; /* meaningful if epoch is the ledger's */
    uint64_t epoch;
    uint64_t peak_bytes; /* highest of bytes alone */
    uint64_t paused_bytes;
    uint64_t host_bytes;
    uint64_t allocation_count;
    uint64_t pauses;
    uint64_t resumes;
    rvli_past past;
};

/* External bytes of one cause. */
typedef struct rvli_cause {
    rvli_holder holder;
    UT_hash_handle hh;
    char name[];
} rvli_cause;

typedef struct rvli_stage {
    const char *name; /* the mark itself where it comes for the first time */
    const char *mark;
    uint32_t step;
} rvli_stage;

/* A stage name and how often it came. */
typedef struct rvli_mark {
    uint32_t count;
    UT_hash_handle hh;
    char name[];
} rvli_mark;

typedef struct rvli_ledger {
    uint64_t used_bytes;
    uint64_t external_bytes;
    uint64_t peak_bytes;
    uint32_t peak_stage;
    uint64_t epoch;
    uint64_t part_bytes;         /* of segments, for something */
    uint64_t part_bytes_at_peak; /* of the current stage */
    uint64_t host_bytes;
    uint64_t host_peak_bytes;
    uint64_t disk_bytes;
    uint64_t disk_peak_bytes;
    uint64_t allocation_count;
    uint64_t alloc_calls;
    uint64_t free_calls;
    uint64_t pauses;
    uint64_t resumes;
    uint64_t backup_out_bytes;
    uint64_t backup_in_bytes;
    uint64_t filled_in_bytes;
    uint64_t transition_ns;
    uint64_t prepared_bytes; /* made by resumes that wait for commit or abort; not in used_bytes */
    rvli_holder kept;        /* blocks kept for hand-over */
    rvli_holder stranded;    /* blocks that could not be released */
    rvli_holder imported;    /* blocks that other processes have made */
    rvli_cause *causes;
    rvl_oom oom;
    rvli_stage_device stage; /* the current one; its end is now */
    rvli_history history;    /* those before it */
} rvli_ledger;

/* Names the ledger's own holders. All else of a ledger begins as zeroes. */
void rvli_ledger_init(rvli_ledger *ledger);

/* More or fewer bytes for a holder on a device. */
void rvli_ledger_add(rvl_context *context, int device, rvli_holder *holder, uint64_t bytes);
void rvli_ledger_sub(rvl_context *context, int device, rvli_holder *holder, uint64_t bytes);
/* Bytes that change hands within a device: the use stays, who has it changes. */
void rvli_ledger_hand_over(rvl_context *context, int device, rvli_holder *from, rvli_holder *to,
                           uint64_t bytes);

/*
 * The same for bytes of a segment that come to be, or are no longer, for something. Of instants at
 * which as much is in use, the peak is the one at which most of it is for something.
 */
void rvli_ledger_part_add(rvl_context *context, int device, rvli_holder *segment, rvli_holder *part,
                          uint64_t bytes);
void rvli_ledger_part_sub(rvl_context *context, int device, rvli_holder *segment, rvli_holder *part,
                          uint64_t bytes);

/* Host bytes that backups of a holder take or give back. */
void rvli_ledger_host_add(rvl_context *context, int device, rvli_holder *holder, uint64_t bytes);
void rvli_ledger_host_sub(rvl_context *context, int device, rvli_holder *holder, uint64_t bytes);
/* Bytes of files that backups take or give back. */
void rvli_ledger_disk_add(rvl_context *context, int device, uint64_t bytes);
void rvli_ledger_disk_sub(rvl_context *context, int device, uint64_t bytes);

/* Notes the first request that a real device would have refused. tag 0: external. */
void rvli_ledger_check_fit(rvl_context *context, int device, rvl_tag tag, rvl_process process,
                           uint64_t requested_bytes);

/* Context clock spent in a transition that moved something on the device. */
void rvli_ledger_spend(rvl_context *context, int device, uint64_t ns);

/* A stage of a device, the current one included. */
rvli_stage_device rvli_ledger_stage(const rvl_context *context, uint32_t stage, int device);

/* Copies the largest holders at a stage's peak out. Returns how many there are in all. */
size_t rvli_ledger_copy_holders(rvl_context *context, uint32_t stage, int device,
                                const rvli_elements_out *holders_out);

/* Ends the current stage, if any, and begins one. RVL_ERR_HOST_OOM changes nothing. */
rvl_status rvli_ledger_begin_stage(rvl_context *context, const char *mark);

/* The same for a stage without a name of its own. */
rvl_status rvli_ledger_next_segment(rvl_context *context);
/* The current stage begins again with what is in use now: what it was so far is forgotten. */
void rvli_ledger_begin_again(rvl_context *context);

/* Frees stages, marks and causes, at close. */
void rvli_ledger_destroy(rvl_context *context);

#endif
