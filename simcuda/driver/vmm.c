/* SPDX-License-Identifier: MIT */
/*
 * Physical memory and addresses, separately: cuMemCreate, cuMemAddressReserve, cuMemMap. A
 * handle lives until it is released and all its mappings are gone.
 */
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/addrmap.h"
#include "simcuda/driver/client.h"
#include "simcuda/driver/contents.h"
#include "simcuda/driver/driver.h"

typedef struct handle {
    struct handle *next;
    int device;
    size_t size_bytes;
    uint64_t machine_id;
    unsigned owners; /* creates and retains, minus releases */
    unsigned mappings;
    CUmemAllocationHandleType exportable; /* CU_MEM_HANDLE_TYPE_NONE: not exportable */
    bool shared;                          /* with other processes */
    bool imported;                        /* made by another process */
    uint64_t place;                       /* of its content, if shared */
} handle;

typedef struct mapping {
    handle *of;
    size_t size_bytes;
    uint64_t access; /* bit d: device d has access; none initially */
} mapping;

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static handle *handles;
static rvli_addrmap mappings;
static bool mappings_begun;

void rvli_vmm_forget(void)
{
    pthread_mutex_init(&mutex, NULL);
    handles = NULL;
    if (mappings_begun)
        rvli_addrmap_init(&mappings);
}

static handle **find(CUmemGenericAllocationHandle wanted)
{
    handle **link = &handles;
    while (*link != NULL && (uintptr_t)*link != wanted)
        link = &(*link)->next;
    return link;
}

static void drop_if_unused(handle **link)
{
    handle *each = *link;
    if (each->owners > 0 || each->mappings > 0)
        return;
    *link = each->next;
    rvli_physical_give(each->machine_id);
    free(each);
}

CUresult cuMemGetAllocationGranularity(size_t *granularity, const CUmemAllocationProp *properties,
                                       CUmemAllocationGranularity_flags option)
{
    (void)option;
    CUresult result = rvli_driver_ready();
    if (result == CUDA_SUCCESS && (granularity == NULL || properties == NULL))
        return CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        *granularity = RVLI_PAGE_BYTES;
    return result;
}

/*
 * Memory may be made for sharing by a file descriptor, as PyTorch's expandable segments are.
 * Sharing between nodes fails as on a card without the fabric for it.
 */
static CUresult check_create(size_t size_bytes, const CUmemAllocationProp *properties)
{
    if (properties == NULL || size_bytes == 0 || size_bytes % RVLI_PAGE_BYTES != 0 ||
        properties->type != CU_MEM_ALLOCATION_TYPE_PINNED)
        return CUDA_ERROR_INVALID_VALUE;
    if (properties->location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
        (properties->requestedHandleTypes != CU_MEM_HANDLE_TYPE_NONE &&
         properties->requestedHandleTypes != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR))
        return CUDA_ERROR_NOT_SUPPORTED;
    return rvli_device_exists(properties->location.id) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

static void enter(handle *made)
{
    pthread_mutex_lock(&mutex);
    made->next = handles;
    handles = made;
    pthread_mutex_unlock(&mutex);
}

CUresult cuMemCreate(CUmemGenericAllocationHandle *handle_out, size_t size_bytes,
                     const CUmemAllocationProp *properties, unsigned long long flags)
{
    CUresult result = rvli_driver_ready();
    if (result == CUDA_SUCCESS && (handle_out == NULL || flags != 0))
        return CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        result = check_create(size_bytes, properties);
    handle *made = result == CUDA_SUCCESS ? calloc(1, sizeof *made) : NULL;
    if (made == NULL)
        return result == CUDA_SUCCESS ? CUDA_ERROR_OUT_OF_MEMORY : result;
    made->device = properties->location.id;
    made->size_bytes = size_bytes;
    made->owners = 1;
    made->exportable = properties->requestedHandleTypes;
    result = rvli_physical_take(made->device, size_bytes, "cuMemCreate", &made->machine_id);
    if (result != CUDA_SUCCESS) {
        free(made);
        return result;
    }
    enter(made);
    *handle_out = (uintptr_t)made;
    return CUDA_SUCCESS;
}

CUresult cuMemRelease(CUmemGenericAllocationHandle wanted)
{
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&mutex);
    handle **link = find(wanted);
    if (*link != NULL && (*link)->owners > 0) {
        (*link)->owners--;
        drop_if_unused(link);
        result = CUDA_SUCCESS;
    }
    pthread_mutex_unlock(&mutex);
    return result;
}

