/* SPDX-License-Identifier: MIT */
/*
 * cuGetProcAddress: entry points by name and CUDA version.
 *
 * Asking for a newer version than the one that is compiled against can give a newer signature, as
 * it does with the driver: cuCtxSynchronize and cuCtxGetDevice take a context since 13.0.
 */
#include <string.h>

#include "internal.h"

typedef void (*function)(void);

typedef struct fake_entry {
    const char *name;
    int version;
    function function;
} fake_entry;

static const fake_entry entries[] = {
#define ENTRY(name, version) {#name, version, (function)name},
    FAKE_ENTRY_MAP(ENTRY)
#undef ENTRY
        {"cuCtxSynchronize", 13000, (function)cuCtxSynchronize_v2},
    {"cuCtxGetDevice", 13000, (function)cuCtxGetDevice_v2},
};

#define ENTRY_COUNT (sizeof entries / sizeof entries[0])

/* The newest entry of a name up to a version; named_out: there is one of any version. */
static const fake_entry *find_entry(const char *name, int version, bool *named_out)
{
    const fake_entry *found = NULL;
    *named_out = false;
    if (strcmp(name, fake_settings_get()->missing_symbol) == 0)
        return NULL;
    for (size_t i = 0; i < ENTRY_COUNT; i++) {
        if (strcmp(entries[i].name, name) != 0)
            continue;
        *named_out = true;
        if (entries[i].version <= version && (found == NULL || entries[i].version > found->version))
            found = &entries[i];
    }
    return found;
}

FAKE_API CUresult cuGetProcAddress(const char *symbol, void **pfn, int cudaVersion,
                                   cuuint64_t flags, CUdriverProcAddressQueryResult *symbolStatus)
{
    FAKE_ENTER(cuGetProcAddress, FAKE_NEEDS_NOTHING);
    if (symbol == NULL || pfn == NULL || flags > CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM)
        return CUDA_ERROR_INVALID_VALUE;
    if (flags == CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (cudaVersion > fake_settings_get()->driver_version)
        return CUDA_ERROR_INVALID_VALUE;
    bool named;
    const fake_entry *entry = find_entry(symbol, cudaVersion, &named);
    CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SUCCESS;
    if (entry == NULL)
        status = named ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT
                       : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    if (symbolStatus != NULL)
        *symbolStatus = status;
    *pfn = NULL;
    if (entry == NULL)
        return CUDA_ERROR_NOT_FOUND;
    memcpy(pfn, &entry->function, sizeof *pfn);
    return CUDA_SUCCESS;
}
