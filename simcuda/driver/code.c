/* SPDX-License-Identifier: MIT */
#include "simcuda/driver/code.h"
#include "simcuda/driver/registered.h"

#include <errno.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; /* protects the handles of all code */

static CUresult result_of(rvli_image_error error)
{
    switch (error) {
    case RVLI_IMAGE_OK:
        return CUDA_SUCCESS;
    case RVLI_IMAGE_OTHER_CARD:
        return CUDA_ERROR_NO_BINARY_FOR_GPU;
    case RVLI_IMAGE_BAD_PTX:
        return CUDA_ERROR_INVALID_PTX;
    case RVLI_IMAGE_NEW_PTX:
        return CUDA_ERROR_UNSUPPORTED_PTX_VERSION;
    case RVLI_IMAGE_OUT_OF_HOST:
        return CUDA_ERROR_OUT_OF_MEMORY;
    case RVLI_IMAGE_INVALID:
        break;
    }
    return CUDA_ERROR_INVALID_IMAGE;
}

CUresult rvli_code_load(const void *image, size_t size_bytes, int device, rvli_code *code_out)
{
    static atomic_flag told = ATOMIC_FLAG_INIT;
    const rvli_card *card = rvli_device_card(device);
    rvli_code made = {0};
    rvli_image_error error =
        rvli_image_read(image, size_bytes, card->major, card->minor, &made.image);
    if (error != RVLI_IMAGE_OK)
        return result_of(error);
    if (made.image.entry_count > 0)
        made.functions = calloc(made.image.entry_count, sizeof(CUfunction));
    if (made.image.entry_count > 0 && made.functions == NULL) {
        rvli_image_free(&made.image);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (made.image.sealed && !atomic_flag_test_and_set(&told))
        fprintf(stderr,
                "reveille: the program loads device code that is compressed: a kernel of any "
                "name is found in it, and what it needs is not known (build it with "
                "--no-compress)\n");
    *code_out = made;
    return CUDA_SUCCESS;
}

static CUresult read_file(FILE *file, char **bytes_out, size_t *size_bytes_out)
{
    long size = fseek(file, 0, SEEK_END) == 0 ? ftell(file) : -1;
    if (size == LONG_MAX) /* a folder: CUDA returns out of memory, too */
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (size < 0 || fseek(file, 0, SEEK_SET) != 0)
        return CUDA_ERROR_INVALID_IMAGE;
    char *bytes = malloc((size_t)size + 1);
    if (bytes == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (fread(bytes, 1, (size_t)size, file) != (size_t)size) {
        free(bytes);
        return CUDA_ERROR_INVALID_IMAGE;
    }
    *bytes_out = bytes;
    *size_bytes_out = (size_t)size;
    return CUDA_SUCCESS;
}

CUresult rvli_code_load_file(const char *path, int device, rvli_code *code_out)
{
    char *bytes = NULL;
    size_t size_bytes = 0;
    FILE *file = fopen(path, "rb");
    if (file == NULL)
        return errno == ENOMEM ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_FILE_NOT_FOUND;
    CUresult result = read_file(file, &bytes, &size_bytes);
    fclose(file);
    if (result == CUDA_SUCCESS)
        result = rvli_code_load(bytes, size_bytes, device, code_out);
    free(bytes);
    return result;
}

static void free_function(CUfunction function)
{
    if (function == NULL)
        return;
    rvli_function_remove(function);
    free(function->entry.name);
    free(function);
}

void rvli_code_free(rvli_code *code)
{
    for (size_t i = 0; i < code->image.entry_count; i++)
        free_function(code->functions[i]);
    for (CUfunction each = code->sealed, next; each != NULL; each = next) {
        next = each->next;
        free_function(each);
    }
    free(code->functions);
    rvli_image_free(&code->image);
    *code = (rvli_code){0};
}

/* ---- Handles ---- */

static CUresult make(rvli_code *code, const rvli_kernel_entry *entry, CUmodule module,
                     CUlibrary library, CUfunction *function_out)
{
    CUfunction made = calloc(1, sizeof *made);
    if (made == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    made->entry = *entry;
    made->entry.name = strdup(entry->name);
    made->code = code;
    made->module = module;
    made->library = library;
    made->dynamic_most = -1;
    made->carveout = -1;
    CUresult result = made->entry.name != NULL ? rvli_function_add(made) : CUDA_ERROR_OUT_OF_MEMORY;
    if (result == CUDA_SUCCESS) {
        *function_out = made;
    } else {
        free(made->entry.name);
        free(made);
    }
    return result;
}

/* Finds or makes the handle for a name in an image that cannot be read. */
static CUresult find_sealed(rvli_code *code, const char *name, CUmodule module, CUlibrary library,
                            CUfunction *function_out)
{
    CUfunction found = code->sealed;
    while (found != NULL && strcmp(found->entry.name, name) != 0)
        found = found->next;
    const rvli_kernel_entry entry = {.name = (char *)name, .registers = RVLI_REGISTERS_ASSUMED};
    CUresult result = CUDA_SUCCESS;
    if (found == NULL) {
        result = make(code, &entry, module, library, &found);
        if (result == CUDA_SUCCESS) {
            found->next = code->sealed;
            code->sealed = found;
        }
    }
    if (result == CUDA_SUCCESS)
        *function_out = found;
    return result;
}

static CUresult find_entry(rvli_code *code, size_t index, CUmodule module, CUlibrary library,
                           CUfunction *function_out)
{
    CUfunction *place = &code->functions[index];
    CUresult result = *place == NULL
                          ? make(code, &code->image.entries[index], module, library, place)
                          : CUDA_SUCCESS;
    if (result == CUDA_SUCCESS)
        *function_out = *place;
    return result;
}

CUresult rvli_code_function(rvli_code *code, const char *name, CUmodule module, CUlibrary library,
                            CUfunction *function_out)
{
    const rvli_kernel_entry *entry = rvli_image_entry(&code->image, name);
    if (name[0] == '\0')
        return CUDA_ERROR_INVALID_VALUE;
    if (entry == NULL && !code->image.sealed)
        return CUDA_ERROR_NOT_FOUND;
    pthread_mutex_lock(&mutex);
    CUresult result = entry == NULL ? find_sealed(code, name, module, library, function_out)
                                    : find_entry(code, (size_t)(entry - code->image.entries),
                                                 module, library, function_out);
    if (result == CUDA_SUCCESS)
        (*function_out)->loaded = true;
    pthread_mutex_unlock(&mutex);
    return result;
}

CUresult rvli_code_functions(rvli_code *code, unsigned count, CUmodule module, CUlibrary library,
                             CUfunction *functions_out)
{
    CUresult result = CUDA_SUCCESS;
    pthread_mutex_lock(&mutex);
    for (size_t i = 0; result == CUDA_SUCCESS && i < count && i < code->image.entry_count; i++)
        result = find_entry(code, i, module, library, &functions_out[i]);
    pthread_mutex_unlock(&mutex);
    return result;
}

CUresult rvli_code_load_function(int device, CUfunction handle, CUfunction function)
{
    if (function->code == NULL)
        return rvli_registered_load(device, handle);
    pthread_mutex_lock(&mutex);
    CUresult result = rvli_loaded_kernel(device, &function->code->image, &function->code->at,
                                         &function->entry, &function->at);
    pthread_mutex_unlock(&mutex);
    return result;
}

uint64_t rvli_code_arguments(int device, CUfunction handle)
{
    CUfunction function = NULL;
    if (rvli_function_find(handle, &function) != CUDA_SUCCESS)
        return 0;
    return function->code == NULL ? rvli_registered_arguments(device, handle)
                                  : function->entry.argument_bytes;
}

/* ---- Options ---- */

void rvli_code_answer(unsigned count, const CUjit_option *options, void **values)
{
    if (options == NULL || values == NULL)
        return;
    for (unsigned i = 0; i < count; i++)
        switch ((int)options[i]) {
        case CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES:
        case CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES:
        case CU_JIT_WALL_TIME: /* a float, of which zero has the same bits */
            values[i] = NULL;
            break;
        default:
            break;
        }
}