CUresult cuMemAddressReserve(CUdeviceptr *addr, size_t size_bytes, size_t align_bytes,
                             CUdeviceptr hint, unsigned long long flags)
{
    rvli_range range = {.kind = RVLI_RANGE_RESERVED, .size_bytes = size_bytes};
    CUresult result = rvli_driver_ready();
    if (result != CUDA_SUCCESS)
        return result;
    if (addr == NULL || size_bytes == 0 || size_bytes % RVLI_PAGE_BYTES != 0 || flags != 0 ||
        (align_bytes & (align_bytes - 1)) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (align_bytes < RVLI_PAGE_BYTES)
        align_bytes = RVLI_PAGE_BYTES;
    range.base = rvli_addresses_reserve(size_bytes, align_bytes, hint);
    if (range.base == 0)
        return CUDA_ERROR_OUT_OF_MEMORY;
    result = rvli_range_add(&range);
    if (result == CUDA_SUCCESS)
        *addr = range.base;
    else
        rvli_addresses_release(range.base, size_bytes);
    return result;
}

/* Whether a range overlaps a mapping. */
static bool is_mapped(uint64_t base, size_t size_bytes)
{
    uint64_t at = 0;
    const mapping *below = mappings_begun ? rvli_addrmap_floor(&mappings, base, &at) : NULL;
    if (below != NULL && base - at < below->size_bytes)
        return true;
    return mappings_begun && rvli_addrmap_ceil(&mappings, base, &at) != NULL &&
           at - base < size_bytes;
}

CUresult cuMemAddressFree(CUdeviceptr addr, size_t size_bytes)
{
    rvli_range range;
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&mutex);
    if (rvli_range_find(addr, &range) && range.base == addr && range.size_bytes == size_bytes &&
        !is_mapped(addr, size_bytes) && rvli_range_take(addr, RVLI_RANGE_RESERVED, &range)) {
        rvli_addresses_release(addr, size_bytes);
        result = CUDA_SUCCESS;
    }
    pthread_mutex_unlock(&mutex);
    return result;
}

