/* SPDX-License-Identifier: MIT */
/*
 * How programs find this driver's functions at run time. They ask for a name and a version, and
 * get the function's form in that version. For cuMemAlloc that is cuMemAlloc_v2 since CUDA 3.2.
 */
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "simcuda/driver/driver.h"

#undef cuGetProcAddress
#define NAME_BYTES 128
#define FORMS_MAX 4

CUresult cuGetProcAddress(const char *name, void **function, int version, cuuint64_t flags);

/* NVRTC contains a runtime, but compiles without it. So do cuDNN's engines, which plan without
 * it. */
static bool does_without(const char *file)
{
    const char *slash = strrchr(file, '/'), *name = slash != NULL ? slash + 1 : file;
    return strncmp(name, "libnvrtc", 8) == 0 || strncmp(name, "libcudnn_", 9) == 0;
}

static bool is_named(const char *path, const char *begin)
{
    const char *slash = strrchr(path, '/');
    return strncmp(slash != NULL ? slash + 1 : path, begin, strlen(begin)) == 0;
}

/* The archive is beside the library that contains the runtime. */
static void tell_of_cute(const char *library)
{
    const char *slash = strrchr(library, '/');
    fprintf(stderr,
            "reveille: %s has CUDA's runtime linked in, and this build of Reveille has none for "
            "it: kernels of CuTe DSL cannot be loaded. Install Reveille from its repository: pip "
            "install . -C cmake.define.RVL_CUTE_ARCHIVE=%.*slibcuda_dialect_runtime_static.a\n",
            library, slash != NULL ? (int)(slash + 1 - library) : 0, library);
}

/*
 * Private tables of the driver. Only a runtime linked into a program or a library asks for them,
 * and usually fails without. CUDA does not document the functions that it finds there.
 */
CUresult cuGetExportTable(const void **table, const CUuuid *id)
{
    static atomic_flag told = ATOMIC_FLAG_INIT;
    Dl_info from;
    if (table == NULL || id == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    const char *asking =
        dladdr(__builtin_return_address(0), &from) != 0 ? from.dli_fname : "unknown code";
    if (does_without(asking) || atomic_flag_test_and_set(&told))
        return CUDA_ERROR_NOT_SUPPORTED;
    if (is_named(asking, "libcute_dsl_runtime.so"))
        tell_of_cute(asking);
    else if (is_named(asking, "libcupti.so")) /* torch.profiler and others use it */
        fputs(
            "reveille: profilers see no activity of the GPU, since kernels do not run: CUPTI says "
            "that it cannot begin. What the program does on the CPU is seen, and so is what "
            "PyTorch counts itself, such as memory\n",
            stderr);
    else
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

/*
 * Every form of every function, with the version that introduced it, from the types in
 * cudaTypedefs.h. The first form has the function's name, the second ends in _v2, and so on.
 */
static const struct {
    const char *name;
    int version;
} brought[] = {
#define RVLI_FORM(name, version) {#name, version},
#include "cuda_versions.inc"
};

/* Counts a function's forms, and those that a version has. */
static void count_forms(const char *name, int version, unsigned *all_out, unsigned *old_out)
{
    *all_out = *old_out = 0;
    for (size_t i = 0; i < sizeof brought / sizeof *brought; i++) {
        if (strcmp(name, brought[i].name) != 0)
            continue;
        (*all_out)++;
        *old_out += version >= brought[i].version;
    }
}

/* Whether the text is a name. A name with a suffix for a version or for streams is a form. */
static bool is_name(const char *text)
{
    return strncmp(text, "cu", 2) == 0 && strchr(text, '_') == NULL;
}

/* Finds a form's variant for programs that use the thread's own stream 0, or else the form. */
static void *find_form(const char *form, bool per_thread)
{
    char own[NAME_BYTES];
    int length = snprintf(own, sizeof own, "%s_ptsz", form);
    bool fits = length > 0 && (size_t)length < sizeof own; /* all of CUDA's names fit */
    void *found = per_thread && fits ? dlsym(own_library(), own) : NULL;
    return found != NULL ? found : dlsym(own_library(), form);
}

/* Finds the newest form up to a number. 0: of all forms. */
static void *find(const char *name, unsigned newest, bool per_thread)
{
    char form[NAME_BYTES];
    void *found = NULL;
    for (unsigned number = newest > 0 ? newest : FORMS_MAX; number > 1 && found == NULL; number--) {
        snprintf(form, sizeof form, "%s_v%u", name, number);
        found = find_form(form, per_thread);
    }
    return found != NULL ? found : find_form(name, per_thread);
}

/* Finds a function as a card's driver does: bench/gpu/driver/entry_points.py. A negative version
 * means the newest. */
static CUdriverProcAddressQueryResult look_up(const char *name, int version, bool per_thread,
                                              void **function_out)
{
    unsigned all, old;
    int wanted = version < 0 ? CUDA_VERSION : version;
    count_forms(name, wanted, &all, &old);
    *function_out = is_name(name) ? find(name, old, per_thread) : NULL;
    if (*function_out == NULL)
        return CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    if (all == 0 || old > 0) /* a function without a type has existed since the first CUDA */
        return CU_GET_PROC_ADDRESS_SUCCESS;
    *function_out = NULL;
    return CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT;
}

/*
 * An unknown name is not an error: *function is set to NULL (cuda.h). A function that is newer
 * than the version is not an error either. A version newer than the driver is an error.
 */
CUresult cuGetProcAddress_v2(const char *name, void **function, int version, cuuint64_t flags,
                             CUdriverProcAddressQueryResult *status)
{
    static const cuuint64_t known =
        CU_GET_PROC_ADDRESS_LEGACY_STREAM | CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
    if (name == NULL || function == NULL || version > CUDA_VERSION || (flags & ~known) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    CUdriverProcAddressQueryResult found = look_up(
        name, version, (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0, function);
    if (status != NULL)
        *status = found;
    return CUDA_SUCCESS;
}

/* Called by programs before CUDA 12. It has no status, so an unknown name is an error. */
CUresult cuGetProcAddress(const char *name, void **function, int version, cuuint64_t flags)
{
    void *found = NULL;
    CUresult result = function == NULL ? CUDA_ERROR_INVALID_VALUE
                                       : cuGetProcAddress_v2(name, &found, version, flags, NULL);
    if (result == CUDA_SUCCESS && found == NULL)
        return CUDA_ERROR_NOT_FOUND;
    if (result == CUDA_SUCCESS)
        *function = found;
    return result;
}
