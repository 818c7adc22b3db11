/* SPDX-License-Identifier: MIT */
#include "simcuda/driver/ipc.h"

#include <stdlib.h>
#include <string.h>

#include "simcuda/driver/capture.h"
#include "simcuda/driver/client.h"
#include "simcuda/driver/contents.h"
#include "simcuda/driver/stream.h"

#define MEMORY_MAGIC UINT64_C(0x79726f6d656d2d72) /* "r-memory" */
#define EVENT_MAGIC UINT64_C(0x746e6576652d7276)  /* "vr-event" */

/* The content of a handle. The rest of the handle is 0. */
typedef struct ticket {
    uint64_t magic;
    uint64_t key;        /* the machine's key, which is never reused */
    uint64_t offset;     /* of the allocation in the piece of physical memory that has the key */
    uint64_t size_bytes; /* of the allocation */
    uint64_t owner;      /* the machine's number for the process */
} ticket;
_Static_assert(sizeof(ticket) <= sizeof(CUipcMemHandle), "the handle of memory");
_Static_assert(sizeof(ticket) <= sizeof(CUipcEventHandle), "the handle of an event");

/* Memory of another process. Opening it again for the same device returns the same address. */
typedef struct opened {
    struct opened *next;
    ticket handle;
    int for_device;
    unsigned references;
    uint64_t addr; /* of the allocation */
    uint64_t base; /* of the piece that contains it */
    uint64_t size_bytes;
    uint64_t machine_id;
} opened;

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static opened *all;

void rvli_ipc_forget(void)
{
    pthread_mutex_init(&mutex, NULL);
    all = NULL; /* the parent's entries are not touched */
}

static rvl_status export(uint64_t id, rvli_wire_answer *answer)
{
    const rvli_wire_request request = {.kind = RVLI_WIRE_EXPORT, .id = id};
    return rvli_client_send(&request, answer);
}

/* Errors are those of an H200: CUDA_ERROR_INVALID_VALUE if the owner has freed the memory. */
static CUresult open_ticket(const ticket *handle, rvli_wire_answer *answer)
{
    const rvli_wire_request request = {
        .kind = RVLI_WIRE_OPEN, .id = handle->key, .bytes = handle->owner};
    rvl_status status = rvli_client_send(&request, answer);
    switch (status) {
    case RVL_ERR_STATE: /* the process owns it */
        return CUDA_ERROR_INVALID_CONTEXT;
    case RVL_ERR_NOT_FOUND: /* the owner has ended */
        return CUDA_ERROR_INVALID_HANDLE;
    default:
        return rvli_result(status);
    }
}

/* ---- Memory: the exporter ---- */

CUresult cuIpcGetMemHandle(CUipcMemHandle *handle, CUdeviceptr addr)
{
    rvli_range range;
    rvli_physical piece;
    rvli_wire_answer answer;
    CUresult result = rvli_driver_ready();
    if (result != CUDA_SUCCESS)
        return result;
    if (handle == NULL || !rvli_range_find(addr, &range) || !rvli_physical_find(&range, &piece))
        return CUDA_ERROR_INVALID_VALUE;
    result = rvli_result(export(piece.machine_id, &answer));
    if (result != CUDA_SUCCESS)
        return result;
    rvli_contents_share(piece.base, piece.size_bytes, answer.place);
    const ticket made = {MEMORY_MAGIC, answer.key, range.base - piece.base, range.size_bytes,
                         answer.owner};
    memset(handle, 0, sizeof *handle);
    memcpy(handle, &made, sizeof made);
    return CUDA_SUCCESS;
}

/* ---- Memory: the importer ---- */

static opened **find(const ticket *handle, int device)
{
    opened **link = &all;
    while (*link != NULL &&
           ((*link)->for_device != device || memcmp(&(*link)->handle, handle, sizeof *handle) != 0))
        link = &(*link)->next;
    return link;
}

/* Reserves addresses for a piece that this process now has, and adds a range for the allocation
 * in it. */
static CUresult place(opened *made, const rvli_wire_answer *answer)
{
    const ticket *handle = &made->handle;
    rvli_range range = {.kind = RVLI_RANGE_OPENED,
                        .device = made->for_device, /* as on an H200, on any device */
                        .size_bytes = handle->size_bytes,
                        .machine_id = answer->id,
                        .of = made};
    if (handle->size_bytes == 0 || handle->offset >= answer->total_bytes ||
        handle->size_bytes > answer->total_bytes - handle->offset)
        return CUDA_ERROR_INVALID_HANDLE;
    made->machine_id = answer->id;
    made->size_bytes = answer->total_bytes;
    made->base = rvli_addresses_reserve(made->size_bytes, RVLI_PAGE_BYTES, 0);
    if (made->base == 0)
        return CUDA_ERROR_OUT_OF_MEMORY;
    range.base = made->addr = made->base + handle->offset;
    CUresult result = rvli_range_add(&range);
    if (result == CUDA_SUCCESS)
        rvli_contents_share(made->base, made->size_bytes, answer->place);
    else
        rvli_addresses_release(made->base, made->size_bytes);
    return result;
}