static CUresult map_locked(uint64_t addr, size_t size_bytes, handle *of)
{
    rvli_range range;
    if (of == NULL || of->size_bytes != size_bytes || !rvli_range_find(addr, &range) ||
        range.kind != RVLI_RANGE_RESERVED || range.size_bytes - (addr - range.base) < size_bytes ||
        addr % RVLI_PAGE_BYTES != 0 || is_mapped(addr, size_bytes))
        return CUDA_ERROR_INVALID_VALUE;
    mapping *made = malloc(sizeof *made);
    if (!mappings_begun)
        rvli_addrmap_init(&mappings);
    mappings_begun = true;
    if (made == NULL || rvli_addrmap_insert(&mappings, addr, made) != RVL_OK) {
        free(made);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *made = (mapping){.of = of, .size_bytes = size_bytes};
    of->mappings++;
    if (of->shared)
        rvli_contents_share(addr, size_bytes, of->place);
    return CUDA_SUCCESS;
}

CUresult cuMemMap(CUdeviceptr addr, size_t size_bytes, size_t offset,
                  CUmemGenericAllocationHandle wanted, unsigned long long flags)
{
    if (offset != 0 || flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&mutex);
    CUresult result = map_locked(addr, size_bytes, *find(wanted));
    pthread_mutex_unlock(&mutex);
    return result;
}

/* Whether complete mappings fill a range without gaps. */
static bool is_filled(uint64_t base, size_t size_bytes)
{
    size_t done = 0;
    while (done < size_bytes) {
        const mapping *each = mappings_begun ? rvli_addrmap_get(&mappings, base + done) : NULL;
        if (each == NULL)
            return false;
        done += each->size_bytes;
    }
    return done == size_bytes && size_bytes > 0;
}

/* On a card, copies and fills of mapped memory that no device may access are refused, like those
 * of unmapped memory (bench/gpu/driver/sticky.py, H200, driver 580). */
bool rvli_vmm_has_memory(uint64_t addr, size_t size_bytes)
{
    uint64_t at = addr, base = 0;
    pthread_mutex_lock(&mutex);
    while (mappings_begun && at - addr < size_bytes) {
        const mapping *each = rvli_addrmap_floor(&mappings, at, &base);
        if (each == NULL || at - base >= each->size_bytes || each->access == 0)
            break;
        at = base + each->size_bytes;
    }
    pthread_mutex_unlock(&mutex);
    return at - addr >= size_bytes;
}

CUresult cuMemUnmap(CUdeviceptr addr, size_t size_bytes)
{
    pthread_mutex_lock(&mutex);
    bool whole = is_filled(addr, size_bytes);
    for (size_t done = 0; whole && done < size_bytes;) {
        mapping *each = rvli_addrmap_remove(&mappings, addr + done);
        rvli_contents_unshare(addr + done);
        rvli_contents_forget(addr + done, each->size_bytes);
        done += each->size_bytes;
        each->of->mappings--;
        drop_if_unused(find((uintptr_t)each->of));
        free(each);
    }
    pthread_mutex_unlock(&mutex);
    return whole ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static bool good_access(const CUmemAccessDesc *access, size_t count)
{
    bool good = access != NULL && count > 0;
    for (size_t i = 0; good && i < count; i++)
        good = access[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
               rvli_device_exists(access[i].location.id);
    return good;
}

/* With the lock held. */
static void set_access(mapping *of, const CUmemAccessDesc *access, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (access[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE)
            continue;
        uint64_t bit = UINT64_C(1) << access[i].location.id;
        of->access =
            access[i].flags == CU_MEM_ACCESS_FLAGS_PROT_NONE ? of->access & ~bit : of->access | bit;
    }
}

CUresult cuMemSetAccess(CUdeviceptr addr, size_t size_bytes, const CUmemAccessDesc *access,
                        size_t count)
{
    if (!good_access(access, count))
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&mutex);
    bool filled = is_filled(addr, size_bytes);
    for (size_t done = 0; filled && done < size_bytes;) {
        mapping *each = rvli_addrmap_get(&mappings, addr + done);
        set_access(each, access, count);
        done += each->size_bytes;
    }
    pthread_mutex_unlock(&mutex);
    return filled ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

bool rvli_vmm_device(uint64_t addr, int *device_out)
{
    uint64_t base = 0;
    pthread_mutex_lock(&mutex);
    const mapping *each = mappings_begun ? rvli_addrmap_floor(&mappings, addr, &base) : NULL;
    bool mapped = each != NULL && addr - base < each->size_bytes;
    if (mapped)
        *device_out = each->of->device;
    pthread_mutex_unlock(&mutex);
    return mapped;
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle_out, void *addr)
{
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    uint64_t base = 0;
    pthread_mutex_lock(&mutex);
    const mapping *each =
        mappings_begun ? rvli_addrmap_floor(&mappings, (uintptr_t)addr, &base) : NULL;
    if (handle_out != NULL && each != NULL && (uintptr_t)addr - base < each->size_bytes) {
        each->of->owners++;
        *handle_out = (uintptr_t)each->of;
        result = CUDA_SUCCESS;
    }
    pthread_mutex_unlock(&mutex);
    return result;
}

CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *properties,
                                                CUmemGenericAllocationHandle wanted)
{
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&mutex);
    const handle *of = *find(wanted);
    if (properties != NULL && of != NULL) {
        *properties = (CUmemAllocationProp){
            .type = CU_MEM_ALLOCATION_TYPE_PINNED,
            .requestedHandleTypes = of->exportable,
            .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = of->device}};
        result = CUDA_SUCCESS;
    }
    pthread_mutex_unlock(&mutex);
    return result;
}

bool rvli_vmm_any_imported(void)
{
    pthread_mutex_lock(&mutex);
    const handle *each = handles;
    while (each != NULL && !each->imported)
        each = each->next;
    pthread_mutex_unlock(&mutex);
    return each != NULL;
}

