/* SPDX-License-Identifier: MIT */
/*
 * Any library with torch_memory_saver's C interface, hook mode "torch". Its pause does not wait for
 * the device; the caller does, as its Python package's users do.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

#include "driver.h"
#include "need.h"
#include "subject.h"

static struct {
    void *(*tms_torch_malloc)(ssize_t size, int device, void *stream);
    void (*tms_set_current_tag)(const char *tag);
    void (*tms_set_interesting_region)(bool on);
    void (*tms_set_enable_cpu_backup)(bool on);
    void (*tms_set_retain_cpu_backup)(bool on);
    int (*tms_pause)(const char *tag);
    int (*tms_resume)(const char *tag);
} tms;

static void find(void *library, const char *name, void *pointer)
{
    void *symbol = dlsym(library, name);
    need(symbol != NULL, name);
    memcpy(pointer, &symbol, sizeof symbol);
}

static void open_peer(const work *w, const char *path)
{
    need(path != NULL, "--peer: the peer's .so (PyPI: torch-memory-saver)");
    void *library = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
    need(library != NULL, dlerror());
#define FIND(name) find(library, #name, &tms.name)
    FIND(tms_torch_malloc);
    FIND(tms_set_current_tag);
    FIND(tms_set_interesting_region);
    FIND(tms_set_enable_cpu_backup);
    FIND(tms_set_retain_cpu_backup);
    FIND(tms_pause);
    FIND(tms_resume);
#undef FIND
    tms.tms_set_retain_cpu_backup(w->backup == BACKUP_KEPT);
}

static void allocate(const work *w, const char *tag, uint64_t *addrs_out)
{
    tms.tms_set_current_tag(tag);
    tms.tms_set_enable_cpu_backup(w->backup != BACKUP_NONE);
    tms.tms_set_interesting_region(true);
    for (size_t i = 0; i < w->count; i++) {
        addrs_out[i] = (uint64_t)(uintptr_t)tms.tms_torch_malloc((ssize_t)w->size, 0, NULL);
        need(addrs_out[i] != 0, "tms_torch_malloc");
    }
    tms.tms_set_interesting_region(false);
}

static void pause_tag(const char *tag)
{
    cuda_need(cuda.cuCtxSynchronize(), "waiting for the device");
    tms.tms_pause(tag);
}

static void resume_tag(const char *tag)
{
    tms.tms_resume(tag);
}

const subject subject_peer = {"peer", open_peer, allocate, pause_tag, resume_tag};
