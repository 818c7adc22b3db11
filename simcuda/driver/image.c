/* SPDX-License-Identifier: MIT */
/* Finds an image's form and the part of a fat binary for a device, and keeps the lists of names. */
#include "simcuda/driver/image.h"

#include <elf.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <lz4.h>
#include <zstd.h>

/*
 * A fat binary: a header, followed by parts, each with its own header. Each header has the
 * lengths. The wrapper, which compilers register and pass to cuModuleLoadFatBinary(), points to
 * it. The values agree with cuobjdump. NVIDIA publishes a header for the wrapper only
 * (fatbinary_section.h).
 */
#define WRAPPER_MAGIC 0x466243b1u
#define FAT_MAGIC 0xba55ed50u
#define FAT_HEADER_BYTES 16u
#define PART_HEADER_BYTES 64u
#define EXPANDED_MOST (UINT64_C(1) << 30)
#define PART_PTX 1u
#define PART_CUBIN 2u
#define PART_COMPRESSED 0xf000u /* one bit for each compression method */
#define PART_LZ4 0x2000u        /* used by nvcc of CUDA 12 */
#define PART_ZSTD 0x8000u

typedef struct wrapper {
    uint32_t magic, version;
    const void *fat;
    const void *unused;
} wrapper;

typedef struct fat_header {
    uint32_t magic;
    uint16_t version, header_bytes;
    uint64_t parts_bytes;
} fat_header;

typedef struct part_header {
    uint16_t kind, version;
    uint32_t header_bytes;
    uint64_t bytes;
    uint32_t compressed_bytes, options;
    uint16_t minor, major;
    uint32_t architecture;
    uint32_t name_offset, name_bytes;
    uint64_t flags;
    uint64_t unused;
    uint64_t expanded_bytes;
} part_header;

/* ---- Lists ---- */

/* Room for one more entry in a list that doubles when it is full. NULL: out of host memory, and
 * nothing changed. */
static void *grow(void *list, size_t count, size_t each_bytes)
{
    bool full = count == 0 || (count & (count - 1)) == 0;
    return full ? realloc(list, (count == 0 ? 1 : count * 2) * each_bytes) : list;
}

rvli_kernel_entry *rvli_image_add_entry(rvli_image *image, const char *name, size_t length)
{
    rvli_kernel_entry *grown = grow(image->entries, image->entry_count, sizeof *grown);
    image->entries = grown != NULL ? grown : image->entries;
    char *copy = grown != NULL ? strndup(name, length) : NULL;
    if (copy == NULL)
        return NULL;
    rvli_kernel_entry *added = &grown[image->entry_count++];
    *added = (rvli_kernel_entry){.name = copy, .registers = RVLI_REGISTERS_ASSUMED};
    return added;
}

rvli_variable *rvli_image_add_variable(rvli_image *image, const char *name, size_t length)
{
    rvli_variable *grown = grow(image->variables, image->variable_count, sizeof *grown);
    image->variables = grown != NULL ? grown : image->variables;
    char *copy = grown != NULL ? strndup(name, length) : NULL;
    if (copy == NULL)
        return NULL;
    rvli_variable *added = &grown[image->variable_count++];
    *added = (rvli_variable){.name = copy};
    return added;
}

/* Both kinds of entries begin with the name. */
static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

void rvli_image_sort(rvli_image *image)
{
    if (image->entry_count > 1)
        qsort(image->entries, image->entry_count, sizeof *image->entries, by_name);
    if (image->variable_count > 1)
        qsort(image->variables, image->variable_count, sizeof *image->variables, by_name);
}

static const void *find(const void *list, size_t count, size_t each_bytes, const char *name)
{
    return count > 0 ? bsearch(&name, list, count, each_bytes, by_name) : NULL;
}

const rvli_kernel_entry *rvli_image_entry(const rvli_image *image, const char *name)
{
    return find(image->entries, image->entry_count, sizeof *image->entries, name);
}

const rvli_variable *rvli_image_variable(const rvli_image *image, const char *name)
{
    return find(image->variables, image->variable_count, sizeof *image->variables, name);
}

void rvli_image_free(rvli_image *image)
{
    for (size_t i = 0; i < image->entry_count; i++)
        free(image->entries[i].name);
    for (size_t i = 0; i < image->variable_count; i++) {
        free(image->variables[i].name);
        free(image->variables[i].initial);
    }
    free(image->entries);
    free(image->variables);
    *image = (rvli_image){0};
}

/* msync() only checks: it fails where nothing is mapped. */
bool rvli_image_mapped(const void *addr, size_t size_bytes)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), at = (uintptr_t)addr;
    uintptr_t first = at / page * page;
    return size_bytes <= UINTPTR_MAX - at &&
           msync((void *)first, at + size_bytes - first, MS_ASYNC) == 0;
}

/* ---- Fat binaries ---- */

/* How well a part fits: 0 not at all; any machine code before PTX; newer before older. */
static unsigned rank(const part_header *part, int major, int minor)
{
    unsigned card = (unsigned)(major * 10 + minor), of = part->architecture;
    if (part->kind == PART_CUBIN && of / 10 == card / 10 && of <= card)
        return 1000 + of;
    return part->kind == PART_PTX && of <= card ? of : 0;
}

static rvli_image_error read_plain(unsigned kind, const char *body, size_t size_bytes, int major,
                                   int minor, rvli_image *image)
{
    return kind == PART_CUBIN ? rvli_cubin_read(body, size_bytes, major, minor, image)
                              : rvli_ptx_read(body, strnlen(body, size_bytes), major, minor, image);
}

