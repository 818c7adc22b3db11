/* SPDX-License-Identifier: MIT */
/*
 * The settings of PyTorch's caching allocator that the model follows, under their names in
 * PYTORCH_CUDA_ALLOC_CONF. --set uses the same names.
 */
#ifndef RVL_PREDICT_SNAPSHOT_SETTINGS_H
#define RVL_PREDICT_SNAPSHOT_SETTINGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "reveille/status.h"

/* One for each power of two from 1 MiB to 32 GiB. */
#define RVLI_ROUNDUP_BUCKETS 16

typedef struct rvli_settings {
    uint64_t max_split_bytes; /* UINT64_MAX: none */
    uint64_t max_non_split_rounding_bytes;
    uint64_t large_segment_bytes; /* segment size for requests below 10 MiB; page size of ranges for
                                     large blocks */
    double gc_threshold;          /* 0: no garbage collection */
    double memory_fraction;       /* of the capacity; 0: not set */
    bool expandable;
    uint64_t divisions[RVLI_ROUNDUP_BUCKETS]; /* 0, 1: none */
} rvli_settings;

void rvli_settings_default(rvli_settings *settings);

/*
 * Sets the setting with a name such as "max_split_size_mb". RVL_OK; RVL_ERR_NOT_FOUND: there is no
 * such setting; RVL_ERR_INVALID: not a valid value, and *expected_out describes the valid ones.
 */
rvl_status rvli_settings_set(rvli_settings *settings, const char *key, size_t key_length,
                             const char *value, size_t value_length, const char **expected_out);

/*
 * Sets all settings of a PYTORCH_CUDA_ALLOC_CONF. false: it has names or values that the model does
 * not follow although they may matter.
 */
bool rvli_settings_set_all(rvli_settings *settings, const char *conf, size_t length);

/* "expandable_segments, max_split_size_mb, ..." */
const char *rvli_settings_names(void);

/* Returns the divisions of the bucket for a size of at least 1 byte. */
uint64_t rvli_settings_divisions(const rvli_settings *settings, uint64_t size);

bool rvli_settings_same(const rvli_settings *a, const rvli_settings *b);

#endif
