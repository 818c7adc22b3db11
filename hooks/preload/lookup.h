/* SPDX-License-Identifier: MIT */
/*
 * Interception of dlsym() and dlvsym().
 *
 * libcudart (also if linked into the program), NCCL and PyTorch find the driver's functions by
 * them. Any other look-up must behave as if it were not intercepted, but RTLD_NEXT and RTLD_DEFAULT
 * depend on the caller. So lookup_entry.c jumps to the C library's function with the caller's
 * return address in place.
 *
 * The C library's own functions are read from its symbol table, because any call that would find
 * them is intercepted.
 */
#ifndef RVL_HOOKS_PRELOAD_LOOKUP_H
#define RVL_HOOKS_PRELOAD_LOOKUP_H

/* The C library's functions. Valid once one of the two functions below has run. */
extern void *rvli_libc_dlsym;
extern void *rvli_libc_dlvsym;

/* Return the result, or NULL to jump to the C library's function. */
void *rvli_lookup_dlsym(void *handle, const char *name, const void *caller);
void *rvli_lookup_dlvsym(void *handle, const char *name, const char *version, const void *caller);

#endif
