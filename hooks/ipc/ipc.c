/* SPDX-License-Identifier: MIT */
#include "hooks/ipc/ipc.h"

#include "base/error.h"
#include "hooks/export/export.h"
#include "hooks/ipc/import.h"
#include "hooks/process/message.h"
#include "hooks/region/saver.h"

static int cuda_error(rvl_status status, const char *what)
{
    if (status == RVL_OK)
        return RVLI_CUDA_SUCCESS;
    int error = rvli_saver_cuda_error(status);
    if (error == RVLI_CUDA_UNLOADING) /* at exit: not worth a message */
        return error;
    rvli_say_error(what);
    switch (status) {
    case RVL_ERR_NOT_FOUND: /* the handle is invalid, or its memory is paused */
    case RVL_ERR_STATE:
        return RVLI_CUDA_INVALID_HANDLE;
    case RVL_ERR_TIMEOUT:
    case RVL_ERR_IO:
        return RVLI_CUDA_MAP_FAILED;
    default:
        return error;
    }
}

bool rvli_ipc_get(uint64_t addr, rvli_ipc_handle *handle_out, int *error_out)
{
    rvl_context *context = NULL;
    rvl_addr begin = 0;
    if (handle_out == NULL || !rvli_saver_find(addr, &context, &begin))
        return false;
    *error_out = cuda_error(rvli_ipc_export(context, begin, handle_out), "cudaIpcGetMemHandle");
    return true;
}

/* A process may not open its own handle: returns CUDA's error for that. */
static int open_whole(const rvli_ipc_handle *handle, const rvli_ipc_name *name,
                      rvli_ipc_device device_of, uint64_t *addr_out)
{
    int device = 0;
    if (rvli_ipc_is_own(name->nonce)) {
        rvli_error(RVL_ERR_INVALID, "the handle is this process's own: use the address instead");
        rvli_say_error("cudaIpcOpenMemHandle");
        return RVLI_CUDA_INVALID_CONTEXT;
    }
    int error = device_of(&device);
    if (error != RVLI_CUDA_SUCCESS)
        return error;
    rvl_status status = rvli_ipc_import(handle, name, device, addr_out);
    return cuda_error(status, "cudaIpcOpenMemHandle");
}

bool rvli_ipc_open(const rvli_ipc_handle *handle, rvli_ipc_device device_of, uint64_t *addr_out,
                   int *error_out)
{
    rvli_ipc_name name;
    bool whole = false;
    if (!rvli_ipc_read_handle(handle, &name, &whole))
        return false;
    if (whole) {
        *error_out = open_whole(handle, &name, device_of, addr_out);
        return true;
    }
    rvli_error(RVL_ERR_INVALID, "the handle was damaged on its way: pass all of its 64 bytes on");
    rvli_say_error("cudaIpcOpenMemHandle");
    *error_out = RVLI_CUDA_INVALID_HANDLE;
    return true;
}

bool rvli_ipc_close(uint64_t addr, int *error_out)
{
    rvl_status status = RVL_OK;
    if (!rvli_ipc_release(addr, &status))
        return false;
    *error_out = cuda_error(status, "cudaIpcCloseMemHandle");
    return true;
}