/* ---- Other processes: by file descriptors (simcuda/machine/shared.h) ---- */

/* Makes other processes see what is written from now on, at any mapping. With the lock held. */
static void share(handle *of, uint64_t place)
{
    uint64_t at = 0;
    const mapping *each = of->mappings > 0 ? rvli_addrmap_ceil(&mappings, 0, &at) : NULL;
    of->shared = true;
    of->place = place;
    for (; each != NULL; each = rvli_addrmap_ceil(&mappings, at + 1, &at))
        if (each->of == of)
            rvli_contents_share(at, each->size_bytes, place);
}

static CUresult export_locked(handle *of, int *file_out)
{
    rvli_wire_answer answer;
    int file = -1;
    if (of == NULL || of->exportable == CU_MEM_HANDLE_TYPE_NONE)
        return CUDA_ERROR_INVALID_VALUE;
    const rvli_wire_request request = {.kind = RVLI_WIRE_EXPORT_FILE, .id = of->machine_id};
    rvl_status status = rvli_client_send_for_file(&request, &answer, &file);
    if (status == RVL_ERR_IO)
        return CUDA_ERROR_OPERATING_SYSTEM;
    if (status != RVL_OK)
        return rvli_result(status);
    if (!of->shared)
        share(of, answer.place);
    *file_out = file;
    return CUDA_SUCCESS;
}

CUresult cuMemExportToShareableHandle(void *shareable, CUmemGenericAllocationHandle wanted,
                                      CUmemAllocationHandleType type, unsigned long long flags)
{
    CUresult result = rvli_driver_ready();
    if (result == CUDA_SUCCESS &&
        (shareable == NULL || flags != 0 || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR))
        return CUDA_ERROR_INVALID_VALUE;
    if (result != CUDA_SUCCESS)
        return result;
    pthread_mutex_lock(&mutex);
    result = export_locked(*find(wanted), shareable);
    pthread_mutex_unlock(&mutex);
    return result;
}

/* Reads the key in a descriptor without removing it. false: another kind of file. */
static bool look_in(int file, uint64_t *key_out)
{
    rvli_wire_ticket ticket;
    if (recv(file, &ticket, sizeof ticket, MSG_PEEK | MSG_DONTWAIT) != (ssize_t)sizeof ticket ||
        ticket.magic != RVLI_WIRE_TICKET_MAGIC)
        return false;
    *key_out = ticket.key;
    return true;
}

static CUresult import(uint64_t key, handle *made)
{
    rvli_wire_answer answer;
    const rvli_wire_request request = {.kind = RVLI_WIRE_IMPORT, .id = key};
    CUresult result = rvli_result(rvli_client_send(&request, &answer));
    if (result != CUDA_SUCCESS)
        return result;
    int device = rvli_device_of_number((int)answer.count);
    if (device < 0) { /* assumed, not tried on a card */
        rvli_physical_give(answer.id);
        return CUDA_ERROR_INVALID_DEVICE;
    }
    *made = (handle){.device = device,
                     .size_bytes = answer.total_bytes,
                     .machine_id = answer.id,
                     .owners = 1,
                     .shared = true,
                     .imported = true,
                     .place = answer.place};
    return CUDA_SUCCESS;
}

CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle_out, void *shareable,
                                        CUmemAllocationHandleType type)
{
    uint64_t key = 0;
    CUresult result = rvli_driver_ready();
    if (result == CUDA_SUCCESS &&
        (handle_out == NULL || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR))
        return CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS && !look_in((int)(intptr_t)shareable, &key))
        return CUDA_ERROR_UNKNOWN;
    handle *made = result == CUDA_SUCCESS ? calloc(1, sizeof *made) : NULL;
    if (made == NULL)
        return result == CUDA_SUCCESS ? CUDA_ERROR_OUT_OF_MEMORY : result;
    result = import(key, made);
    if (result != CUDA_SUCCESS) {
        free(made);
        return result;
    }
    enter(made);
    *handle_out = (uintptr_t)made;
    return CUDA_SUCCESS;
}
