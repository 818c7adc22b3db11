/* SPDX-License-Identifier: MIT */
/* The signatures of NCCL's functions, as far as they are simulated. */
#ifndef RVL_SIMCUDA_NCCL_NCCL_H
#define RVL_SIMCUDA_NCCL_NCCL_H

#include <cuda.h>

#include "simcuda/nccl/types.h"

typedef struct ncclComm rvli_comm;
typedef struct rvli_window rvli_window;

/* NCCL has a second name for every function, for profilers that intercept the first. */
#define RVLI_NCCL_ALSO(name) extern __typeof__(name) p##name __attribute__((alias(#name)));

rvli_nccl_result ncclGetVersion(int *version);
const char *ncclGetErrorString(rvli_nccl_result result);
const char *ncclGetLastError(rvli_comm *comm);
void ncclResetDebugInit(void);
rvli_nccl_result ncclGroupStart(void);
rvli_nccl_result ncclGroupEnd(void);
rvli_nccl_result ncclGroupSimulateEnd(rvli_nccl_estimate *estimate);

rvli_nccl_result ncclGetUniqueId(rvli_nccl_id *id);
rvli_nccl_result ncclCommInitRank(rvli_comm **comm, int ranks, rvli_nccl_id id, int rank);
rvli_nccl_result ncclCommInitRankConfig(rvli_comm **comm, int ranks, rvli_nccl_id id, int rank,
                                        const rvli_nccl_config *config);
rvli_nccl_result ncclCommInitRankScalable(rvli_comm **comm, int ranks, int rank, int id_count,
                                          const rvli_nccl_id *ids, const rvli_nccl_config *config);
rvli_nccl_result ncclCommInitAll(rvli_comm **comms, int count, const int *devices);
rvli_nccl_result ncclCommSplit(rvli_comm *comm, int color, int key, rvli_comm **made,
                               const rvli_nccl_config *config);
rvli_nccl_result ncclCommShrink(rvli_comm *comm, const int *excluded, int excluded_count,
                                rvli_comm **made, const rvli_nccl_config *config, int flags);
rvli_nccl_result ncclCommFinalize(rvli_comm *comm);
rvli_nccl_result ncclCommDestroy(rvli_comm *comm);
rvli_nccl_result ncclCommAbort(rvli_comm *comm);
rvli_nccl_result ncclCommRevoke(rvli_comm *comm, int flags);
rvli_nccl_result ncclCommGetAsyncError(rvli_comm *comm, rvli_nccl_result *result);
rvli_nccl_result ncclCommCount(const rvli_comm *comm, int *count);
rvli_nccl_result ncclCommCuDevice(const rvli_comm *comm, int *device);
rvli_nccl_result ncclCommUserRank(const rvli_comm *comm, int *rank);

rvli_nccl_result ncclMemAlloc(void **memory, size_t size_bytes);
rvli_nccl_result ncclMemFree(void *memory);
rvli_nccl_result ncclCommRegister(rvli_comm *comm, void *memory, size_t size_bytes, void **handle);
rvli_nccl_result ncclCommDeregister(rvli_comm *comm, void *handle);
rvli_nccl_result ncclCommWindowRegister(rvli_comm *comm, void *memory, size_t size_bytes,
                                        rvli_window **window, int flags);
rvli_nccl_result ncclCommWindowDeregister(rvli_comm *comm, rvli_window *window);
rvli_nccl_result ncclWinGetUserPtr(rvli_comm *comm, rvli_window *window, void **memory);
rvli_nccl_result ncclCommSuspend(rvli_comm *comm, int flags);
rvli_nccl_result ncclCommResume(rvli_comm *comm);
rvli_nccl_result ncclCommMemStats(rvli_comm *comm, rvli_nccl_memory what, uint64_t *value);

rvli_nccl_result ncclRedOpCreatePreMulSum(int *operation, void *scalar, rvli_nccl_type type,
                                          int residence, rvli_comm *comm);
rvli_nccl_result ncclRedOpDestroy(int operation, rvli_comm *comm);
rvli_nccl_result ncclReduce(const void *from, void *to, size_t count, rvli_nccl_type type,
                            int operation, int root, rvli_comm *comm, CUstream stream);
rvli_nccl_result ncclBcast(void *buffer, size_t count, rvli_nccl_type type, int root,
                           rvli_comm *comm, CUstream stream);
rvli_nccl_result ncclBroadcast(const void *from, void *to, size_t count, rvli_nccl_type type,
                               int root, rvli_comm *comm, CUstream stream);
rvli_nccl_result ncclAllReduce(const void *from, void *to, size_t count, rvli_nccl_type type,
                               int operation, rvli_comm *comm, CUstream stream);
rvli_nccl_result ncclReduceScatter(const void *from, void *to, size_t count, rvli_nccl_type type,
                                   int operation, rvli_comm *comm, CUstream stream);
rvli_nccl_result ncclAllGather(const void *from, void *to, size_t count, rvli_nccl_type type,
                               rvli_comm *comm, CUstream stream);
rvli_nccl_result ncclAlltoAll(const void *from, void *to, size_t count, rvli_nccl_type type,
                              rvli_comm *comm, CUstream stream);
rvli_nccl_result ncclGather(const void *from, void *to, size_t count, rvli_nccl_type type, int root,
                            rvli_comm *comm, CUstream stream);
rvli_nccl_result ncclScatter(const void *from, void *to, size_t count, rvli_nccl_type type,
                             int root, rvli_comm *comm, CUstream stream);
rvli_nccl_result ncclSend(const void *from, size_t count, rvli_nccl_type type, int peer,
                          rvli_comm *comm, CUstream stream);
rvli_nccl_result ncclRecv(void *to, size_t count, rvli_nccl_type type, int peer, rvli_comm *comm,
                          CUstream stream);

#endif
