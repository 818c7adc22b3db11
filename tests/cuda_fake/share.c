/* SPDX-License-Identifier: MIT */
/*
 * Exported memory.
 *
 * What is handed out is the reading end of a pipe. The writing end, kept here, tells when every
 * copy of the other one has been closed, in whatever process: then the export no longer holds the
 * block. Both ends have one inode number, by which an import finds the block. Only the exporting
 * process can import: the memory of the simulator is its own.
 */
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "internal.h"

typedef struct export
{
    struct export *next;
    fake_block *block;
    int fd; /* the writing end */
}
export;

static export *exports;

static bool all_closed(int fd)
{
    struct pollfd poller = {.fd = fd};
    return poll(&poller, 1, 0) == 1 && (poller.revents & POLLERR) != 0;
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

static CUresult export_block(fake_block *block, int *fd_out)
{
    int ends[2];
    export *made = calloc(1, sizeof *made);
    if (made == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (pipe2(ends, O_CLOEXEC) != 0) {
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
    if (shareableHandle == NULL || block == NULL || flags != 0 ||
        handleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || !block->exportable)
        return CUDA_ERROR_INVALID_VALUE;
    return export_block(block, shareableHandle);
}

/* The block that a file descriptor names, NULL if it names none. */
static fake_block *block_of_fd(int fd)
{
    struct stat theirs, ours;
    if (fstat(fd, &theirs) != 0)
        return NULL;
    for (const export *each = exports; each != NULL; each = each->next)
        if (fstat(each->fd, &ours) == 0 && ours.st_ino == theirs.st_ino &&
            ours.st_dev == theirs.st_dev)
            return each->block;
    return NULL;
}

CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle, void *osHandle,
                                        CUmemAllocationHandleType shHandleType)
{
    FAKE_ENTER(cuMemImportFromShareableHandle, FAKE_NEEDS_MEMORY);
    if (handle == NULL || shHandleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        return CUDA_ERROR_INVALID_VALUE;
    fake_block *block = block_of_fd((int)(intptr_t)osHandle);
    return block != NULL ? fake_block_name(block, handle) : CUDA_ERROR_INVALID_VALUE;
}
