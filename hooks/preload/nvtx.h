/* SPDX-License-Identifier: MIT */
/*
 * NVTX ranges as stages. NVTX is a header: a program has it compiled in, and at its first call it
 * opens the library that NVTX_INJECTION64_PATH names and calls InitializeInjectionNvtx2() there,
 * which puts functions in its tables. A range with a name that begins with a prefix is a stage,
 * named by the rest. It ends where it ends: a push with its pop, a start with its end.
 */
#ifndef RVL_HOOKS_PRELOAD_NVTX_H
#define RVL_HOOKS_PRELOAD_NVTX_H

/* "" : every range is a stage. */
void rvli_nvtx_set_prefix(const char *prefix);

/* Called by NVTX. 1: done. */
typedef const void *(*rvli_nvtx_get_table)(unsigned table);
__attribute__((visibility("default"))) int InitializeInjectionNvtx2(rvli_nvtx_get_table get_table);

#endif
