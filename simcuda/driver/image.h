/* SPDX-License-Identifier: MIT */
/*
 * The content of an image of device code: its kernels, what each needs of a multiprocessor, and
 * its variables. Three forms are read: a cubin (ELF, cubin.c), PTX (text, ptx.c), and a fat
 * binary that contains several of both, of which the part for the device is used. Nothing is
 * compiled, so the registers that PTX needs are assumed (RVLI_REGISTERS_ASSUMED). Parts
 * compressed by zstd (compilers of CUDA 13) or by LZ4 (nvcc of CUDA 12) are decompressed. For
 * other methods, the image is sealed.
 *
 * No CUDA header is needed here. An image is untrusted: every offset in it is checked against
 * its size, or, if the size is unknown, against the end that its own header gives.
 */
#ifndef RVL_SIMCUDA_IMAGE_H
#define RVL_SIMCUDA_IMAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* For a kernel with unknown registers. So few are no limit: 2048 threads fit. */
#define RVLI_REGISTERS_ASSUMED 32

typedef enum rvli_image_error {
    RVLI_IMAGE_OK,
    RVLI_IMAGE_INVALID,     /* not an image, or a broken one */
    RVLI_IMAGE_OTHER_CARD,  /* no code for this device */
    RVLI_IMAGE_BAD_PTX,     /* not PTX, or for a later device */
    RVLI_IMAGE_NEW_PTX,     /* a version later than the driver */
    RVLI_IMAGE_OUT_OF_HOST, /* no host memory */
} rvli_image_error;

/* A kernel. */
typedef struct rvli_kernel_entry {
    char *name;
    unsigned registers;      /* per thread */
    unsigned shared_bytes;   /* per block, static */
    unsigned local_bytes;    /* per thread: its stack */
    unsigned constant_bytes; /* of the image's constant variables */
    unsigned argument_bytes; /* of one launch */
    unsigned threads_most;   /* per block, declared in the code; 0: not declared */
    unsigned required[3];    /* block shape declared in the code; 0: not declared */
    unsigned ptx_version;    /* the version of the PTX text; 0: machine code */
    uint64_t code_bytes;     /* of machine code; 0: unknown */
    uint64_t symbol;         /* symbol number in a cubin */
} rvli_kernel_entry;

typedef struct rvli_variable {
    char *name;
    size_t size_bytes;
    void *initial; /* size_bytes; NULL: zeros */
    bool unread;   /* its initial content was not read */
} rvli_variable;

typedef struct rvli_image {
    rvli_kernel_entry *entries; /* sorted by name */
    size_t entry_count;
    rvli_variable *variables; /* sorted by name */
    size_t variable_count;
    size_t code_bytes;     /* of machine code; 0: unknown */
    unsigned version;      /* the architecture it was compiled for, as in 90 */
    uint64_t global_bytes; /* of variables in global memory */
    bool asserts;          /* the code calls the driver's function for assert() */
    bool sealed;           /* unknown compression: every kernel name is accepted */
} rvli_image;

/*
 * Reads an image for a device of compute capability major.minor. size_bytes: SIZE_MAX if
 * unknown. On failure, *image_out is unchanged.
 */
rvli_image_error rvli_image_read(const void *image, size_t size_bytes, int major, int minor,
                                 rvli_image *image_out);

/* Frees the content of an image. */
void rvli_image_free(rvli_image *image);

/* Look up by name. NULL: there is none. */
const rvli_kernel_entry *rvli_image_entry(const rvli_image *image, const char *name);
const rvli_variable *rvli_image_variable(const rvli_image *image, const char *name);

/* ---- For the readers of the forms ---- */

/* Whether all of it is mapped in this process: for an image with a size known only from its header.
 */
bool rvli_image_mapped(const void *addr, size_t size_bytes);

/* Add an entry, with a copy of a name of that length. NULL: out of host memory. */
rvli_kernel_entry *rvli_image_add_entry(rvli_image *image, const char *name, size_t length);
rvli_variable *rvli_image_add_variable(rvli_image *image, const char *name, size_t length);

/* Sorts both lists. Required before lookups. */
void rvli_image_sort(rvli_image *image);

rvli_image_error rvli_cubin_read(const void *bytes, size_t size_bytes, int major, int minor,
                                 rvli_image *image);
rvli_image_error rvli_ptx_read(const char *text, size_t length, int major, int minor,
                               rvli_image *image);

#endif