/* Decompresses to at most so many bytes. 0: malformed. */
static size_t expand(uint64_t way, const char *from, size_t bytes, char *to, size_t most_bytes)
{
    if (way == PART_LZ4) {
        int expanded = LZ4_decompress_safe(from, to, (int)bytes, (int)most_bytes);
        return expanded > 0 ? (size_t)expanded : 0;
    }
    size_t expanded = ZSTD_decompress(to, most_bytes, from, bytes);
    return ZSTD_isError(expanded) ? 0 : expanded;
}

/* The decompressed code is needed only while it is read. */
static rvli_image_error read_compressed(const part_header *part, const char *body, int major,
                                        int minor, rvli_image *image)
{
    if (part->compressed_bytes > part->bytes || part->compressed_bytes > INT_MAX ||
        part->expanded_bytes > EXPANDED_MOST)
        return RVLI_IMAGE_INVALID;
    char *expanded = malloc(part->expanded_bytes + 1);
    if (expanded == NULL)
        return RVLI_IMAGE_OUT_OF_HOST;
    size_t bytes = expand(part->flags & PART_COMPRESSED, body, part->compressed_bytes, expanded,
                          part->expanded_bytes);
    rvli_image_error error = bytes == 0 || bytes != part->expanded_bytes
                                 ? RVLI_IMAGE_INVALID
                                 : read_plain(part->kind, expanded, bytes, major, minor, image);
    free(expanded);
    return error;
}

static rvli_image_error read_part(const part_header *part, const char *body, int major, int minor,
                                  rvli_image *image)
{
    uint64_t way = part->flags & PART_COMPRESSED;
    if (way == PART_LZ4 || way == PART_ZSTD)
        return read_compressed(part, body, major, minor, image);
    if (way != 0) {
        image->sealed = true;
        image->version = part->architecture;
        return RVLI_IMAGE_OK;
    }
    return read_plain(part->kind, body, part->bytes, major, minor, image);
}

static rvli_image_error read_fat(const char *bytes, size_t size_bytes, int major, int minor,
                                 rvli_image *image)
{
    fat_header header;
    part_header part, best = {0};
    const char *body = NULL;
    unsigned best_rank = 0;
    if (size_bytes < sizeof header)
        return RVLI_IMAGE_INVALID;
    memcpy(&header, bytes, sizeof header);
    if (header.header_bytes < FAT_HEADER_BYTES || header.header_bytes > size_bytes ||
        header.parts_bytes > size_bytes - header.header_bytes ||
        (size_bytes == SIZE_MAX &&
         !rvli_image_mapped(bytes, header.header_bytes + header.parts_bytes)))
        return RVLI_IMAGE_INVALID;
    bytes += header.header_bytes;
    for (uint64_t left = header.parts_bytes; left > 0;) {
        if (left < PART_HEADER_BYTES)
            return RVLI_IMAGE_INVALID;
        memcpy(&part, bytes, sizeof part);
        if (part.header_bytes < PART_HEADER_BYTES || part.header_bytes > left ||
            part.bytes > left - part.header_bytes)
            return RVLI_IMAGE_INVALID;
        if (rank(&part, major, minor) > best_rank) {
            best = part;
            best_rank = rank(&part, major, minor);
            body = bytes + part.header_bytes;
        }
        bytes += part.header_bytes + part.bytes;
        left -= part.header_bytes + part.bytes;
    }
    return body == NULL ? RVLI_IMAGE_OTHER_CARD : read_part(&best, body, major, minor, image);
}

/* ---- Any form ---- */

/* Compares up to the first difference, since a text may be shorter. */
static bool begins(const void *image, size_t size_bytes, const void *with, size_t length)
{
    size_t same = 0;
    while (same < length && same < size_bytes &&
           ((const char *)image)[same] == ((const char *)with)[same])
        same++;
    return same == length;
}

static rvli_image_error read_form(const void *image, size_t size_bytes, int major, int minor,
                                  rvli_image *into)
{
    const uint32_t fat = FAT_MAGIC, wrapped = WRAPPER_MAGIC;
    const char *text = image;
    size_t first = 0;
    if (begins(image, size_bytes, ELFMAG, SELFMAG))
        return rvli_cubin_read(image, size_bytes, major, minor, into);
    if (begins(image, size_bytes, &fat, sizeof fat))
        return read_fat(image, size_bytes, major, minor, into);
    if (begins(image, size_bytes, &wrapped, sizeof wrapped)) {
        wrapper of;
        if (size_bytes < sizeof of)
            return RVLI_IMAGE_INVALID;
        memcpy(&of, image, sizeof of);
        /* In a file, the pointer would belong to another process. */
        return size_bytes != SIZE_MAX || of.fat == NULL || memcmp(of.fat, &fat, sizeof fat) != 0
                   ? RVLI_IMAGE_INVALID
                   : read_fat(of.fat, SIZE_MAX, major, minor, into);
    }
    while (first < size_bytes && text[first] != '\0' && strchr(" \t\r\n", text[first]) != NULL)
        first++;
    if (first == size_bytes || (text[first] != '.' && text[first] != '/'))
        return RVLI_IMAGE_INVALID;
    return rvli_ptx_read(text, size_bytes == SIZE_MAX ? strlen(text) : strnlen(text, size_bytes),
                         major, minor, into);
}

rvli_image_error rvli_image_read(const void *image, size_t size_bytes, int major, int minor,
                                 rvli_image *image_out)
{
    rvli_image made = {0};
    rvli_image_error error = read_form(image, size_bytes, major, minor, &made);
    if (error != RVLI_IMAGE_OK) {
        rvli_image_free(&made);
        return error;
    }
    rvli_image_sort(&made);
    *image_out = made;
    return RVLI_IMAGE_OK;
}
