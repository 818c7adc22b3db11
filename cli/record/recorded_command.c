/* SPDX-License-Identifier: MIT */
/*
 * Finds the command to record. The loader silently ignores the preload library if a program is
 * statically linked or has more rights than its caller. So we check this first.
 */
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "command.h"
#include "output.h"
#include "record.h"

#define LIBRARY "libreveille-preload.so"
#define HEAD_BYTES 4096
#define BY_SIGNAL 128

/* ---- Library ---- */

static bool readable(const char *path)
{
    return access(path, R_OK) == 0;
}

bool record_make_listable(char path[PATH_MAX], const char *barred)
{
    char folder[PATH_MAX], file[NAME_MAX + 1];
    if (strpbrk(path, barred) == NULL)
        return true;
    snprintf(folder, sizeof folder, "%s", path);
    char *slash = strrchr(folder, '/');
    snprintf(file, sizeof file, "%s", slash + 1);
    slash[1] = '\0';
    int held =
        open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC); /* kept open until this process ends */
    if (held < 0)
        complain(0, "%s cannot be opened: %s", folder, strerror(errno));
    else
        snprintf(path, PATH_MAX, "/proc/%ld/fd/%d/%s", (long)getpid(), held, file);
    return held >= 0;
}

#define PRELOAD_BARRED " :"

bool record_find_library(char path[PATH_MAX])
{
    /* Relative to the command: in an installation, and in the build tree. */
    static const char *const places[] = {RVL_LIBRARIES_FROM_COMMAND, "../lib", "../lib64", ".."};
    const char *named = getenv("RVL_PRELOAD");
    char own[PATH_MAX], candidate[PATH_MAX + 64];
    if (named != NULL && named[0] != '\0') {
        if (realpath(named, path) != NULL && readable(path))
            return record_make_listable(path, PRELOAD_BARRED);
        complain(0, "RVL_PRELOAD names %s, which cannot be read: %s", named, strerror(errno));
        return false;
    }
    ssize_t length = readlink("/proc/self/exe", own, sizeof own - 1);
    own[length > 0 ? length : 0] = '\0';
    char *slash = strrchr(own, '/');
    for (size_t i = 0; slash != NULL && i < sizeof places / sizeof *places; i++) {
        *slash = '\0';
        snprintf(candidate, sizeof candidate, "%s/%s/" LIBRARY, own, places[i]);
        if (realpath(candidate, path) != NULL && readable(path))
            return record_make_listable(path, PRELOAD_BARRED);
    }
    complain(0, "there is no " LIBRARY " beside this command: install it, or name it in "
                "RVL_PRELOAD. A build without CUDA's headers has none: scripts/cuda-headers in the "
                "sources brings them");
    return false;
}

/* ---- Command ---- */

static bool refuse(const char *path, const char *why)
{
    complain(0, "%s %s", path, why);
    return false;
}

/* Whether the file requests a loader, which then loads the library. */
static bool has_interpreter(int file, const Elf64_Ehdr *header)
{
    for (unsigned i = 0; i < header->e_phnum; i++) {
        Elf64_Phdr part;
        off_t at = (off_t)(header->e_phoff + (uint64_t)i * header->e_phentsize);
        if (pread(file, &part, sizeof part, at) == (ssize_t)sizeof part && part.p_type == PT_INTERP)
            return true;
    }
    return false;
}

static bool check_program(const char *path, int depth);

/* Checks the interpreter that follows "#!". */
static bool check_script(const char *path, char *head, int depth)
{
    char *program = head + 2 + strspn(head + 2, " \t");
    program[strcspn(program, " \t\n")] = '\0';
    return depth > 0 ? refuse(path, "is a script, and its interpreter is a script, too: name the "
                                    "program itself")
                     : check_program(program, depth + 1);
}

static bool check_head(const char *path, int file, char *head, size_t length, int depth)
{
    Elf64_Ehdr header;
    if (length > 2 && head[0] == '#' && head[1] == '!')
        return check_script(path, head, depth);
    if (length < sizeof header || memcmp(head, ELFMAG, SELFMAG) != 0)
        return refuse(path, "is neither a program nor a script with #!: name what runs it");
    memcpy(&header, head, sizeof header);
    if (header.e_ident[EI_CLASS] != ELFCLASS64)
        return refuse(path, "is not a 64-bit program, and the preload library is for those");
    if (!has_interpreter(file, &header))
        return refuse(path, "is statically linked: nothing can be loaded into it. Link it "
                            "dynamically, or record the process that calls CUDA");
    return true;
}

