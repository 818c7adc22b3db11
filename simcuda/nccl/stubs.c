/* SPDX-License-Identifier: MIT */
/*
 * NCCL's functions that are not simulated (simcuda/wire/stub.h), of 2.28 to 2.31: those for
 * kernels that communicate themselves, one-sided operations, growth, parameters, and the forms
 * with a config for each call. Programs built for such a version can be loaded, and get a
 * message when they call one.
 */
#include "simcuda/wire/stub.h"

#define NOT_SUPPORTED 5 /* ncclInvalidUsage: NCCL's result for what a device does not support */
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
