/* SPDX-License-Identifier: MIT */
/*
 * Links device code, as cuDNN does with what NVRTC has compiled for it. Nothing is linked here:
 * the result is the first input that has kernels, or else the first input, unchanged. A program
 * that links several objects with kernels finds the kernels of one. Loaders read PTX and cubins,
 * so either form works.
 */
#include <stdlib.h>
#include <string.h>

#include "simcuda/driver/code.h"

struct CUlinkState_st {
    int device;
    void *image; /* followed by a NUL, since PTX is text; NULL: no input yet */
    size_t size_bytes;
    bool has_kernels;
};

static CUresult check_options(unsigned count, CUjit_option *options, void **values)
{
    bool missing = count > 0 && (options == NULL || values == NULL);
    return missing ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult cuLinkCreate(unsigned count, CUjit_option *options, void **values, CUlinkState *state_out)
{
    int device;
    CUresult result = rvli_current_device(&device);
    if (result == CUDA_SUCCESS)
        result =
            state_out == NULL ? CUDA_ERROR_INVALID_VALUE : check_options(count, options, values);
    if (result != CUDA_SUCCESS)
        return result;
    CUlinkState made = calloc(1, sizeof *made);
    if (made == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    made->device = device;
    rvli_code_answer(count, options, values);
    *state_out = made;
    return CUDA_SUCCESS;
}

/* Libraries and objects that are not images for the device are skipped. */
static bool has_kernels(const void *data, size_t size_bytes, int device)
{
    rvli_code code = {0};
    if (rvli_code_load(data, size_bytes, device, &code) != CUDA_SUCCESS)
        return false;
    bool has = code.image.entry_count > 0 || code.image.sealed;
    rvli_code_free(&code);
    return has;
}

CUresult cuLinkAddData(CUlinkState state, CUjitInputType type, void *data, size_t size,
                       const char *name, unsigned count, CUjit_option *options, void **values)
{
    (void)name;
    CUresult result = rvli_driver_ready();
    if (result == CUDA_SUCCESS && state == NULL)
        result = CUDA_ERROR_INVALID_HANDLE;
    if (result == CUDA_SUCCESS &&
        (data == NULL || size == 0 || (unsigned)type >= CU_JIT_NUM_INPUT_TYPES))
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        result = check_options(count, options, values);
    if (result != CUDA_SUCCESS)
        return result;
    rvli_code_answer(count, options, values);
    bool better = !state->has_kernels && has_kernels(data, size, state->device);
    if (state->image != NULL && !better)
        return CUDA_SUCCESS;
    char *image = malloc(size + 1);
    if (image == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    memcpy(image, data, size);
    image[size] = '\0';
    free(state->image);
    state->image = image;
    state->size_bytes = size;
    state->has_kernels = better;
    return CUDA_SUCCESS;
}

CUresult cuLinkComplete(CUlinkState state, void **cubin_out, size_t *size_out)
{
    CUresult result = rvli_driver_ready();
    if (result != CUDA_SUCCESS)
        return result;
    if (state == NULL)
        return CUDA_ERROR_INVALID_HANDLE;
    if (cubin_out == NULL || state->image == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *cubin_out = state->image;
    if (size_out != NULL)
        *size_out = state->size_bytes;
    return CUDA_SUCCESS;
}

CUresult cuLinkDestroy(CUlinkState state)
{
    CUresult result = rvli_driver_ready();
    if (result == CUDA_SUCCESS && state == NULL)
        result = CUDA_ERROR_INVALID_HANDLE;
    if (result != CUDA_SUCCESS)
        return result;
    free(state->image);
    free(state);
    return CUDA_SUCCESS;
}

/* ---- The names of CUDA 5.5, which some libraries look up. Identical on 64-bit machines ---- */

#undef cuLinkCreate
#undef cuLinkAddData

CUresult cuLinkCreate(unsigned count, CUjit_option *options, void **values, CUlinkState *state_out);
CUresult cuLinkAddData(CUlinkState state, CUjitInputType type, void *data, size_t size,
                       const char *name, unsigned count, CUjit_option *options, void **values);

CUresult cuLinkCreate(unsigned count, CUjit_option *options, void **values, CUlinkState *state_out)
{
    return cuLinkCreate_v2(count, options, values, state_out);
}

CUresult cuLinkAddData(CUlinkState state, CUjitInputType type, void *data, size_t size,
                       const char *name, unsigned count, CUjit_option *options, void **values)
{
    return cuLinkAddData_v2(state, type, data, size, name, count, options, values);
}
