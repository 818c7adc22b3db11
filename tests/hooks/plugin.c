/* SPDX-License-Identifier: MIT */
/* A library that brings its own CUDA runtime, opened by the program for itself alone. */
#include "plugin.h"

#include "cudart_fake.h"

int plugin_malloc(void **pointer, size_t size)
{
    return cudaMalloc(pointer, size);
}

int plugin_free(void *pointer)
{
    return cudaFree(pointer);
}

int plugin_version(void)
{
    int version = 0;
    cudaRuntimeGetVersion(&version);
    return version;
}
