/* SPDX-License-Identifier: MIT */
/*
 * Modules: code in a device's context, and its variables there. The code does not run.
 *
 * Device memory for a module is taken at the first launch of its kernels (loaded.h), and not
 * returned when it is unloaded. An H200 took 2 MiB for a small module: with variables when it
 * was loaded, and without variables when its kernels were looked up. It returned all of it when
 * the module was unloaded (facts.c with a file, driver 580). How several modules share the 2 MiB
 * was not measured. To count this, use image.h's bytes of machine code and of variables, take
 * them in rvli_module_new(), and return them in rvli_module_free(). Variables have addresses,
 * and their content is known as for other memory.
 */
#include <stdlib.h>

#include "simcuda/driver/code.h"
#include "simcuda/driver/contents.h"

#define VARIABLE_ALIGN ((size_t)256)

/* Adds the bytes of a variable, rounded up. false: too many. */
static bool add_bytes(size_t *bytes_io, size_t more)
{
    size_t steps = more / VARIABLE_ALIGN + 1; /* an empty variable has an address, too */
    if (steps > (SIZE_MAX - RVLI_PAGE_BYTES - *bytes_io) / VARIABLE_ALIGN)
        return false;
    *bytes_io += steps * VARIABLE_ALIGN;
    return true;
}

/* Bytes of addresses for all variables. 0: there are none, or too many. */
static size_t bytes_of(const rvli_image *image)
{
    size_t bytes = 0;
    for (size_t i = 0; i < image->variable_count; i++)
        if (!add_bytes(&bytes, image->variables[i].size_bytes))
            return 0;
    return (bytes + RVLI_PAGE_BYTES - 1) / RVLI_PAGE_BYTES * RVLI_PAGE_BYTES;
}

/* The offset of a variable, by its number. */
static size_t offset_of(const rvli_image *image, size_t number)
{
    size_t offset = 0;
    for (size_t i = 0; i < number; i++)
        (void)add_bytes(&offset, image->variables[i].size_bytes);
    return offset;
}

static void drop_variables(CUmodule module, size_t count)
{
    rvli_range range;
    const rvli_image *image = &module->code->image;
    uint64_t addr = module->variables;
    size_t offset = 0;
    for (size_t i = 0; i < count; i++) {
        rvli_contents_forget(addr + offset, image->variables[i].size_bytes);
        (void)rvli_range_take(addr + offset, RVLI_RANGE_VARIABLE, &range);
        (void)add_bytes(&offset, image->variables[i].size_bytes);
    }
    rvli_addresses_release(addr, bytes_of(image));
}

