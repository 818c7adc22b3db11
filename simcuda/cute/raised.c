/* SPDX-License-Identifier: MIT */
/*
 * The two functions of CuTe DSL's runtime that are not in its archive. Compiled code calls them
 * to raise an exception in Python. All others come from the archive (simcuda/CMakeLists.txt).
 */
#include <cuda_runtime_api.h>
#include <stdint.h>
#include <stdio.h>

#define TEXT_BYTES 256

/* TVMFFIErrorSetRaisedFromCStrParts(), looked up by the caller. */
typedef void raise_function(const char *kind, const char **parts, int32_t count);

void CuteDSLRT_TVMFFISetRaisedCudaError(raise_function *raise, int32_t code);
void CuteDSLRT_TVMFFISetRaisedCudaLaunchError(raise_function *raise, int32_t grid_x, int32_t grid_y,
                                              int32_t grid_z, int32_t block_x, int32_t block_y,
                                              int32_t block_z, int32_t threads,
                                              int64_t dynamic_shared_bytes, int32_t device);

static void raise_text(raise_function *raise, const char *text)
{
    raise("RuntimeError", &text, 1);
}

void CuteDSLRT_TVMFFISetRaisedCudaError(raise_function *raise, int32_t code)
{
    char text[TEXT_BYTES];
    cudaError_t error = (cudaError_t)code;
    snprintf(text, sizeof text, "CUDA error of a CuTe DSL kernel: %s (%s)", cudaGetErrorName(error),
             cudaGetErrorString(error));
    raise_text(raise, text);
}

/* The caller also passes the device's limits and the place in the source, which are not read. */
void CuteDSLRT_TVMFFISetRaisedCudaLaunchError(raise_function *raise, int32_t grid_x, int32_t grid_y,
                                              int32_t grid_z, int32_t block_x, int32_t block_y,
                                              int32_t block_z, int32_t threads,
                                              int64_t dynamic_shared_bytes, int32_t device)
{
    char text[TEXT_BYTES];
    snprintf(text, sizeof text,
             "CuTe DSL kernel refused: grid %dx%dx%d, block %dx%dx%d (%d threads), %lld bytes of "
             "dynamic shared memory are over the limits of device %d",
             grid_x, grid_y, grid_z, block_x, block_y, block_z, threads,
             (long long)dynamic_shared_bytes, device);
    raise_text(raise, text);
}
