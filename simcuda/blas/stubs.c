/* SPDX-License-Identifier: MIT */
/*
 * cuBLAS's functions that blas.c does not have. One that computes is taken and does nothing: it
 * uses no memory that its caller does not give it. The others are not simulated
 * (simcuda/wire/stub.h).
 */
#include <ctype.h>
#include <stdbool.h>
#include <string.h>

#include "simcuda/wire/stub.h"

#define SUCCESS 0
#define NOT_SUPPORTED 15

/* cublasSgemm, cublasGemmEx, cublasIsamax: a letter for the type, or what BLAS calls the operation.
 */
static bool computes(const char *name)
{
    static const char *const others[] = {"Set",      "Get",  "Create", "Destroy", "Init",
                                         "Shutdown", "Free", "Alloc",  "Logger",  "Xt"};
    name += strlen("cublas");
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (strncmp(name, others[i], strlen(others[i])) == 0)
            return false;
    return strstr(name, "Ex") != NULL ||
           (strchr("SDCZHI", name[0]) != NULL && islower((unsigned char)name[1]));
}

static int stand_in(const char *name, void *caller, atomic_flag *told)
{
    if (computes(name))
        return SUCCESS;
    rvli_stub_tell(name, caller, told);
    return NOT_SUPPORTED;
}

#define RVLI_ENTRY(name)                                                                           \
    __attribute__((weak)) int name(void);                                                          \
    int name(void)                                                                                 \
    {                                                                                              \
        static atomic_flag told = ATOMIC_FLAG_INIT;                                                \
        return stand_in(#name, __builtin_return_address(0), &told);                                \
    }
#include "cublas_entries.inc"
