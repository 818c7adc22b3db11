/* SPDX-License-Identifier: MIT */
/*
 * Loaded code: an image (image.h), and a handle for each of its kernels that was requested. A
 * module is code in a context. A library is code without a context. As on a card, a library's
 * kernel may be launched where a function is expected, so one kind of handle stands for both.
 */
#ifndef RVL_SIMCUDA_CODE_H
#define RVL_SIMCUDA_CODE_H

#include "simcuda/driver/driver.h"
#include "simcuda/driver/image.h"
#include "simcuda/driver/loaded.h"

typedef struct rvli_code {
    rvli_image image;
    CUfunction *functions; /* one for each entry of the image; NULL: not requested yet */
    CUfunction sealed;     /* the functions of a sealed image, which has no entries */
    rvli_loaded at;
} rvli_code;

struct CUmod_st {
    rvli_code *code;
    int device;
    uint64_t variables; /* the address of its variables; 0: it has none */
    CUlibrary library;  /* the library that it belongs to; NULL: none */
};

struct CUfunc_st {
    rvli_kernel_entry entry;
    rvli_code *code; /* NULL: it belongs to the runtime */
    rvli_loaded at;
    CUfunction next;   /* in the list of a sealed image */
    CUmodule module;   /* NULL: a library's function */
    CUlibrary library; /* NULL: a module's function */
    int dynamic_most;  /* bytes of dynamic shared memory for a launch; -1: the device's limit */
    int carveout;
    bool large_clusters; /* allows more than 8 blocks */
    bool loaded;         /* requested by name, not only listed */
};

/* ---- code.c ---- */

/* Loads an image for a device. size_bytes: SIZE_MAX if unknown. */
CUresult rvli_code_load(const void *image, size_t size_bytes, int device, rvli_code *code_out);

/* Loads the image in a file. */
CUresult rvli_code_load_file(const char *path, int device, rvli_code *code_out);

/* Frees the code. Handles of its kernels become invalid. */
void rvli_code_free(rvli_code *code);

/* Returns the handle of a kernel by name, the same for each call. CUDA_ERROR_NOT_FOUND. */
CUresult rvli_code_function(rvli_code *code, const char *name, CUmodule module, CUlibrary library,
                            CUfunction *function_out);

/*
 * Loads a handle's kernel on a device, as its first launch does. CUDA_ERROR_OUT_OF_MEMORY.
 */
CUresult rvli_code_load_function(int device, CUfunction handle, CUfunction function);

/* Bytes of a kernel's arguments. 0: unknown, as for a library that is not on the device. */
uint64_t rvli_code_arguments(int device, CUfunction handle);

/* Stores handles of the first kernels, up to count. */
CUresult rvli_code_functions(rvli_code *code, unsigned count, CUmodule module, CUlibrary library,
                             CUfunction *functions_out);

/* Fills the outputs of a loader's options: its logs are empty. */
void rvli_code_answer(unsigned count, const CUjit_option *options, void **values);

/* ---- module.c ---- */

/* Makes a module of code in a device's context. */
CUresult rvli_module_new(rvli_code *code, int device, CUlibrary library, CUmodule *module_out);
void rvli_module_free(CUmodule module);

/* ---- function.c ---- */

/* Make a handle valid, or invalid. CUDA_ERROR_OUT_OF_MEMORY. */
CUresult rvli_function_add(CUfunction function);
void rvli_function_remove(CUfunction function);

/*
 * Finds the function of a handle. A handle that no code here has made belongs to the runtime: it
 * is the address of a function of the program, and nothing is known of its kernel.
 * CUDA_ERROR_INVALID_HANDLE: the handle is NULL, or its code was unloaded.
 */
CUresult rvli_function_find(CUfunction handle, CUfunction *function_out);

/* The most threads that a block of the function may have on a device. */
unsigned rvli_function_threads(CUfunction function, int device);

/* The most bytes of dynamic shared memory that a launch may request. */
unsigned rvli_function_dynamic(CUfunction function, int device);

/* ---- occupancy.c ---- */

/* The number of warps for which a multiprocessor has registers. */
unsigned rvli_occupancy_warps(unsigned registers);

/* The number of the kernel's blocks that a multiprocessor of a device can hold. */
unsigned rvli_occupancy_blocks(CUfunction function, int device, unsigned threads,
                               size_t dynamic_bytes);

#endif
