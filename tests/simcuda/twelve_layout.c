/* SPDX-License-Identifier: MIT */
/* Compares simcuda/runtime/twelve_types.h's structs of CUDA 12 with NVIDIA's headers. */
#include <cuda_runtime_api.h>

#include "simcuda/runtime/twelve_types.h"

#define SAME(field)                                                                                \
    _Static_assert(offsetof(rvli_properties_12, field) == offsetof(struct cudaDeviceProp, field),  \
                   #field)

_Static_assert(CUDART_VERSION / 1000 == 12, "headers of CUDA 12");
_Static_assert(sizeof(rvli_properties_12) == sizeof(struct cudaDeviceProp), "properties");
SAME(luidDeviceNodeMask);
SAME(totalGlobalMem);
SAME(memPitch);
SAME(clockRate);
SAME(major);
SAME(multiProcessorCount);
SAME(computeMode);
SAME(surfaceAlignment);
SAME(ECCEnabled);
SAME(asyncEngineCount);
SAME(memoryClockRate);
SAME(l2CacheSize);
SAME(maxThreadsPerMultiProcessor);
SAME(sharedMemPerMultiprocessor);
SAME(managedMemory);
SAME(cooperativeLaunch);
SAME(sharedMemPerBlockOptin);
SAME(maxBlocksPerMultiProcessor);
SAME(reservedSharedMemPerBlock);
SAME(hostRegisterSupported);
SAME(memoryPoolsSupported);
SAME(gpuDirectRDMAFlushWritesOptions);
SAME(memoryPoolSupportedHandleTypes);
SAME(unifiedFunctionPointers);
_Static_assert(sizeof(rvli_pointer_12) == sizeof(struct cudaPointerAttributes), "pointer");
_Static_assert(offsetof(rvli_pointer_12, hostPointer) ==
                   offsetof(struct cudaPointerAttributes, hostPointer),
               "hostPointer");
