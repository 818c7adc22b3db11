/* SPDX-License-Identifier: MIT */
/*
 * What an image of device code says: which kernels it has, what each needs of a multiprocessor, and
 * which variables. Three forms are read: a cubin (ELF, cubin.c), PTX (text, ptx.c), and a fat
 * binary that holds several of both, of which the one for the device is taken. Nothing is compiled,
 * so what PTX needs in registers is assumed (RVLI_REGISTERS_ASSUMED). Parts that are compressed by
 * zstd, as compilers of CUDA 13 do, are expanded; those of older ones are not.
 *
 * No header of CUDA is needed here. An image is a stranger's: every offset in it is checked against
 * its size, or against the end that its own header names where the size is not known.
 */
#ifndef RVL_SIMCUDA_IMAGE_H
#define RVL_SIMCUDA_IMAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Of a kernel of which nothing else is known. So few bound nothing: 2048 threads have room. */
#define RVLI_REGISTERS_ASSUMED 32

typedef enum rvli_image_error {
    RVLI_IMAGE_OK,
    RVLI_IMAGE_INVALID,     /* no image, or one that is broken */
    RVLI_IMAGE_OTHER_CARD,  /* it has no code for this device */
    RVLI_IMAGE_BAD_PTX,     /* text that is not PTX, or is for a later device */
    RVLI_IMAGE_NEW_PTX,     /* of a version that came after the driver */
    RVLI_IMAGE_OUT_OF_HOST, /* no host memory */
} rvli_image_error;

/* A kernel. */
typedef struct rvli_kernel_entry {
    char *name;
    unsigned registers;      /* a thread */
    unsigned shared_bytes;   /* a block, static */
    unsigned local_bytes;    /* a thread: its stack */
    unsigned constant_bytes; /* of the image's constant variables */
    unsigned argument_bytes; /* of a launch */
    unsigned threads_most;   /* a block, as the code says; 0: it does not */
    unsigned required[3];    /* shape of a block, as the code says; 0: it does not */
    unsigned ptx_version;    /* of the text; 0: it is machine code */
    uint64_t code_bytes;     /* of machine code; 0: not known */
    uint64_t symbol;         /* its number in a cubin */
} rvli_kernel_entry;

typedef struct rvli_variable {
    char *name;
    size_t size_bytes;
    void *initial; /* size_bytes; NULL: zeroes */
    bool unread;   /* it begins with what was not read */
} rvli_variable;

typedef struct rvli_image {
    rvli_kernel_entry *entries; /* by name */
    size_t entry_count;
    rvli_variable *variables; /* by name */
    size_t variable_count;
    size_t code_bytes;     /* of machine code; 0: not known */
    unsigned version;      /* of the architecture that it was made for: 90 */
    uint64_t global_bytes; /* of its variables in global memory */
    bool asserts;          /* its code calls the driver's function behind assert() */
    bool sealed;           /* compressed in a way that is not read: any name is in it */
} rvli_image;

/*
 * Reads an image for a device of compute capability major.minor. size_bytes: SIZE_MAX where it is
 * not known. A failure leaves *image_out as it was.
 */
rvli_image_error rvli_image_read(const void *image, size_t size_bytes, int major, int minor,
                                 rvli_image *image_out);

/* Frees what an image holds. */
void rvli_image_free(rvli_image *image);

/* By name; NULL: there is none. */
const rvli_kernel_entry *rvli_image_entry(const rvli_image *image, const char *name);
const rvli_variable *rvli_image_variable(const rvli_image *image, const char *name);

/* ---- For the readers of the forms ---- */

/* Whether all of it is memory of this process: for an image of a size that only it names. */
bool rvli_image_mapped(const void *addr, size_t size_bytes);

/* Adds one, with a copy of a name of so many characters. NULL: no host memory. */
rvli_kernel_entry *rvli_image_add_entry(rvli_image *image, const char *name, size_t length);
rvli_variable *rvli_image_add_variable(rvli_image *image, const char *name, size_t length);

/* Puts both lists into order: before anything is looked up. */
void rvli_image_sort(rvli_image *image);

rvli_image_error rvli_cubin_read(const void *bytes, size_t size_bytes, int major, int minor,
                                 rvli_image *image);
rvli_image_error rvli_ptx_read(const char *text, size_t length, int major, int minor,
                               rvli_image *image);

#endif
