/* SPDX-License-Identifier: MIT */
#include "hooks/record/usage.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include <cuda.h>

#include "base/error.h"
#include "hooks/process/captures.h"
#include "hooks/process/message.h"

#define DRIVER "libcuda.so.1"
#define DRIVER_VARIABLE "RVL_CUDA_LIBRARY"
#define NVML "libnvidia-ml.so.1"
#define NVML_VARIABLE "RVL_NVML_LIBRARY"
#define BUS_ID_BYTES 32
#define GRANULARITY_USUAL_BYTES (UINT64_C(2) << 20)

/* X(entry point, CUDA version of its signature) */
#define ENTRY_MAP(X)                                                                               \
    X(cuInit, 2000)                                                                                \
    X(cuDeviceGetCount, 2000)                                                                      \
    X(cuDeviceGetName, 2000)                                                                       \
    X(cuDeviceTotalMem, 3020)                                                                      \
    X(cuDeviceGetPCIBusId, 4010)                                                                   \
    X(cuMemGetAllocationGranularity, 10020)                                                        \
    X(cuCtxGetDevice, 2000)                                                                        \
    X(cuCtxPushCurrent, 4000)                                                                      \
    X(cuCtxPopCurrent, 4000)                                                                       \
    X(cuDevicePrimaryCtxGetState, 7000)                                                            \
    X(cuDevicePrimaryCtxRetain, 7000)                                                              \
    X(cuDevicePrimaryCtxRelease, 11000)                                                            \
    X(cuMemGetInfo, 3020)

/*
 * Declared here, because four functions do not justify NVML's header. 0 is success; a device is a
 * pointer.
 */
typedef struct nvml_memory {
    unsigned long long total, free, used;
} nvml_memory;

typedef struct nvml {
    int (*init)(void);
    int (*by_bus_id)(const char *bus_id, void **device);
    int (*get_index)(void *device, unsigned *index);
    int (*get_memory)(void *device, nvml_memory *memory);
} nvml;

typedef struct usage {
#define POINTER(name, version) __typeof__(&name) name;
    ENTRY_MAP(POINTER)
#undef POINTER
    nvml nvml;
    bool has_nvml;
    int count;
    rvli_usage_device devices[RVL_MAX_DEVICES];
    void *cards[RVL_MAX_DEVICES]; /* NVML's handles; NULL: NVML does not know the device */
} usage;

static _Atomic(usage *) loaded;

static const usage *get(void)
{
    return atomic_load_explicit(&loaded, memory_order_acquire);
}

static bool is_named(const char *variable)
{
    const char *path = getenv(variable);
    return path != NULL && path[0] != '\0';
}

static void *open_library(const char *variable, const char *usual)
{
    return dlopen(is_named(variable) ? getenv(variable) : usual, RTLD_NOW | RTLD_LOCAL);
}

/* ---- The driver ---- */

typedef CUresult (*get_proc_address_fn)(const char *symbol, void **pointer_out, int version,
                                        cuuint64_t flags, CUdriverProcAddressQueryResult *found);