static bool has_more_rights(const char *path, const struct stat *facts)
{
    return ((facts->st_mode & S_ISUID) != 0 && facts->st_uid != getuid()) ||
           ((facts->st_mode & S_ISGID) != 0 && facts->st_gid != getgid()) ||
           (getuid() != 0 && getxattr(path, "security.capability", NULL, 0) > 0);
}

static bool check_program(const char *path, int depth)
{
    char head[HEAD_BYTES + 1];
    struct stat facts;
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return errno != EACCES ? refuse(path, strerror(errno))
                               : true; /* a program can be executable and not readable */
    ssize_t length = fstat(file, &facts) == 0 ? read(file, head, HEAD_BYTES) : -1;
    head[length > 0 ? length : 0] = '\0';
    bool good = length > 0
                    ? check_head(path, file, head, (size_t)length, depth)
                    : refuse(path, "is neither a program nor a script with #!: name what runs it");
    close(file);
    if (good && has_more_rights(path, &facts))
        return refuse(path, "runs with more rights than its caller (setuid, setgid or "
                            "capabilities): the loader lets no library in. Run it as its owner");
    return good;
}

static bool executable(const char *path)
{
    struct stat facts;
    return stat(path, &facts) == 0 && S_ISREG(facts.st_mode) && access(path, X_OK) == 0;
}

static bool search(const char *name, char path[PATH_MAX])
{
    const char *list = getenv("PATH");
    list = list != NULL ? list : "/usr/local/bin:/usr/bin:/bin";
    while (list != NULL) {
        const char *end = strchrnul(list, ':');
        int written = snprintf(path, PATH_MAX, "%.*s%s%s", (int)(end - list), list,
                               end > list ? "/" : "", name);
        if (written > 0 && written < PATH_MAX && executable(path))
            return true;
        list = *end == ':' ? end + 1 : NULL;
    }
    return false;
}

static bool refuse_path(const char *path)
{
    struct stat facts;
    if (stat(path, &facts) != 0)
        return refuse(path, errno == ENOENT ? "does not exist" : strerror(errno));
    return refuse(path, S_ISDIR(facts.st_mode)
                            ? "is a directory: name the program itself"
                            : "may not be executed: chmod +x makes it a program, or name what "
                              "runs it before it, such as python");
}

bool record_find_command(const char *name, char path[PATH_MAX])
{
    if (strchr(name, '/') == NULL && !search(name, path))
        return refuse(name, "is not found in PATH: check its spelling");
    if (strchr(name, '/') != NULL) {
        if (strlen(name) >= PATH_MAX)
            return refuse(name, "is too long a path");
        snprintf(path, PATH_MAX, "%s", name);
        if (!executable(path))
            return refuse_path(name);
    }
    return check_program(path, 0);
}

/* ---- Environment, output and exit status ---- */

bool record_add_path(const char *variable, const char *path, bool in_front)
{
    const char *before = getenv(variable);
    char *list = NULL;
    if (before == NULL || before[0] == '\0')
        return setenv(variable, path, 1) == 0;
    if (asprintf(&list, "%s:%s", in_front ? path : before, in_front ? before : path) < 0)
        return false;
    bool good = setenv(variable, list, 1) == 0;
    free(list);
    return good;
}

bool record_good_injection(void)
{
    const char *taken = getenv("NVTX_INJECTION64_PATH");
    if (taken == NULL || taken[0] == '\0')
        return true;
    complain(0, "--stages: NVTX_INJECTION64_PATH is set to %s, and NVTX serves one tool: unset it",
             taken);
    return false;
}

bool record_good_output(const char *output, const char *program, char **command)
{
    const output_name written = {"-o", output};
    bool good = outputs_check_input(&written, 1, program) == 0;
    for (char **word = command + 1; good && *word != NULL; word++)
        good = outputs_check_input(&written, 1, *word) == 0;
    return good;
}

int record_exit_status(int status)
{
    return WIFSIGNALED(status) ? BY_SIGNAL + WTERMSIG(status) : WEXITSTATUS(status);
}
