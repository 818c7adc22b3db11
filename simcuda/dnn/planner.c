/* SPDX-License-Identifier: MIT */
/*
 * The program's own cuDNN: libcudnn_graph.so.9, which is beside the libcudnn.so.9 that the
 * simulated library replaces. It is searched by name, as the loader does, and then in every
 * folder in which an object of this process searches for libraries, since the RPATH of PyTorch's
 * libraries leads to it.
 */
#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "simcuda/dnn/dnn.h"

#define TEXT_OF(name) TEXT_(name)
#define TEXT_(name) #name
#define VERSION_LEAST 90800
#define GRAPH_LIBRARY "libcudnn_graph.so." TEXT_OF(CUDNN_MAJOR)

static pthread_once_t once = PTHREAD_ONCE_INIT;
static rvli_planner planner;
static bool opened;

static const struct {
    const char *name;
    size_t place;
} functions[] = {
    {"cudnnBackendCreateDescriptor", offsetof(rvli_planner, create)},
    {"cudnnBackendDestroyDescriptor", offsetof(rvli_planner, destroy)},
    {"cudnnBackendFinalize", offsetof(rvli_planner, finalize)},
    {"cudnnBackendSetAttribute", offsetof(rvli_planner, set)},
    {"cudnnBackendGetAttribute", offsetof(rvli_planner, get)},
    {"cudnnGetVersion", offsetof(rvli_planner, version)},
    {"cudnnGetCudartVersion", offsetof(rvli_planner, runtime_version)},
    {"cudnnGetMaxDeviceVersion", offsetof(rvli_planner, newest_device)},
    {"cudnnGetProperty", offsetof(rvli_planner, property)},
    {"cudnnGetErrorString", offsetof(rvli_planner, status_text)},
    {"cudnnGetLastErrorString", offsetof(rvli_planner, last_error)},
};

/* Searches the folders in which one object searches for libraries. */
static void *open_for(struct link_map *object)
{
    Dl_serinfo size, *folders = NULL;
    char path[PATH_MAX];
    void *library = NULL;
    if (dlinfo(object, RTLD_DI_SERINFOSIZE, &size) == 0)
        folders = malloc(size.dls_size);
    if (folders != NULL && dlinfo(object, RTLD_DI_SERINFOSIZE, folders) == 0 &&
        dlinfo(object, RTLD_DI_SERINFO, folders) == 0)
        for (unsigned i = 0; i < folders->dls_cnt && library == NULL; i++) {
            int length = snprintf(path, sizeof path, "%s/%s", folders->dls_serpath[i].dls_name,
                                  GRAPH_LIBRARY);
            if (length < (int)sizeof path && access(path, R_OK) == 0)
                library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        }
    free(folders);
    return library;
}

static void *open_library(void)
{
    struct link_map *object = NULL;
    void *library = dlopen(GRAPH_LIBRARY, RTLD_NOW | RTLD_LOCAL), *program = NULL;
    if (library == NULL)
        program = dlopen(NULL, RTLD_NOW);
    if (program != NULL && dlinfo(program, RTLD_DI_LINKMAP, &object) == 0)
        for (; object != NULL && library == NULL; object = object->l_next)
            library = open_for(object);
    return library;
}

static void open_once(void)
{
    void *library = open_library();
    const char *why = library == NULL ? "it is not found" : NULL;
    for (size_t i = 0; why == NULL && i < sizeof functions / sizeof *functions; i++) {
        void *function = dlsym(library, functions[i].name);
        if (function == NULL)
            why = functions[i].name;
        *(void **)(void *)((char *)&planner + functions[i].place) = function;
    }
    if (why == NULL && planner.version() < VERSION_LEAST)
        why = "it is older than 9.8, which was the first to plan without a device";
    opened = why == NULL;
    if (!opened)
        fprintf(stderr,
                "reveille: the simulated cuDNN plans by the real " GRAPH_LIBRARY
                ", which cannot be used (%s): cuDNN is not supported. Install cuDNN, or name its "
                "folder in LD_LIBRARY_PATH\n",
                why);
}

const rvli_planner *rvli_dnn_planner(void)
{
    pthread_once(&once, open_once);
    return opened ? &planner : NULL;
}
