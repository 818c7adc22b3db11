/* SPDX-License-Identifier: MIT */
/*
 * cuSOLVER's functions that are in no other file. A function that computes, with a workspace of
 * known size, is accepted (solver.h). The others are not simulated (simcuda/wire/stub.h).
 */
#include <stdbool.h>
#include <string.h>

#include "simcuda/math/solver.h"
#include "simcuda/wire/stub.h"

/* The name after "cusolverDn": a letter for the type, or X, and the operation. */
static bool computes(const char *name)
{
    static const char *const known[] = {
        "potrf",        "potrs",       "getrf",  "getrs",         "sytrf",
        "sytrs",        "geqrf",       "orgqr",  "ungqr",         "ormqr",
        "unmqr",        "gesvd",       "gesvdj", "gesvdjBatched", "gesvdaStridedBatched",
        "syevd",        "heevd",       "syevj",  "heevj",         "syevjBatched",
        "heevjBatched", "syevBatched", "geev",   "potrfBatched",  "potrsBatched",
    };
    if (strncmp(name, "cusolverDn", 10) != 0 || strchr("SDCZX", name[10]) == NULL)
        return false;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(name + 11, known[i]) == 0)
            return true;
    return false;
}

static int stand_in(const char *name, void *handle, void *caller, atomic_flag *told)
{
    if (computes(name))
        return rvli_solver_compute(name, handle);
    rvli_stub_tell(name, caller, told);
    return RVLI_SOLVER_NOT_SUPPORTED;
}

#define RVLI_ENTRY(name)                                                                           \
    __attribute__((weak)) int name(void *handle);                                                  \
    int name(void *handle)                                                                         \
    {                                                                                              \
        static atomic_flag told = ATOMIC_FLAG_INIT;                                                \
        return stand_in(#name, handle, __builtin_return_address(0), &told);                        \
    }
#include "cusolver_entries.inc"
