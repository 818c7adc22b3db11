/* SPDX-License-Identifier: MIT */
/*
 * What the module that speaks MPI offers. The command opens it when mpirun has started it, and so
 * needs no MPI otherwise.
 */
#ifndef RVL_CLI_PLAN_MPI_H
#define RVL_CLI_PLAN_MPI_H

#include <stdbool.h>
#include <stddef.h>

#define PLAN_MPI_MODULE "reveille-mpi.so"
#define PLAN_MPI_SYMBOL "rvl_plan_mpi"
#define PLAN_MPI_VERSION 1

typedef struct plan_mpi {
    int version;
    bool (*join)(int *rank_out, int *count_out);
    /* Whether all ranks say yes. */
    bool (*agree)(bool yes);
    /* Brings items r, r + ranks, ... of rank r to the same places on rank 0. */
    bool (*gather)(void *items, size_t item_bytes, size_t count);
    void (*leave)(void);
} plan_mpi;

#endif
