/* SPDX-License-Identifier: MIT */
/*
 * Functions that are not simulated. Every entry point of a public header becomes a weak
 * function, which a file that simulates the function overrides. On its first call, the stub
 * reports its name and the library that called it. It always returns CUDA's error for an
 * unsupported operation.
 */
#ifndef RVL_SIMCUDA_STUB_H
#define RVL_SIMCUDA_STUB_H

#include <dlfcn.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* Not inlined: otherwise the compiler copies part of it into each of about a thousand functions. */
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

/* Like RVLI_STUB, for a name that a macro replaces: text is the name to report. */
#define RVLI_STUB_AS(name, text, answer)                                                           \
    __attribute__((weak)) int name(void);                                                          \
    int name(void)                                                                                 \
    {                                                                                              \
        static atomic_flag told = ATOMIC_FLAG_INIT;                                                \
        rvli_stub_tell(text, __builtin_return_address(0), &told);                                  \
        return answer;                                                                             \
    }

#endif
