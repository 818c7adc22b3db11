/* SPDX-License-Identifier: MIT */
/*
 * Files that are written whole: what lies under a name before, during and after, where links are
 * followed, and what is left where nameless files, space or permission are lacking.
 */
#include "tests/support/support.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file_limit.h"
#include "base/output.h"
#include "tests/support/folder.h"
#include "tests/support/no_files.h"
#include "reveille/trace.h"
#include "cli/output.h"

#define CHOSEN RVLI_OUTPUT_CHOSEN
#define GUESSABLE RVLI_OUTPUT_GUESSABLE
#define OTHER_USER 65534

static char path_text[PATH_MAX];

/* A path in the folder, until the next call. */
static const char *in_folder(const char *name)
{
    snprintf(path_text, sizeof path_text, "%s/%s", folder, name);
    return path_text;
}

static void put(int fd, const char *text)
{
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
}

static rvli_output begin(const char *name, rvli_output_name kind)
{
    rvli_output output;
    assert_int_equal(rvli_output_open(in_folder(name), kind, &output), RVL_OK);
    return output;
}

static void write_whole(const char *name, const char *text)
{
    rvli_output output = begin(name, CHOSEN);
    put(output.fd, text);
    assert_int_equal(rvli_output_publish(&output, true), RVL_OK);
    rvli_output_close(&output);
}

static void assert_holds(const char *name, const char *text)
{
    char held[256];
    folder_read(name, held, sizeof held);
    assert_string_equal(held, text);
}

static void assert_refused(const char *path, rvli_output_name kind, const char *number,
                           const char *says)
{
    rvli_output output;
    assert_int_equal(rvli_output_open(path, kind, &output), RVL_ERR_IO);
    assert_string_equal(rvli_error_get()->native_name, number);
    if (strstr(rvli_error_get()->message, says) == NULL)
        fail_msg("expected \"%s\" in \"%s\"", says, rvli_error_get()->message);
}

static mode_t mode_of(const char *name)
{
    struct stat facts;
    assert_int_equal(stat(in_folder(name), &facts), 0);
    return facts.st_mode & 07777;
}

/* What follows needs to make files of others. */
static void need_root(void)
{
    if (geteuid() == 0)
        return;
    print_message("SKIP: only root makes files of other users\n");
    skip();
}

/* Runs a part as another user, or without nameless files; what it leaves is for the test. */
static int in_child(void (*part)(void))
{
    int status;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        part();
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

#define NEED(condition)                                                                            \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                        \
            _exit(1);                                                                              \
        }                                                                                          \
    } while (0)

/* ---- Whole or not at all ---- */

static void appears_when_it_is_whole(void **state)
{
    (void)state;
    rvli_output output = begin("x", CHOSEN);
    put(output.fd, "new");
    assert_int_equal(folder_count(), 0);
    assert_int_equal(rvli_output_publish(&output, true), RVL_OK);
    assert_holds("x", "new");
    put(output.fd, "er");
    rvli_output_close(&output);
    assert_holds("x", "newer");
    assert_int_equal(folder_count(), 1);

    output = begin("x", CHOSEN);
    put(output.fd, "other");
    assert_holds("x", "newer");
    rvli_output_close(&output);
    assert_holds("x", "newer");
    write_whole("x", "other");
    assert_holds("x", "other");
    assert_int_equal(folder_count(), 1);
}

/* Between opening and naming somebody else may have made the file. */
static void replaces_what_came_meanwhile(void **state)
{
    (void)state;
    rvli_output output = begin("x", CHOSEN);
    put(output.fd, "ours");
    folder_write("x", "theirs");
    assert_int_equal(rvli_output_publish(&output, true), RVL_OK);
    rvli_output_close(&output);
    assert_holds("x", "ours");
    assert_int_equal(folder_count(), 1);
}

static void without_nameless_files(void)
{
    rvli_output output;
    NEED(no_nameless_files());
    NEED(rvli_output_open(in_folder("x"), CHOSEN, &output) == RVL_OK);
    NEED(strncmp(output.draft, ".x.", 3) == 0 &&
         strlen(output.draft) == strlen(".x.reveille-12345678"));
    NEED(folder_has(output.draft) && mode_of(output.draft) == 0640);
    NEED(write(output.fd, "named", 5) == 5 && rvli_output_publish(&output, true) == RVL_OK);
    rvli_output_close(&output);
    NEED(rvli_output_open(in_folder("x"), CHOSEN, &output) == RVL_OK);
    NEED(write(output.fd, "gone", 4) == 4);
    rvli_output_close(&output);
    char longest[NAME_MAX + 1];
    memset(longest, 'n', NAME_MAX);
    longest[NAME_MAX] = '\0';
    NEED(rvli_output_open(in_folder(longest), CHOSEN, &output) == RVL_OK);
    rvli_output_close(&output);
}

