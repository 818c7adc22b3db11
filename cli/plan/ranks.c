/* SPDX-License-Identifier: MIT */
/*
 * One of several processes that mpirun started, or the only one. The module that speaks MPI lies
 * beside the command, as it is built, or in the library folder, as it is installed.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "plan/mpi.h"
#include "plan/plan.h"

#define PATH_BYTES 4096

static const plan_mpi *mpi; /* NULL: the only one */
static int rank;
static int ranks = 1;

/* FOLDER_OF_THE_COMMAND/within/MODULE. NULL: it is not there, or no module of ours. */
static const plan_mpi *open_module(const char *within)
{
    char path[PATH_BYTES];
    ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
    if (length <= 0)
        return NULL;
    path[length] = '\0';
    size_t folder = (size_t)(strrchr(path, '/') - path) + 1;
    size_t room = sizeof path - folder;
    if ((size_t)snprintf(path + folder, room, "%s%s", within, PLAN_MPI_MODULE) >= room)
        return NULL;
    void *module = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
    const plan_mpi *found = module != NULL ? dlsym(module, PLAN_MPI_SYMBOL) : NULL;
    return found != NULL && found->version == PLAN_MPI_VERSION ? found : NULL;
}

int plan_ranks_join(void)
{
    const char *size = getenv("OMPI_COMM_WORLD_SIZE");
    if (size == NULL || atoi(size) <= 1)
        return 0;
    mpi = open_module("");
    if (mpi == NULL)
        mpi = open_module(RVL_LIBRARIES_FROM_COMMAND "/reveille/");
    if (mpi == NULL)
        return complain(EXIT_BAD_INPUT,
                        "mpirun started this, and it was built without MPI: run it without "
                        "mpirun, or build it where libopenmpi-dev is installed");
    if (!mpi->join(&rank, &ranks)) {
        mpi = NULL;
        return complain(EXIT_INTERNAL, "MPI_Init failed");
    }
    /* Every rank finds the same faults: the first one tells them. */
    if (rank > 0 &&
        (freopen("/dev/null", "w", stdout) == NULL || freopen("/dev/null", "w", stderr) == NULL))
        return EXIT_INTERNAL;
    return 0;
}

int plan_rank(void)
{
    return rank;
}

int plan_rank_count(void)
{
    return ranks;
}

bool plan_ranks_agree(bool yes)
{
    return mpi != NULL ? mpi->agree(yes) : yes;
}

bool plan_ranks_gather(void *items, size_t item_bytes, size_t count)
{
    return mpi == NULL || mpi->gather(items, item_bytes, count);
}

void plan_ranks_leave(void)
{
    if (mpi != NULL)
        mpi->leave();
    mpi = NULL;
}