static rvl_status find_entries(usage *new, get_proc_address_fn look_up)
{
    CUdriverProcAddressQueryResult found;
    void *pointer = NULL;
#define FIND(name, version)                                                                        \
    if (look_up(#name, &pointer, version, CU_GET_PROC_ADDRESS_DEFAULT, &found) != CUDA_SUCCESS ||  \
        pointer == NULL)                                                                           \
        return rvli_error(RVL_ERR_DRIVER_TOO_OLD, "the CUDA driver lacks " #name                   \
                                                  ": install a driver of CUDA 12.0 or newer");     \
    memcpy(&new->name, &pointer, sizeof pointer);
    ENTRY_MAP(FIND)
#undef FIND
    return RVL_OK;
}

static rvl_status open_driver(usage *new)
{
    get_proc_address_fn look_up;
    void *library = open_library(DRIVER_VARIABLE, DRIVER);
    void *symbol = library != NULL ? dlsym(library, "cuGetProcAddress_v2") : NULL;
    if (symbol == NULL)
        return rvli_error(RVL_ERR_NO_DRIVER,
                          is_named(DRIVER_VARIABLE)
                              ? "what " DRIVER_VARIABLE " names is not a CUDA driver of version "
                                "12.0 or newer: unset it, or name one"
                              : "no CUDA driver of version 12.0 or newer can be opened: is the "
                                "NVIDIA driver installed?");
    memcpy(&look_up, &symbol, sizeof look_up);
    rvl_status status = find_entries(new, look_up);
    if (status != RVL_OK)
        return status;
    if (new->cuInit(0) != CUDA_SUCCESS || new->cuDeviceGetCount(&new->count) != CUDA_SUCCESS ||
        new->count == 0)
        return rvli_error(RVL_ERR_NO_DEVICE, "the CUDA driver finds no device: see nvidia-smi");
    if (new->count > (int)RVL_MAX_DEVICES)
        new->count = (int)RVL_MAX_DEVICES;
    return RVL_OK;
}

static uint64_t granularity_of(const usage *in, int device)
{
    const CUmemAllocationProp properties = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
    };
    size_t granularity = 0;
    CUresult result = in->cuMemGetAllocationGranularity(&granularity, &properties,
                                                        CU_MEM_ALLOC_GRANULARITY_MINIMUM);
    bool good =
        result == CUDA_SUCCESS && granularity != 0 && (granularity & (granularity - 1)) == 0;
    return good ? granularity : GRANULARITY_USUAL_BYTES;
}

/* ---- NVML ---- */

static bool find(void *library, const char *name, void *function_out)
{
    void *symbol = dlsym(library, name);
    if (symbol != NULL)
        memcpy(function_out, &symbol, sizeof symbol);
    return symbol != NULL;
}

static bool open_nvml(nvml *new)
{
    void *library = open_library(NVML_VARIABLE, NVML);
    bool found = library != NULL && find(library, "nvmlInit_v2", &new->init) &&
                 find(library, "nvmlDeviceGetHandleByPciBusId_v2", &new->by_bus_id) &&
                 find(library, "nvmlDeviceGetIndex", &new->get_index) &&
                 find(library, "nvmlDeviceGetMemoryInfo", &new->get_memory);
    if (!found && is_named(NVML_VARIABLE))
        rvli_say("what " NVML_VARIABLE " names is not NVML: the driver is asked instead, and no "
                 "context is measured. Name libnvidia-ml.so.1, or unset the variable");
    return found && new->init() == 0;
}

/* A MIG instance has the bus id of its card and less memory. Its use is read from the driver. */
static void find_card(usage *new, int device)
{
    char bus_id[BUS_ID_BYTES] = "";
    unsigned index = 0;
    nvml_memory memory = {0};
    void *card = NULL;
    rvli_usage_device *facts = &new->devices[device];
    if (!new->has_nvml ||
        new->cuDeviceGetPCIBusId(bus_id, (int)sizeof bus_id, device) != CUDA_SUCCESS ||
        new->nvml.by_bus_id(bus_id, &card) != 0 || new->nvml.get_index(card, &index) != 0 ||
        new->nvml.get_memory(card, &memory) != 0 || index >= RVL_MAX_DEVICES ||
        memory.total - memory.total / 8 > facts->capacity_bytes)
        return;
    facts->place = index;
    facts->always = true;
    new->cards[device] = card;
}

/* If a place is unknown or occurs twice, uses the program's numbers of the devices as places. */
static void check_places(usage *new)
{
    uint64_t seen = 0;
    bool good = true;
    for (int i = 0; i < new->count; i++) {
        good = good && new->cards[i] != NULL && !(seen >> new->devices[i].place & 1);
        seen |= UINT64_C(1) << new->devices[i].place;
    }
    for (int i = 0; i < new->count && !good; i++)
        new->devices[i].place = (uint32_t)i;
}

