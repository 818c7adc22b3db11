/* SPDX-License-Identifier: MIT */
#include "content.h"

#include <stdlib.h>
#include <string.h>

#include "driver.h"
#include "need.h"

#define GRANULE (2 * MIB)
#define PAGE UINT64_C(4096)
#define PAGE_WORDS (PAGE / sizeof(uint64_t))
#define NOISE_BYTES (2 * GRANULE)

struct content {
    const work *w;
    const uint64_t *addrs;
    uint64_t granules;    /* of an allocation */
    uint64_t *versions;   /* by allocation and granule */
    uint64_t version;     /* the last one */
    unsigned char *noise; /* pinned, as are these: */
    unsigned char *pages; /* one for each granule of an allocation */
    unsigned char *granule;
};

static void *pinned(uint64_t bytes)
{
    void *memory = NULL;
    cuda_need(cuda.cuMemHostAlloc(&memory, bytes, 0), "pinned memory");
    return memory;
}

content *content_new(const work *w, const uint64_t *addrs)
{
    content *c = calloc(1, sizeof *c);
    need(c != NULL && w->size % GRANULE == 0, "content of whole granules");
    *c = (content){.w = w, .addrs = addrs, .granules = w->size / GRANULE};
    c->versions = calloc(w->count * c->granules, sizeof *c->versions);
    need(c->versions != NULL, "host memory");
    c->noise = pinned(NOISE_BYTES);
    c->pages = pinned(c->granules * PAGE);
    c->granule = pinned(GRANULE);
    uint64_t word = 1;
    for (uint64_t at = 0; at < NOISE_BYTES; at += sizeof word) {
        word = word * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        uint64_t mixed = word ^ word >> 32;
        memcpy(c->noise + at, &mixed, sizeof mixed);
    }
    return c;
}

/* ---- What a granule holds ---- */

static uint64_t *version_of(const content *c, size_t i, uint64_t granule)
{
    return &c->versions[i * c->granules + granule];
}

static uint64_t seed_of(const content *c, size_t i, uint64_t granule)
{
    uint64_t place = i * c->granules + granule;
    return (place << 20 | *version_of(c, i, granule)) * UINT64_C(0x9E3779B97F4A7C15);
}

static const unsigned char *noise_of(const content *c, uint64_t seed)
{
    return c->noise + (seed >> 40) % ((NOISE_BYTES - GRANULE) / PAGE) * PAGE;
}

static void make_page(uint64_t seed, unsigned char *page_out)
{
    for (uint64_t i = 0; i < PAGE_WORDS; i++) {
        uint64_t word = seed + i * UINT64_C(0xD1342543DE82EF95);
        memcpy(page_out + i * sizeof word, &word, sizeof word);
    }
}

/* ---- Writing ---- */

static void write_granule(content *c, size_t i, uint64_t granule)
{
    uint64_t addr = c->addrs[i] + granule * GRANULE;
    unsigned char *page = c->pages + granule * PAGE;
    *version_of(c, i, granule) = c->version;
    uint64_t seed = seed_of(c, i, granule);
    make_page(seed, page);
    cuda_need(cuda.cuMemcpyHtoDAsync(addr, noise_of(c, seed), GRANULE - PAGE, NULL), "content");
    cuda_need(cuda.cuMemcpyHtoDAsync(addr + GRANULE - PAGE, page, PAGE, NULL), "content");
}

void content_change_all(content *c)
{
    c->version++;
    for (size_t i = 0; i < c->w->count; i++) {
        for (uint64_t granule = 0; granule < c->granules; granule++)
            write_granule(c, i, granule);
        cuda_need(cuda.cuCtxSynchronize(), "content");
    }
}

void content_change_some(content *c)
{
    c->version++;
    for (size_t i = 0; i < c->w->count; i++) {
        write_granule(c, i, c->version % c->granules);
        cuda_need(cuda.cuCtxSynchronize(), "content");
    }
}

/* ---- Checking ---- */

static bool pages_are_at(const content *c, size_t i, uint64_t addr)
{
    unsigned char expected[PAGE];
    for (uint64_t granule = 0; granule < c->granules; granule++)
        cuda_need(cuda.cuMemcpyDtoHAsync(c->pages + granule * PAGE,
                                         addr + (granule + 1) * GRANULE - PAGE, PAGE, NULL),
                  "reading content");
    cuda_need(cuda.cuCtxSynchronize(), "reading content");
    for (uint64_t granule = 0; granule < c->granules; granule++) {
        make_page(seed_of(c, i, granule), expected);
        if (memcmp(c->pages + granule * PAGE, expected, PAGE) != 0)
            return false;
    }
    return true;
}

static bool noise_is_at(const content *c, size_t i, uint64_t addr)
{
    for (uint64_t granule = 0; granule < c->granules; granule++) {
        cuda_need(cuda.cuMemcpyDtoHAsync(c->granule, addr + granule * GRANULE, GRANULE, NULL),
                  "reading content");
        cuda_need(cuda.cuCtxSynchronize(), "reading content");
        if (memcmp(c->granule, noise_of(c, seed_of(c, i, granule)), GRANULE - PAGE) != 0)
            return false;
    }
    return true;
}

bool content_is_at(const content *c, size_t i, uint64_t addr)
{
    return pages_are_at(c, i, addr) && noise_is_at(c, i, addr);
}

bool content_is_there(const content *c, bool whole)
{
    for (size_t i = 0; i < c->w->count; i++)
        if (!pages_are_at(c, i, c->addrs[i]) || (whole && !noise_is_at(c, i, c->addrs[i])))
            return false;
    return true;
}
