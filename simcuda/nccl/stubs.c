/* SPDX-License-Identifier: MIT */
/*
 * NCCL's functions that are not simulated (simcuda/wire/stub.h), of 2.28 to 2.31: those of kernels
 * that communicate themselves, of one-sided operations, of growth, of parameters, and the forms
 * with a config for each call. Programs that were built with such a version load, and are told when
 * they call one.
 */
#include "simcuda/wire/stub.h"

#define NOT_SUPPORTED                                                                              \
    5 /* ncclInvalidUsage: what NCCL answers where a device cannot do something                    \
       */
#define NAMED(name) RVLI_STUB(name, NOT_SUPPORTED) RVLI_STUB(p##name, NOT_SUPPORTED)

NAMED(ncclDevCommCreate)
NAMED(ncclDevCommDestroy)
RVLI_STUB(ncclGetLsaMultimemDevicePointer, NOT_SUPPORTED)
RVLI_STUB(ncclGetLsaDevicePointer, NOT_SUPPORTED)
RVLI_STUB(ncclGetPeerDevicePointer, NOT_SUPPORTED)
NAMED(ncclGinBarrierCreateRequirement)
NAMED(ncclLsaBarrierCreateRequirement)
NAMED(ncclLLA2ACreateRequirement)
NAMED(ncclPutSignal)
NAMED(ncclSignal)
NAMED(ncclWaitSignal)
NAMED(ncclCommGetUniqueId)
NAMED(ncclCommGrow)
NAMED(ncclAllReduceConfig)
NAMED(ncclBroadcastConfig)
NAMED(ncclReduceConfig)
NAMED(ncclAllGatherConfig)
NAMED(ncclReduceScatterConfig)
NAMED(ncclAlltoAllConfig)
NAMED(ncclGatherConfig)
NAMED(ncclScatterConfig)
NAMED(ncclParamBind)
NAMED(ncclParamGet)
NAMED(ncclParamGetStr)
NAMED(ncclParamGetParameter)
NAMED(ncclParamGetAllParameterKeys)
