/* SPDX-License-Identifier: MIT */
/*
 * What the files of the simulated driver, libcuda.so.1, share.
 *
 * It is CUDA's driver as far as memory goes. Addresses are reserved in the process and fault when
 * they are touched; what is in use on a device is with the machine (client.h), which is asked for
 * every piece of physical memory. Kernels are taken and do not run, so everything is complete when
 * asked. Names that no file here defines are stubs (stubs.c).
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

#define RVLI_PAGE_BYTES ((size_t)2 << 20) /* of physical memory on a device */

/* ---- device.c ---- */

/* Connects, once cuInit() was called. CUDA_SUCCESS, or why not. */
CUresult rvli_driver_ready(void);

/* Whether there is such a device. */
bool rvli_device_exists(int device);

/* The machine's number of a device that this process sees, and the other way: -1 if it sees none.
 */
int rvli_device_number(int device);
int rvli_device_of_number(int number);

const rvli_card *rvli_device_card(int device);
uint64_t rvli_device_bytes(int device);

/* What a measured card's driver takes, by its profile. 0: not known. */
typedef struct rvli_driver_figures {
    uint64_t streams_bytes; /* for 34 streams */
    uint64_t graph_bytes;   /* for the first graph */
    uint64_t kernel_bytes;  /* for the first kernel */
} rvli_driver_figures;

const rvli_driver_figures *rvli_device_figures(int device);

/* ---- context.c ---- */

/* The device of this thread's context; CUDA_ERROR_INVALID_CONTEXT: there is none;
 * CUDA_ERROR_CONTEXT_IS_DESTROYED. */
CUresult rvli_current_device(int *device_out);

/* CUDA_ERROR_CONTEXT_IS_DESTROYED, if this thread's context is; CUDA_SUCCESS: it is alive, or there
 * is none. */
CUresult rvli_current_alive(void);

/* The number of this thread's context, which what is allocated in it goes with. 0: of a device's
 * primary one, or none. */
unsigned rvli_current_context(void);

/* ---- memory.c ---- */

typedef enum rvli_range_kind {
    RVLI_RANGE_DEVICE,   /* allocated on a device */
    RVLI_RANGE_RESERVED, /* an address range, for cuMemMap */
    RVLI_RANGE_HOST,     /* pinned memory that was allocated */
    RVLI_RANGE_REGISTERED,
    RVLI_RANGE_POOL,  /* allocated from a pool */
    RVLI_RANGE_GRAPH, /* allocated by a graph */
    RVLI_RANGE_MANAGED,
    RVLI_RANGE_OPENED,   /* another process's, by a handle (ipc.h) */
    RVLI_RANGE_VARIABLE, /* of a module */
} rvli_range_kind;

typedef struct rvli_range {
    rvli_range_kind kind;
    int device;
    uint64_t base;
    size_t size_bytes;
    uint64_t machine_id; /* 0: of a piece of a chunk */
    unsigned flags;
    uint64_t number;
    unsigned context; /* rvli_current_context(), when it was made */
    void *of; /* RVLI_RANGE_POOL: the pool; RVLI_RANGE_GRAPH, _MANAGED: what its file says */
} rvli_range;

/* Whether it lies on a device, and not in host memory. */
bool rvli_range_on_device(const rvli_range *range);

/* The range that an address lies in, copied. */
bool rvli_range_find(uint64_t addr, rvli_range *range_out);

/* Whether there is a range of a kind. */
bool rvli_range_any(rvli_range_kind kind);

/* Adds a range, and removes the one that begins at an address. CUDA_ERROR_OUT_OF_MEMORY. */
CUresult rvli_range_add(const rvli_range *range);
bool rvli_range_take(uint64_t base, rvli_range_kind kind, rvli_range *range_out);

/* Reserves addresses that fault, from a multiple of align_bytes on; hint 0: anywhere. 0: none left.
 */
uint64_t rvli_addresses_reserve(size_t size_bytes, size_t align_bytes, uint64_t hint);
void rvli_addresses_release(uint64_t base, size_t size_bytes);

/*
 * A piece of physical memory of the machine. Where there is none left, pools give back what they
 * keep; not so with _once, which pools call.
 */
CUresult rvli_physical_take(int device, size_t size_bytes, const char *kind, uint64_t *id_out);
CUresult rvli_physical_take_once(int device, size_t size_bytes, const char *kind, uint64_t *id_out);
void rvli_physical_give(uint64_t id);

/* The physical memory that a range of RVLI_RANGE_DEVICE lies in. false: it is of another kind. */
typedef struct rvli_physical {
    uint64_t machine_id;
    uint64_t base;
    size_t size_bytes;
} rvli_physical;
bool rvli_physical_find(const rvli_range *range, rvli_physical *physical_out);

/* Whether something is mapped at all of these reserved addresses. */
bool rvli_vmm_has_memory(uint64_t addr, size_t size_bytes);

CUresult rvli_alloc(int device, size_t size_bytes, uint64_t *addr_out);
CUresult rvli_free(uint64_t addr);

/* Frees what was allocated in a context of a device that is destroyed. */
void rvli_memory_give_context(int device, unsigned context);

/* And all that belongs to the device, with the last context there. */
void rvli_memory_give_device(int device);

CUresult rvli_result(rvl_status status);

/* ---- vmm.c ---- */

/* The device of what is mapped at an address; false: nothing is. */
bool rvli_vmm_device(uint64_t addr, int *device_out);

/* Whether memory of other processes is open by a file descriptor. */
bool rvli_vmm_any_imported(void);

/* ---- host.c ---- */

/* Frees pinned memory that is in the map no more; what was registered stays, and counts no more. */
void rvli_host_free(const rvli_range *range);

/* Makes host memory 0. Whole private pages take no memory from then on. */
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
