/* SPDX-License-Identifier: MIT */
/*
 * CUDA 12's runtime, libcudart.so.12, from the sources and headers of CUDA 13's. The compiler
 * reads this file before every source of that library.
 *
 * Names that exist in both with another signature or other structs are renamed here, and
 * twelve.c has CUDA 12's version. The lists are kept by hand. They are the differences in
 * functions between NVIDIA's cuda_runtime_api.h and driver_types.h of 12.8 and of 13.0.
 */
#ifndef RVL_SIMCUDA_RUNTIME_TWELVE_H
#define RVL_SIMCUDA_RUNTIME_TWELVE_H

#define RVLI_RUNTIME_VERSION 12080

/* Structs with other fields. */
#define cudaGetDeviceProperties rvli_13_cudaGetDeviceProperties
#define cudaPointerGetAttributes rvli_13_cudaPointerGetAttributes
#define cudaChooseDevice rvli_13_cudaChooseDevice
#define cudaCreateTextureObject rvli_13_cudaCreateTextureObject
#define cudaCreateSurfaceObject rvli_13_cudaCreateSurfaceObject
#define cudaGetTextureObjectResourceDesc rvli_13_cudaGetTextureObjectResourceDesc
#define cudaGetSurfaceObjectResourceDesc rvli_13_cudaGetSurfaceObjectResourceDesc
#define cudaImportExternalMemory rvli_13_cudaImportExternalMemory
#define cudaImportExternalSemaphore rvli_13_cudaImportExternalSemaphore

/* Edges of graphs with data. In CUDA 12, these names end in _v2. */
#define cudaGraphAddDependencies rvli_13_cudaGraphAddDependencies
#define cudaGraphAddNode rvli_13_cudaGraphAddNode
#define cudaGraphGetEdges rvli_13_cudaGraphGetEdges
#define cudaGraphNodeGetDependencies rvli_13_cudaGraphNodeGetDependencies
#define cudaGraphNodeGetDependentNodes rvli_13_cudaGraphNodeGetDependentNodes
#define cudaGraphRemoveDependencies rvli_13_cudaGraphRemoveDependencies
#define cudaStreamGetCaptureInfo rvli_13_cudaStreamGetCaptureInfo
#define cudaStreamUpdateCaptureDependencies rvli_13_cudaStreamUpdateCaptureDependencies

/* Locations instead of devices, likewise. */
#define cudaMemAdvise rvli_13_cudaMemAdvise
#define cudaMemPrefetchAsync rvli_13_cudaMemPrefetchAsync

/* One argument fewer. */
#define cudaMemcpyBatchAsync rvli_13_cudaMemcpyBatchAsync
#define cudaMemcpy3DBatchAsync rvli_13_cudaMemcpy3DBatchAsync

#endif
