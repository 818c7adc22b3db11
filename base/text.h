/* SPDX-License-Identifier: MIT */
/*
 * Bounded text: building short messages in a fixed buffer without vsnprintf (which may allocate).
 */
#ifndef RVL_BASE_TEXT_H
#define RVL_BASE_TEXT_H

#include <stddef.h>
#include <stdint.h>

/* A buffer being filled. It is always NUL-terminated, and text that does not fit is cut. */
typedef struct rvli_text {
    char *data;
    size_t size;   /* of the buffer */
    size_t length; /* without the NUL */
} rvli_text;

rvli_text rvli_text_begin(char *buffer, size_t size);
void rvli_text_add(rvli_text *text, const char *string);
void rvli_text_add_u64(rvli_text *text, uint64_t value);
/* Adds "94.2 GiB", or "512 B" below 10 KiB. */
void rvli_text_add_bytes(rvli_text *text, uint64_t bytes);

/* Copies string to a buffer of size bytes, cut to fit and NUL-terminated. */
void rvli_text_copy(char *buffer, size_t size, const char *string);

#endif
