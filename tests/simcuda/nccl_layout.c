/* SPDX-License-Identifier: MIT */
/* Compares simcuda/nccl/nccl.h's types of NCCL with NVIDIA's header. */
#include <nccl.h>

#include "simcuda/nccl/types.h"

#define SAME(ours, theirs) _Static_assert((long)(ours) == (long)(theirs), #ours)

SAME(sizeof(rvli_nccl_id), sizeof(ncclUniqueId));
SAME(sizeof(rvli_nccl_estimate), sizeof(ncclSimInfo_t));
SAME(offsetof(rvli_nccl_config, magic), offsetof(ncclConfig_t, magic));
SAME(offsetof(rvli_nccl_config, blocking), offsetof(ncclConfig_t, blocking));
SAME(offsetof(rvli_nccl_config, split_share), offsetof(ncclConfig_t, splitShare));
SAME(RVLI_NCCL_NOT_SET, NCCL_CONFIG_UNDEF_INT);
SAME(RVLI_NCCL_NO_COLOR, NCCL_SPLIT_NOCOLOR);
SAME(RVLI_NCCL_WINDOW_ALIGNMENT, NCCL_WIN_REQUIRED_ALIGNMENT);
SAME(RVLI_NCCL_CUDA_ERROR, ncclUnhandledCudaError);
SAME(RVLI_NCCL_SYSTEM_ERROR, ncclSystemError);
SAME(RVLI_NCCL_INTERNAL_ERROR, ncclInternalError);
SAME(RVLI_NCCL_INVALID_ARGUMENT, ncclInvalidArgument);
SAME(RVLI_NCCL_INVALID_USAGE, ncclInvalidUsage);
SAME(RVLI_NCCL_REMOTE_ERROR, ncclRemoteError);
SAME(RVLI_NCCL_IN_PROGRESS, ncclInProgress);
SAME(RVLI_NCCL_UINT64, ncclUint64);
SAME(RVLI_NCCL_FLOAT16, ncclFloat16);
SAME(RVLI_NCCL_FLOAT64, ncclFloat64);
SAME(RVLI_NCCL_BFLOAT16, ncclBfloat16);
SAME(RVLI_NCCL_FLOAT8_E5M2, ncclFloat8e5m2);
SAME(RVLI_NCCL_TYPES, ncclNumTypes);
SAME(RVLI_NCCL_OPERATIONS, ncclNumOps);