static void drafts_have_a_name_where_they_must(void **state)
{
    (void)state;
    folder_write("x", "old");
    assert_int_equal(chmod(in_folder("x"), 0640), 0);
    assert_int_equal(in_child(without_nameless_files), 0);
    assert_holds("x", "named");
    assert_int_equal(mode_of("x"), 0640);
    assert_int_equal(folder_count(), 1);
}

static void keeps_modes(void **state)
{
    (void)state;
    mode_t before = umask(027);
    write_whole("x", "new");
    assert_int_equal(mode_of("x"), 0640);
    assert_int_equal(chmod(in_folder("x"), 0606), 0);
    write_whole("x", "newer");
    assert_int_equal(mode_of("x"), 0606);
    assert_int_equal(chmod(in_folder("x"), 04711), 0);
    write_whole("x", "newest");
    assert_int_equal(mode_of("x"), 0711);
    umask(before);
}

static void keeps_owners(void **state)
{
    struct stat facts;
    (void)state;
    need_root();
    folder_write("x", "old");
    assert_int_equal(chown(in_folder("x"), OTHER_USER, OTHER_USER), 0);
    write_whole("x", "new");
    assert_int_equal(stat(in_folder("x"), &facts), 0);
    assert_int_equal(facts.st_uid, OTHER_USER);
    assert_int_equal(facts.st_gid, OTHER_USER);
}

/* ---- Links ---- */

static void follows_own_links(void **state)
{
    struct stat facts;
    (void)state;
    assert_int_equal(mkdir(in_folder("d"), 0700), 0);
    assert_int_equal(symlink("d/y", in_folder("second")), 0);
    assert_int_equal(symlink("second", in_folder("first")), 0);
    write_whole("first", "made");
    assert_holds("d/y", "made");
    write_whole("first", "replaced");
    assert_holds("d/y", "replaced");
    assert_int_equal(lstat(in_folder("first"), &facts), 0);
    assert_true(S_ISLNK(facts.st_mode));
    assert_int_equal(symlink("loop", in_folder("loop")), 0);
    assert_refused(in_folder("loop"), CHOSEN, "ELOOP", "name a file itself");
    assert_int_equal(folder_count(), 4);
}

static void refuses_links_of_others(void **state)
{
    (void)state;
    need_root();
    folder_write("victim", "old");
    assert_int_equal(symlink("victim", in_folder("x")), 0);
    assert_int_equal(lchown(in_folder("x"), OTHER_USER, OTHER_USER), 0);
    assert_refused(in_folder("x"), CHOSEN, "ELOOP", "/x: is a symbolic link of another user: name");
    assert_holds("victim", "old");
}

static void follows_no_link_of_a_name_that_can_be_guessed(void **state)
{
    (void)state;
    folder_write("victim", "old");
    assert_int_equal(symlink("victim", in_folder("x")), 0);
    assert_refused(in_folder("x"), GUESSABLE, "ELOOP", "/x: is a symbolic link where a new file");
    assert_holds("victim", "old");
    assert_int_equal(mkfifo(in_folder("fifo"), 0600), 0);
    assert_refused(in_folder("fifo"), GUESSABLE, "EINVAL", "is not a regular file: remove it");
    assert_refused(folder, GUESSABLE, "EISDIR", "Is a directory");
    rvli_output output = begin("victim", GUESSABLE);
    rvli_output_close(&output);
}

static void refuses_files_of_others_by_a_guessable_name(void **state)
{
    (void)state;
    need_root();
    folder_write("x", "theirs");
    assert_int_equal(chown(in_folder("x"), OTHER_USER, OTHER_USER), 0);
    assert_refused(in_folder("x"), GUESSABLE, "EPERM", "belongs to another user: remove it");
    assert_holds("x", "theirs");
}

/* ---- What is not a regular file ---- */

