/* SPDX-License-Identifier: MIT */
/*
 * Declarations that the files of the simulated driver, libcuda.so.1, share.
 *
 * It behaves as CUDA's driver as far as memory is concerned. Addresses are reserved in the
 * process and fault when they are touched. The machine counts the bytes in use on a device, and
 * is asked for every piece of physical memory (client.h). Kernels are accepted but do not run,
 * so all work is complete at once. Names that no file here defines are stubs (stubs.c).
 */
#ifndef RVL_SIMCUDA_DRIVER_H
#define RVL_SIMCUDA_DRIVER_H

#include <cuda.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "reveille/status.h"
#include "simcuda/driver/cards.h"

#define RVLI_PAGE_BYTES ((size_t)2 << 20) /* unit of physical memory on a device */

/* ---- device.c ---- */

/* Connects, after cuInit(). Returns CUDA_SUCCESS or the error. */
CUresult rvli_driver_ready(void);

/* Whether the device exists. */
bool rvli_device_exists(int device);

/* Convert between this process's device and the machine's number. -1: not visible here. */
int rvli_device_number(int device);
int rvli_device_of_number(int number);

const rvli_card *rvli_device_card(int device);
uint64_t rvli_device_bytes(int device);

/* Memory that the driver takes on a measured card, by its profile. 0: unknown. */
typedef struct rvli_driver_figures {
    uint64_t streams_bytes; /* 34 streams */
    uint64_t graph_bytes;   /* the first graph */
    uint64_t kernel_bytes;  /* the first kernel */
} rvli_driver_figures;

const rvli_driver_figures *rvli_device_figures(int device);

/* ---- context.c ---- */

/* The device of this thread's context; CUDA_ERROR_INVALID_CONTEXT: there is none;
 * CUDA_ERROR_CONTEXT_IS_DESTROYED. */
CUresult rvli_current_device(int *device_out);

/* CUDA_ERROR_CONTEXT_IS_DESTROYED if this thread's context is destroyed. CUDA_SUCCESS: it is
 * alive, or there is none. */
CUresult rvli_current_alive(void);

/* The number of this thread's context. Allocations in it are freed with the context. 0: a
 * primary context, or none. */
unsigned rvli_current_context(void);

/* ---- memory.c ---- */

typedef enum rvli_range_kind {
    RVLI_RANGE_DEVICE,   /* allocated on a device */
    RVLI_RANGE_RESERVED, /* an address range for cuMemMap */
    RVLI_RANGE_HOST,     /* pinned memory allocated by the driver */
    RVLI_RANGE_REGISTERED,
    RVLI_RANGE_POOL,  /* allocated from a pool */
    RVLI_RANGE_GRAPH, /* allocated by a graph */
    RVLI_RANGE_MANAGED,
    RVLI_RANGE_OPENED,   /* memory of another process, opened by a handle (ipc.h) */
    RVLI_RANGE_VARIABLE, /* variables of a module */
} rvli_range_kind;

typedef struct rvli_range {
    rvli_range_kind kind;
    int device;
    uint64_t base;
    size_t size_bytes;
    uint64_t machine_id; /* 0: part of a chunk */
    unsigned flags;
    uint64_t number;
    unsigned context; /* rvli_current_context() at creation */
    void *of;         /* RVLI_RANGE_POOL: the pool; RVLI_RANGE_GRAPH, _MANAGED: see their files */
} rvli_range;

/* Whether the range lies on a device, not in host memory. */
bool rvli_range_on_device(const rvli_range *range);

/* Copies the range that contains an address. */
bool rvli_range_find(uint64_t addr, rvli_range *range_out);

/* Whether there is a range of a kind. */
bool rvli_range_any(rvli_range_kind kind);

/* Add a range, or remove the one that begins at base. CUDA_ERROR_OUT_OF_MEMORY. */
CUresult rvli_range_add(const rvli_range *range);
bool rvli_range_take(uint64_t base, rvli_range_kind kind, rvli_range *range_out);

/* Reserves addresses that fault, aligned to align_bytes. hint 0: anywhere. Returns 0: none left. */
uint64_t rvli_addresses_reserve(size_t size_bytes, size_t align_bytes, uint64_t hint);
void rvli_addresses_release(uint64_t base, size_t size_bytes);

/*
 * Takes a piece of the machine's physical memory. If none is left, pools release their unused
 * memory. _once does not make them, since pools call it.
 */
CUresult rvli_physical_take(int device, size_t size_bytes, const char *kind, uint64_t *id_out);
CUresult rvli_physical_take_once(int device, size_t size_bytes, const char *kind, uint64_t *id_out);
void rvli_physical_give(uint64_t id);

/* Finds the physical memory that contains a range of RVLI_RANGE_DEVICE. false: another kind. */
typedef struct rvli_physical {
    uint64_t machine_id;
    uint64_t base;
    size_t size_bytes;
} rvli_physical;
bool rvli_physical_find(const rvli_range *range, rvli_physical *physical_out);

/* Whether all of these reserved addresses are mapped. */
bool rvli_vmm_has_memory(uint64_t addr, size_t size_bytes);

CUresult rvli_alloc(int device, size_t size_bytes, uint64_t *addr_out);
CUresult rvli_free(uint64_t addr);

/* Frees the allocations of a device's context that is destroyed. */
void rvli_memory_give_context(int device, unsigned context);

/* Frees all else on a device when its last context is destroyed. */
void rvli_memory_give_device(int device);

CUresult rvli_result(rvl_status status);

/* ---- vmm.c ---- */

/* The device of the memory mapped at an address. false: nothing is mapped. */
bool rvli_vmm_device(uint64_t addr, int *device_out);

/* Whether memory of another process is open by file descriptor. */
bool rvli_vmm_any_imported(void);

/* ---- host.c ---- */

/* Frees pinned memory that was removed from the map. Registered memory stays, but is no longer
 * counted. */
void rvli_host_free(const rvli_range *range);

/* Zeroes host memory. Whole private pages take no memory afterwards. */
void rvli_host_clear(void *memory, size_t size_bytes);

/* ---- A forked child has none of its parent's memory, and must call cuInit(). ---- */

void rvli_device_forget(void);
void rvli_context_forget(void);

void rvli_capture_forget(void);
void rvli_function_forget(void);
void rvli_graph_memory_forget(void);
void rvli_ipc_forget(void);
void rvli_managed_forget(void);
void rvli_loaded_forget(void);
void rvli_pool_forget(void);
void rvli_registered_forget(void);
void rvli_share_forget(void);
void rvli_vmm_forget(void);

#endif
