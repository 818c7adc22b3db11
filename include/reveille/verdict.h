/* SPDX-License-Identifier: MIT */
/*
 * Verdicts: whether a run fits, in one sentence (libreveille-replay).
 *
 * A verdict is based on what happened: the refused requests, how the command ended, and the room on
 * the replay's own devices. Every output of the command prints this text.
 */
#ifndef REVEILLE_VERDICT_H
#define REVEILLE_VERDICT_H

#include "reveille/replay.h"

#ifdef __cplusplus
extern "C" {
#endif

/* X(NAME, keyword): the kinds of verdict, as the JSON names them. */
#define RVL_VERDICT_MAP(X)                                                                         \
    X(FITS, "fits")                       /* it fits, and leaves the headroom */                   \
    X(TIGHT, "tight")                     /* it fits, and leaves less than the headroom */         \
    X(SURVIVED, "survived refusals")      /* it fits after refusals that the program survived */   \
    X(OUT_OF_MEMORY, "out of memory")     /* it does not fit, or did not fit */                    \
    X(UNRECORDED, "no refusals recorded") /* its allocations fit; refusals are not recorded */     \
    X(CUT_OFF, "cut off")                 /* none: a recording breaks off; its allocations fit */  \
    X(FAILED, "failed")                   /* none: the command failed for another reason */        \
    X(NO_GPU, "no gpu")                   /* none: no device memory was used */

typedef enum rvl_verdict_kind {
#define RVL_VERDICT_ENUM(name, keyword) RVL_VERDICT_##name,
    RVL_VERDICT_MAP(RVL_VERDICT_ENUM)
#undef RVL_VERDICT_ENUM
        RVL_VERDICT_KIND_COUNT
} rvl_verdict_kind;

#define RVL_VERDICT_TEXT_BYTES 768

typedef struct rvl_verdict {
    size_t struct_size;
    rvl_verdict_kind kind;
    int device;              /* the one with the least to spare, or that of the request;
                                RVL_NO_DEVICE: host memory, or no device */
    uint64_t spare_bytes;    /* the least room left on a device at its peak; 0: none */
    uint64_t headroom_bytes; /* of that device */
    uint64_t refused_count;  /* requests that were refused, and not granted on the next try */
    uint64_t cured_count;    /* requests that were first refused, and then granted */
    /* The request that the verdict names: the one that ended the program, or else the first
       refused. */
    const char *process; /* NULL: none was refused */
    const char *tag;     /* NULL: untagged */
    const char *stage;   /* NULL: before any */
    const char *where;   /* the program's line; NULL: unknown */
    uint64_t requested_bytes;
    uint64_t free_bytes;
    uint32_t exit_status;  /* of the command, or with by_signal its signal */
    uint32_t stage_number; /* the n-th stage of its name; 0: see stage, or there is none */
    const char *waits;     /* which process waited in vain, and for what; NULL: none did */
    bool ended;            /* the trace has the end of the command */
    bool by_signal;
    uint8_t reserved[6];
    char text[RVL_VERDICT_TEXT_BYTES]; /* "fits, with 13.1 GiB to spare" */
} rvl_verdict;

/* "fits", "tight", ..., or "?". Static string. Thread-safe. Since 0.1. */
RVL_API const char *rvl_verdict_keyword(rvl_verdict_kind kind);

/*
 * The verdict of a replay. Strings live as long as the result. Returns RVL_OK or RVL_ERR_INVALID.
 * Thread-safe for a result that no other thread closes. Since 0.1.
 */
RVL_API rvl_status rvl_replay_get_verdict(const rvl_replay *replay, rvl_verdict *verdict_out);

#ifdef __cplusplus
}
#endif
#endif
