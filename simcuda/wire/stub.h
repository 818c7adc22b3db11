/* SPDX-License-Identifier: MIT */
/*
 * Functions that are not simulated. Every entry point of a public header becomes a weak function,
 * which a file that simulates it replaces. It says once that it was asked for, and which library
 * asked, and answers what CUDA answers where something is not supported.
 */
#ifndef RVL_SIMCUDA_STUB_H
#define RVL_SIMCUDA_STUB_H

#include <dlfcn.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* Once: the compiler would put part of it into each of some thousand functions. */
__attribute__((noinline)) static void rvli_stub_tell(const char *name, void *caller,
                                                     atomic_flag *told)
{
    Dl_info from, here;
    if (atomic_flag_test_and_set(told))
        return;
    const char *asking = dladdr(caller, &from) != 0 ? from.dli_fname : "unknown code";
    const char *own = dladdr((void *)(uintptr_t)rvli_stub_tell, &here) != 0 ? here.dli_fname : "";
    const char *slash = strrchr(own, '/');
    fprintf(stderr,
            "reveille: %s, asked for by %s, is not simulated (%s): it answers \"not supported\"\n",
            name, asking, slash != NULL ? slash + 1 : own);
}

#define RVLI_STUB(name, answer) RVLI_STUB_AS(name, #name, answer)

/* The same of a name that a macro replaces, told by its own. */
#define RVLI_STUB_AS(name, text, answer)                                                           \
    __attribute__((weak)) int name(void);                                                          \
    int name(void)                                                                                 \
    {                                                                                              \
        static atomic_flag told = ATOMIC_FLAG_INIT;                                                \
        rvli_stub_tell(text, __builtin_return_address(0), &told);                                  \
        return answer;                                                                             \
    }

#endif
