/* SPDX-License-Identifier: MIT */
/*
 * NVTX, played by hand for where its headers are not: it opens the library that
 * NVTX_INJECTION64_PATH names, offers it tables of functions, and calls what that has put there.
 */
#ifndef RVL_TESTS_NVTX_BY_HAND_H
#define RVL_TESTS_NVTX_BY_HAND_H

#include <stdint.h>

typedef struct nvtx_range {
    uint16_t version;
    uint16_t size;
    uint32_t category;
    int32_t color_type;
    uint32_t color;
    int32_t payload_type;
    int32_t reserved;
    uint64_t payload;
    int32_t message_type;
    const void *message;
} nvtx_range;

enum { NVTX_UNKNOWN = 0, NVTX_ASCII = 1, NVTX_UNICODE = 2, NVTX_REGISTERED = 3 };

/* Ranges without a domain, by name and by description; then those of a domain. */
void nvtx_push(const char *name);
void nvtx_push_range(const nvtx_range *range);
void nvtx_start(const char *name);
void nvtx_start_range(const nvtx_range *range);
void nvtx_domain_push(const nvtx_range *range);
void nvtx_domain_start(const nvtx_range *range);
const void *nvtx_domain_register(const char *name);

#endif
