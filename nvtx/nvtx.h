/* SPDX-License-Identifier: MIT */
/*
 * NVTX ranges as stages. NVTX is a header that is compiled into programs. At its first call, it
 * opens the library that NVTX_INJECTION64_PATH names and calls its InitializeInjectionNvtx2(),
 * which puts functions into NVTX's tables. A range with a name that begins with a prefix is a
 * stage, named by the rest. The stage ends with its range: a push with its pop, a start with its
 * end.
 *
 * The library that links this chooses the receiver of stages: the recorder of the preload library,
 * or the machine of simulated GPUs.
 */
#ifndef RVL_NVTX_NVTX_H
#define RVL_NVTX_NVTX_H

#include <stdint.h>

/* The first id of NVTX's stages. Other sources use lower ids. */
#define RVLI_NVTX_FIRST_ID (UINT64_C(1) << 32)

/* Names have 1 to RVLI_NVTX_NAME_MAX_BYTES bytes. A range with a longer name is not a stage. */
#define RVLI_NVTX_NAME_MAX_BYTES 255u

/* The receiver of stages, called on the thread that begins or ends the range. */
typedef struct rvli_nvtx_sink {
    void (*enter)(uint64_t id, const char *name);
    void (*leave)(uint64_t id);
} rvli_nvtx_sink;

/*
 * Makes ranges with this prefix stages from now on ("": all ranges). The prefix is copied. The sink
 * must stay valid.
 */
void rvli_nvtx_listen(const char *prefix, const rvli_nvtx_sink *sink);

/* Called by NVTX. Returns 1 on success. */
typedef const void *(*rvli_nvtx_get_table)(unsigned table);
__attribute__((visibility("default"))) int InitializeInjectionNvtx2(rvli_nvtx_get_table get_table);

#endif
