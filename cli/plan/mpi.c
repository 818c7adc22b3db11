/* SPDX-License-Identifier: MIT */
/*
 * The module that speaks MPI (Open MPI).
 *
 * Items stay where they are: every n-th item is one strided type, sent from and received at the
 * same places, so that a gathering takes no memory and cannot fail for want of it on one rank only.
 */
#include <limits.h>
#include <mpi.h>

#include "plan/mpi.h"

__attribute__((visibility("default"))) extern const plan_mpi rvl_plan_mpi;

static int rank;
static int ranks = 1;

static bool join(int *rank_out, int *count_out)
{
    int provided;
    if (MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &provided) != MPI_SUCCESS)
        return false;
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    if (MPI_Comm_rank(MPI_COMM_WORLD, &rank) != MPI_SUCCESS ||
        MPI_Comm_size(MPI_COMM_WORLD, &ranks) != MPI_SUCCESS)
        return false;
    *rank_out = rank;
    *count_out = ranks;
    return true;
}

static bool agree(bool yes)
{
    int mine = yes, all = 0;
    return MPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD) == MPI_SUCCESS &&
           all != 0;
}

/* Number of items of a rank. */
static size_t share_of(size_t count, int of)
{
    size_t first = (size_t)of;
    return first < count ? (count - first - 1) / (size_t)ranks + 1 : 0;
}

static bool transfer(char *items, size_t item_bytes, size_t count, int of)
{
    MPI_Datatype type;
    size_t share = share_of(count, of);
    if (share == 0)
        return true;
    if (share > INT_MAX || item_bytes > INT_MAX ||
        MPI_Type_create_hvector((int)share, (int)item_bytes, (MPI_Aint)item_bytes * (MPI_Aint)ranks,
                                MPI_BYTE, &type) != MPI_SUCCESS)
        return false;
    char *first = items + (size_t)of * item_bytes;
    int status = MPI_Type_commit(&type);
    if (status == MPI_SUCCESS)
        status = rank == 0 ? MPI_Recv(first, 1, type, of, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE)
                           : MPI_Send(first, 1, type, 0, 0, MPI_COMM_WORLD);
    MPI_Type_free(&type);
    return status == MPI_SUCCESS;
}

static bool gather(void *items, size_t item_bytes, size_t count)
{
    if (rank != 0)
        return transfer(items, item_bytes, count, rank);
    bool arrived = true;
    for (int of = 1; of < ranks && arrived; of++)
        arrived = transfer(items, item_bytes, count, of);
    return arrived;
}

static void leave(void)
{
    MPI_Finalize();
}

const plan_mpi rvl_plan_mpi = {
    .version = PLAN_MPI_VERSION,
    .join = join,
    .agree = agree,
    .gather = gather,
    .leave = leave,
};
