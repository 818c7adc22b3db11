/* SPDX-License-Identifier: MIT */
/*
 * NVTX ranges as stages. NVTX is a header: a program has it compiled in, and at its first call it
 * opens the library that NVTX_INJECTION64_PATH names and calls InitializeInjectionNvtx2() there,
 * which puts functions in its tables. A range with a name that begins with a prefix is a stage,
 * named by the rest. It ends where it ends: a push with its pop, a start with its end.
 *
 * The library that links this says who is told of stages: the recorder of the preload library, or
 * the machine of simulated GPUs.
 */
#ifndef RVL_NVTX_NVTX_H
#define RVL_NVTX_NVTX_H

#include <stdint.h>

/* Numbers of NVTX's stages begin here; those that others give out lie below. */
#define RVLI_NVTX_FIRST_ID (UINT64_C(1) << 32)

/* Names have 1 to RVLI_NVTX_NAME_MAX_BYTES bytes: a range with a longer one is no stage. */
#define RVLI_NVTX_NAME_MAX_BYTES 255u

/* Who is told, on the thread that begins or ends the range. */
typedef struct rvli_nvtx_sink {
    void (*enter)(uint64_t id, const char *name);
    void (*leave)(uint64_t id);
} rvli_nvtx_sink;

/* From now on ranges with this prefix are stages ("": all). The prefix is copied; the sink stays.
 */
void rvli_nvtx_listen(const char *prefix, const rvli_nvtx_sink *sink);

/* Called by NVTX. 1: done. */
typedef const void *(*rvli_nvtx_get_table)(unsigned table);
__attribute__((visibility("default"))) int InitializeInjectionNvtx2(rvli_nvtx_get_table get_table);

#endif
