/* SPDX-License-Identifier: MIT */
/* Recognizes by its first bytes a file that another command can read. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "command.h"

#define HEAD_BYTES 64

/* Reads the first bytes and adds a NUL. Regular files only: reading a pipe would consume it. */
static size_t read_head(const char *path, char head[HEAD_BYTES])
{
    struct stat facts;
    ssize_t size = 0;
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file >= 0 && fstat(file, &facts) == 0 && S_ISREG(facts.st_mode))
        size = read(file, head, HEAD_BYTES - 1);
    if (file >= 0)
        close(file);
    head[size > 0 ? size : 0] = '\0';
    return size > 0 ? (size_t)size : 0;
}

static bool begins(const char *head, size_t size, const char *with, size_t length)
{
    return size >= length && memcmp(head, with, length) == 0;
}

void kinds_hint(const char *path)
{
    char head[HEAD_BYTES];
    size_t size = read_head(path, head);
    const char *is = NULL;
    if (begins(head, size, "reveille-trace ", 15) || begins(head, size, "\x28\xb5\x2f\xfd", 4))
        is = "It is a trace, or compressed as one: try `reveille replay %s`.\n";
    else if (begins(head, size, "\x80", 1) || begins(head, size, "\x1f\x8b", 2))
        is = "It may be a PyTorch snapshot: try `reveille snapshot %s`, or end its name in .pickle "
             "or .pickle.gz.\n";
    else if (begins(head, size, "{\"schema\":", 10))
        is = "It may be a result that `--json` wrote: `reveille compare` reads two of them, as in "
             "`reveille compare old.json %s`.\n";
    char *name = is != NULL ? printable(path) : NULL;
    if (name != NULL)
        fprintf(stderr, is, name);
    free(name);
}
