/* SPDX-License-Identifier: MIT */
/*
 * Leads the loader to the simulated libraries, through LD_AUDIT. If this library's own folder
 * contains a file with the requested name, the loader takes that file. The way of the search
 * does not matter: by name, by path, through RPATH, or in a program after its launcher has replaced
 * LD_PRELOAD. Python wheels carry copies with a digest in the name, libcudart.faf08d9a.so.13 or
 * libcudart-faf08d9a.so.13. Both lead to libcudart.so.13.
 */
#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DIGEST_DIGITS 8 /* hexadecimal, written by auditwheel */

static char path[PATH_MAX]; /* the loader copies it before the next request */
static size_t folder_length;

/* Valgrind replaces malloc() of the program's C library, but free() of this library's C library. */
static void refuse_valgrind(void)
{
    static const char words[] =
        "reveille: valgrind aborts in programs that the loader audits: name it as the command, as "
        "in `reveille run -- valgrind PROGRAM`, which starts the program in another way\n";
    const char *preload = getenv("LD_PRELOAD");
    if (preload == NULL || strstr(preload, "/vgpreload_") == NULL)
        return;
    (void)!write(STDERR_FILENO, words, sizeof words - 1);
    _exit(127);
}

unsigned la_version(unsigned version)
{
    Dl_info here;
    refuse_valgrind();
    if (dladdr((void *)(uintptr_t)la_version, &here) != 0 && here.dli_fname != NULL) {
        const char *slash = strrchr(here.dli_fname, '/');
        size_t length = slash != NULL ? (size_t)(slash + 1 - here.dli_fname) : 0;
        if (length < sizeof path) {
            memcpy(path, here.dli_fname, length);
            folder_length = length;
        }
    }
    return version < LAV_CURRENT ? version : LAV_CURRENT;
}

/* Replaces isxdigit(), which reads a table. This library has a C library separate from the
 * program's, and that has not set up the table for the program's threads. */
static bool is_digit(char character)
{
    return character != '\0' && strchr("0123456789abcdefABCDEF", character) != NULL;
}

/* Writes the name without a wheel's digest. false: it has no digest, or there is no room. */
static bool plain_name(const char *file, char *to, size_t room)
{
    const char *end = strstr(file, ".so");
    size_t digits = 0;
    while (end != NULL && end > file + digits && is_digit(end[-1 - (long)digits]))
        digits++;
    const char *mark = end != NULL ? end - digits - 1 : file;
    if (digits != DIGEST_DIGITS || mark <= file || (*mark != '.' && *mark != '-'))
        return false;
    int length = snprintf(to, room, "%.*s%s", (int)(mark - file), file, end);
    return length > 0 && (size_t)length < room;
}

/*
 * The loader asks first about the name as given (LA_SER_ORIG), then about each candidate path. A
 * name with a digest is replaced only at the candidate paths: the loader records a library under
 * the name in the request, and a program that needs versioned symbols from that name must find a
 * library of that name.
 */
char *la_objsearch(const char *name, uintptr_t *cookie, unsigned flag)
{
    (void)cookie;
    const char *slash = strrchr(name, '/');
    const char *file = slash != NULL ? slash + 1 : name;
    char *own = path + folder_length;
    size_t room = sizeof path - folder_length;
    /* After a match, the loader asks about our own path. Only libraries are ever asked for. */
    if (folder_length == 0 || strncmp(file, "lib", 3) != 0 || strlen(file) >= room)
        return (char *)(uintptr_t)name;
    bool digest = plain_name(file, own, room);
    if (!digest)
        memcpy(own, file, strlen(file) + 1);
    bool asked = digest ? slash != NULL : flag == LA_SER_ORIG;
    return asked && access(path, R_OK) == 0 ? path : (char *)(uintptr_t)name;
}
