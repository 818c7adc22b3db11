/* SPDX-License-Identifier: MIT */
/*
 * Elements: public structs without a struct_size, because they travel in arrays or by the million.
 * The caller passes their size once, next to the array; it is also the stride of the array.
 *
 * Elements grow at their end, as all public structs do. When reading a caller's element, fields
 * that it lacks read as zero, and fields that only the caller knows must be zero. When writing to a
 * caller's array, each element receives no more than it has room for, and fields that only the
 * caller knows become zero.
 */
#ifndef RVL_BASE_ELEMENT_H
#define RVL_BASE_ELEMENT_H

#include <stdalign.h>

#include "reveille/status.h"

/*
 * Upper bound for a valid size. A larger one means that the caller did not set it, or set another
 * value.
 */
#define RVLI_ELEMENT_BYTES_MAX 4096u

typedef struct rvli_element {
    const char *type;   /* such as "rvl_holder", with the size argument holder_size */
    size_t first_bytes; /* size in the first version of the struct: no caller has less */
    size_t known_bytes; /* size in this version */
    size_t align_bytes;
} rvli_element;

/* last: the last field in the struct's first version. Do not change it when the struct grows. */
#define RVLI_ELEMENT(name, last)                                                                   \
    (&(const rvli_element){.type = #name,                                                          \
                           .first_bytes = offsetof(name, last) + sizeof(((name *)0)->last),        \
                           .known_bytes = sizeof(name),                                            \
                           .align_bytes = alignof(name)})

/* A caller's array that receives results. */
typedef struct rvli_elements_out {
    const rvli_element *element;
    void *array;
    size_t size;     /* of one element, as the caller passed it */
    size_t capacity; /* in elements */
} rvli_elements_out;

/* Checks that a caller's element can have this size. RVL_ERR_INVALID if not. */
rvl_status rvli_element_check(const rvli_element *element, size_t size);

/*
 * Copies a caller's element to *known_out. The size must have been checked. RVL_ERR_VERSION if
 * fields that this version does not know are not zero; *known_out then still receives the known
 * fields.
 */
rvl_status rvli_element_read(const rvli_element *element, void *known_out, const void *user,
                             size_t size);

/* Like rvli_element_read(), for the element at an index of an array. */
rvl_status rvli_element_read_at(const rvli_element *element, void *known_out, const void *array,
                                size_t size, size_t index);

/* Copies *known to a caller's element. The size must have been checked. */
void rvli_element_write(const rvli_element *element, void *user_out, size_t size,
                        const void *known);

/*
 * Checks that count_out is set and, unless capacity is 0, that the array and the size are valid.
 * With capacity 0, neither is looked at. RVL_ERR_INVALID if not.
 */
rvl_status rvli_elements_check(const rvli_elements_out *out, const size_t *count_out);

/* Writes the element at an index, if the array has room for it. */
void rvli_elements_put(const rvli_elements_out *out, size_t index, const void *known);

/* Checks, writes the elements that fit, and stores the full count in *count_out. */
rvl_status rvli_elements_fill(const rvli_elements_out *out, const void *known, size_t count,
                              size_t *count_out);

#endif
