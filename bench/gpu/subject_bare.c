/* SPDX-License-Identifier: MIT */
/*
 * The limit: the driver calls that the work cannot do without, and nothing else. One set-access
 * call for each allocation, as allocations that do not lie side by side need it. With hand_over
 * the blocks of the paused tag are mapped for the resumed one: nothing is released or created.
 */
#include <stdlib.h>
#include <string.h>

#include "driver.h"
#include "need.h"
#include "subject.h"

enum { TAGS = 2 };

typedef struct tag {
    const char *name;
    CUdeviceptr *addrs;
    CUmemGenericAllocationHandle *blocks; /* 0: none */
} tag;

static const work *the_work;
static tag tags[TAGS];
static CUmemGenericAllocationHandle *spare; /* blocks of the paused tag, with hand_over */
/* For GPUDirect RDMA, as the others create them: such blocks cost more calls inside the driver. */
static CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                         .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE},
                                         .allocFlags = {.gpuDirectRDMACapable = 1}};

static void open_bare(const work *w, const char *library)
{
    (void)library;
    need(w->backup == BACKUP_NONE, "bare driver calls make no backup");
    the_work = w;
}

static tag *tag_of(const char *name)
{
    for (int i = 0; i < TAGS; i++)
        if (tags[i].name == NULL || strcmp(tags[i].name, name) == 0)
            return &tags[i];
    return NULL;
}

static void back(const tag *t, size_t i)
{
    CUmemAccessDesc access = {.location = properties.location,
                              .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    cuda_need(cuda.cuMemMap(t->addrs[i], the_work->size, 0, t->blocks[i], 0), "map");
    cuda_need(cuda.cuMemSetAccess(t->addrs[i], the_work->size, &access, 1), "set access");
}

static void allocate(const work *w, const char *name, uint64_t *addrs_out)
{
    tag *t = tag_of(name);
    t->name = name;
    t->addrs = calloc(w->count, sizeof *t->addrs);
    t->blocks = calloc(w->count, sizeof *t->blocks);
    need(t->addrs != NULL && t->blocks != NULL, "host memory");
    for (size_t i = 0; i < w->count; i++) {
        cuda_need(cuda.cuMemAddressReserve(&t->addrs[i], w->size, 0, 0, 0), "reserve");
        if (spare != NULL) /* the first tag is paused: two of them need no more than one */
            t->blocks[i] = spare[i];
        else
            cuda_need(cuda.cuMemCreate(&t->blocks[i], w->size, &properties, 0), "create");
        back(t, i);
        addrs_out[i] = t->addrs[i];
    }
    free(spare);
    spare = NULL;
}

static void pause_tag(const char *name)
{
    tag *t = tag_of(name);
    for (size_t i = 0; i < the_work->count; i++) {
        cuda_need(cuda.cuMemUnmap(t->addrs[i], the_work->size), "unmap");
        if (the_work->kind != WORK_HAND_OVER)
            cuda_need(cuda.cuMemRelease(t->blocks[i]), "release");
    }
    if (the_work->kind == WORK_HAND_OVER) {
        spare = t->blocks;
        t->blocks = calloc(the_work->count, sizeof *t->blocks);
    }
}

static void resume_tag(const char *name)
{
    tag *t = tag_of(name);
    if (the_work->kind == WORK_HAND_OVER) {
        free(t->blocks);
        t->blocks = spare;
    }
    for (size_t i = 0; i < the_work->count; i++) {
        if (the_work->kind != WORK_HAND_OVER)
            cuda_need(cuda.cuMemCreate(&t->blocks[i], the_work->size, &properties, 0), "create");
        back(t, i);
    }
}

const subject subject_bare = {"bare", open_bare, allocate, pause_tag, resume_tag};
