/* SPDX-License-Identifier: MIT */
#include "base/output.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/error.h"
#include "base/text.h"

#define LINKS_MAX 40 /* the kernel's limit */
#define DRAFT_TRIES 100
#define DRAFT_SIGN ".reveille-"
#define DRAFT_RANDOM 8 /* letters and digits */

/* ---- Errors ---- */

static rvl_status refuse(const char *path, int number, const char *why)
{
    char message[sizeof(((rvl_error *)NULL)->message)];
    rvli_text text = rvli_text_begin(message, sizeof message - strlen(why) - 2);
    rvli_text_add(&text, path);
    text.size = sizeof message;
    rvli_text_add(&text, ": ");
    rvli_text_add(&text, why);
    rvli_error(RVL_ERR_IO, message);
    rvli_error_errno(number);
    return RVL_ERR_IO;
}

static rvl_status refuse_by_number(const char *path, int number)
{
    char text[64];
    switch (number) {
    case ENOENT:
        return refuse(path, number,
                      "No such file or directory: name a file in a directory that "
                      "exists");
    case EACCES:
    case EPERM:
        return refuse(path, number,
                      "Permission denied: name a file that you may write, in a "
                      "directory that you may write to");
    case EISDIR:
        return refuse(path, number, "Is a directory: name a file in it");
    case ENAMETOOLONG:
        return refuse(path, number, "File name too long: name a shorter one");
    case ENOSPC:
        return refuse(path, number,
                      "No space left on device: free some, or name a file on "
                      "another disk");
    case EDQUOT:
        return refuse(path, number,
                      "Disk quota exceeded: free some, or name a file on another "
                      "disk");
    case EFBIG:
        return refuse(path, number, "File too large: raise ulimit -f");
    case ELOOP:
        return refuse(path, number, "Too many levels of symbolic links: name a file itself");
    case EBUSY:
        return refuse(path, number,
                      "is a mount point, which cannot be replaced: name a file in a "
                      "mounted directory");
    default:
        return refuse(path, number, strerror_r(number, text, sizeof text));
    }
}

/* ---- Resolving a path ---- */

typedef struct place {
    int folder; /* O_PATH; -1: none yet */
    char name[NAME_MAX + 1];
    bool exists;
    bool descriptor; /* a procfs link, which names an open file instead of a path */
    struct stat facts;
    const char *why; /* reason for a refusal; NULL: see errno */
} place;

/* Opens the folder of a path, relative to the previous folder. */
static bool enter(place *at, const char *path)
{
    const char *slash = strrchr(path, '/');
    const char *name = slash != NULL ? slash + 1 : path;
    size_t length = slash != NULL ? (size_t)(slash - path) + 1 : 0;
    char folder[PATH_MAX];
    if (path[0] == '\0' || length >= sizeof folder || strlen(name) > NAME_MAX) {
        errno = path[0] == '\0' ? ENOENT : ENAMETOOLONG;
        return false;
    }
    if (name[0] == '\0' || strcmp(name, ".") == 0 || strcmp(name, "..") == 0) {
        errno = EISDIR;
        return false;
    }
    memcpy(folder, path, length);
    folder[length] = '\0';
    int from = at->folder >= 0 ? at->folder : AT_FDCWD;
    int entered = openat(from, length > 0 ? folder : ".", O_PATH | O_DIRECTORY | O_CLOEXEC);
    int number = errno;
    if (at->folder >= 0)
        close(at->folder);
    at->folder = entered;
    memcpy(at->name, name, strlen(name) + 1);
    errno = number;
    return entered >= 0;
}

static bool is_of_procfs(int fd)
{
    struct statfs facts;
    return fstatfs(fd, &facts) == 0 && facts.f_type == PROC_SUPER_MAGIC;
}

/*
 * Returns whether a link may be followed, and sets `why` if not. name NULL: nothing will be
 * written, so any link may.
 */
static bool is_trusted(place *at, const rvli_output_name *name)
{
    if (name == NULL)
        return true;
    if (*name == RVLI_OUTPUT_GUESSABLE)
        at->why = "is a symbolic link where a new file is expected: remove it";
    else if (at->facts.st_uid != geteuid() && at->facts.st_uid != 0)
        at->why = "is a symbolic link of another user: name the file that is meant, or remove it";
    errno = ELOOP;
    return at->why == NULL;
}

