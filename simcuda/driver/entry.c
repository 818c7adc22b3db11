/* SPDX-License-Identifier: MIT */
/*
 * How programs find this driver's functions at run time. A name stands for what the headers make of
 * it today: cuMemAlloc for cuMemAlloc_v2. Where the symbol with the highest suffix is an older
 * program's wrong one (its arguments have changed), it asks for a version below ours: that is not
 * looked at.
 */
#include <dlfcn.h>
#include <stdio.h>

#include "simcuda/driver/driver.h"

#undef cuGetProcAddress
#define NAME_BYTES 128
#define SUFFIX_MAX 4

CUresult cuGetProcAddress(const char *name, void **function, int version, cuuint64_t flags);

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
