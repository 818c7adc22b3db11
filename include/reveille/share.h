/* SPDX-License-Identifier: MIT */
/*
 * Sharing physical memory between processes: exporting it, and importing memory of another process.
 *
 * The processes exchange a file descriptor for each block (SCM_RIGHTS, or pidfd_getfd()). The
 * caller does the exchange. An import is an allocation: an address range of this process, mapped to
 * physical memory that another process has allocated. It is
 *
 *   ACTIVE  mapped
 *   PAUSED  not mapped; its blocks are still held, so the memory is not free yet
 *   LOST    only an address range: its blocks were released
 *
 * Only the functions here move it. rvl_pause() and rvl_resume() leave it unchanged, because
 * releasing it frees nothing here. For that reason callbacks and guards may move it, too. It is
 * never copied, has no backup, and is not recorded: the process that allocated the memory counts
 * it. rvl_device_stats.imported_bytes counts what is held.
 */
#ifndef REVEILLE_SHARE_H
#define REVEILLE_SHARE_H

#include "reveille/memory.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Exporting ---- */

typedef struct rvl_export_options {
    size_t struct_size;
    uint64_t allocation_id; /* refuse any other allocation at the address; 0: accept any */
    uint64_t first_block;   /* the first block to export, if an allocation has more blocks than you
                               want files */
} rvl_export_options;

typedef struct rvl_export {
    size_t struct_size;
    uint64_t allocation_id;
    uint64_t size_bytes;
    uint64_t block_count; /* of the allocation */
    uint64_t file_count;  /* descriptors made by this call */
} rvl_export;

/*
 * Makes file descriptors for the blocks of the allocation that begins at addr, in order of address:
 * at most `capacity`, from options->first_block on. fds_out and block_bytes_out get one entry for
 * each. With capacity 0, which asks only for the numbers, both may be NULL.
 *
 * Returns RVL_OK; RVL_ERR_INVALID; RVL_ERR_NOT_FOUND (no allocation begins at `addr`);
 * RVL_ERR_NOT_SUPPORTED (the allocation lacks RVL_ALLOC_EXPORTABLE, or the device cannot share
 * memory. Simulated devices cannot); RVL_ERR_STATE (the allocation is not active); RVL_ERR_IO (no
 * file descriptor is left); RVL_ERR_FORKED; RVL_ERR_VERSION; or the driver's error. On failure no
 * descriptor was made, export_out is unchanged, and the contents of fds_out and block_bytes_out are
 * undefined.
 *
 * You close the descriptors. Each keeps its memory alive, and so does each process that imported
 * it: a pause of the allocation then frees nothing, and a resume gets other memory. So ask the
 * importing processes to release the memory first (reveille/guard.h). Descriptors of two calls
 * belong together if there was no pause in between. Thread-safe. Since 0.1.
 */
RVL_API rvl_status rvl_allocation_export(rvl_context *context, rvl_addr addr,
                                         const rvl_export_options *options, int *fds_out,
                                         uint64_t *block_bytes_out, size_t capacity,
                                         rvl_export *export_out);

/* ---- Importing ---- */

/* An import under construction. */
typedef struct rvl_import rvl_import;

typedef struct rvl_import_options {
    size_t struct_size;
    const char *tag;     /* the tag that rvl_allocation_find() reports; NULL or "": untagged */
    rvl_process process; /* of the tag */
    int device;          /* of the memory */
    const int *access;   /* further devices that must reach it; need not outlive the call */
    size_t access_count; /* entries of access */
} rvl_import_options;

/*
 * Begins to import size_bytes, a multiple of the device's granularity. Does not call the driver.
 * Returns RVL_OK; RVL_ERR_INVALID (size_bytes is not a multiple of the granularity);
 * RVL_ERR_VERSION; RVL_ERR_NO_DEVICE; RVL_ERR_HOST_OOM; RVL_ERR_FORKED. *import_out is yours until
 * rvl_import_finish() has succeeded or you cancel it. One thread at a time may use it, and its
 * context must stay open. Since 0.1.
 */
RVL_API rvl_status rvl_import_begin(rvl_context *context, uint64_t size_bytes,
                                    const rvl_import_options *options, rvl_import **import_out);

/*
 * Adds the next blocks, in order of address. The descriptors stay yours, and may be closed when the
 * call returns. You may call this several times, to have fewer descriptors open at once. Returns
 * RVL_OK; RVL_ERR_INVALID (the blocks do not fit the import's size, or a descriptor does not name a
 * block); RVL_ERR_NOT_SUPPORTED; RVL_ERR_HOST_OOM; RVL_ERR_FORKED; or the driver's error. On
 * failure none of these blocks is added. Since 0.1.
 */
RVL_API rvl_status rvl_import_add(rvl_import *import, const int *fds, const uint64_t *block_bytes,
                                  size_t count);

/*
 * Reserves an address range, maps all blocks, adds the allocation and frees the import object.
 * Returns RVL_OK; RVL_ERR_INVALID (blocks are missing); RVL_ERR_HOST_OOM; RVL_ERR_FORKED; or the
 * driver's error. After a failure nothing is mapped, and the import is unchanged. You free
 * *addr_out with rvl_free(), which also releases the blocks, and does not wait for work that uses
 * them: see rvl_device_synchronize(). Since 0.1.
 */
RVL_API rvl_status rvl_import_finish(rvl_import *import, rvl_addr *addr_out);

/*
 * Releases the added blocks and frees the import. NULL is allowed. Leaves the error record
 * unchanged. Since 0.1.
 */
RVL_API void rvl_import_cancel(rvl_import *import);

/*
 * Waits for the devices that reach the import at addr, and unmaps it, but holds its blocks. Does
 * nothing if it is already paused or lost. Fails while a stream is captured, because CUDA then
 * allows no wait. Returns RVL_OK; RVL_ERR_INVALID; RVL_ERR_NOT_FOUND (no import begins at `addr`);
 * RVL_ERR_FORKED; RVL_ERR_DEVICE_LOST; or the driver's error. On failure it is mapped as before.
 * Thread-safe. Since 0.1.
 */
RVL_API rvl_status rvl_import_pause(rvl_context *context, rvl_addr addr);

/*
 * Maps a paused import again, at its address: all its blocks or, on failure, none. Does nothing if
 * it is active. Returns as rvl_import_pause(); RVL_ERR_STATE (the blocks of the import were
 * released). If the driver maps some blocks and then refuses to unmap them, the import is lost, and
 * a later call tries again. Thread-safe. Since 0.1.
 */
RVL_API rvl_status rvl_import_resume(rvl_context *context, rvl_addr addr);

/*
 * Releases the blocks of a paused import. Its address range stays reserved until rvl_free(), so
 * that nothing else is placed there. Does nothing if it is already lost. Returns as
 * rvl_import_pause(); RVL_ERR_STATE (the import is active). On failure it is unchanged. If the
 * driver refuses one of several blocks after others are released, that block is counted as stranded
 * and tried again at close. Thread-safe. Since 0.1.
 */
RVL_API rvl_status rvl_import_release(rvl_context *context, rvl_addr addr);

#ifdef __cplusplus
}
#endif
#endif
