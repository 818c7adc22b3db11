/* SPDX-License-Identifier: MIT */
/*
 * Exported memory.
 *
 * What is handed out is one end of a pair of sockets, in which lies a message with the file of the
 * block's bytes: the importer looks at the message and leaves it there, so that it can be
 * imported again, here or in another process. The other end, kept here, tells when every copy of
 * what was handed out has been closed: then the export no longer holds the block.
 */
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "internal.h"

typedef struct export
{
    struct export *next;
    fake_block *block;
    int fd; /* the end that is kept */
}
export;

static export *exports;

static bool all_closed(int fd)
{
    struct pollfd poller = {.fd = fd};
    return poll(&poller, 1, 0) == 1 && (poller.revents & (POLLERR | POLLHUP)) != 0;
}

static void drop(export **link)
{
    export *gone = *link;
    *link = gone->next;
    close(gone->fd);
    gone->block->exports--;
    fake_block_settle(gone->block);
    free(gone);
}

void fake_share_sweep(void)
{
    for (export **link = &exports; *link != NULL;) {
        if (all_closed((*link)->fd))
            drop(link);
        else
            link = &(*link)->next;
    }
}

void fake_share_stats(fake_live *live)
{
    fake_share_sweep();
    for (const export *each = exports; each != NULL; each = each->next)
        live->exports++;
}

void fake_share_reset(void)
{
    while (exports != NULL)
        drop(&exports);
}

/* A message that carries a file, with room for what the kernel wants to know of it. */
typedef struct parcel {
    uint64_t size; /* of the block */
    struct iovec part;
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(int))];
    struct msghdr message;
} parcel;

static void prepare(parcel *carrier, uint64_t size)
{
    memset(carrier, 0, sizeof *carrier);
    carrier->size = size;
    carrier->part = (struct iovec){&carrier->size, sizeof carrier->size};
    carrier->message = (struct msghdr){.msg_iov = &carrier->part,
                                       .msg_iovlen = 1,
                                       .msg_control = carrier->control,
                                       .msg_controllen = sizeof carrier->control};
}

static bool put_in(int fd, const fake_block *block)
{
    parcel carrier;
    prepare(&carrier, block->size);
    struct cmsghdr *header = CMSG_FIRSTHDR(&carrier.message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(header), &block->memory, sizeof(int));
    return sendmsg(fd, &carrier.message, MSG_NOSIGNAL) == (ssize_t)sizeof carrier.size;
}

static CUresult export_block(fake_block *block, int *fd_out)
{
    int ends[2];
    export *made = calloc(1, sizeof *made);
    if (made == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
        free(made);
        return CUDA_ERROR_OPERATING_SYSTEM;
    }
    if (!put_in(ends[1], block)) {
        close(ends[0]);
        close(ends[1]);
        free(made);
        return CUDA_ERROR_OPERATING_SYSTEM;
    }
    *made = (export){.next = exports, .block = block, .fd = ends[1]};
    exports = made;
    block->exports++;
    *fd_out = ends[0];
    return CUDA_SUCCESS;
}

CUresult cuMemExportToShareableHandle(void *shareableHandle, CUmemGenericAllocationHandle handle,
                                      CUmemAllocationHandleType handleType,
                                      unsigned long long flags)
{
    FAKE_ENTER(cuMemExportToShareableHandle, FAKE_NEEDS_MEMORY);
    fake_block *block = fake_block_of(handle);
    if (shareableHandle == NULL || block == NULL || flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (block->fabric)
        return fake_fabric_export(block, handle, shareableHandle);
    if (handleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || !block->exportable)
        return CUDA_ERROR_INVALID_VALUE;
    return export_block(block, shareableHandle);
}

/* The file in an exported descriptor, -1 if it is none. */
static int look_in(int fd, uint64_t *size_out)
{
    parcel carrier;
    int memory = -1;
    prepare(&carrier, 0);
    ssize_t bytes = recvmsg(fd, &carrier.message, MSG_PEEK | MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    const struct cmsghdr *header = bytes > 0 ? CMSG_FIRSTHDR(&carrier.message) : NULL;
    if (header != NULL && header->cmsg_type == SCM_RIGHTS)
        memcpy(&memory, CMSG_DATA(header), sizeof memory);
    *size_out = carrier.size;
    return memory;
}

/* A block of this process may have lost its handles, and be held by its exports alone. */
static fake_block *block_of_memory(int memory)
{
    struct stat theirs, ours;
    if (fstat(memory, &theirs) != 0)
        return NULL;
    for (const export *each = exports; each != NULL; each = each->next)
        if (fstat(each->block->memory, &ours) == 0 && ours.st_ino == theirs.st_ino &&
            ours.st_dev == theirs.st_dev)
            return each->block;
    return fake_block_of_memory(memory);
}

CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle, void *osHandle,
                                        CUmemAllocationHandleType shHandleType)
{
    FAKE_ENTER(cuMemImportFromShareableHandle, FAKE_NEEDS_MEMORY);
    if (handle == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if ((int)shHandleType == 8 && osHandle != NULL) /* of a fabric */
        return fake_fabric_import(osHandle, handle);
    if (shHandleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        return CUDA_ERROR_INVALID_VALUE;
    uint64_t size;
    int memory = look_in((int)(intptr_t)osHandle, &size);
    if (memory < 0)
        return CUDA_ERROR_INVALID_VALUE;
    fake_block *block = block_of_memory(memory);
    if (block == NULL)
        return fake_block_adopt(memory, size, handle);
    close(memory);
    return fake_block_name(block, handle);
}

/* ---- Pools of others, of which a test needs no memory ---- */

CUresult cuMemPoolImportFromShareableHandle(CUmemoryPool *pool_out, void *handle,
                                            CUmemAllocationHandleType handleType,
                                            unsigned long long flags)
{
    FAKE_ENTER(cuMemPoolImportFromShareableHandle, FAKE_NEEDS_CONTEXT);
    static char imported;
    if (pool_out == NULL || handleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || flags != 0 ||
        fcntl((int)(intptr_t)handle, F_GETFD) < 0)
        return CUDA_ERROR_INVALID_VALUE;
    *pool_out = (CUmemoryPool)(void *)&imported;
    return CUDA_SUCCESS;
}

CUresult cuMemPoolDestroy(CUmemoryPool pool)
{
    FAKE_ENTER(cuMemPoolDestroy, FAKE_NEEDS_CONTEXT);
    return pool != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* ---- The older way, which takes no memory of cuMemCreate() ---- */

CUresult cuIpcGetMemHandle(CUipcMemHandle *pHandle, CUdeviceptr dptr)
{
    FAKE_ENTER(cuIpcGetMemHandle, FAKE_NEEDS_CONTEXT);
    (void)pHandle;
    (void)dptr;
    return CUDA_ERROR_INVALID_VALUE;
}

CUresult cuIpcOpenMemHandle(CUdeviceptr *pdptr, CUipcMemHandle handle, unsigned int Flags)
{
    FAKE_ENTER(cuIpcOpenMemHandle, FAKE_NEEDS_CONTEXT);
    (void)pdptr;
    (void)handle;
    (void)Flags;
    return CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuIpcCloseMemHandle(CUdeviceptr dptr)
{
    FAKE_ENTER(cuIpcCloseMemHandle, FAKE_NEEDS_CONTEXT);
    (void)dptr;
    return CUDA_ERROR_INVALID_VALUE;
}
