/* SPDX-License-Identifier: MIT */
/*
 * How programs find this driver's functions at run time. A name stands for what the headers make of
 * it today: cuMemAlloc for cuMemAlloc_v2. Where an older form is in use beside a newer one with
 * other arguments, the version that is asked for decides.
 */
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "simcuda/driver/driver.h"

#undef cuGetProcAddress
#define NAME_BYTES 128
#define SUFFIX_MAX 4

CUresult cuGetProcAddress(const char *name, void **function, int version, cuuint64_t flags);

/* NVRTC has a runtime, and compiles without it. The engines of cuDNN have one, and plan without it.
 */
static bool does_without(const char *file)
{
    const char *slash = strrchr(file, '/'), *name = slash != NULL ? slash + 1 : file;
    return strncmp(name, "libnvrtc", 8) == 0 || strncmp(name, "libcudnn_", 9) == 0;
}

/*
 * Private tables of the driver: only a runtime that is linked into a program or library asks for
 * them, and usually cannot do without. CUDA's own functions that it finds there are not
 * documented.
 */
CUresult cuGetExportTable(const void **table, const CUuuid *id)
{
    static atomic_flag told = ATOMIC_FLAG_INIT;
    Dl_info from;
    if (table == NULL || id == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    const char *asking =
        dladdr(__builtin_return_address(0), &from) != 0 ? from.dli_fname : "unknown code";
    if (!does_without(asking) && !atomic_flag_test_and_set(&told))
        fprintf(
            stderr,
            "reveille: %s has CUDA's runtime linked in statically. It asks for private tables "
            "(cuGetExportTable, libcuda.so.1) that are not simulated, and will say that CUDA is "
            "not supported: link it with libcudart.so (nvcc -cudart shared)\n",
            asking);
    return CUDA_ERROR_NOT_SUPPORTED;
}

static void *own_library(void)
{
    static void *library;
    Dl_info here;
    if (library == NULL && dladdr((void *)(uintptr_t)own_library, &here) != 0)
        library = dlopen(here.dli_fname, RTLD_NOW | RTLD_NOLOAD);
    return library;
}

/* Names of which several forms are in use, and the version that brought the next
 * (cudaTypedefs.h). */
static const struct {
    const char *name;
    int before;
    const char *form;
} forms[] = {
    {"cuCtxCreate", 11040, "cuCtxCreate_v2"},
    {"cuCtxCreate", 12050, "cuCtxCreate_v3"},
    {"cuCtxGetDevice", 13000, "cuCtxGetDevice"},
    {"cuCtxSynchronize", 13000, "cuCtxSynchronize"},
    {"cuGraphAddDependencies", 12030, "cuGraphAddDependencies"},
    {"cuGraphAddKernelNode", 12000, "cuGraphAddKernelNode"},
    {"cuGraphExecKernelNodeSetParams", 12000, "cuGraphExecKernelNodeSetParams"},
    {"cuGraphExecUpdate", 12000, "cuGraphExecUpdate"},
    {"cuGraphGetEdges", 12030, "cuGraphGetEdges"},
    {"cuGraphKernelNodeGetParams", 12000, "cuGraphKernelNodeGetParams"},
    {"cuGraphKernelNodeSetParams", 12000, "cuGraphKernelNodeSetParams"},
    {"cuGraphNodeGetDependencies", 12030, "cuGraphNodeGetDependencies"},
    {"cuGraphNodeGetDependentNodes", 12030, "cuGraphNodeGetDependentNodes"},
    {"cuGraphRemoveDependencies", 12030, "cuGraphRemoveDependencies"},
    {"cuMemAdvise", 12020, "cuMemAdvise"},
    {"cuMemPrefetchAsync", 12020, "cuMemPrefetchAsync"},
    {"cuStreamBeginCapture", 10010, "cuStreamBeginCapture"},
    {"cuStreamGetCaptureInfo", 11030, "cuStreamGetCaptureInfo"},
    {"cuStreamGetCaptureInfo", 12030, "cuStreamGetCaptureInfo_v2"},
    {"cuStreamUpdateCaptureDependencies", 12030, "cuStreamUpdateCaptureDependencies"},
};

/* NULL: the newest. */
static const char *older_form(const char *name, int version)
{
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
        if (strcmp(name, forms[i].name) == 0 && version < forms[i].before)
            return forms[i].form;
    return NULL;
}

/* Every form of every function, by the version that brought it: of the types in cudaTypedefs.h. */
static const struct {
    const char *name;
    int version;
} brought[] = {
#define RVLI_FORM(name, version) {#name, version},
#include "cuda_versions.inc"
};

/* Whether it is older than the function. A name without a type is as old as CUDA. */
static bool is_before(int version, const char *name)
{
    bool is_known = false;
    for (size_t i = 0; i < sizeof brought / sizeof *brought; i++) {
        if (strcmp(name, brought[i].name) != 0)
            continue;
        if (version >= brought[i].version)
            return false;
        is_known = true;
    }
    return is_known;
}

/* A form of its own for programs in which stream 0 is the thread's, if there is one. */
static void *find_form(const char *form, bool per_thread)
{
    char own[NAME_BYTES];
    int length = snprintf(own, sizeof own, "%s_ptsz", form);
    bool fits = length > 0 && (size_t)length < sizeof own; /* no name of CUDA's is as long */
    void *found = per_thread && fits ? dlsym(own_library(), own) : NULL;
    return found != NULL ? found : dlsym(own_library(), form);
}

static void *find(const char *name, int version, bool per_thread)
{
    char versioned[NAME_BYTES];
    const char *older = older_form(name, version);
    void *found = older != NULL ? find_form(older, per_thread) : NULL;
    for (int suffix = SUFFIX_MAX; suffix > 1 && found == NULL; suffix--) {
        snprintf(versioned, sizeof versioned, "%s_v%d", name, suffix);
        found = find_form(versioned, per_thread);
    }
    return found != NULL ? found : find_form(name, per_thread);
}

/*
 * A name that does not exist is not an error: the place gets NULL (cuda.h). Neither is a function
 * that is newer than the version asked for. A version newer than the driver gets the newest form:
 * this driver is as old as the headers it was built with, and programs may bring a newer runtime.
 * A card refuses such a version (docs/run.md).
 */
CUresult cuGetProcAddress_v2(const char *name, void **function, int version, cuuint64_t flags,
                             CUdriverProcAddressQueryResult *status)
{
    if (name == NULL || function == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    CUdriverProcAddressQueryResult found = CU_GET_PROC_ADDRESS_SUCCESS;
    *function = find(name, version, (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0);
    if (*function == NULL)
        found = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    else if (is_before(version, name))
        found = CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT;
    if (found != CU_GET_PROC_ADDRESS_SUCCESS)
        *function = NULL;
    if (status != NULL)
        *status = found;
    return CUDA_SUCCESS;
}

/* As programs before CUDA 12 call it: it has no other way to say that there is no such name. */
CUresult cuGetProcAddress(const char *name, void **function, int version, cuuint64_t flags)
{
    CUresult result = cuGetProcAddress_v2(name, function, version, flags, NULL);
    return result == CUDA_SUCCESS && *function == NULL ? CUDA_ERROR_NOT_FOUND : result;
}
