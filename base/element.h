/* SPDX-License-Identifier: MIT */
/*
 * Elements: public structs without a struct_size, since they travel in arrays or by the million.
 * Their size is said once, beside them, and is the step from one to the next.
 *
 * They grow at their end, as all public structs do. Of an element of the caller's the fields that
 * it lacks read as zero, and those that only it has must be zero. Into an array of the caller's no
 * more is written than its elements have room for, and what only they have becomes zero.
 */
#ifndef RVL_BASE_ELEMENT_H
#define RVL_BASE_ELEMENT_H

#include <stdalign.h>

#include "reveille/status.h"

/* Larger ones belong to nobody: the caller left the size out, or gave another. */
#define RVLI_ELEMENT_BYTES_MAX 4096u

typedef struct rvli_element {
    const char *type;   /* "rvl_holder": the size beside it is called holder_size */
    size_t first_bytes; /* of the version that had it first: no caller has less */
    size_t known_bytes; /* of this version */
    size_t align_bytes;
} rvli_element;

/* last: the last field that the struct's first version had. It stays when the struct grows. */
#define RVLI_ELEMENT(name, last)                                                                   \
    (&(const rvli_element){.type = #name,                                                          \
                           .first_bytes = offsetof(name, last) + sizeof(((name *)0)->last),        \
                           .known_bytes = sizeof(name),                                            \
                           .align_bytes = alignof(name)})

/* An array of the caller's that results are written to. */
typedef struct rvli_elements_out {
    const rvli_element *element;
    void *array;
    size_t size;     /* of an element, as the caller says */
    size_t capacity; /* in elements */
} rvli_elements_out;

/* Whether a caller's element can have this size. RVL_ERR_INVALID if not. */
rvl_status rvli_element_check(const rvli_element *element, size_t size);

/*
 * Copies a caller's element of a size that was checked to *known_out. RVL_ERR_VERSION if it has
 * more than is known here and that is not zero; *known_out is then what is known of it.
 */
rvl_status rvli_element_read(const rvli_element *element, void *known_out, const void *user,
                             size_t size);

/* The same for the element of an index. */
rvl_status rvli_element_read_at(const rvli_element *element, void *known_out, const void *array,
                                size_t size, size_t index);

/* Copies *known to a caller's element of a size that was checked. */
void rvli_element_write(const rvli_element *element, void *user_out, size_t size,
                        const void *known);

/*
 * Whether there is a place for the number of elements, and an array for what is to be written, if
 * anything is: with capacity 0 neither it nor the size is looked at. RVL_ERR_INVALID if not.
 */
rvl_status rvli_elements_check(const rvli_elements_out *out, const size_t *count_out);

/* Writes the element of an index, if there is room for it. */
void rvli_elements_put(const rvli_elements_out *out, size_t index, const void *known);

/* Checks, writes as many as there is room for, and tells how many there are. */
rvl_status rvli_elements_fill(const rvli_elements_out *out, const void *known, size_t count,
                              size_t *count_out);

#endif
