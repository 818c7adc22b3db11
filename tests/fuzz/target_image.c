/* SPDX-License-Identifier: MIT */
/*
 * The reader of device code. An input is an image behind its first byte ('p'), or says how a good
 * cubin is spoiled ('n', 'o': as ptxas writes it now, and did): a place of two bytes, and what
 * stands there then. So the reader gets past the header, and offsets and sizes are what changes.
 * Whatever is read, every name ends, is found again, and no variable is larger than its bytes.
 */
#include <string.h>

#include "fuzz.h"
#include "simcuda/cubin_writer.h"
#include "simcuda/driver/image.h"

#define IMAGE_BYTES_MAX 65536u
#define MAJOR 9
#define MINOR 0
#define PATCH_BYTES 3u

static const cubin_kernel kernels[] = {
    {"work", 168, 2048, 0, {256, 2, 1}},
    {"add", 18, 0, 400, {0}},
};

static size_t spoil(const uint8_t *data, size_t size, bool old, unsigned char *image)
{
    const cubin_shape shape = {
        .version = 90, .old = old, .kernels = kernels, .kernel_count = 2, .variables = true};
    size_t length = cubin_write(&shape, image);
    for (; size >= PATCH_BYTES; data += PATCH_BYTES, size -= PATCH_BYTES)
        image[(data[0] | (unsigned)data[1] << 8) % length] = data[2];
    return length;
}

static void check(const rvli_image *image)
{
    for (size_t i = 0; i < image->entry_count; i++) {
        const rvli_kernel_entry *entry = &image->entries[i];
        require(strcmp(rvli_image_entry(image, entry->name)->name, entry->name) == 0);
        require(entry->threads_most <= 1024);
        require(entry->argument_bytes <= 0xffff);
    }
    for (size_t i = 0; i < image->variable_count; i++) {
        const rvli_variable *variable = &image->variables[i];
        require(rvli_image_variable(image, variable->name) != NULL);
        require(variable->initial == NULL || variable->size_bytes <= IMAGE_BYTES_MAX);
    }
}

/* Of memory that ends with the image, so that sanitizers see what is read behind it. */
bool fuzz_run(const uint8_t *data, size_t size)
{
    static unsigned char made[CUBIN_BYTES_MOST];
    rvli_image image = {0};
    if (size == 0 || size > IMAGE_BYTES_MAX)
        return false;
    bool cubin = data[0] == 'n' || data[0] == 'o';
    size_t length = cubin ? spoil(data + 1, size - 1, data[0] == 'o', made) : size - 1;
    void *exact = malloc(length > 0 ? length : 1);
    require(exact != NULL);
    memcpy(exact, cubin ? made : data + 1, length);
    rvli_image_error error = rvli_image_read(exact, length, MAJOR, MINOR, &image);
    free(exact);
    if (error != RVLI_IMAGE_OK)
        return false;
    check(&image);
    rvli_image_free(&image);
    return true;
}
