/* SPDX-License-Identifier: MIT */
#include "backends/cuda/driver.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/text.h"
#include "reveille/cuda.h"

#define LIBRARY "libcuda.so.1"
#define SIMULATED_SYMBOL "rvli_contents_limit" /* simcuda/driver/contents.h */
#define LIBRARY_VARIABLE "RVL_CUDA_LIBRARY"
#define NO_DEVICE                                                                                  \
    "the CUDA driver finds no device: see nvidia-smi, and whether CUDA_VISIBLE_DEVICES hides them"

rvli_cuda_driver rvli_cuda;
rvli_cuda_checkpoint rvli_cuda_process;

typedef CUresult (*get_proc_address_fn)(const char *symbol, void **pointer_out, int version,
                                        cuuint64_t flags,
                                        CUdriverProcAddressQueryResult *status_out);

static get_proc_address_fn get_entry; /* valid once the driver is loaded */
static pthread_mutex_t load_lock = PTHREAD_MUTEX_INITIALIZER;
static bool loaded;

/* Joins the parts of a message. */
static rvl_status refuse(rvl_status status, const char *cause, const char *name, const char *remedy)
{
    char message[sizeof(((rvl_error *)NULL)->message)];
    rvli_text text = rvli_text_begin(message, sizeof message);
    rvli_text_add(&text, cause);
    rvli_text_add(&text, name);
    rvli_text_add(&text, remedy);
    return rvli_error(status, message);
}

/* The name, version and pointer of each entry point. */
static const struct {
    const char *name;
    int version;
    size_t offset;
} entries[] = {
#define ENTRY(name, version) {#name, version, offsetof(rvli_cuda_driver, name)},
    RVLI_CUDA_ENTRY_MAP(ENTRY)
#undef ENTRY
};

static rvl_status find_entries(get_proc_address_fn get, rvli_cuda_driver *driver)
{
    for (size_t i = 0; i < sizeof entries / sizeof entries[0]; i++) {
        void *pointer = NULL;
        CUdriverProcAddressQueryResult found;
        CUresult result =
            get(entries[i].name, &pointer, entries[i].version, CU_GET_PROC_ADDRESS_DEFAULT, &found);
        if (result != CUDA_SUCCESS || pointer == NULL)
            return refuse(RVL_ERR_DRIVER_TOO_OLD, "the CUDA driver lacks ", entries[i].name,
                          ": install a driver of CUDA 12.0 or newer");
        memcpy((char *)driver + entries[i].offset, &pointer, sizeof pointer);
    }
    return RVL_OK;
}

/* Finds all functions, or sets all to NULL. */
static void find_checkpoint(get_proc_address_fn get)
{
    rvli_cuda_checkpoint found = {0};
    bool whole = true;
#define FIND(name, parameters)                                                                     \
    {                                                                                              \
        void *pointer = NULL;                                                                      \
        CUdriverProcAddressQueryResult how;                                                        \
        whole = get(#name, &pointer, RVLI_CUDA_CHECKPOINT_VERSION, CU_GET_PROC_ADDRESS_DEFAULT,    \
                    &how) == CUDA_SUCCESS &&                                                       \
                pointer != NULL && whole;                                                          \
        memcpy(&found.name, &pointer, sizeof pointer);                                             \
    }
    RVLI_CUDA_CHECKPOINT_MAP(FIND)
#undef FIND
    rvli_cuda_process = whole ? found : (rvli_cuda_checkpoint){0};
}

static rvl_status initialize(const rvli_cuda_driver *driver)
{
    int version = 0, count = 0;
    CUresult result = driver->cuInit(0);
    if (result == CUDA_ERROR_NO_DEVICE)
        return rvli_error(RVL_ERR_NO_DEVICE, NO_DEVICE);
    if (result != CUDA_SUCCESS) {
        rvli_cuda_check(result, "starting the CUDA driver");
        rvl_error cause = *rvli_error_get();
        rvli_error(RVL_ERR_NO_DRIVER, "the CUDA driver does not start: see nvidia-smi");
        rvli_error_native(cause.native_code, cause.native_name);
        return RVL_ERR_NO_DRIVER;
    }
    if (driver->cuDriverGetVersion(&version) != CUDA_SUCCESS || version < RVLI_CUDA_DRIVER_MIN)
        return rvli_error(RVL_ERR_DRIVER_TOO_OLD,
                          "the CUDA driver is older than CUDA 12.0: install a newer one");
    if (driver->cuDeviceGetCount(&count) != CUDA_SUCCESS || count == 0)
        return rvli_error(RVL_ERR_NO_DEVICE, NO_DEVICE);
    return RVL_OK;
}

static rvl_status load_library(void *library, const char *path)
{
    get_proc_address_fn get;
    void *symbol = dlsym(library, "cuGetProcAddress_v2");
    if (symbol == NULL)
        return refuse(RVL_ERR_DRIVER_TOO_OLD, path, " has no cuGetProcAddress_v2",
                      ": install a driver of CUDA 12.0 or newer");
    memcpy(&get, &symbol, sizeof get);
    rvli_cuda_driver driver;
    rvl_status status = find_entries(get, &driver);
    rvli_cuda.cuGetErrorName = status == RVL_OK ? driver.cuGetErrorName : NULL;
    if (status == RVL_OK)
        status = initialize(&driver);
    if (status == RVL_OK) {
        driver.simulated = dlsym(library, SIMULATED_SYMBOL) != NULL;
        rvli_cuda = driver;
        get_entry = get;
        find_checkpoint(get);
    } else {
        rvli_cuda.cuGetErrorName = NULL; /* the library will be closed */
    }
    return status;
}

static rvl_status load(void)
{
    const char *path = getenv(LIBRARY_VARIABLE);
    bool named = path != NULL && path[0] != '\0';
    if (!named)
        path = LIBRARY;
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL)
        return refuse(RVL_ERR_NO_DRIVER, "no CUDA driver: ", path,
                      named ? ", which " LIBRARY_VARIABLE " names, cannot be opened: unset it, or "
                              "name a driver"
                            : " cannot be opened (is the NVIDIA driver installed?)");
    rvl_status status = load_library(library, path);
    if (status != RVL_OK)
        dlclose(library); /* on success it stays open: the table points into it */
    return status;
}

rvl_status rvli_cuda_driver_load(void)
{
    pthread_mutex_lock(&load_lock);
    rvl_status status = loaded ? RVL_OK : load();
    loaded = loaded || status == RVL_OK;
    pthread_mutex_unlock(&load_lock);
    return status;
}

rvl_status rvl_cuda_get_entry(const char *name, int cuda_version, void **entry_out)
{
    void *pointer = NULL;
    CUdriverProcAddressQueryResult found;
    if (name == NULL || entry_out == NULL)
        return rvli_error(RVL_ERR_INVALID, "the name or entry_out is NULL");
    rvl_status status = rvli_cuda_driver_load();
    if (status != RVL_OK)
        return status;
    if (get_entry(name, &pointer, cuda_version, CU_GET_PROC_ADDRESS_DEFAULT, &found) !=
            CUDA_SUCCESS ||
        pointer == NULL)
        return refuse(RVL_ERR_NOT_FOUND, "the CUDA driver has no ", name,
                      " of that version: see its name and the version of CUDA");
    *entry_out = pointer;
    return RVL_OK;
}
