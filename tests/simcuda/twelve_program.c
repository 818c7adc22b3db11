/* SPDX-License-Identifier: MIT */
/*
 * A program built for CUDA 12. It is linked with libcudart.so.12, with the names and structs of
 * CUDA 12's headers. Prints one fact per line.
 */
#include <stdio.h>
#include <string.h>

#include "simcuda/runtime/twelve_types.h"

#define GUARD 0x5a

int cudaRuntimeGetVersion(int *version);
int cudaGetDeviceProperties_v2(rvli_properties_12 *facts, int device);
int cudaPointerGetAttributes(rvli_pointer_12 *facts, const void *addr);
int cudaMalloc(void **addr, size_t bytes);
int cudaFree(void *addr);
int cudaMemGetInfo(size_t *left, size_t *total);
int cudaEventCreate(void **event);
int cudaEventRecord(void *event, void *stream);
int cudaEventElapsedTime_v2(float *milliseconds, void *start, void *end);
int cudaThreadSynchronize(void);
int cudaMemcpyBatchAsync(void);

/* Memory behind a struct that is filled in must not change. */
static struct {
    rvli_properties_12 facts;
    unsigned char after[128];
} properties;
static struct {
    rvli_pointer_12 facts;
    unsigned char after[128];
} pointer;

static int is_whole(const unsigned char *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (bytes[i] != GUARD)
            return 0;
    return 1;
}

int main(void)
{
    int version = 0;
    float milliseconds = -1;
    size_t left = 0, total = 0;
    void *addr = NULL, *start = NULL, *end = NULL;
    memset(&properties, GUARD, sizeof properties);
    memset(&pointer, GUARD, sizeof pointer);

    printf("%d\n", cudaRuntimeGetVersion(&version));
    printf("%d\n", version);
    printf("%d\n", cudaGetDeviceProperties_v2(&properties.facts, 0));
    const rvli_properties_12 *facts = &properties.facts;
    printf("%s, %d.%d, %d, %d kHz, %d kHz, %zu\n", facts->name, facts->major, facts->minor,
           facts->multiProcessorCount, facts->clockRate, facts->memoryClockRate,
           facts->sharedMemPerBlockOptin);
    printf("%d\n", is_whole(properties.after, sizeof properties.after));
    printf("%d\n", cudaGetDeviceProperties_v2(&properties.facts, 7));

    printf("%d\n", cudaMalloc(&addr, 4 << 20));
    printf("%d\n", cudaPointerGetAttributes(&pointer.facts, addr));
    printf("%d on %d, %d, %d\n", pointer.facts.type, pointer.facts.device,
           pointer.facts.devicePointer == addr, is_whole(pointer.after, sizeof pointer.after));
    printf("%d\n", cudaMemGetInfo(&left, &total));
    printf("%zu\n", total - left);
    printf("%d\n", cudaFree(addr));

    printf("%d\n", cudaEventCreate(&start) | cudaEventCreate(&end));
    printf("%d\n", cudaEventRecord(start, NULL));
    printf("%d\n", cudaEventRecord(end, NULL));
    printf("%d\n", cudaEventElapsedTime_v2(&milliseconds, start, end));
    printf("%d\n", milliseconds >= 0);
    printf("%d\n", cudaThreadSynchronize());
    printf("%d\n", cudaMemcpyBatchAsync());
    return 0;
}