static rvl_status describe(usage *new, int device)
{
    rvli_usage_device *facts = &new->devices[device];
    size_t total_bytes = 0;
    if (new->cuDeviceTotalMem(&total_bytes, device) != CUDA_SUCCESS || total_bytes == 0 ||
        new->cuDeviceGetName(facts->name, (int)sizeof facts->name, device) != CUDA_SUCCESS)
        return rvli_error(RVL_ERR_NO_DEVICE, "a device does not say what it is: see nvidia-smi");
    facts->capacity_bytes = total_bytes;
    facts->granularity_bytes = granularity_of(new, device);
    facts->place = (uint32_t)device;
    find_card(new, device);
    return RVL_OK;
}

/* ---- Loading ---- */

static rvl_status fill(usage *new)
{
    rvl_status status = open_driver(new);
    if (status != RVL_OK)
        return status;
    new->has_nvml = open_nvml(&new->nvml);
    for (int device = 0; device < new->count &&status == RVL_OK; device++)
        status = describe(new, device);
    if (status == RVL_OK)
        check_places(new);
    return status;
}

/* Two threads may load at the same time: one of the tables is kept. Libraries stay open. */
rvl_status rvli_usage_load(void)
{
    usage *none = NULL;
    if (get() != NULL)
        return RVL_OK;
    usage *new = calloc(1, sizeof *new);
    rvl_status status =
        new != NULL ? fill(new) : rvli_error(RVL_ERR_HOST_OOM, "no host memory for devices");
    if (status != RVL_OK || !atomic_compare_exchange_strong(&loaded, &none, new))
        free(new);
    return status;
}

int rvli_usage_count(void)
{
    return get()->count;
}

const rvli_usage_device *rvli_usage_device_at(int device)
{
    return &get()->devices[device];
}

int rvli_usage_current(void)
{
    CUdevice device = -1;
    return get()->cuCtxGetDevice(&device) == CUDA_SUCCESS ? (int)device : -1;
}

bool rvli_usage_active(int device)
{
    const usage *in = get();
    unsigned flags = 0;
    int active = 0;
    return in == NULL || in->cuDevicePrimaryCtxGetState(device, &flags, &active) != CUDA_SUCCESS ||
           active != 0;
}

/* ---- Reading ---- */

/* Not during a capture, which calls from any thread may end. */
static bool read_by_driver(const usage *in, int device, uint64_t *used_bytes_out)
{
    unsigned flags = 0;
    int active = 0;
    CUcontext context, popped;
    size_t free_bytes = 0, total_bytes = 0;
    if (rvli_capture_running() ||
        in->cuDevicePrimaryCtxGetState(device, &flags, &active) != CUDA_SUCCESS || !active ||
        in->cuDevicePrimaryCtxRetain(&context, device) != CUDA_SUCCESS)
        return false;
    bool good = in->cuCtxPushCurrent(context) == CUDA_SUCCESS;
    if (good) {
        good = in->cuMemGetInfo(&free_bytes, &total_bytes) == CUDA_SUCCESS;
        in->cuCtxPopCurrent(&popped);
    }
    in->cuDevicePrimaryCtxRelease(device);
    *used_bytes_out = total_bytes - free_bytes;
    return good;
}

/*
 * Subtracts the free bytes from the driver's capacity: NVML's total includes what the card
 * reserves.
 */
bool rvli_usage_read(int device, uint64_t *used_bytes_out)
{
    const usage *in = get();
    nvml_memory memory = {0};
    if (in->cards[device] == NULL)
        return read_by_driver(in, device, used_bytes_out);
    if (in->nvml.get_memory(in->cards[device], &memory) != 0)
        return false;
    uint64_t capacity_bytes = in->devices[device].capacity_bytes;
    *used_bytes_out = memory.free < capacity_bytes ? capacity_bytes - memory.free : 0;
    return true;
}
