/* SPDX-License-Identifier: MIT */
/*
 * dlsym() and dlvsym(), stood in front of.
 *
 * libcudart (also where it is linked into the program), NCCL and PyTorch find the driver's
 * functions by them. A look-up that is none of our business must go on as if nobody had come
 * between: RTLD_NEXT and RTLD_DEFAULT mean something else for another caller. So lookup_entry.c
 * jumps on to the C library's function with the caller's return address in place.
 *
 * The C library's own functions are read from its symbol table: any call that would find them
 * otherwise is one of ours.
 */
#ifndef RVL_HOOKS_PRELOAD_LOOKUP_H
#define RVL_HOOKS_PRELOAD_LOOKUP_H

/* The C library's; good once one of the two below has run. */
extern void *rvli_libc_dlsym;
extern void *rvli_libc_dlvsym;

/* What to answer, or NULL: jump on. */
void *rvli_lookup_dlsym(void *handle, const char *name, const void *caller);
void *rvli_lookup_dlvsym(void *handle, const char *name, const char *version, const void *caller);

#endif
