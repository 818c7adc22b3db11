/* SPDX-License-Identifier: MIT */
/*
 * What ranks bring each other. When a rank calls an operation, what it brings goes to the machine
 * (simcuda/machine/deposits.h), as far as it is known and small. What it gets is promised to the
 * receiving buffer (simcuda/driver/promised.h), and taken from the machine when somebody reads it.
 * So a call waits for no rank. A read waits until the other rank has called, too.
 *
 * A captured operation is called by each launch of its graph.
 *
 * Unknown from here: operations beyond the limit of contents, those of a graph, what a rank brings
 * that is not started (--rank, --world), that has ended before, or that does not come in time.
 */
#ifndef RVL_SIMCUDA_NCCL_CARRY_H
#define RVL_SIMCUDA_NCCL_CARRY_H

#include "simcuda/nccl/comm.h"

/* What a rank gets. */
typedef enum rvli_carry_way {
    RVLI_CARRY_NOTHING,
    RVLI_CARRY_ONE,    /* a part of what one rank brings */
    RVLI_CARRY_EACH,   /* a part of what each brings, side by side */
    RVLI_CARRY_REDUCE, /* the same part of what each brings, reduced to one */
} rvli_carry_way;

typedef struct rvli_carried {
    rvli_comm *comm;
    const char *name; /* of the function */
    CUstream stream;
    rvli_carry_way way;
    rvli_nccl_type type;
    int operation;     /* RVLI_CARRY_REDUCE */
    bool reduces;      /* what is brought is for that, also where this rank gets nothing */
    const void *from;  /* what this rank brings; NULL: nothing */
    size_t from_bytes; /* what it or another brings */
    void *to;          /* what it gets */
    size_t bytes;      /* of a part */
    size_t at;         /* where its part begins in what is brought */
    int source;        /* RVLI_CARRY_ONE: the rank that brings it */
    int peer;          /* the other rank of a send or receive; -1: all take part */
    size_t largest;    /* buffer of any rank */
    /* carry.c's own */
    char *snapshot; /* of what it brings, and behind it which of it is known */
    bool captured;
} rvli_carried;

/* Before the receiving buffer is written. */
void rvli_carry_read(rvli_carried *call);

/* After it: ends what was read. result: of what was done since; that, or a failure, is answered. */
rvli_nccl_result rvli_carry(rvli_carried *call, rvli_nccl_result result);

#endif
