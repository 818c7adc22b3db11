/* SPDX-License-Identifier: MIT */
/* A folder of the test's own under /tmp, and the files in it. What goes wrong fails the test. */
#ifndef RVL_TESTS_SUPPORT_FOLDER_H
#define RVL_TESTS_SUPPORT_FOLDER_H

#include <stdbool.h>
#include <stddef.h>

/* Its path, once it is made. */
extern char folder[];

/* For cmocka_run_group_tests(): one makes it, another removes it with all that is in it. */
int folder_make(void **state);
int folder_remove(void **state);

/* Instead of folder_remove(), where the tests are to leave nothing: fails if there is anything. */
int folder_remove_empty(void **state);

void folder_write(const char *name, const char *text);
void folder_write_bytes(const char *name, const void *bytes, size_t size);

/* The whole text of a file of less than `size` bytes. */
void folder_read(const char *name, char *text_out, size_t size);

bool folder_has(const char *name);

/* How many files there are, hidden ones included. */
size_t folder_count(void);

#endif