/* With the lock held. */
static CUresult open_new(const ticket *handle, int device, opened **opened_out)
{
    rvli_wire_answer answer;
    CUresult result = open_ticket(handle, &answer);
    if (result != CUDA_SUCCESS)
        return result;
    opened *made = calloc(1, sizeof *made);
    if (made != NULL) {
        made->handle = *handle;
        made->for_device = device;
        result = place(made, &answer);
    }
    if (made == NULL || result != CUDA_SUCCESS) {
        rvli_physical_give(answer.id);
        free(made);
        return made == NULL ? CUDA_ERROR_OUT_OF_MEMORY : result;
    }
    made->next = all;
    *opened_out = all = made;
    return CUDA_SUCCESS;
}

CUresult cuIpcOpenMemHandle(CUdeviceptr *addr, CUipcMemHandle handle, unsigned int flags)
{
    int device;
    ticket wanted;
    memcpy(&wanted, &handle, sizeof wanted);
    CUresult result = rvli_current_device(&device);
    if (result == CUDA_SUCCESS && (addr == NULL || flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS ||
                                   wanted.magic != MEMORY_MAGIC))
        return CUDA_ERROR_INVALID_VALUE;
    if (result != CUDA_SUCCESS)
        return result;
    pthread_mutex_lock(&mutex);
    opened *there = *find(&wanted, device);
    if (there == NULL)
        result = open_new(&wanted, device, &there);
    if (result == CUDA_SUCCESS) {
        there->references++;
        *addr = there->addr;
    }
    pthread_mutex_unlock(&mutex);
    return result;
}

/* With the lock held. */
static void close_last(opened *gone)
{
    rvli_range range;
    *find(&gone->handle, gone->for_device) = gone->next;
    (void)rvli_range_take(gone->addr, RVLI_RANGE_OPENED, &range);
    rvli_contents_unshare(gone->base);
    rvli_physical_give(gone->machine_id);
    rvli_addresses_release(gone->base, gone->size_bytes);
    free(gone);
}

/* With the lock held. */
static opened *find_addr(uint64_t addr)
{
    opened *there = all;
    while (there != NULL && there->addr != addr)
        there = there->next;
    return there;
}

bool rvli_ipc_any_open(void)
{
    pthread_mutex_lock(&mutex);
    bool any = all != NULL;
    pthread_mutex_unlock(&mutex);
    return any;
}

void rvli_ipc_close(uint64_t addr)
{
    pthread_mutex_lock(&mutex);
    opened *there = find_addr(addr);
    if (there != NULL)
        close_last(there);
    pthread_mutex_unlock(&mutex);
}

CUresult cuIpcCloseMemHandle(CUdeviceptr addr)
{
    CUresult result = rvli_driver_ready();
    if (result == CUDA_SUCCESS)
        result = rvli_capture_unsafe();
    if (result != CUDA_SUCCESS)
        return result;
    pthread_mutex_lock(&mutex);
    opened *there = find_addr(addr);
    if (there == NULL)
        result = CUDA_ERROR_INVALID_VALUE;
    else if (--there->references == 0)
        close_last(there);
    pthread_mutex_unlock(&mutex);
    return result;
}

/* ---- Events. They are complete: only the process itself knows what its streams owe. ---- */

CUresult cuIpcGetEventHandle(CUipcEventHandle *handle, CUevent event)
{
    rvli_wire_answer answer;
    CUresult result = rvli_driver_ready();
    if (result != CUDA_SUCCESS)
        return result;
    if (handle == NULL || event == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (!(event->flags & CU_EVENT_INTERPROCESS) || event->opened)
        return CUDA_ERROR_INVALID_HANDLE;
    result = rvli_result(export(event->machine_id, &answer));
    if (result != CUDA_SUCCESS)
        return result;
    event->machine_id = answer.id;
    const ticket made = {.magic = EVENT_MAGIC, .key = answer.key, .owner = answer.owner};
    memset(handle, 0, sizeof *handle);
    memcpy(handle, &made, sizeof made);
    return CUDA_SUCCESS;
}

CUresult cuIpcOpenEventHandle(CUevent *event, CUipcEventHandle handle)
{
    int device;
    ticket wanted;
    rvli_wire_answer answer;
    memcpy(&wanted, &handle, sizeof wanted);
    CUresult result = rvli_current_device(&device);
    if (result == CUDA_SUCCESS && event == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS && wanted.magic != EVENT_MAGIC)
        return CUDA_ERROR_MAP_FAILED;
    if (result == CUDA_SUCCESS)
        result = open_ticket(&wanted, &answer);
    if (result != CUDA_SUCCESS)
        return result;
    CUevent made = calloc(1, sizeof *made);
    if (made == NULL) {
        rvli_physical_give(answer.id);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    made->flags = CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS;
    made->machine_id = answer.id;
    made->opened = true;
    made->device = device;
    made->context = rvli_current_context();
    *event = made;
    return CUDA_SUCCESS;
}

void rvli_ipc_event_gone(CUevent event)
{
    if (event->machine_id != 0)
        rvli_physical_give(event->machine_id);
}
