/* SPDX-License-Identifier: MIT */
/*
 * cuSPARSE's functions that are in no other file. Functions that compute with a buffer of known
 * size are accepted (sparse.h), and so are those that set what is not read. The others are not
 * simulated (simcuda/wire/stub.h).
 */
#include <stdbool.h>
#include <string.h>

#include "simcuda/math/sparse.h"
#include "simcuda/wire/stub.h"

static bool is_in(const char *name, const char *const *names, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(name, names[i]) == 0)
            return true;
    return false;
}

/* The name after "cusparse", or after a letter for the type. */
static bool computes(const char *name)
{
    static const char *const known[] = {
        "SpMM",
        "SpMM_preprocess",
        "SpMV",
        "SpMV_preprocess",
        "SDDMM",
        "SDDMM_preprocess",
        "SpSV_analysis",
        "SpSV_solve",
        "SpSM_analysis",
        "SpSM_solve",
        "SpGEMM_copy",
        "Xcoo2csr",
        "Xcsr2coo",
        "Xcsrsort",
        "XcoosortByRow",
        "XcoosortByColumn",
        "CreateIdentityPermutation",
    };
    static const char *const of_types[] = {"bsrmm",        "bsrmv",           "bsrsv2_analysis",
                                           "bsrsv2_solve", "bsrsm2_analysis", "bsrsm2_solve",
                                           "csrgeam2"};
    name += strlen("cusparse");
    return is_in(name, known, sizeof known / sizeof *known) ||
           (strchr("SDCZ", name[0]) != NULL &&
            is_in(name + 1, of_types, sizeof of_types / sizeof *of_types));
}

static bool sets(const char *name)
{
    static const char *const known[] = {
        "SetMatType",         "SetMatFillMode",     "SetMatDiagType",       "SetMatIndexBase",
        "CsrSetStridedBatch", "CooSetStridedBatch", "DnMatSetStridedBatch", "CsrSetPointers",
        "CooSetPointers",     "SpMatSetAttribute",  "SpMatSetValues",       "DnMatSetValues",
        "DnVecSetValues",
    };
    return is_in(name + strlen("cusparse"), known, sizeof known / sizeof *known);
}

static int stand_in(const char *name, void *first, void *caller, atomic_flag *told)
{
    if (computes(name))
        return rvli_sparse_compute(name, first);
    if (sets(name))
        return first != NULL ? RVLI_MATH_SUCCESS : RVLI_MATH_INVALID_VALUE;
    rvli_stub_tell(name, caller, told);
    return RVLI_SPARSE_NOT_SUPPORTED;
}

#define RVLI_ENTRY(name)                                                                           \
    __attribute__((weak)) int name(void *first);                                                   \
    int name(void *first)                                                                          \
    {                                                                                              \
        static atomic_flag told = ATOMIC_FLAG_INIT;                                                \
        return stand_in(#name, first, __builtin_return_address(0), &told);                         \
    }
#include "cusparse_entries.inc"