static CUresult add_variables(CUmodule module)
{
    const rvli_image *image = &module->code->image;
    size_t bytes = bytes_of(image), offset = 0;
    if (image->variable_count == 0)
        return CUDA_SUCCESS;
    module->variables = bytes > 0 ? rvli_addresses_reserve(bytes, RVLI_PAGE_BYTES, 0) : 0;
    if (module->variables == 0)
        return CUDA_ERROR_OUT_OF_MEMORY;
    for (size_t i = 0; i < image->variable_count; i++) {
        const rvli_variable *each = &image->variables[i];
        const rvli_range range = {.kind = RVLI_RANGE_VARIABLE,
                                  .device = module->device,
                                  .base = module->variables + offset,
                                  .size_bytes = each->size_bytes};
        if (rvli_range_add(&range) != CUDA_SUCCESS) {
            drop_variables(module, i);
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
        if (each->initial != NULL)
            rvli_contents_write(range.base, each->initial, each->size_bytes);
        else if (!each->unread)
            rvli_contents_fill(range.base, 0, each->size_bytes, 1);
        (void)add_bytes(&offset, each->size_bytes);
    }
    return CUDA_SUCCESS;
}

CUresult rvli_module_new(rvli_code *code, int device, CUlibrary library, CUmodule *module_out)
{
    CUmodule made = calloc(1, sizeof *made);
    if (made == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    made->code = code;
    made->device = device;
    made->library = library;
    CUresult result = add_variables(made);
    if (result == CUDA_SUCCESS)
        *module_out = made;
    else
        free(made);
    return result;
}

void rvli_module_free(CUmodule module)
{
    if (module->variables != 0)
        drop_variables(module, module->code->image.variable_count);
    free(module);
}

/* ---- Loading ---- */

static void free_code(rvli_code *code)
{
    rvli_code_free(code);
    free(code);
}

/* Loads an image, or the file of that path. */
static CUresult load(CUmodule *module, const void *image, const char *path)
{
    int device;
    CUresult result = rvli_current_device(&device);
    if (result == CUDA_SUCCESS && (module == NULL || (image == NULL && path == NULL)))
        return CUDA_ERROR_INVALID_VALUE;
    rvli_code *code = result == CUDA_SUCCESS ? calloc(1, sizeof *code) : NULL;
    if (code == NULL)
        return result == CUDA_SUCCESS ? CUDA_ERROR_OUT_OF_MEMORY : result;
    result = path != NULL ? rvli_code_load_file(path, device, code)
                          : rvli_code_load(image, SIZE_MAX, device, code);
    if (result == CUDA_SUCCESS)
        result = rvli_module_new(code, device, NULL, module);
    if (result != CUDA_SUCCESS)
        free_code(code);
    return result;
}

CUresult cuModuleLoad(CUmodule *module, const char *path)
{
    return load(module, NULL, path);
}

CUresult cuModuleLoadData(CUmodule *module, const void *image)
{
    return load(module, image, NULL);
}

CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned int count,
                            CUjit_option *options, void **values)
{
    if (count > 0 && (options == NULL || values == NULL))
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = load(module, image, NULL);
    rvli_code_answer(count, options, values);
    return result;
}

CUresult cuModuleLoadFatBinary(CUmodule *module, const void *image)
{
    return load(module, image, NULL);
}

CUresult cuModuleUnload(CUmodule module)
{
    if (module == NULL)
        return CUDA_ERROR_INVALID_HANDLE;
    if (module->library != NULL)
        return CUDA_ERROR_NOT_PERMITTED;
    rvli_code *code = module->code;
    rvli_module_free(module);
    free_code(code);
    return CUDA_SUCCESS;
}

CUresult cuModuleGetLoadingMode(CUmoduleLoadingMode *mode)
{
    if (mode == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *mode = CU_MODULE_LAZY_LOADING;
    return CUDA_SUCCESS;
}

/* ---- Content of a module ---- */

CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name)
{
    if (function == NULL || name == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (module == NULL)
        return CUDA_ERROR_INVALID_HANDLE;
    return rvli_code_function(module->code, name, module->library == NULL ? module : NULL,
                              module->library, function);
}

CUresult cuModuleGetFunctionCount(unsigned int *count, CUmodule module)
{
    if (module == NULL)
        return CUDA_ERROR_INVALID_HANDLE;
    if (count == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *count = (unsigned)module->code->image.entry_count;
    return CUDA_SUCCESS;
}

CUresult cuModuleEnumerateFunctions(CUfunction *functions, unsigned int count, CUmodule module)
{
    if (module == NULL)
        return CUDA_ERROR_INVALID_HANDLE;
    if (functions == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    return rvli_code_functions(module->code, count, module->library == NULL ? module : NULL,
                               module->library, functions);
}

/* Either output may be NULL. */
CUresult cuModuleGetGlobal(CUdeviceptr *addr, size_t *size_bytes, CUmodule module, const char *name)
{
    if (name == NULL || (addr == NULL && size_bytes == NULL))
        return CUDA_ERROR_INVALID_VALUE;
    if (module == NULL)
        return CUDA_ERROR_INVALID_HANDLE;
    const rvli_image *image = &module->code->image;
    const rvli_variable *found = rvli_image_variable(image, name);
    if (found == NULL) /* on an H200, a kernel's name has another error */
        return rvli_image_entry(image, name) != NULL ? CUDA_ERROR_INVALID_VALUE
                                                     : CUDA_ERROR_NOT_FOUND;
    if (addr != NULL)
        *addr = module->variables + offset_of(image, (size_t)(found - image->variables));
    if (size_bytes != NULL)
        *size_bytes = found->size_bytes;
    return CUDA_SUCCESS;
}
