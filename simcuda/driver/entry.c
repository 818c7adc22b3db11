/* SPDX-License-Identifier: MIT */
/*
 * How programs find this driver's functions at run time. A name stands for what the headers make of
 * it today: cuMemAlloc for cuMemAlloc_v2. Where the symbol with the highest suffix is an older
 * program's wrong one (its arguments have changed), it asks for a version below ours: that is not
 * looked at.
 */
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdio.h>

#include "simcuda/driver/driver.h"

#undef cuGetProcAddress
#define NAME_BYTES 128
#define SUFFIX_MAX 4

CUresult cuGetProcAddress(const char *name, void **function, int version, cuuint64_t flags);

/*
 * Private tables of the driver: only a runtime that is linked into a program or library asks for
 * them, and cannot do without. CUDA's own functions that it finds there are not documented.
 */
CUresult cuGetExportTable(const void **table, const CUuuid *id)
{
    static atomic_flag told = ATOMIC_FLAG_INIT;
    Dl_info from;
    if (table == NULL || id == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (!atomic_flag_test_and_set(&told))
        fprintf(
            stderr,
            "reveille: %s has CUDA's runtime linked in statically. It asks for private tables "
            "(cuGetExportTable, libcuda.so.1) that are not simulated, and will say that CUDA is "
            "not supported: link it with libcudart.so (nvcc -cudart shared)\n",
            dladdr(__builtin_return_address(0), &from) != 0 ? from.dli_fname : "unknown code");
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

static void *find(const char *name)
{
    char versioned[NAME_BYTES];
    void *found = NULL;
    for (int suffix = SUFFIX_MAX; suffix > 1 && found == NULL; suffix--) {
        snprintf(versioned, sizeof versioned, "%s_v%d", name, suffix);
        found = dlsym(own_library(), versioned);
    }
    return found != NULL ? found : dlsym(own_library(), name);
}

CUresult cuGetProcAddress_v2(const char *name, void **function, int version, cuuint64_t flags,
                             CUdriverProcAddressQueryResult *status)
{
    (void)version;
    (void)flags;
    if (name == NULL || function == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *function = find(name);
    if (status != NULL)
        *status =
            *function != NULL ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    return *function != NULL ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

CUresult cuGetProcAddress(const char *name, void **function, int version, cuuint64_t flags)
{
    return cuGetProcAddress_v2(name, function, version, flags, NULL);
}
