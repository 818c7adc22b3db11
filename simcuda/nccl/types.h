/* SPDX-License-Identifier: MIT */
/*
 * The layout of NCCL's types, as NVIDIA documents them ("NCCL API", versions 2.28 to 2.30).
 * CUDA's packages do not contain its header. If one is available, tests/simcuda/nccl_layout.c
 * compares the two.
 */
#ifndef RVL_SIMCUDA_NCCL_TYPES_H
#define RVL_SIMCUDA_NCCL_TYPES_H

#include <limits.h>
#include <stddef.h>
#include <stdint.h>

#define RVLI_NCCL_VERSION 23007 /* 2.30.7, unless another version is requested */
#define RVLI_NCCL_ID_BYTES 128
#define RVLI_NCCL_CONFIG_MAGIC 0xcafebeefu
#define RVLI_NCCL_NOT_SET INT_MIN /* an int in a config */
#define RVLI_NCCL_NO_COLOR (-1)
#define RVLI_NCCL_SUSPEND_MEMORY 1
#define RVLI_NCCL_WINDOW_ALIGNMENT 4096

typedef enum rvli_nccl_result {
    RVLI_NCCL_SUCCESS,
    RVLI_NCCL_CUDA_ERROR,
    RVLI_NCCL_SYSTEM_ERROR,
    RVLI_NCCL_INTERNAL_ERROR,
    RVLI_NCCL_INVALID_ARGUMENT,
    RVLI_NCCL_INVALID_USAGE,
    RVLI_NCCL_REMOTE_ERROR,
    RVLI_NCCL_IN_PROGRESS,
} rvli_nccl_result;

typedef enum rvli_nccl_type {
    RVLI_NCCL_INT8,
    RVLI_NCCL_UINT8,
    RVLI_NCCL_INT32,
    RVLI_NCCL_UINT32,
    RVLI_NCCL_INT64,
    RVLI_NCCL_UINT64,
    RVLI_NCCL_FLOAT16,
    RVLI_NCCL_FLOAT32,
    RVLI_NCCL_FLOAT64,
    RVLI_NCCL_BFLOAT16,
    RVLI_NCCL_FLOAT8_E4M3,
    RVLI_NCCL_FLOAT8_E5M2,
    RVLI_NCCL_TYPES,
} rvli_nccl_type;

#define RVLI_NCCL_OPERATIONS                                                                       \
    5 /* sum, product, max, min, average; operators made by a program have higher numbers */

typedef struct rvli_nccl_id {
    char bytes[RVLI_NCCL_ID_BYTES];
} rvli_nccl_id;

/* The beginning of a config, common to all versions. */
typedef struct rvli_nccl_config {
    size_t size_bytes;
    unsigned magic;
    unsigned version;
    int blocking;
    int cluster_size;
    int blocks_least;
    int blocks_most;
    const char *network;
    int split_share;
} rvli_nccl_config;

typedef enum rvli_nccl_memory {
    RVLI_NCCL_MEMORY_SUSPENDABLE,
    RVLI_NCCL_MEMORY_SUSPENDED, /* whether it is suspended */
    RVLI_NCCL_MEMORY_PERSISTENT,
    RVLI_NCCL_MEMORY_TOTAL,
} rvli_nccl_memory;

typedef struct rvli_nccl_estimate {
    size_t size_bytes;
    unsigned magic;
    unsigned version;
    float microseconds;
} rvli_nccl_estimate;

#endif
