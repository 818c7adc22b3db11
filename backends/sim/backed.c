/* SPDX-License-Identifier: MIT */
/*
 * Backed memory: real bytes behind simulated addresses.
 *
 * A device's memory is one memfd, and a block is an extent of it. Mapping a block maps its extent
 * over the inaccessible pages of a reservation. Unmapped addresses fault, as on a GPU. Extents are
 * never reused: releasing a block punches its extent out of the file, which frees the pages. The
 * file is sparse and has the maximum length of a file.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "backends/sim/sim.h"
#include "base/error.h"
#include "base/file_limit.h"

#define LONGEST_FILE (INT64_MAX / 4096 * 4096)

static rvl_status os_error(const char *what)
{
    int number = errno;
    rvl_status status = RVL_ERR_IO;
    if (number == ENOMEM || number == ENOSPC || number == EAGAIN)
        status = RVL_ERR_HOST_OOM;
    rvli_error(status, what);
    rvli_error_errno(number);
    return status;
}

static rvl_status too_long(void)
{
    errno = EFBIG;
    return os_error("a simulated device with backed memory needs files without a limit: lift "
                    "ulimit -f, or use accounted memory");
}

static void *pointer(uint64_t addr)
{
    return (void *)(uintptr_t)addr;
}

static off_t place(const rvli_sim_device *device, uint32_t extent)
{
    return (off_t)(extent * device->profile.granularity_bytes);
}

rvl_status rvli_sim_backed_open(rvli_sim_device *device)
{
    if (!rvli_file_may_have(LONGEST_FILE))
        return too_long();
    device->memory_file = memfd_create("reveille-sim", MFD_CLOEXEC);
    if (device->memory_file < 0)
        return os_error("no file for the memory of a simulated device");
    if (ftruncate(device->memory_file, LONGEST_FILE) != 0) {
        rvl_status status = os_error("the memory of a simulated device cannot be that long");
        close(device->memory_file);
        device->memory_file = -1;
        return status;
    }
    return RVL_OK;
}

void rvli_sim_backed_close(rvli_sim_device *device)
{
    if (device->memory_file >= 0)
        close(device->memory_file);
}

/* ---- Addresses ---- */

rvl_status rvli_sim_backed_reserve(uint64_t size, uint64_t alignment, uint64_t *addr_out)
{
    char *at =
        mmap(NULL, size + alignment, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED)
        return os_error("no address range of this size (see sysctl vm.max_map_count)");
    uint64_t before = (alignment - (uintptr_t)at % alignment) % alignment;
    if (before > 0)
        munmap(at, before);
    munmap(at + before + size, alignment - before);
    *addr_out = (uint64_t)(uintptr_t)(at + before);
    return RVL_OK;
}

void rvli_sim_backed_release_range(uint64_t addr, uint64_t size)
{
    munmap(pointer(addr), size);
}

/* ---- Blocks ---- */

/* Fills the block with the poison through a temporary mapping, before anyone can see the block. */
static rvl_status poison(rvli_sim_device *device, uint32_t extent, uint64_t size)
{
    void *at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, device->memory_file,
                    place(device, extent));
    if (at == MAP_FAILED)
        return os_error("a block cannot be filled (see sysctl vm.max_map_count)");
    memset(at, device->poison, size);
    munmap(at, size);
    return RVL_OK;
}

rvl_status rvli_sim_backed_create(rvli_sim_device *device, uint64_t size, uint32_t *extent_out)
{
    uint32_t extent = device->next_extent;
    uint64_t granules = size / device->profile.granularity_bytes;
    if (granules > UINT32_MAX - extent)
        return rvli_error(RVL_ERR_HOST_OOM, "the simulated device has used up its file");
    /* The limit may have been lowered since the device was opened. */
    if (!rvli_file_may_have((uint64_t)place(device, extent) + size))
        return too_long();
    if (fallocate(device->memory_file, FALLOC_FL_KEEP_SIZE, place(device, extent), (off_t)size) !=
        0)
        return os_error("no host memory for a block of a simulated device");
    rvl_status status = poison(device, extent, size);
    if (status != RVL_OK) {
        rvli_sim_backed_release(device, extent, size);
        return status;
    }
    device->next_extent += (uint32_t)granules;
    *extent_out = extent;
    return RVL_OK;
}

void rvli_sim_backed_release(rvli_sim_device *device, uint32_t extent, uint64_t size)
{
    fallocate(device->memory_file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
              place(device, extent), (off_t)size);
}

/* ---- Mappings ---- */

rvl_status rvli_sim_backed_map(rvli_sim_device *device, uint64_t addr, uint64_t size,
                               uint32_t extent)
{
    void *at = mmap(pointer(addr), size, PROT_NONE, MAP_SHARED | MAP_FIXED, device->memory_file,
                    place(device, extent));
    if (at == MAP_FAILED)
        return os_error("a block cannot be mapped (see sysctl vm.max_map_count)");
    return RVL_OK;
}

rvl_status rvli_sim_backed_set_access(uint64_t addr, uint64_t size, bool accessible)
{
    if (mprotect(pointer(addr), size, accessible ? PROT_READ | PROT_WRITE : PROT_NONE) != 0)
        return os_error("access cannot be set (see sysctl vm.max_map_count)");
    return RVL_OK;
}

rvl_status rvli_sim_backed_unmap(uint64_t addr, uint64_t size)
{
    void *at = mmap(pointer(addr), size, PROT_NONE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    if (at == MAP_FAILED)
        return os_error("a block cannot be unmapped (see sysctl vm.max_map_count)");
    return RVL_OK;
}
