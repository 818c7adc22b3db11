/* SPDX-License-Identifier: MIT */
/*
 * The data that ranks exchange. When a rank calls an operation, its data goes to the machine
 * (simcuda/machine/deposits.h), as far as it is known and small. Its result is promised to the
 * receiving buffer (simcuda/driver/promised.h), and taken from the machine when the program
 * reads it. So a call never waits for another rank. A read waits until the other rank has
 * called, too.
 *
 * Each launch of a graph calls the operations captured in it.
 *
 * The result is unknown for operations beyond the limit of contents, for those in a graph, and
 * for data of a rank that is not started (--rank, --world), that has ended before, or that does
 * not come in time.
 */
#ifndef RVL_SIMCUDA_NCCL_CARRY_H
#define RVL_SIMCUDA_NCCL_CARRY_H

#include "simcuda/nccl/comm.h"

/* What a rank gets. */
typedef enum rvli_carry_way {
    RVLI_CARRY_NOTHING,
    RVLI_CARRY_ONE,    /* a part of one rank's data */
    RVLI_CARRY_EACH,   /* a part of each rank's data, side by side */
    RVLI_CARRY_REDUCE, /* one part of each rank's data, reduced */
} rvli_carry_way;

typedef struct rvli_carried {
    rvli_comm *comm;
    const char *name; /* the function's name */
    CUstream stream;
    rvli_carry_way way;
    rvli_nccl_type type;
    int operation;     /* for RVLI_CARRY_REDUCE */
    bool reduces;      /* the operation reduces, even if this rank gets nothing */
    const void *from;  /* this rank's data; NULL: none */
    size_t from_bytes; /* size of the data, of this rank or another */
    void *to;          /* the receiving buffer */
    size_t bytes;      /* of a part */
    size_t at;         /* offset of its part in the data */
    int source;        /* RVLI_CARRY_ONE: the rank that brings the data */
    int peer;          /* the other rank of a send or receive; -1: all take part */
    size_t largest;    /* buffer size of any rank */
    /* private to carry.c */
    char *snapshot; /* its data, followed by flags for known bytes */
    bool captured;
} rvli_carried;

/* Call it before the receiving buffer is written. */
void rvli_carry_read(rvli_carried *call);

/* Call it afterwards; it frees what was read. result: of the work done since. Returns it, or the
 * failure of the exchange. */
rvli_nccl_result rvli_carry(rvli_carried *call, rvli_nccl_result result);

#endif