static void writes_directly(void **state)
{
    char byte, path[64];
    rvli_output output;
    int ends[2];
    (void)state;
    assert_int_equal(pipe(ends), 0);
    snprintf(path, sizeof path, "/dev/fd/%d", ends[1]);
    assert_int_equal(rvli_output_open(path, CHOSEN, &output), RVL_OK);
    put(output.fd, "p");
    assert_int_equal(rvli_output_publish(&output, true), RVL_OK);
    rvli_output_close(&output);
    assert_int_equal(read(ends[0], &byte, 1), 1);
    assert_int_equal(byte, 'p');
    close(ends[0]);
    close(ends[1]);
    assert_int_equal(rvli_output_open("/dev/null", CHOSEN, &output), RVL_OK);
    rvli_output_close(&output);
    assert_refused("/dev/null", GUESSABLE, "EINVAL", "is not a regular file");
}

/* As `>> x` has it: what is there stays, and both write on where the other ended. */
static void shares_an_open_descriptor(void **state)
{
    char path[64];
    rvli_output output;
    (void)state;
    folder_write("x", "old ");
    int file = open(in_folder("x"), O_WRONLY | O_APPEND);
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    assert_int_equal(rvli_output_open(path, CHOSEN, &output), RVL_OK);
    put(output.fd, "new ");
    put(file, "newer");
    rvli_output_close(&output);
    close(file);
    assert_holds("x", "old new newer");
    /* One that cannot be written is opened by its path. */
    file = open(in_folder("x"), O_RDONLY);
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    assert_int_equal(rvli_output_open(path, CHOSEN, &output), RVL_OK);
    put(output.fd, "OLD");
    rvli_output_close(&output);
    close(file);
    assert_holds("x", "OLD new newer");
}

/* ---- Failures ---- */

static void says_why_not(void **state)
{
    char longest[PATH_MAX + 8];
    (void)state;
    assert_refused(in_folder("none/x"), CHOSEN, "ENOENT",
                   "/none/x: No such file or directory: name a file in a directory that exists");
    assert_refused(folder, CHOSEN, "EISDIR", "Is a directory: name a file in it");
    assert_refused(in_folder("x/"), CHOSEN, "EISDIR", "Is a directory");
    assert_refused("/", CHOSEN, "EISDIR", "Is a directory");
    assert_refused("..", CHOSEN, "EISDIR", "Is a directory");
    assert_refused("", CHOSEN, "ENOENT", "No such file");
    folder_write("file", "");
    assert_refused(in_folder("file/x"), CHOSEN, "ENOTDIR", "Not a directory");
    memset(longest, 'n', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    assert_refused(longest, CHOSEN, "ENAMETOOLONG", "name a shorter one");
    longest[0] = '/';
    longest[PATH_MAX + 2] = '/';
    assert_refused(longest, CHOSEN, "ENAMETOOLONG", "name a shorter one");
    assert_int_equal(folder_count(), 1);
}

static void as_somebody_else(void)
{
    rvli_output output;
    NEED(setgroups(0, NULL) == 0 && setgid(OTHER_USER) == 0 && setuid(OTHER_USER) == 0);
    NEED(rvli_output_open(in_folder("read_only"), CHOSEN, &output) == RVL_ERR_IO);
    NEED(strcmp(rvli_error_get()->native_name, "EACCES") == 0);
    NEED(rvli_output_open(in_folder("new"), CHOSEN, &output) == RVL_ERR_IO);
    NEED(strcmp(rvli_error_get()->native_name, "EACCES") == 0);
    NEED(strstr(rvli_error_get()->message, "Permission denied: name a file that") != NULL);
    /* Root's link is followed, a third user's is not. */
    NEED(rvli_output_open(in_folder("open/of_root"), CHOSEN, &output) == RVL_OK);
    rvli_output_close(&output);
    NEED(rvli_output_open(in_folder("open/of_third"), CHOSEN, &output) == RVL_ERR_IO);
    NEED(strcmp(rvli_error_get()->native_name, "ELOOP") == 0);
    /* A file of root's that all may write keeps its group's rights from our group. */
    NEED(rvli_output_open(in_folder("open/shared"), CHOSEN, &output) == RVL_OK);
    NEED(rvli_output_publish(&output, true) == RVL_OK);
    rvli_output_close(&output);
}

static void asks_for_permission(void **state)
{
    (void)state;
    need_root();
    folder_write("read_only", "old");
    assert_int_equal(chmod(in_folder("read_only"), 0444), 0);
    assert_int_equal(chmod(folder, 0755), 0);
    assert_int_equal(mkdir(in_folder("open"), 0700), 0);
    assert_int_equal(chmod(in_folder("open"), 0777), 0);
    assert_int_equal(symlink("x", in_folder("open/of_root")), 0);
    assert_int_equal(symlink("x", in_folder("open/of_third")), 0);
    assert_int_equal(lchown(in_folder("open/of_third"), OTHER_USER - 1, OTHER_USER - 1), 0);
    folder_write("open/shared", "old");
    assert_int_equal(chmod(in_folder("open/shared"), 0666), 0);
    assert_int_equal(in_child(as_somebody_else), 0);
    assert_int_equal(mode_of("open/shared"), 0606);
    assert_holds("read_only", "old");
    assert_int_equal(folder_count(), 2);
}

static void on_a_full_disk(void)
{
    static char block[1 << 16];
    rvli_output output;
    if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount("none", in_folder("disk"), "tmpfs", 0, "size=32k") != 0)
        _exit(77);
    folder_write("disk/x", "old");
    NEED(rvli_output_open(in_folder("disk/x"), CHOSEN, &output) == RVL_OK);
    NEED(write(output.fd, block, sizeof block) < (ssize_t)sizeof block);
    NEED(write(output.fd, block, 1) == -1 && errno == ENOSPC);
    NEED(rvli_output_fail(&output, errno) == RVL_ERR_IO);
    NEED(strstr(rvli_error_get()->message, "No space left on device: free some") != NULL);
    rvli_output_close(&output);
    char held[8];
    folder_read("disk/x", held, sizeof held);
    NEED(strcmp(held, "old") == 0);
    /* What was taken has been given back. */
    NEED(rvli_output_open(in_folder("disk/x"), CHOSEN, &output) == RVL_OK);
    NEED(write(output.fd, block, 16384) == 16384);
    NEED(rvli_output_publish(&output, true) == RVL_OK);
    rvli_output_close(&output);
}

