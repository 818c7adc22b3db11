/* SPDX-License-Identifier: MIT */
#include "folder.h"

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define PATH_BYTES 256

char folder[] = "/tmp/reveille-test-XXXXXX";

int folder_make(void **state)
{
    (void)state;
    return mkdtemp(folder) != NULL ? 0 : -1;
}

int folder_remove(void **state)
{
    char line[64];
    (void)state;
    snprintf(line, sizeof line, "rm -r %s", folder);
    return system(line);
}

int folder_remove_empty(void **state)
{
    (void)state;
    return rmdir(folder);
}

static FILE *open_file(const char *name, const char *mode)
{
    char path[PATH_BYTES];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, mode);
    assert_non_null(file);
    return file;
}

void folder_write_bytes(const char *name, const void *bytes, size_t size)
{
    FILE *file = open_file(name, "w");
    assert_int_equal(fwrite(bytes, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
}

void folder_write(const char *name, const char *text)
{
    folder_write_bytes(name, text, strlen(text));
}

void folder_read(const char *name, char *text_out, size_t size)
{
    FILE *file = open_file(name, "r");
    size_t length = fread(text_out, 1, size, file);
    assert_true(length < size);
    text_out[length] = '\0';
    fclose(file);
}

bool folder_has(const char *name)
{
    char path[PATH_BYTES];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return access(path, F_OK) == 0;
}

size_t folder_count(void)
{
    size_t count = 0;
    DIR *entries = opendir(folder);
    assert_non_null(entries);
    for (const struct dirent *each; (each = readdir(entries)) != NULL;)
        count += strcmp(each->d_name, ".") != 0 && strcmp(each->d_name, "..") != 0;
    closedir(entries);
    return count;
}
