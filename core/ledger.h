/* SPDX-License-Identifier: MIT */
/*
 * The ledger: physical bytes in use by device, process and tag, now and at every peak.
 *
 * It knows the holders at a peak without copying the table at every new peak. Each new peak starts
 * an epoch. On its first change in an epoch, a holder saves its previous bytes: they are its share
 * of the peak. A holder that has not changed since still has its share. So a change costs O(1), and
 * the end of a stage only visits the holders that have changed since the previous stage
 * (core/history.h).
 *
 * All functions require the context's lock.
 */
#ifndef RVL_CORE_LEDGER_H
#define RVL_CORE_LEDGER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/hash.h"

#include "core/history.h"
#include "reveille/stats.h"

/* Bytes of one tag, or of one cause of external bytes, on one device. */
struct rvli_holder {
    const char *process; /* NULL: external. Names live as long as the context */
    const char *tag;     /* NULL: untagged; for external bytes, their cause */
    uint64_t bytes;
    uint64_t bytes_at_peak; /* only valid if epoch is the ledger's */
    uint64_t epoch;
    uint64_t peak_bytes; /* highest value of bytes */
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
    const char *name; /* the mark itself, for its first stage */
    const char *mark;
    uint32_t step;
} rvli_stage;

/* A stage name and how many stages had it. */
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
    uint64_t part_bytes;         /* bytes of segments that are assigned to parts */
    uint64_t part_bytes_at_peak; /* of part_bytes, in the current stage */
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
    uint64_t prepared_bytes; /* made by prepared resumes that are not committed or aborted yet; not
                                in used_bytes */
    rvli_holder kept;        /* blocks kept for hand-over */
    rvli_holder stranded;    /* blocks that could not be released */
    rvli_holder imported;    /* blocks of other processes */
    rvli_cause *causes;
    rvl_oom oom;
    rvli_stage_device stage; /* the current stage; its end is now */
    rvli_history history;    /* the finished stages */
} rvli_ledger;

/* Sets the names of the ledger's own holders. All other fields of a ledger start as zeroes. */
void rvli_ledger_init(rvli_ledger *ledger);

/* Adds or subtracts bytes of a holder on a device. */
void rvli_ledger_add(rvl_context *context, int device, rvli_holder *holder, uint64_t bytes);
void rvli_ledger_sub(rvl_context *context, int device, rvli_holder *holder, uint64_t bytes);
/* Moves bytes from one holder to another on a device. The use of the device is unchanged. */
void rvli_ledger_hand_over(rvl_context *context, int device, rvli_holder *from, rvli_holder *to,
                           uint64_t bytes);

/*
 * Assigns bytes of a segment to a part, or returns them to the segment. Among instants with equal
 * use, the peak is the one with the most bytes assigned to parts.
 */
void rvli_ledger_part_add(rvl_context *context, int device, rvli_holder *segment, rvli_holder *part,
                          uint64_t bytes);
void rvli_ledger_part_sub(rvl_context *context, int device, rvli_holder *segment, rvli_holder *part,
                          uint64_t bytes);

/* Adds or subtracts host bytes of a holder's backups. */
void rvli_ledger_host_add(rvl_context *context, int device, rvli_holder *holder, uint64_t bytes);
void rvli_ledger_host_sub(rvl_context *context, int device, rvli_holder *holder, uint64_t bytes);
/* Adds or subtracts file bytes of backups. */
void rvli_ledger_disk_add(rvl_context *context, int device, uint64_t bytes);
void rvli_ledger_disk_sub(rvl_context *context, int device, uint64_t bytes);

/* Records the first request that a real device would have refused. tag 0: external. */
void rvli_ledger_check_fit(rvl_context *context, int device, rvl_tag tag, rvl_process process,
                           uint64_t requested_bytes);

/* Charges a device for the context clock of a transition that moved something on it. */
void rvli_ledger_spend(rvl_context *context, int device, uint64_t ns);

/* Returns a stage of a device, which may be the current one. */
rvli_stage_device rvli_ledger_stage(const rvl_context *context, uint32_t stage, int device);

/* Copies the largest holders at a stage's peak. Returns the number of all holders. */
size_t rvli_ledger_copy_holders(rvl_context *context, uint32_t stage, int device,
                                const rvli_elements_out *holders_out);

/* Ends the current stage, if any, and begins one. RVL_ERR_HOST_OOM changes nothing. */
rvl_status rvli_ledger_begin_stage(rvl_context *context, const char *mark);

/* Like rvli_ledger_begin_stage(), for a stage without a name. */
rvl_status rvli_ledger_next_segment(rvl_context *context);
/* Restarts the current stage with what is in use now, and forgets what it was so far. */
void rvli_ledger_begin_again(rvl_context *context);

/* Frees stages, marks and causes, at close. */
void rvli_ledger_destroy(rvl_context *context);

#endif