static void a_full_disk_keeps_the_old_file(void **state)
{
    (void)state;
    assert_int_equal(mkdir(in_folder("disk"), 0700), 0);
    int status = in_child(on_a_full_disk);
    if (status == 77) {
        print_message("SKIP: a small file system cannot be mounted here\n");
        skip();
    }
    assert_int_equal(status, 0);
}

/* ---- Each call that fails ---- */

/* errno's values; 0: the call is made. */
static struct {
    int fsync, linkat, renameat, getrandom, access;
    bool dies; /* when a draft has got its name */
} fails;

#define FAILING(type, name, parameters, arguments)                                                 \
    type __real_##name parameters;                                                                 \
    type __wrap_##name parameters;                                                                 \
    type __wrap_##name parameters                                                                  \
    {                                                                                              \
        if (fails.dies && strcmp(#name, "renameat") == 0)                                          \
            raise(SIGKILL);                                                                        \
        if (fails.name == 0)                                                                       \
            return __real_##name arguments;                                                        \
        errno = fails.name;                                                                        \
        return -1;                                                                                 \
    }

FAILING(int, fsync, (int fd), (fd))
FAILING(int, linkat, (int from, const char *old, int to, const char *new, int flags),
        (from, old, to, new, flags))
FAILING(int, renameat, (int from, const char *old, int to, const char *new), (from, old, to, new))
FAILING(ssize_t, getrandom, (void *bytes, size_t size, unsigned flags), (bytes, size, flags))
FAILING(int, access, (const char *path, int mode), (path, mode))

/* Killed between the two calls by which a draft replaces a file. */
static void dies_while_it_replaces(void)
{
    rvli_output output;
    NEED(rvli_output_open(in_folder("x"), CHOSEN, &output) == RVL_OK);
    NEED(write(output.fd, "new", 3) == 3);
    fails.dies = true;
    (void)rvli_output_publish(&output, true);
    NEED(false);
}

static void what_a_kill_has_left_goes_with_the_next(void **state)
{
    static const char *const others[] = {".x.reveille-1234567",  ".x.reveille-123456789",
                                         ".x.reveille-1234567A", ".y.reveille-12345678",
                                         ".x.reveille-87654321", ".x.reveille-abcdefgh"};
    (void)state;
    folder_write("x", "old");
    assert_int_equal(in_child(dies_while_it_replaces), -SIGKILL);
    assert_holds("x", "old");
    assert_int_equal(folder_count(), 2);
    for (size_t i = 0; i < 5; i++)
        folder_write(others[i], "other");
    assert_int_equal(symlink("x", in_folder(others[5])), 0);
    int locked = open(in_folder(others[4]), O_RDONLY); /* by a process that replaces it now */
    assert_int_equal(flock(locked, LOCK_EX | LOCK_NB), 0);
    assert_int_equal(folder_count(), 8);
    rvli_output output = begin("x", CHOSEN);
    rvli_output_close(&output);
    assert_int_equal(folder_count(), 7);
    for (size_t i = 0; i < 6; i++)
        assert_true(folder_has(others[i]));
    close(locked);
    write_whole("x", "new");
    assert_holds("x", "new");
    assert_false(folder_has(others[4]));
    for (size_t i = 0; i < 6; i++)
        (void)unlink(in_folder(others[i]));
    assert_int_equal(folder_count(), 1);
}

static void publish_fails(const char *number, const char *says)
{
    rvli_output output = begin("x", CHOSEN);
    put(output.fd, "new");
    assert_int_equal(rvli_output_publish(&output, true), RVL_ERR_IO);
    assert_string_equal(rvli_error_get()->native_name, number);
    if (strstr(rvli_error_get()->message, says) == NULL)
        fail_msg("expected \"%s\" in \"%s\"", says, rvli_error_get()->message);
    rvli_output_close(&output);
    memset(&fails, 0, sizeof fails);
}

static void a_call_that_fails_keeps_the_old_file(void **state)
{
    (void)state;
    fails.linkat = EACCES;
    publish_fails("EACCES", "Permission denied");
    assert_int_equal(folder_count(), 0);
    folder_write("x", "old");
    fails.fsync = EIO;
    publish_fails("EIO", "/x: Input/output error");
    fails.fsync = EDQUOT;
    publish_fails("EDQUOT", "Disk quota exceeded: free some");
    fails.linkat = EEXIST; /* each name that is tried */
    publish_fails("EEXIST", "File exists");
    fails.getrandom = ENOSYS;
    publish_fails("ENOSYS", "Function not implemented");
    fails.renameat = EBUSY;
    publish_fails("EBUSY", "is a mount point, which cannot be replaced: name a file in a mounted");
    assert_holds("x", "old");
    assert_int_equal(folder_count(), 1);
    fails.fsync = EINVAL; /* a file system that cannot */
    write_whole("x", "new");
    memset(&fails, 0, sizeof fails);
    assert_holds("x", "new");
    /* Without /proc a nameless file could get no name. */
    fails.access = ENOENT;
    rvli_output output = begin("x", CHOSEN);
    memset(&fails, 0, sizeof fails);
    assert_int_equal(output.draft[0], '.');
    assert_true(folder_has(output.draft));
    rvli_output_close(&output);
    fails.access = ENOENT;
    fails.getrandom = EIO;
    assert_refused(in_folder("x"), CHOSEN, "EIO", "Input/output error");
    memset(&fails, 0, sizeof fails);
    assert_int_equal(folder_count(), 1);
}

/* ---- The command's files ---- */

static bool no_stream;

FILE *__real_fdopen(int fd, const char *mode);
FILE *__wrap_fdopen(int fd, const char *mode);
FILE *__wrap_fdopen(int fd, const char *mode)
{
    errno = ENOMEM;
    return no_stream ? NULL : __real_fdopen(fd, mode);
}

static void without_memory(void)
{
    output_file file;
    struct sigaction now;
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s", in_folder("x"));
    NEED(no_nameless_files());
    no_stream = true;
    NEED(output_open(path, &file) == 1);
    NEED(folder_count() == 1);
    NEED(sigaction(SIGTERM, NULL, &now) == 0 && now.sa_handler == SIG_DFL);
    no_stream = false;
    NEED(signal(SIGHUP, SIG_IGN) == SIG_DFL); /* as nohup has it */
    NEED(output_open(path, &file) == 0);
    NEED(folder_count() == 2);
    NEED(sigaction(SIGTERM, NULL, &now) == 0 && now.sa_handler != SIG_DFL);
    NEED(sigaction(SIGHUP, NULL, &now) == 0 && now.sa_handler == SIG_IGN);
    NEED(output_finish(&file, false) == 1); /* what was to be written took too much memory */
    NEED(folder_count() == 1);
    NEED(sigaction(SIGTERM, NULL, &now) == 0 && now.sa_handler == SIG_DFL);
}

static void too_little_memory_leaves_no_draft(void **state)
{
    (void)state;
    folder_write("x", "old");
    assert_int_equal(in_child(without_memory), 0);
    assert_holds("x", "old");
    assert_int_equal(folder_count(), 1);
}

/* ---- Traces ---- */

static rvl_trace_device trace_device = {.capacity_bytes = GIB, .granularity_bytes = 4096};
static const rvl_trace_header trace_header = {.struct_size = sizeof trace_header,
                                              .devices = &trace_device,
                                              .device_count = 1,
                                              .device_size = sizeof trace_device};

static void traces_appear_whole_or_with_their_header(void **state)
{
    rvl_trace_writer *writer;
    char text[256];
    (void)state;
    folder_write("x", "old");
    assert_int_equal(rvl_trace_writer_open_draft(in_folder("x"), &trace_header, &writer), RVL_OK);
    assert_int_equal(rvl_trace_writer_flush(writer), RVL_OK);
    assert_holds("x", "old");
    rvl_trace_writer_discard(writer);
    assert_holds("x", "old");
    assert_int_equal(rvl_trace_writer_open_draft(in_folder("x"), &trace_header, &writer), RVL_OK);
    assert_int_equal(rvl_trace_writer_close(writer), RVL_OK);
    folder_read("x", text, sizeof text);
    assert_non_null(strstr(text, "reveille-trace 1.0\n"));
    assert_non_null(strstr(text, "\nend 0\n"));
    assert_int_equal(rvl_trace_writer_open(in_folder("y"), &trace_header, &writer), RVL_OK);
    folder_read("y", text, sizeof text);
    assert_non_null(strstr(text, "\ndevice 0 "));
    rvl_trace_writer_discard(writer);
    folder_read("y", text, sizeof text);
    assert_null(strstr(text, "\nend 0\n"));
    rvl_trace_writer_discard(NULL);
    assert_int_equal(folder_count(), 2);
}

/* ---- ulimit -f ---- */

static void limit(rlim_t size_bytes)
{
    struct rlimit limits;
    NEED(getrlimit(RLIMIT_FSIZE, &limits) == 0);
    limits.rlim_cur = size_bytes;
    NEED(setrlimit(RLIMIT_FSIZE, &limits) == 0);
}

static void limited_files(void)
{
    limit(100);
    NEED(rvli_file_may_have(100) && !rvli_file_may_have(101));
    int file = open(in_folder("x"), O_RDWR | O_CREAT, 0600);
    NEED(rvli_file_may_take(file, 100) && !rvli_file_may_take(file, 101));
    NEED(write(file, "0123456789", 10) == 10);
    NEED(rvli_file_may_take(file, 90) && !rvli_file_may_take(file, 91));
    NEED(lseek(file, 200, SEEK_SET) == 200 && !rvli_file_may_take(file, 1));
    NEED(fcntl(file, F_SETFL, O_APPEND) == 0);
    NEED(rvli_file_may_take(file, 90) && !rvli_file_may_take(file, 91));
    int ends[2];
    NEED(pipe(ends) == 0 && rvli_file_may_take(ends[1], 1000));
}

static void limited_trace(void)
{
    rvl_trace_device device = {.capacity_bytes = GIB, .granularity_bytes = 4096};
    rvl_trace_header header = {.struct_size = sizeof header,
                               .devices = &device,
                               .device_count = 1,
                               .device_size = sizeof device};
    const rvl_trace_event stage = {.kind = RVL_EVENT_STAGE, .process = "engine", .name = "a stage"};
    rvl_trace_writer *writer;
    limit(16384);
    NEED(rvl_trace_writer_open_draft(in_folder("x"), &header, &writer) == RVL_OK);
    NEED(rvl_trace_writer_add_process(writer, "engine", 0) == RVL_OK);
    for (int i = 0; i < 1000; i++)
        NEED(rvl_trace_writer_add_event(writer, &stage, sizeof stage) == RVL_OK);
    NEED(rvl_trace_writer_close(writer) == RVL_ERR_IO);
    NEED(strcmp(rvli_error_get()->native_name, "EFBIG") == 0);
}

static void limited_device(void)
{
    const rvl_sim_options sim = {.struct_size = sizeof sim, .memory = RVL_SIM_BACKED};
    const rvl_context_options options = {.struct_size = sizeof options, .backend_options = &sim};
    rvl_context *context;
    rvl_addr addr;
    NEED(rvl_context_open("sim", &options, &context) == RVL_OK);
    limit(RLIM_INFINITY - 1);
    rvl_context *second;
    NEED(rvl_context_open("sim", &options, &second) == RVL_OK); /* longer than any file */
    NEED(rvl_context_close(second, NULL) == RVL_OK);
    limit(GIB);
    NEED(rvl_context_open("sim", &options, &second) == RVL_ERR_IO);
    NEED(strcmp(rvli_error_get()->native_name, "EFBIG") == 0);
    NEED(strstr(rvli_error_get()->message, "lift ulimit -f") != NULL);
    limit(1);
    rvl_alloc_options small = {.struct_size = sizeof small, .tag = "t"};
    NEED(rvl_alloc(context, GRANULE, &small, &addr) == RVL_ERR_IO);
    limit(RLIM_INFINITY);
    NEED(rvl_alloc(context, GRANULE, &small, &addr) == RVL_OK);
    NEED(rvl_context_close(context, NULL) == RVL_OK);
}

/* The kernel's own answer to each of these is a signal that ends the process. */
static void the_limit_of_size_is_no_signal(void **state)
{
    (void)state;
    assert_int_equal(in_child(limited_files), 0);
    assert_int_equal(unlink(in_folder("x")), 0);
    assert_int_equal(in_child(limited_trace), 0);
    assert_int_equal(in_child(limited_device), 0);
    assert_int_equal(folder_count(), 0);
}

/* ---- One file by two names ---- */

static bool is_same(const char *left, const char *right)
{
    char first[PATH_MAX];
    snprintf(first, sizeof first, "%s", in_folder(left));
    return rvli_output_is_same(first, in_folder(right));
}

static void knows_one_file_by_two_names(void **state)
{
    char target[PATH_MAX];
    (void)state;
    folder_write("x", "");
    folder_write("other", "");
    assert_int_equal(mkdir(in_folder("d"), 0700), 0);
    snprintf(target, sizeof target, "%s", in_folder("x"));
    assert_int_equal(link(target, in_folder("hard")), 0);
    assert_int_equal(symlink(target, in_folder("d/soft")), 0);
    assert_int_equal(symlink("../new", in_folder("d/dangling")), 0);
    assert_true(is_same("x", "x"));
    assert_true(is_same("x", "d/../x"));
    assert_true(is_same("x", "hard"));
    assert_true(is_same("d/soft", "hard"));
    assert_true(is_same("new", "./new"));
    assert_true(is_same("new", "d/dangling"));
    assert_false(is_same("x", "other"));
    assert_false(is_same("x", "new"));
    assert_false(is_same("new", "d/new"));
    assert_false(is_same("none/x", "none/x"));
    assert_false(rvli_output_is_same("/dev/null", "/dev/null"));
    if (geteuid() == 0) {
        assert_int_equal(lchown(in_folder("d/soft"), OTHER_USER, OTHER_USER), 0);
        assert_true(is_same("x", "d/soft"));
    }
}

static int clear(void **state)
{
    (void)state;
    char line[PATH_MAX + 64];
    snprintf(line, sizeof line, "find %s -mindepth 1 -delete", folder);
    return system(line);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_teardown(name, clear)
    const struct CMUnitTest tests[] = {
        TEST(appears_when_it_is_whole),
        TEST(replaces_what_came_meanwhile),
        TEST(drafts_have_a_name_where_they_must),
        TEST(keeps_modes),
        TEST(keeps_owners),
        TEST(follows_own_links),
        TEST(refuses_links_of_others),
        TEST(follows_no_link_of_a_name_that_can_be_guessed),
        TEST(refuses_files_of_others_by_a_guessable_name),
        TEST(writes_directly),
        TEST(shares_an_open_descriptor),
        TEST(says_why_not),
        TEST(asks_for_permission),
        TEST(a_full_disk_keeps_the_old_file),
        TEST(a_call_that_fails_keeps_the_old_file),
        TEST(what_a_kill_has_left_goes_with_the_next),
        TEST(too_little_memory_leaves_no_draft),
        TEST(traces_appear_whole_or_with_their_header),
        TEST(the_limit_of_size_is_no_signal),
        TEST(knows_one_file_by_two_names),
    };
    return cmocka_run_group_tests(tests, folder_make, folder_remove_empty);
}