/* Examines the file of this name. *link_out: the target of a link, or "". */
static bool look(place *at, const rvli_output_name *name, char link_out[PATH_MAX])
{
    link_out[0] = '\0';
    int found = openat(at->folder, at->name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    at->exists = found >= 0;
    if (found < 0)
        return errno == ENOENT;
    bool good = fstat(found, &at->facts) == 0;
    if (good && S_ISLNK(at->facts.st_mode)) {
        at->descriptor = is_of_procfs(found);
        if (at->descriptor) {
            good = fstatat(at->folder, at->name, &at->facts, 0) == 0;
        } else if ((good = is_trusted(at, name))) {
            ssize_t length = readlinkat(found, "", link_out, PATH_MAX - 1);
            good = length >= 0;
            link_out[good ? length : 0] = '\0';
        }
    }
    int number = errno;
    close(found);
    errno = number;
    return good;
}

static void leave(place *at)
{
    int number = errno;
    if (at->folder >= 0)
        close(at->folder);
    at->folder = -1;
    errno = number;
}

/*
 * Follows links by hand, because the owner of each must be checked. False: errno is set, and
 * perhaps `why`.
 */
static bool find(const char *path, const rvli_output_name *name, place *at)
{
    char link[PATH_MAX];
    *at = (place){.folder = -1};
    for (int links = 0; links <= LINKS_MAX; links++) {
        if (!enter(at, path) || !look(at, name, link)) {
            leave(at);
            return false;
        }
        if (link[0] == '\0')
            return true;
        path = link;
    }
    leave(at);
    errno = ELOOP;
    return false;
}

/* ---- Writing directly ---- */

/* Returns the number of the writable descriptor of this process that is this file, or -1. */
static int descriptor_of(const place *at)
{
    struct stat facts;
    char *end;
    long number = strtol(at->name, &end, 10);
    if (!isdigit((unsigned char)at->name[0]) || *end != '\0' || number > INT_MAX ||
        fstat((int)number, &facts) != 0 || facts.st_dev != at->facts.st_dev ||
        facts.st_ino != at->facts.st_ino || (fcntl((int)number, F_GETFL) & O_ACCMODE) == O_RDONLY)
        return -1;
    return (int)number;
}

/*
 * Duplicates a descriptor of this process, so that both share an offset. Never truncates: the code
 * that opened the descriptor has decided that.
 */
static int open_directly(const place *at)
{
    int number = at->descriptor ? descriptor_of(at) : -1;
    if (number >= 0)
        return fcntl(number, F_DUPFD_CLOEXEC, 0);
    int follow = at->descriptor ? 0 : O_NOFOLLOW;
    return openat(at->folder, at->name, O_WRONLY | O_NOCTTY | O_CLOEXEC | follow);
}

/* ---- Drafts ---- */

static const char draft_signs[] = "abcdefghijklmnopqrstuvwxyz0123456789";

/* Writes the common prefix of all drafts of a file. Returns its length in bytes. */
static size_t draft_prefix(const char *name, char prefix_out[NAME_MAX + 1])
{
    rvli_text text =
        rvli_text_begin(prefix_out, NAME_MAX + 1 - DRAFT_RANDOM - (sizeof DRAFT_SIGN - 1));
    rvli_text_add(&text, ".");
    rvli_text_add(&text, name);
    text.size = NAME_MAX + 1;
    rvli_text_add(&text, DRAFT_SIGN);
    return strlen(prefix_out);
}

/* Sets the draft's name: ".NAME.reveille-XXXXXXXX" */
static bool name_draft(rvli_output *output)
{
    unsigned char bytes[DRAFT_RANDOM];
    if (getrandom(bytes, sizeof bytes, 0) != (ssize_t)sizeof bytes)
        return false;
    char *random = output->draft + draft_prefix(output->name, output->draft);
    for (size_t i = 0; i < DRAFT_RANDOM; i++)
        random[i] = draft_signs[bytes[i] % (sizeof draft_signs - 1)];
    random[DRAFT_RANDOM] = '\0';
    return true;
}

static int make_draft(const rvli_output *output, mode_t mode)
{
    return openat(output->folder, output->draft,
                  O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
}

void rvli_output_path(const rvli_output *output, char path[RVLI_OUTPUT_PATH_BYTES])
{
    rvli_text text = rvli_text_begin(path, RVLI_OUTPUT_PATH_BYTES);
    rvli_text_add(&text, "/proc/self/fd/");
    rvli_text_add_u64(&text, (uint64_t)output->fd);
}

static int link_draft(const rvli_output *output, const char *name)
{
    char path[RVLI_OUTPUT_PATH_BYTES];
    rvli_output_path(output, path);
    return linkat(AT_FDCWD, path, output->folder, name, AT_SYMLINK_FOLLOW);
}

/* Creates a draft under a new name, or gives a nameless draft a new name. */
static bool make_named(rvli_output *output, mode_t mode)
{
    for (int i = 0; i < DRAFT_TRIES && name_draft(output); i++) {
        int made = output->fd < 0 ? make_draft(output, mode) : link_draft(output, output->draft);
        if (made >= 0) {
            output->fd = output->fd < 0 ? made : output->fd;
            return true;
        }
        if (errno != EEXIST)
            break;
    }
    output->draft[0] = '\0';
    return false;
}

/* Creates a nameless draft. Requires /proc, by which it is given a name later. */
static bool make_nameless(rvli_output *output, mode_t mode)
{
    char path[RVLI_OUTPUT_PATH_BYTES];
    output->fd = openat(output->folder, ".", O_TMPFILE | O_WRONLY | O_CLOEXEC, mode);
    if (output->fd < 0)
        return false;
    rvli_output_path(output, path);
    if (access(path, F_OK) == 0)
        return true;
    close(output->fd);
    output->fd = -1;
    errno = EOPNOTSUPP;
    return false;
}

/* EISDIR: the kernel does not know O_TMPFILE. */
static bool lacks_nameless(int number)
{
    return number == EOPNOTSUPP || number == EISDIR || number == EINVAL;
}

/* Gives the draft the old file's owner and mode, and never more rights than those. */
static void keep_rights(const rvli_output *output, const struct stat *old)
{
    mode_t mode = old->st_mode & (S_IRWXU | S_IRWXG | S_IRWXO);
    if (fchown(output->fd, old->st_uid, old->st_gid) != 0 &&
        fchown(output->fd, (uid_t)-1, old->st_gid) != 0)
        mode &= ~(mode_t)S_IRWXG;   /* the group differs, so its rights do not apply */
    (void)fchmod(output->fd, mode); /* fails on a file system without modes, where there is nothing
                                       to preserve */
}

/* ---- Drafts of killed processes ---- */

/* A nameless draft is locked while it has a name of its own. So one without a lock is abandoned. */
static void lock_draft(const rvli_output *output)
{
    (void)flock(output->fd, LOCK_EX | LOCK_NB);
}

static void remove_if_left(int folder, const char *name)
{
    struct stat facts;
    int fd = openat(folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return;
    if (fstat(fd, &facts) == 0 && S_ISREG(facts.st_mode) && facts.st_uid == geteuid() &&
        flock(fd, LOCK_EX | LOCK_NB) == 0)
        unlinkat(folder, name, 0);
    close(fd);
}

/*
 * Removes drafts that killed processes left while a nameless draft had a name. They exist only on
 * file systems with nameless files. Those are local, so their locks work.
 */
static void remove_left(const rvli_output *output)
{
    char prefix[NAME_MAX + 1];
    size_t length = draft_prefix(output->name, prefix);
    int fd = openat(output->folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *folder = fd >= 0 ? fdopendir(fd) : NULL;
    if (folder == NULL && fd >= 0)
        close(fd);
    for (struct dirent *each; folder != NULL && (each = readdir(folder)) != NULL;)
        if (strncmp(each->d_name, prefix, length) == 0 &&
            strspn(each->d_name + length, draft_signs) == DRAFT_RANDOM &&
            each->d_name[length + DRAFT_RANDOM] == '\0')
            remove_if_left(output->folder, each->d_name);
    if (folder != NULL)
        closedir(folder);
}

static bool open_draft(const place *at, rvli_output *output)
{
    mode_t mode = at->exists ? S_IRUSR | S_IWUSR : 0666;
    memcpy(output->name, at->name, sizeof output->name);
    if (!make_nameless(output, mode) && (!lacks_nameless(errno) || !make_named(output, mode)))
        return false;
    if (at->exists && output->draft[0] == '\0')
        remove_left(output);
    if (at->exists)
        keep_rights(output, &at->facts);
    return true;
}

/* ---- Opening ---- */

/* Returns whether the existing file may be replaced. False: errno is set, and perhaps `why`. */
static bool may_replace(place *at, rvli_output_name name)
{
    if (name == RVLI_OUTPUT_GUESSABLE && at->facts.st_uid != geteuid()) {
        at->why = "belongs to another user: remove it, or name another file";
        errno = EPERM;
        return false;
    }
    return faccessat(at->folder, at->name, W_OK, AT_EACCESS) == 0;
}

static bool open_place(place *at, rvli_output_name name, rvli_output *output)
{
    if (at->exists && S_ISDIR(at->facts.st_mode)) {
        errno = EISDIR;
        return false;
    }
    bool direct = at->exists && (at->descriptor || !S_ISREG(at->facts.st_mode));
    if (direct && name == RVLI_OUTPUT_GUESSABLE) {
        at->why = "is not a regular file: remove it, or name another";
        errno = EINVAL;
        return false;
    }
    if (direct) {
        output->fd = open_directly(at);
        return output->fd >= 0;
    }
    if (at->exists && !may_replace(at, name))
        return false;
    output->folder = at->folder;
    output->replaces = at->exists;
    if (!open_draft(at, output))
        return false;
    at->folder = -1;
    return true;
}

rvl_status rvli_output_open(const char *path, rvli_output_name name, rvli_output *output_out)
{
    place at;
    rvli_output output = {.fd = -1, .folder = -1};
    rvli_text_copy(output.path, sizeof output.path, path);
    bool opened = find(path, &name, &at) && open_place(&at, name, &output);
    int number = errno;
    leave(&at);
    if (!opened)
        return at.why != NULL ? refuse(path, number, at.why) : refuse_by_number(path, number);
    *output_out = output;
    return RVL_OK;
}

/* ---- Publishing and closing ---- */

void rvli_output_remove_draft(const rvli_output *output)
{
    if (output->draft[0] != '\0')
        unlinkat(output->folder, output->draft, 0);
}

static bool take_name(rvli_output *output)
{
    if (output->draft[0] == '\0' && !output->replaces && link_draft(output, output->name) == 0)
        return true;
    lock_draft(output);
    if (output->draft[0] == '\0' && !make_named(output, 0))
        return false;
    if (renameat(output->folder, output->draft, output->folder, output->name) == 0) {
        output->draft[0] = '\0';
        (void)flock(output->fd, LOCK_UN);
        return true;
    }
    int number = errno;
    rvli_output_remove_draft(output);
    output->draft[0] = '\0';
    errno = number;
    return false;
}

/* Blocks signals, so that a fatal one cannot leave the draft with two names. */
static bool take_name_at_once(rvli_output *output)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    bool taken = take_name(output);
    int number = errno;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    errno = number;
    return taken;
}

/* The content is already safe. A folder that cannot be read cannot be synced. */
static void sync_folder(int folder)
{
    int fd = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return;
    fsync(fd);
    close(fd);
}

rvl_status rvli_output_fail(const rvli_output *output, int number)
{
    return refuse_by_number(output->path, number);
}

rvl_status rvli_output_publish(rvli_output *output, bool sync)
{
    if (output->folder < 0)
        return RVL_OK;
    /* EINVAL: the file system cannot sync. */
    bool good = !sync || fsync(output->fd) == 0 || errno == EINVAL;
    good = good && take_name_at_once(output);
    if (!good)
        return rvli_output_fail(output, errno);
    if (sync)
        sync_folder(output->folder);
    close(output->folder);
    output->folder = -1;
    return RVL_OK;
}

void rvli_output_close(rvli_output *output)
{
    if (output->folder >= 0) {
        rvli_output_remove_draft(output);
        close(output->folder);
    }
    if (output->fd >= 0)
        close(output->fd);
    output->fd = -1;
    output->folder = -1;
}

/* ---- Comparing two paths ---- */

static bool is_same_place(const place *left, const place *right)
{
    struct stat a, b;
    if (left->exists != right->exists)
        return false;
    if (left->exists)
        return left->facts.st_dev == right->facts.st_dev &&
               left->facts.st_ino == right->facts.st_ino && !S_ISCHR(left->facts.st_mode);
    return fstat(left->folder, &a) == 0 && fstat(right->folder, &b) == 0 && a.st_dev == b.st_dev &&
           a.st_ino == b.st_ino && strcmp(left->name, right->name) == 0;
}

bool rvli_output_is_same(const char *left, const char *right)
{
    place a, b;
    bool found = find(left, NULL, &a);
    bool same = found && find(right, NULL, &b);
    if (same) {
        same = is_same_place(&a, &b);
        leave(&b);
    }
    leave(&a);
    return same;
}
