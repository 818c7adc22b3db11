/* SPDX-License-Identifier: MIT */
/*
 * Code that was loaded: an image (image.h), and a handle for each of its kernels that was asked
 * for. A module is code in a context, a library is code in none; a library's kernel is launched
 * where a function is wanted, as on a card, so that one kind of handle stands for both.
 */
#ifndef RVL_SIMCUDA_CODE_H
#define RVL_SIMCUDA_CODE_H

#include "simcuda/driver/driver.h"
#include "simcuda/driver/image.h"
#include "simcuda/driver/loaded.h"

typedef struct rvli_code {
    rvli_image image;
    CUfunction *functions; /* one place for each entry of the image; NULL: not asked for yet */
    CUfunction sealed;     /* those of a sealed image, which has no entries */
    rvli_loaded at;
} rvli_code;

struct CUmod_st {
    rvli_code *code;
    int device;
    uint64_t variables; /* where its variables begin; 0: it has none */
    CUlibrary library;  /* that it is of; NULL: of none */
};

struct CUfunc_st {
    rvli_kernel_entry entry;
    rvli_code *code; /* NULL: the runtime's */
    rvli_loaded at;
    CUfunction next;   /* of a sealed image */
    CUmodule module;   /* NULL: of a library */
    CUlibrary library; /* NULL: of a module */
    int dynamic_most;  /* bytes of shared memory that a launch may add; -1: as the device allows */
    int carveout;
    bool large_clusters; /* of more than 8 blocks */
    bool loaded;         /* asked for by name, and not only listed */
};

/* ---- code.c ---- */

/* An image for a device. size_bytes: SIZE_MAX where it is not known. */
CUresult rvli_code_load(const void *image, size_t size_bytes, int device, rvli_code *code_out);

/* Reads a file, and loads what it holds. */
CUresult rvli_code_load_file(const char *path, int device, rvli_code *code_out);

/* Frees it. Handles of its kernels are invalid from then on. */
void rvli_code_free(rvli_code *code);

/* A handle of the kernel of that name, the same one each time. CUDA_ERROR_NOT_FOUND. */
CUresult rvli_code_function(rvli_code *code, const char *name, CUmodule module, CUlibrary library,
                            CUfunction *function_out);

/*
 * Loads the kernel of a handle on a device, as its first launch does. CUDA_ERROR_OUT_OF_MEMORY.
 */
CUresult rvli_code_load_function(int device, CUfunction handle, CUfunction function);

/* Bytes of arguments of a kernel. 0: not known, as of a library that is not there. */
uint64_t rvli_code_arguments(int device, CUfunction handle);

/* The first kernels of it, at most so many. */
CUresult rvli_code_functions(rvli_code *code, unsigned count, CUmodule module, CUlibrary library,
                             CUfunction *functions_out);

/* Answers what a loader is asked for by options: it has nothing to say. */
void rvli_code_answer(unsigned count, const CUjit_option *options, void **values);

/* ---- module.c ---- */

/* The module of code in the context of a device. */
CUresult rvli_module_new(rvli_code *code, int device, CUlibrary library, CUmodule *module_out);
void rvli_module_free(CUmodule module);

/* ---- function.c ---- */

/* Makes a handle valid, or invalid. CUDA_ERROR_OUT_OF_MEMORY. */
CUresult rvli_function_add(CUfunction function);
void rvli_function_remove(CUfunction function);

/*
 * What stands behind a handle. One that no code here has made is the runtime's: the address of a
 * function of the program. Nothing is known of its kernel. CUDA_ERROR_INVALID_HANDLE: NULL, or its
 * code was unloaded.
 */
CUresult rvli_function_find(CUfunction handle, CUfunction *function_out);

/* Threads that a block of it may have on a device. */
unsigned rvli_function_threads(CUfunction function, int device);

/* Bytes of shared memory that a launch may add to its own. */
unsigned rvli_function_dynamic(CUfunction function, int device);

/* ---- occupancy.c ---- */

/* Warps of a kernel for which a multiprocessor has registers. */
unsigned rvli_occupancy_warps(unsigned registers);

/* Blocks of a kernel that a multiprocessor of a device has at once. */
unsigned rvli_occupancy_blocks(CUfunction function, int device, unsigned threads,
                               size_t dynamic_bytes);

#endif
